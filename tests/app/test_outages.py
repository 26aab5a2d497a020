"""Outages of a provider, as commands in the foreground meet them."""

from __future__ import annotations

import os
import pty
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.session.decide import providers
from tests.app.families import PRICE, WAITS, lead, opens, says, stands
from tests.app.terminal import Type, ended, script, spawn, turn
from tests.support.waiting import until

LIMITED = {"error": "rate_limited", "retry_after_s": 1.0}
"""A turn whose provider asks to wait; the request after it gets the turn."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions park for waits of more than a fifth of a second."""
    monkeypatch.setattr(providers, "PARK_BEYOND_S", 0.2)


@pytest.mark.usefixtures("hasty")
def test_a_run_waits_through_an_outage_and_says_so(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Here again.", **LIMITED))
    said = type("run", "x", "--model", model, "--session-id", "k", "--no-sandbox", "--wait", "1m").went()
    assert said.out == "Here again.\n"
    (told,) = [line for line in said.err.splitlines() if "waits for its provider until" in line]
    assert "rate_limited" in told
    assert '"reason":"provider"' in type("export", "k").out


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("words", [("--wait", "0"), ("--json",), ()])
def test_scripts_and_pipes_get_the_exit_status_at_once(type: Type, tmp_path: Path, words: tuple[str, ...]) -> None:
    model = script(tmp_path / "m.json", turn(text="Here again.", **LIMITED))
    said = type("run", "x", "--model", model, "--no-sandbox", *words).went(4)
    assert "waits for its provider" not in said.err


@pytest.mark.usefixtures("hasty")
def test_a_command_that_waits_continues_what_waits_elsewhere(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Here again.", **LIMITED))
    type("run", "x", "--model", model, "--session-id", "left", "--no-sandbox", "--wait", "0").went(4)
    other = script(tmp_path / "n.json", turn(text="So am I.", error="rate_limited", retry_after_s=6.0))
    said = type("run", "x", "--model", other, "--session-id", "waits", "--no-sandbox", "--wait", "1m").went()
    assert said.err.count("left waits for its provider too, and goes on in the background") == 1
    until(lambda: stands(holdfast_home)["done"] == 2)


@pytest.mark.usefixtures("hasty")
def test_a_run_waits_for_the_provider_of_its_children(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    turns = [says("I split it.", opens("left"), opens("right")), says("", WAITS, **LIMITED), says("All is in.")]
    model = script(tmp_path / "m.json", *turns, price=PRICE)
    words = ("--model", model, "--agent", lead(tmp_path), "--session-id", "k", "--no-sandbox", "--wait", "1m")
    said = type("run", "x", *words).went()
    assert said.out == "All is in.\n"
    assert said.err.count("waits for its provider until") == 3
    assert stands(holdfast_home)["done"] == 3


def test_a_wait_that_is_longer_than_allowed_parks(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Late.", error="rate_limited", retry_after_s=3_600))
    said = type("run", "x", "--model", model, "--session-id", "k", "--no-sandbox", "--wait", "59m").went(4)
    assert "holdfast wake k" in said.err


@pytest.mark.parametrize("given", ["-1", "soon", "1y", ""])
def test_a_wait_that_is_no_duration_is_refused(type: Type, given: str) -> None:
    type("run", "x", f"--wait={given}").refused(2, "--wait")


def test_a_terminal_waits_by_default_and_ctrl_c_parks(tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Late.", error="rate_limited", retry_after_s=600))
    ours, theirs = pty.openpty()
    with closing(os.fdopen(ours, "rb", buffering=0)) as screen:
        words = ("run", "x", "--model", model, "--session-id", "k", "--no-sandbox", "--plain")
        process = spawn(*words, stderr=theirs)
        os.close(theirs)
        seen = b""
        while b"Ctrl-C ends the wait" not in seen:
            seen += screen.read(4096)
        process.send_signal(2)
        while process.poll() is None:
            try:
                seen += screen.read(4096)
            except OSError:  # the end of a terminal
                break
        assert ended(process).code == 130, seen
    assert b"k is parked (provider)" in seen


def test_a_request_that_no_retry_mends_is_made_again_by_wake(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="It works now.", error="invalid_request"))
    said = type("run", "x", "--model", model, "--session-id", "k", "--no-sandbox", "--wait", "1h").went(1)
    assert "ask again with `holdfast wake k`" in said.err
    assert type("wake", "k").went().out == "It works now.\n"
    assert "the failed request is made again" in type("logs", "k").out
    type("verify").went()


def test_under_an_emergency_stop_wake_asks_nobody(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="It works now.", error="invalid_request"))
    type("run", "x", "--model", model, "--session-id", "k", "--no-sandbox").went(1)
    type("stop", "--all").went()
    type("wake", "k")
    assert type("export", "k").out.count("span.model_request_start") == 1
    type("stop", "--release").went()
    assert type("wake", "k").went().out == "It works now.\n"
