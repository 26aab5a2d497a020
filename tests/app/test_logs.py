"""`holdfast logs` of one session and of all: order, bounds, patterns, whole results, local time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.terminal import Type, bash, ended, script, spawn, turn


@pytest.fixture
def two(type: Type, holdfast_home: Path) -> None:
    """Two finished sessions, `one` before `two`; only the second has a result with a needle in its middle line."""
    model = script(Path("m.json"), turn(text="Nothing here."))
    type("run", "hello", "--model", model, "--session-id", "one", "--no-sandbox").went()
    model = script(Path("n.json"), bash("echo first; echo a needle; seq 3"), turn(text="Found."))
    type("run", "search", "--model", model, "--session-id", "two", "--no-sandbox").went()


def test_all_sessions_in_the_order_of_time(two: None, type: Type) -> None:
    events = type("logs", "--json").went().lines
    assert [event["at_us"] for event in events] == sorted(event["at_us"] for event in events)
    whole = sum(len(type("export", key).went().lines) for key in ("one", "two"))
    assert len(events) == whole
    lines = type("logs").went().out.splitlines()
    assert len(lines) == whole
    assert lines[0].split()[3:6] == ["one", "1", "session.created"]
    assert lines[-1].split()[3] == "two"
    assert type("logs", "-n", "3").went().out.splitlines() == lines[-3:]
    type("fork", "two", "--at", "10", "--key", "copy").went()
    more = type("logs").went().out.splitlines()
    assert more[:whole] == lines, "a fork repeats no event of its origin"
    assert {line.split()[3] for line in more[whole:]} == {"copy"}
    some = type("logs", "--type", "session.created").went().out.splitlines()
    assert [line.split()[3] for line in some] == ["one", "two"]


def test_a_bound_keeps_the_newest_of_all_sessions(two: None, type: Type) -> None:
    type("send", "one", "and now?", "--no-wake").went()
    (last,) = type("logs", "-n", "1", "--json").went().lines
    assert last["type"] == "user.message"
    assert type("logs", "two", "-n", "2", "--json").went().lines == type("logs", "two", "--json").went().lines[-2:]
    assert type("logs", "two", "-n", "2", "--after", "999", "--json").went().lines == []


def test_a_pattern_is_looked_for_in_whole_results_which_full_prints(two: None, type: Type) -> None:
    said = type("logs", "--grep", "^a needle$", "--full").went()
    assert "| first\n" not in said.out, "^ is the beginning of the whole text"
    said = type("logs", "--grep", r"(?m)^a needle$", "--full").went()
    assert [line for line in said.out.splitlines() if line.startswith("    |")] == [
        "    | first", "    | a needle", "    | 1", "    | 2", "    | 3"
    ]  # fmt: skip
    (event,) = type("logs", "two", "--grep", r"(?m)^a needle$", "--json").went().lines
    assert event["type"] == "agent.tool_result"
    assert type("logs", "--grep", "no such thing").went().err.startswith("no such event since ")


def test_times_are_local_with_their_zone_and_json_is_utc(
    two: None, type: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "NZST-12")  # POSIX: twelve hours ahead of UTC, all year
        said = [ended(spawn(*words)).went() for words in (("logs", "two", "-n", "1"), ("logs", "--json", "-n", "1"))]
        shown = ended(spawn("show", "two")).went().out
    event = json.loads(said[1].out)
    assert event["at"].endswith("Z")
    utc_hour, local_hour = int(event["at"][11:13]), int(said[0].out[11:13])
    assert local_hour == (utc_hour + 12) % 24
    assert said[0].out.split()[2] == "NZST"
    assert " NZST" in shown
    assert "UTC" not in shown


def test_since_counts_from_local_time(two: None, type: Type) -> None:
    assert type("logs", "--since", "1h").went().out.count("session.created") == 2
    type("logs", "--since", "2099-01-01").refused(2, "2099-01-01")
    type("logs", "--since", "soon").refused(2, "soon", "8h")
    type("logs", "--grep", "(").refused(2, "--grep", "not a regular expression")
    type("logs", "--after", "3").refused(2, "--after", "--since")


def test_follow_prints_what_other_processes_append(two: None, type: Type) -> None:
    process = spawn("logs", "-f", "--type", "session.created")
    assert process.stdout is not None
    try:
        assert [process.stdout.readline().split()[3] for _ in range(2)] == ["one", "two"]
        model = script(Path("o.json"), turn(text="New."))
        type("run", "hello", "--model", model, "--session-id", "three", "--no-sandbox").went()
        assert process.stdout.readline().split()[3:6] == ["three", "1", "session.created"]
    finally:
        process.terminate()
    assert ended(process).out == "", "each event is printed once"
