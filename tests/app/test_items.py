"""`holdfast items` as a user types it: results, quarantine, changes of the list, and what is refused at the start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.kinds.items.lists import keyed
from holdfast.kinds.mission.brief.audit import audit
from holdfast.service.briefs import brief_of, logs_below
from tests.app.families import until
from tests.app.terminal import PRICE, Type, ended, spawn

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 3}}, "required": ["n"]}


def submits(output: Any) -> list[Mapping[str, Any]]:
    """Turns that submit an output, and stop."""
    return [{"tool_calls": [{"name": "submit_output", "input": {"output": output}}]}, {"text": "done"}]


def write(path: str, *records: Mapping[str, Any]) -> None:
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))


def model(turns: Any, *cases: Mapping[str, Any]) -> tuple[str, ...]:
    """A scripted model."""
    Path("script.json").write_text(json.dumps({"turns": turns, "cases": cases}))
    return ("--model", "scripted:script.json", "--no-tools")


def results(path: str = "results.jsonl") -> dict[str, Any]:
    """The output by key."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    found = {line["key"]: line["result"] for line in lines}
    assert len(found) == len(lines)
    return found


def test_results_are_checked_audited_and_reduced_and_the_list_changes(type: Type) -> None:
    write("list.jsonl", *({"id": name} for name in ("a", "b", "bad")))
    Path("schema.json").write_text(json.dumps(SCHEMA))
    given = model(
        submits({"n": 3}),
        {"contains": "You audit", "turns": submits({"ok": True, "why": "right"})},
        {"contains": "Do bad", "turns": submits({"n": 4})},
        {"contains": "Sum up", "turns": [{"text": "all in all"}]},
    )
    words = ("items", "run", "list.jsonl", "--each", "Do {id}.", "--key", "id", *given, "--session-id", "r")
    options = ("--schema", "schema.json", "--audit", "100%", "--reduce", "Sum up.", "--tries", "1")
    type(*words, *options, "--max-quarantine", "50%").went()
    assert results() == {"a": {"n": 3}, "b": {"n": 3}}
    (shown,) = type("items", "show", "r", "--json").went().lines
    assert (shown["done"], shown["quarantined"], shown["audited"], shown["refused"]) == (2, 1, 2, 0)
    assert "4 is not a multiple of 3" in shown["quarantine"][0]["reason"]
    assert "reduced: all in all" in type("logs", "r").out

    write("more.jsonl", {"id": "c"}, {"id": "a"})
    type("items", "add", "r", "more.jsonl").refused(2, "the run has these items already: a")
    type("items", "remove", "r", "nothing").refused(2, "the run has no such items: nothing")
    write("more.jsonl", {"id": "c"})
    type("items", "add", "r", "more.jsonl").went()
    type("items", "remove", "r", "b").went()
    type("items", "retry", "r", "--quarantined").went()
    model(submits({"n": 6}), {"contains": "You audit", "turns": submits({"ok": True, "why": "right"})})
    type("wake", "r").went()
    assert results() == {"a": {"n": 3}, "c": {"n": 6}, "bad": {"n": 6}}


def test_a_list_of_a_command_is_checked_and_reduced_in_the_sandbox(type: Type) -> None:
    given = (*model([{"text": "fine"}, {"text": "good"}]), "--no-sandbox")
    each = (
        "items",
        "run",
        "--each",
        "Do {line}.",
        "--check",
        "grep -q good",
        "--reduce-command",
        "wc -l < results.jsonl",
    )
    type(*each, *given, "--session-id", "r", "--", "printf 'a\\nb\\n'").went()
    assert list(results().values()) == ["good", "good"]
    assert "reduced: 2" in type("logs", "r").out


def test_a_run_above_its_quarantine_asks_and_keeps_its_results(type: Type) -> None:
    write("list.jsonl", *({"id": name} for name in ("a", "b", "c", "d")))
    given = model([{"text": "fine"}], {"contains": "Do b", "turns": [{"text": "no", "error": "refusal"}]})
    words = ("items", "run", "list.jsonl", "--each", "Do {id}.", "--key", "id", *given, "--tries", "1")
    said = type(*words, "--workers", "1", "--session-id", "r").went(3)
    assert "1 of 4 items are quarantined" in said.err
    assert results() == {"a": "fine", "c": "fine"}  # which began when the outcome of b was recorded
    (item,) = (line for line in type("inbox", "--json").went().lines if line.get("kind") == "escalation")
    type("approve", item["item_id"]).went()
    type("wake", "r").went()
    assert results() == {"a": "fine", "c": "fine", "d": "fine"}


def test_an_items_file_names_the_list_and_options_override_it(type: Type) -> None:
    Path("job").mkdir()
    write("job/list.jsonl", {"id": "a"}, {"id": "b"})
    Path("job/items.toml").write_text(
        'list = "list.jsonl"\neach = "Do {id}."\nkey = "id"\nbatch = 2\nout = "out.jsonl"\n'
    )
    given = model(submits([{"key": "a", "result": "A"}, {"key": "b", "result": "B"}]))
    type("items", "run", "job/items.toml", *given).went()
    assert results("job/out.jsonl") == {"a": "A", "b": "B"}
    for text, why in (
        ("lits = 'x'", "lits"),
        ("workers = 'x'", "workers"),
        ("out = '/etc/x'", "below its folder"),
        ("context = 'old'", "fresh or rolling"),
    ):
        Path("items.toml").write_text(text)
        type("items", "run", "items.toml", *given).refused(2, why)


def test_whatever_is_wrong_is_found_before_the_start(type: Type, holdfast_home: Path) -> None:
    write("list.jsonl", {"id": "a"})
    write("twice.jsonl", {"id": "a"}, {"id": "a"})
    Path("half.jsonl").write_text('{"id": "a"}\n{"id"')
    Path("odd.jsonl").write_bytes(b'{"id": "\xff"}\n')
    Path("never.json").write_text('{"type": "integer", "minimum": 2, "maximum": 1}')
    Path("there.jsonl").write_text("mine")
    Path("folder").mkdir()
    given = (*model([{"text": "fine"}]), "--key", "id")
    for words, why in (
        (("list.jsonl",), "--each is missing"),
        (("twice.jsonl", "--each", "Do {id}."), "items 1 and 2 have the key 'a'"),
        (("half.jsonl", "--each", "Do {id}."), "line 2 (its last line"),
        (("odd.jsonl", "--each", "Do {id}."), "line 1 has bytes that are not UTF-8"),
        (("list.jsonl", "--each", "Do {name}."), "the prompt names {name}"),
        (("list.jsonl", "--each", "Do {id}.", "--schema", "never.json"), "no result can meet the schema"),
        (("list.jsonl", "--each", "Do {id}.", "--out", "there.jsonl"), "exists"),
        (("list.jsonl", "--each", "Do {id}.", "--out", "none/there.jsonl"), "cannot be written"),
        (("list.jsonl", "--each", "Do {id}.", "--out", "folder"), "is a folder"),
        (("list.jsonl", "--each", "Do {id}.", "--max-quarantine", "x"), "not a share"),
        (("none.jsonl", "--each", "Do {id}."), "cannot be read"),
        (("'*.none'", "--each", "Do {id}."), "no file matches"),
    ):
        type("items", "run", *words, *given).refused(2, why)
    assert type("ps", "--all", "--json").lines == []
    assert Path("there.jsonl").read_text() == "mine"
    assert not Path("results.jsonl").exists()


def test_an_output_that_cannot_be_written_any_more_loses_nothing(type: Type) -> None:
    Path("out").mkdir()
    write("list.jsonl", {"id": "a"})
    words = ("items", "run", "list.jsonl", "--each", "Do {id}.", *model([{"text": "fine"}]), "--session-id", "r")
    type(*words, "--out", "out/results.jsonl").went()
    Path("out").rename("gone")
    write("more.jsonl", {"id": "b"})
    type("items", "add", "r", "more.jsonl").went()
    assert "cannot be written" in type("wake", "r").err
    Path("out").symlink_to("gone")  # a link in its place is not followed
    assert "cannot be written" in type("wake", "r").err
    Path("out").unlink()
    Path("gone").rename("out")
    Path("out/results.jsonl").write_text('{"key": "torn')  # not as the last checkpoint left it: it is made again
    type("wake", "r").went()
    assert len(results("out/results.jsonl")) == 2
    assert not list(Path("out").glob(".*"))


def test_the_brief_of_a_run_begins_with_the_decision_and_has_each_quarantined_item(
    type: Type, holdfast_home: Path
) -> None:
    """Quarantined items whose reasons a user needs are there; failed tries are only counted. The log agrees."""
    write("list.jsonl", *({"id": f"i{number}"} for number in range(30)))
    Path("script.json").write_text(
        json.dumps({"price": PRICE, "turns": [{"text": "fine"}], "cases": [
            {"contains": f"Do i{number}.", "turns": [{"text": "no", "error": "refusal"}]} for number in range(17, 30)
        ]})
    )  # fmt: skip
    words = ("items", "run", "list.jsonl", "--each", "Do {id}.", "--key", "id", "--model", "scripted:script.json")
    type(*words, "--no-tools", "--tries", "1", "--max-quarantine", "40%", "--workers", "1", "--session-id", "r").went(3)
    told = type("brief", "r").went().out
    assert told.count("\n") <= 40
    places = [
        told.index(part)
        for part in (
            "## Decisions",
            "holdfast items retry r --quarantined",
            "## Status",
            "17 of 30 items done, 13 quarantined, 0 left; 13 tries failed",
            "the forecast of the time was off by",
            "17 results in ",
            "## Problems",
            "i17: the model refused (1 try)",
            "and 3 more: `holdfast items show r`",
            "## Cost",
        )
    ]
    assert places == sorted(places)
    assert "sessions below that failed" not in told
    told = type("inbox").out
    assert [line for line in told.splitlines() if line.startswith(("NEEDS", "ERRORS", "FINISHED"))] == [
        "NEEDS YOU (1)",
        "ERRORS (0)",
        "FINISHED (0)",
    ]
    anyio.run(agrees, holdfast_home)


async def agrees(home: Path) -> None:
    async with open_runtime(Settings(home=str(home))) as runtime:
        row = await runtime.store.find("r")
        told = await brief_of(runtime.store, runtime.kinds, runtime.shelf, row)
        events, below = await runtime.store.read(row.session_id), await logs_below(runtime.store, row)
        assert audit(told, events, below) == []
        wrong = msgspec.structs.replace(told, numbers={**told.numbers, "items_done": 18})
        assert audit(wrong, events, below) == ["items_done: the brief says 18, the log 17"]


def test_a_result_without_a_key_field_says_which_item_of_the_list_it_is_about(type: Type) -> None:
    """The position stays when an item is changed; an item that was added later has none."""
    write("list.jsonl", {"id": "a"}, {"id": "b"}, {"id": "c"})
    given = model([{"text": "fine"}])
    type("items", "run", "list.jsonl", "--each", "Do {id}.", *given, "--session-id", "r").went()
    write("more.jsonl", {"id": "d"})
    type("items", "add", "r", "more.jsonl").went()
    write("list.jsonl", {"id": "b"})
    type("items", "add", "r", "list.jsonl", "--replace").went()
    type("wake", "r").went()
    lines = [json.loads(line) for line in Path("results.jsonl").read_text().splitlines()]
    keys = [item.key for item in keyed([{"id": name} for name in "abcd"], "", "")]
    assert {line["key"]: line["index"] for line in lines} == dict(zip(keys, (0, 1, 2, None), strict=True))
    assert "[4 of 4 items done]" in type("ps").out


@pytest.mark.real
def test_pausing_a_run_rests_its_sessions_after_their_call_and_repeats_none(
    type: Type, tmp_path: Path, holdfast_home: Path
) -> None:
    write("list.jsonl", *({"id": name} for name in ("a", "b", "c")))
    command = f"echo called >> calls; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    turns = [{"tool_calls": [{"name": "bash", "input": {"command": command}}]}, {"text": "fine"}]
    name, model_name, _ = model(turns)
    words = ("items", "run", "list.jsonl", "--each", "Do {id}.", "--key", "id", name, model_name, "--no-sandbox")

    def calls() -> int:
        return sum(file.read_text().count("\n") for file in (holdfast_home / "workspaces").glob("*/calls"))

    with spawn(*words, "--workers", "2", "--session-id", "r") as process:
        until(lambda: calls() == 2, process)
        assert "r is running: 0 of 3 done" in type("items", "show", "r").out
        type("pause", "r").went()
        (tmp_path / "go").touch()
        ended(process)
    states = [each["detail"] for each in type("ps", "--all", "--json").went().lines]
    assert states == ["paused by a person"] * 3
    assert "paused by a person; `holdfast brief r` says what it needs" in type("items", "show", "r").out
    assert calls() == 2
    type("wake", "r").went()
    assert results() == {"a": "fine", "b": "fine", "c": "fine"}
    assert calls() == 3
    (run,) = type("items", "show", "r", "--json").went().lines
    assert (run["done"], run["failed_tries"]) == (3, 0)
