"""Duties by the command line: from `every` to `history`, with workers that are killed, and input that is refused."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import Said, Type, bash, ended, script, spawn, turn
from tests.support.waiting import until

KILLS = 4


@pytest.fixture
def counting(tmp_path: Path) -> str:
    """A model that adds a line to the notes, and reports their number."""
    return script(
        tmp_path / "m.json",
        bash("echo seen >> NOTES.md; cp NOTES.md copy; sleep 0.2"),
        turn(tool_calls=[{"name": "report", "input": {"name": "lines", "value": 1, "unit": "lines"}}]),
        turn(text="One more line."),
    )


@pytest.fixture
def workers() -> Iterator[list[subprocess.Popen[str]]]:
    """Workers of a test, which end with it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        if each.poll() is None:
            each.terminate()
            ended(each)


def log_of(type: Type, name: str) -> list[dict[str, Any]]:
    return type("logs", name, "--json").went().lines


def of_type(log: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [each for each in log if each["type"] == name]


def begun(type: Type) -> int:
    return len(of_type(log_of(type, "lines"), "trigger.fired"))


def more(type: Type, before: int) -> bool:
    return begun(type) > before


@pytest.mark.real
def test_killed_workers_lose_no_firing_and_repeat_none(
    type: Type, counting: str, workers: list[subprocess.Popen[str]]
) -> None:
    type("every", "2s", "Count the lines", "--name", "lines", "--model", counting, "--misfire", "all").went()
    for number in range(KILLS):
        workers.append(spawn("worker"))
        before = begun(type)
        until(partial(more, type, before))
        workers[-1].send_signal(signal.SIGKILL if number else signal.SIGTERM)
        ended(workers[-1])
    workers.append(spawn("worker"))
    until(lambda: len(of_type(log_of(type, "lines"), "firing.ended")) >= KILLS + 1)
    type("duty", "pause", "lines").went()
    until(lambda: len(of_type(log := log_of(type, "lines"), "firing.ended")) == len(of_type(log, "trigger.fired")))
    log = log_of(type, "lines")
    fired, over = of_type(log, "trigger.fired"), of_type(log, "firing.ended")
    assert [each["firing"] for each in fired] == [each["firing"] for each in over] == list(range(1, len(fired) + 1))
    assert {each["outcome"] for each in over} == {"done"}
    keys = Counter(key for each in fired for key in each["keys"])
    assert set(keys.values()) == {1}
    assert Counter(each["firing"] for each in of_type(log, "value.reported")) == dict.fromkeys(
        range(1, len(fired) + 1), 1
    )
    shown = type("duty", "show", "lines", "--json").went().lines[0]
    assert shown["notes"] == "seen\n" * len(fired)


@pytest.mark.real
def test_a_failing_duty_asks_once_and_waits_for_the_answer(
    type: Type, tmp_path: Path, workers: list[subprocess.Popen[str]]
) -> None:
    broken = script(tmp_path / "m.json", turn(error="refusal"))
    type("every", "1s", "Fail", "--name", "bad", "--model", broken).went()
    workers.append(spawn("worker"))
    until(lambda: "a person is asked" in type("duty", "list", "--json").went().lines[0]["held"])
    log = log_of(type, "bad")
    assert [each["outcome"] for each in of_type(log, "firing.ended")] == ["failed"] * 3
    (item,) = [each for each in type("inbox", "--json").went().lines if each["item_id"]]
    assert "firing 1 of the duty bad" in item["title"]
    type("deny", item["item_id"]).went()
    until(lambda: "stopped by an approver" in type("duty", "list", "--json").went().lines[0]["held"])
    assert len(of_type(log_of(type, "bad"), "trigger.fired")) == 3


@pytest.mark.real
def test_a_removed_duty_ends_its_firing(type: Type, tmp_path: Path, workers: list[subprocess.Popen[str]]) -> None:
    slow = script(tmp_path / "m.json", bash("touch begun; sleep 600"), turn(text="Done."))
    type("every", "1d", "Wait", "--name", "slow", "--model", slow, "--now").went()
    workers.append(spawn("worker"))
    until(lambda: of_type(log_of(type, "slow"), "trigger.fired"))
    type("duty", "remove", "slow").went()
    until(lambda: type("duty", "list", "--all", "--json").went().lines[0]["status"] == "cancelled")
    assert [each["outcome"] for each in of_type(log_of(type, "slow"), "firing.ended")] == ["cancelled"]
    assert type("duty", "list", "--json").went().lines == []


@pytest.mark.real
def test_a_new_file_wakes_its_duty_long_before_the_sweep(
    type: Type, counting: str, tmp_path: Path, workers: list[subprocess.Popen[str]]
) -> None:
    folder, file = tmp_path / "inbox", tmp_path / "duty.toml"
    folder.mkdir()
    settings = f'{{ path = "{folder}", settle_s = 0.1 }}'
    source = f'[[trigger]]\nname = "inbox"\nkind = "directory"\nevery_s = 86400.0\nsettings = {settings}\n'
    file.write_text(f'name = "lines"\ngoal = "g"\nqueue = 9\nbatch = 9\nbatch_wait = "1d"\n{source}')
    type("duty", "add", file, "--yes", "--model", counting).went()

    def polls() -> int:
        return len(of_type(log_of(type, "lines"), "source.polled"))

    def taken(name: str) -> bool:
        return name in [each["data"]["path"] for each in of_type(log_of(type, "lines"), "trigger.offered")]

    for name in ("first", "second"):
        workers.append(spawn("worker"))
        before = polls()
        until(partial(lambda before: polls() > before, before))  # it watches, and looks once more then
        (folder / name).write_text(name)
        until(partial(taken, name))
        workers[-1].send_signal(signal.SIGKILL)
        ended(workers[-1])


def refused(said: Said, *words: str) -> None:
    assert said.code == 2, said
    for word in words:
        assert word in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("61x", "g"), "is not a time span"),
        (("0.5s", "g"), "whole seconds"),
        (("0 0 30 2 *", "g"), "does not parse"),
        (("0 0 * *", "g"), "five fields"),
        (("0 0 * * *", "g", "--zone", "Mars/Base"), "no time zone 'Mars/Base'"),
        (("1h", "g", "--jitter", "2h"), "less than the time between two instants"),
        (("1h", " "), "goal"),
        (("1h", "g", "--budget", "-1"), "is not an amount"),
        (("1h", "g", "--read", "nowhere"), "is not a folder"),
        (("1h", "g", "--read", "/proc"), "the sandbox has a /proc of its own"),
        (("1h", "g", "--name", "a b"), "letters, digits"),
        (("1h", "g", "--alert", "errors >"), "'errors >' cannot be used"),
        (("1h", "g", "--alert", "errors"), "is no condition"),
        (("1h", "g", "--alert", "errors > 3", "--alert", "errors > 5 && errors < 3"), "is never true"),
        (("1h", "g", "--alert", "failures >= 0"), "is always true"),
    ],
)
def test_what_can_be_known_is_refused_when_a_duty_is_added(
    type: Type, counting: str, words: tuple[str, ...], why: str
) -> None:
    refused(type("every", *words, "--model", counting), why, "nothing was added")
    assert type("ps", "--json").went().lines == []


def test_expressions_of_every_become_alerts(type: Type, counting: str) -> None:
    wanted = ("errors > 3", 'missing("12h")', "errors > 3", "errors>3")
    flags = [word for text in wanted for word in ("--alert", text)]
    type("every", "1h", "Count the errors", "--name", "errors", *flags, "--model", counting).went()
    duty = type("duty", "show", "errors", "--json").went().lines[0]["duty"]
    assert [(each["name"], each["when"]) for each in duty["alerts"]] == [
        ("errors-over-3", "errors > 3"),
        ("missing-12h", 'missing("12h")'),
        ("errors-over-3-2", "errors>3"),
    ]
    assert {(each["severity"], *each["route"]) for each in duty["alerts"]} == {("warning", "inbox")}


def test_a_file_defines_a_duty_and_changes_it(type: Type, counting: str, tmp_path: Path) -> None:
    file = tmp_path / "duty.toml"
    text = f'name = "lines"\ngoal = "Count"\ncron = "30 2 * * *"\nzone = "Europe/Berlin"\nmodel = "{counting}"\n'
    file.write_text(text)
    type("duty", "add", file).went()
    file.write_text(text.replace("Count", "Count again") + 'misfire = "skip"\n')
    type("duty", "add", file).went()
    shown = type("duty", "show", "lines").went().out
    assert "definition" in shown
    (changed,) = of_type(log_of(type, "lines"), "duty.changed")
    assert (changed["goal"], changed["duty"]["schedule"]["misfire"]) == ("Count again", "skip")
    file.write_text(text + 'tools = ["read"]\n')
    refused(type("duty", "add", file), "do not change")
    file.write_text(text + "colour = 1\n")
    refused(type("duty", "add", file), "unknown key 'colour'")
    file.write_text(text + "queue = 0\n")
    refused(type("duty", "add", file), "queue in", "between 1 and")


def test_a_rule_that_never_matches_is_named_when_a_duty_is_added(type: Type, counting: str, tmp_path: Path) -> None:
    file = tmp_path / "duty.toml"
    rules = "".join(f'[[rule]]\ntool = "{tool}"\ndecision = "deny"\n' for tool in ("write", "b*", "report"))
    file.write_text(f'name = "d"\ngoal = "g"\nevery = "1h"\nmodel = "{counting}"\ntools = ["bash", "read"]\n{rules}')
    said = type("duty", "add", file).went()
    assert said.err.count("never matches") == 1
    assert "the rule for 'write'" in said.err


def test_a_file_that_opens_folders_counts_once_it_is_accepted(type: Type, counting: str, tmp_path: Path) -> None:
    file, folder = tmp_path / "duty.toml", tmp_path / "data"
    folder.mkdir()
    file.write_text(f'name = "d"\ngoal = "g"\nevery = "1h"\nmodel = "{counting}"\nread = ["data"]\n')
    said = type("duty", "add", file)
    assert said.code != 0
    assert "sets read, which you have not accepted" in said.err
    assert type("ps", "--json").went().lines == []
    type("duty", "add", file, "--yes", "--no-sandbox").went()  # a sandbox has a /tmp of its own
    (first, *_) = log_of(type, "d")
    assert first["workspace"]["read_only"] == {str(folder): str(folder)}


def test_a_duty_that_no_process_has_run_is_due_and_not_late(type: Type, counting: str) -> None:
    type("every", "1s", "Look", "--name", "look", "--model", counting).went()
    until(lambda: " due " in type("duty", "list").out)
    said = type("duty", "show", "look").went().out
    assert "next      due: no process has run it yet; start `holdfast serve" in said
    assert "late" not in said
