"""`holdfast limit`: limits as a user sets them, and a run that waits for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.families import until
from tests.app.terminal import Type, ended, script, spawn, turn


def test_limits_are_set_shown_and_lifted(type: Type) -> None:
    assert type("limit").went().out == "no limit is set; sessions run as workers have places\n"
    type("limit", "--model", "m", "--rate", "60").went()
    type("limit", "--account", "project:web", "--running", "2", "--rate", "5", "--burst", "3").went()
    shown = type("limit", "--all", "--running", "8").went().out.splitlines()
    assert [line.split() for line in shown] == [
        ["LIMIT", "OF", "RUNNING", "AT", "MOST", "REQUESTS/MIN", "AT", "ONCE"],
        ["account", "home:all", "0", "8", "-", "-"],
        ["account", "project:web", "0", "2", "5", "3"],
        ["model", "m", "0", "-", "60", "6"],
    ]
    type("limit", "--account", "project:web", "--rate", "none").went()
    type("limit", "--model", "m", "--rate", "none").went()
    found = [json.loads(line) for line in type("limit", "--json").went().out.splitlines()]
    assert [(each["scope"], each["name"], each["at_most"], each["per_minute"]) for each in found] == [
        ("account", "home:all", 8, None),
        ("account", "project:web", 2, None),
    ]
    assert "limit of the account project:web: 2 sessions at a time\n" in type("logs", "ses_home").went().out
    type("verify").went()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--running", "3"), "say whose limit: --account NAME, --model NAME, or --all"),
        (("--all", "--running", "-1"), "--running -1 is not a number, such as --running 8, or --running none"),
        (("--all", "--rate", "9" * 5_000), "is not a number"),
        (("--all", "--rate", "0"), "--rate 0 is not a number from 1 to 1000000"),
        (("--all", "--rate", "5", "--burst", "2000000"), "--burst 2000000 is not a number from 1 to 1000000"),
    ],
)
def test_a_wrong_limit_changes_nothing(type: Type, words: tuple[str, ...], sentence: str) -> None:
    said = type("limit", *words)
    assert said.code == 2
    assert sentence in said.err
    assert type("limit").went().out.startswith("no limit is set")


def test_a_run_waits_for_its_limit(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="done"))
    type("limit", "--account", "project:web", "--running", "0").went()
    run = spawn("run", "x", "--model", model, "--account", "project:web", "--session-id", "k")
    told = list[str]()
    assert run.stderr is not None
    while not any("0 sessions of the account project:web run, as many as its limit allows" in line for line in told):
        told.append(run.stderr.readline())
        assert told[-1], told
    assert json.loads(type("ps", "--json").out)["turns"] == 0
    type("limit", "--account", "project:web", "--running", "1").went()
    until(lambda: json.loads(type("ps", "--json").out)["state"] == "done", run)
    ended(run).went(0)
