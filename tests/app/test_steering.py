"""Steering from the command line, by any process: pause, hand over, money, the emergency stop."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.app.asking import asks, comes_to, facts, item_of, let_go, rests, types
from tests.app.terminal import PRICE, Type, bash, ended, kept, rows, script, spawn, turn, typed


@pytest.fixture
def long(tmp_path: Path) -> str:
    """A model whose first command lasts until a file `go` appears, or until it is killed."""
    return script(
        tmp_path / "long.json", bash("until [ -e go ]; do sleep 0.02; done; echo x >> ran"), turn(text="Over.")
    )


@pytest.fixture
def priced(tmp_path: Path) -> str:
    """A model whose turns cost 0.315 dollars each."""
    return script(tmp_path / "p.json", bash("true"), bash("true; true"), turn(text="All."), price=PRICE)


def _release(home: Path) -> None:
    (folder,) = (home / "workspaces").iterdir()
    (folder / "go").touch()


def _runs(home: Path, *words: str | Path, key: str = "k") -> object:
    """A session in a process of its own, in the middle of its command."""
    process = spawn("run", "x", "--no-sandbox", "--session-id", key, *words)
    while not (home / "holdfast.db").exists() or not rows(home / "holdfast.db", "select 1 from sqlite_master"):
        assert process.poll() is None, ended(process)
    comes_to(home, "tool.dispatched")
    return process


def test_a_pause_lets_the_running_call_end_and_begins_nothing_new(type: Type, long: str, holdfast_home: Path) -> None:
    running = _runs(holdfast_home, "--model", long)
    said = type("pause", "k", "--reason", "lunch").went()
    assert said.out == "k rests when the step it is at has ended; lift it with `holdfast wake k`\n"
    _release(holdfast_home)
    paused = ended(running).went(3)  # type: ignore[arg-type]
    assert "k is parked (person): paused by a person" in paused.err
    assert paused.err.splitlines()[-1] == "It rests until `holdfast wake k`."
    assert "paused" in type("ps").out
    assert "It rests until `holdfast wake k`." in type("show", "k").out
    assert facts(type, "user.pause")[0]["reason"] == "lunch"
    assert type("send", "k", "Later.").went().err == "k is paused, and goes on with `holdfast wake k`\n"
    assert type("wake", "k", "--keep-pause").went(3).out == ""
    assert type("resume", "k").went().out == "Over.\n"
    assert types(holdfast_home).count("user.resume") == 1
    type("pause", "k").refused(2, "k is done", "nothing to pause")


def test_a_pause_of_a_session_that_waits_keeps_its_question(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    item = asks(type, script(tmp_path / "m.json", bash("true"), turn(text="Done.")))
    assert type("pause", "k").went().out == "k rests; lift it with `holdfast wake k`\n"
    assert "k is paused" in type("approve", item).went().err
    let_go(holdfast_home)
    assert "tool.dispatched" not in types(holdfast_home)
    assert type("wake", "k").went().out == "Done.\n"


def test_the_emergency_stop_rests_everything_and_its_release_goes_on(
    type: Type, long: str, holdfast_home: Path, tmp_path: Path
) -> None:
    item = asks(type, script(tmp_path / "m.json", bash("true"), turn(text="Done.")), key="asking")
    running = _runs(holdfast_home, "--model", long)
    said = typed("stop", "--all", "--reason", "fire").went()
    assert said.out.splitlines() == [
        "everything is stopped: nothing starts until `holdfast stop --release`",
        "k rests",
    ]
    stopped = ended(running).went(3)  # type: ignore[arg-type]
    assert "k is parked (person): an emergency stop" in stopped.err
    assert stopped.err.splitlines()[-1] == "Everything was stopped; it goes on after `holdfast stop --release`."
    let_go(holdfast_home)
    again = type("stop", "--all").went()
    assert "everything is stopped already, since " in again.out
    assert again.err == "nothing was running\n"
    refused = type("run", "x", "--model", long, "--no-sandbox").went(3)
    assert "stopped everything at" in refused.err
    assert "`holdfast stop --release` lifts it" in refused.err
    assert "goes on after `holdfast stop --release`" in type("wake", "k").went(3).err
    assert "everything is stopped; asking goes on after" in type("approve", item).went().err
    assert types(holdfast_home).count("emergency.stopped") == 1
    type("stop", "--release").went()
    (session,) = type("show", "k", "--json").went().lines
    (holdfast_home / "workspaces" / session["session_id"] / "go").touch()
    assert rests().out == "Over.\n"
    assert type("stop", "--release").went().out == "there is no emergency stop\n"
    assert type("wake", "asking").went().out == "Done.\n"
    type("verify").went()


def test_a_stop_of_a_process_that_hangs_is_told(type: Type, long: str, holdfast_home: Path) -> None:
    running = _runs(holdfast_home, "--model", long)
    running.send_signal(signal.SIGSTOP)  # type: ignore[attr-defined]
    try:
        said = type("stop", "--all", "--wait", "0.2s").went()
        assert "k is not at rest yet: it ends its call of bash (until [ -e go ]" in said.out
    finally:
        running.send_signal(signal.SIGCONT)  # type: ignore[attr-defined]
    ended(running).went(3)  # type: ignore[arg-type]


def test_money_is_shown_set_and_asked_for(type: Type, priced: str, holdfast_home: Path) -> None:
    said = type("run", "x", "--model", priced, "--session-id", "k", "--no-sandbox", "--budget", "0.4").went(4)
    item = item_of(said)
    assert f"Or answer: `holdfast approve {item}`" in said.err
    before = kept(holdfast_home)
    for words in (("--set", "0.1"), ("--day", "0.1"), ("--week", "0.3")):
        type("budget", "k", *words).refused(2, "has spent $0.3150", "nothing was changed")
    type("approve", item, "--budget", "0.2").refused(2, "has spent $0.3150 already")
    type("budget", "k", "--set", "-1").refused(2, "--set -1")
    type("budget", "k", "--set", "much").refused(2, "--set")
    type("budget", "--set", "3").refused(2, "say whose cap")
    type("budget", "k", "--account", "ses_x").refused(2, "no account 'ses_x' on the path of k")
    type("budget", "nobody").refused(2, "no session 'nobody'")
    assert kept(holdfast_home) == before
    shown, _ = type("budget", "k", "--json").went().lines
    assert shown["total"] == {"cap_usd": 0.4, "spent_usd": 0.315}
    assert shown["day"] == {"cap_usd": None, "spent_usd": 0.315}
    type("deny", item, "--note", "no more").went()
    rests(code=4)
    assert types(holdfast_home).count("approval.requested") == 1, "nobody is asked twice"
    assert "Raise the cap" in type("show", "k").out
    out = type("budget", "k", "--set", "none", "--day", "5").went().out
    assert "no cap" in out
    assert rests().out == "All.\n"
    assert type("budget").went().out.count("\nk ") == 1


def test_a_session_is_handed_over(type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = asks(type, script(tmp_path / "m.json", bash("true"), turn(text="Done.")))
    for name in ("", "a b", "user:"):
        type("handover", "k", name).refused(2, "is not a user name")
    assert type("handover", "k", "user:anna").went().out == "k is anna's now\n"
    rests(code=3)
    assert "anna may answer" in type("inbox", item).went().out
    type("approve", item).refused(2, "may be answered by anna")
    monkeypatch.setenv("LOGNAME", "anna")
    type("approve", item).went()
    assert rests().out == "Done.\n"
    type("handover", "k", "ben").refused(2, "k is done")


def test_every_act_has_an_actor(type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks(type, script(tmp_path / "m.json", bash("true"), turn(text="Done.")))
    monkeypatch.setenv("LOGNAME", "zoe")
    type("pause", "k").went()
    type("budget", "k", "--set", "3", "--no-wake").went()
    type("handover", "k", "zoe", "--no-wake").went()
    type("wake", "k").went(3)
    type("send", "k", "Stop it.", "--no-wake").went()
    type("interrupt", "k").went()
    type("cancel", "k").went()
    kinds = (
        "user.pause",
        "budget.set",
        "session.updated",
        "user.resume",
        "user.message",
        "user.interrupt",
        "user.cancel",
    )
    assert {(kind, event["actor"]) for kind in kinds for event in facts(type, kind)} == {(k, "user:zoe") for k in kinds}
    for words in (("pause", "k"), ("handover", "k", "zoe")):
        type(*words).refused(2, "k is cancelled")
