"""A context's life on the command line: a worker that gets anxious is reset once and finishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import Type
from tests.support.trusted import trust


def facts(type: Type, session: str, kind: str) -> list[dict[str, Any]]:
    """The facts of one type in a session's log."""
    events = [json.loads(line) for line in type("export", session).out.splitlines()]
    return [event for event in events if event.get("type") == kind]


def test_an_anxious_worker_is_reset_and_all_its_work_is_done(type: Type, holdfast_home: Path) -> None:
    Path("holdfast.toml").write_text('[context]\nstrategy = "compaction"\nline_tokens = 24000\nkeep_tokens = 4000\n')
    trust()
    type("run", "write all parts", "--model", "anxious:0.6", "--session-id", "parts").went()
    (session,) = (holdfast_home / "workspaces").iterdir()
    written = sorted(session.glob("part_*.txt"))
    assert len(written) == 12
    assert all(path.read_text().startswith("done ") for path in written)
    assert len(facts(type, "parts", "context.reset")) == len(facts(type, "parts", "context.sign")) == 1
    assert "anxiety" in json.dumps(facts(type, "parts", "context.reset"))


@pytest.mark.parametrize("name", ["anxious:", "anxious:often", "anxious:0", "anxious:1.5"])
def test_a_worker_without_a_measure_is_refused_in_words(type: Type, holdfast_home: Path, name: str) -> None:
    type("run", "x", "--model", name).refused(2, "needs a part of the context line", "--model anxious:0.7")
