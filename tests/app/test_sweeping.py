"""What killed makers of sandboxes left in a home goes when the next command begins to work."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from holdfast.egress import control
from holdfast.hands.incarnation import MAKER, note_maker
from tests.app.terminal import Type, bash, rows, script, turn
from tests.hands.test_sweep import dead, plant


@pytest.mark.parametrize("verb", ["run", "wake"])
def test_left_over_hands_go_and_living_ones_stay(type: Type, verb: str, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", bash("true"), turn(text="done"), turn(text="done"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    ((session,),) = rows(holdfast_home / "holdfast.db", "select session_id from sessions where key = 'k'")
    hands = holdfast_home / "hands"
    ours = msgspec.structs.replace(dead(), session_id=session)
    for name, maker in (("hnd_known", ours), ("hnd_strange", dead())):
        plant(hands / name, maker)
    plant(hands / "hnd_alive", None)
    note_maker(hands / "hnd_alive", session)
    control.make(holdfast_home / "egress", "ses_gone").bundle.write_text("x")
    words = ("run", "more", "--session-id", "k") if verb == "run" else ("wake", "k")
    type(*words).went()
    assert os.listdir(hands) == ["hnd_alive"]
    assert os.listdir(holdfast_home / "egress" / "doors") == []
    assert (hands / "hnd_alive" / MAKER).exists()
