"""`--json`: what scripts may rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import PRICE, Said, Type, bash, script, turn, typed

EVENT = ("session_id", "seq", "id", "type", "at")
RESULT: dict[str, Any] = {
    "type": str,
    "session_id": str,
    "status": str,
    "stop_reason": str,
    "exit_code": int,
    "usage": dict,
    "cost_usd": (float, type(None)),
    "own_cost_usd": (float, type(None)),
    "events": int,
    "wall_s": float,
}
USAGE = {"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"}


def contract(said: Said, first: int = 1) -> dict[str, Any]:
    """Hold a `run` or `wake` to the contract: gap-free events from `first`, then the result. Returns that."""
    *events, result = said.lines
    assert [event["seq"] for event in events] == list(range(first, first + len(events)))
    for event in events:
        assert set(EVENT) <= set(event), event
        assert event["at"].endswith("Z")
    assert set(result) == set(RESULT)
    for name, kind in RESULT.items():
        assert isinstance(result[name], kind), (name, result)
    assert set(result["usage"]) == USAGE
    assert result["type"] == "result"
    assert result["exit_code"] == said.code
    assert {event["session_id"] for event in events} <= {result["session_id"]}
    return result


CASES: list[tuple[list[dict[str, Any]], list[str], int, str, str]] = [
    ([bash("true"), turn(text="ok")], [], 0, "done", "done"),
    ([turn(text="No.", error="refusal")], [], 1, "failed", "failed"),
    ([bash("true"), turn(text="ok")], ["--max-turns", "1"], 4, "parked", "cap"),
    ([bash("true"), turn(text="ok")], ["--budget", "0.4"], 4, "parked", "budget"),
    ([turn(text="x", error="overloaded", retry_after_s=7200)], [], 4, "parked", "provider"),
]


@pytest.mark.parametrize(("turns", "flags", "code", "status", "reason"), CASES, ids=lambda value: str(value)[:12])
def test_the_result_of_each_end(
    type: Type, turns: list[dict[str, Any]], flags: list[str], code: int, status: str, reason: str
) -> None:
    model = script(Path("m.json"), *turns, price=PRICE)
    ran = type("run", "x", "--model", model, "--session-id", "k", "--json", *flags).went(code)
    result = contract(ran)
    assert (result["status"], result["stop_reason"]) == (status, reason)
    spent = result["usage"]["input_tokens"] / 100_000 * 0.315
    assert result["cost_usd"] == pytest.approx(spent)
    woken = contract(type("wake", "k", "--json").went(code))
    assert {**woken, "wall_s": 0.0} == {**result, "wall_s": 0.0}


def test_a_session_that_waits_for_a_person(type: Type) -> None:
    model = script(Path("m.json"), bash("true"), turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "k", "--max-turns", "1").went(4)
    type("send", "k", "go on", "--no-wake")
    type("interrupt", "k")
    result = contract(type("wake", "k", "--json").went(3), first=15)
    assert (result["status"], result["stop_reason"], result["cost_usd"]) == ("parked", "person", None)
    type("cancel", "k", "--json").went()
    assert contract(type("wake", "k", "--json").went(1))["status"] == "cancelled"


def test_a_second_run_shows_what_it_posted(type: Type) -> None:
    model = script(Path("m.json"), turn(text="ok"), turn(text="ok again"))
    first = contract(type("run", "x", "--model", model, "--session-id", "k", "--json"))
    again = type("run", "y", "--session-id", "k", "--max-turns", "9", "--json").went()
    assert contract(again, first["events"] + 1)["events"] > first["events"]
    assert [line["type"] for line in again.lines[:2]] == ["session.updated", "user.message"]


def test_every_verb_with_data_prints_json_alone(type: Type) -> None:
    model = script(Path("m.json"), turn(text="é…\u2028"), price=PRICE)
    type("run", "x", "--model", model, "--session-id", "k", "--json").went()
    for words, count in (
        (("ps",), 1),
        (("show", "k"), 1),
        (("logs", "k"), 6),
        (("export", "k"), 6),
        (("verify",), 1),
        (("doctor",), 1),
        (("version",), 1),
        (("send", "k", "hi", "--no-wake"), 1),
        (("interrupt", "k"), 1),
        (("cancel", "k"), 1),
        (("cancel", "k"), 1),
        (("interrupt", "k"), 1),
        (("sim", "--seeds", "1"), 1),
    ):
        said = type(*words, "--json").went()
        lines = [json.loads(line) for line in said.out.split("\n")[:-1]]
        assert len(lines) == count, said


def test_an_error_in_the_middle_has_a_result_too(type: Type) -> None:
    model = script(Path("m.json"), bash("true"), turn(text="ok"))
    ran = contract(type("run", "x", "--model", model, "--session-id", "k", "--json"))
    type("send", "k", "go on", "--no-wake")
    Path("m.json").unlink()
    woken = type("wake", "k", "--json")
    result = contract(Said(woken.code, woken.out, ""), first=ran["events"] + 2)
    assert (woken.code, result["status"], result["stop_reason"]) == (2, "runnable", "error")
    (line,) = woken.err.splitlines()
    assert line.startswith("holdfast wake: the model script ")


def test_plain_when_piped(tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", bash("printf '\\033[31mred'"), turn(text="an \u001b[31manswer\u001b[0m"))
    said = typed("run", "x\u001b[2J", "--model", model, cwd=tmp_path).went()
    assert said.out == "an \N{REPLACEMENT CHARACTER}[31manswer\N{REPLACEMENT CHARACTER}[0m\n"
    assert "\u001b" not in said.err
    assert "\r" not in said.err
    logged = typed("logs", "ses_", cwd=tmp_path).went()
    assert "\u001b" not in logged.out + typed("show", "ses_", cwd=tmp_path).went().out
