"""States of long sessions: from checkpoints that another process makes, the same as from the first event."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from holdfast.brain.points import Checkpoint, checkpoints, point_at
from holdfast.brain.recall import encode, recall, remember
from holdfast.facts.base import Text
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.people import UserMessage
from holdfast.kinds import KINDS
from holdfast.serve.folds import NEAR, Folds
from holdfast.session.rows import SessionRow
from tests.serve.served import serving
from tests.support.web_home import WebHome, web_home

EVENTS = 2 * NEAR + 300


async def long(made: WebHome) -> SessionRow:
    """A session of a few turns, snapshots of its files, and many messages."""
    name = await made.open("long", "A long task", ago_us=3_600_000_000)
    for number in range(4):
        await made.turn(name, f"Turn {number}", ("bash", {"command": f"make {number}"}, "ok"))
        if number % 2:
            seq = (await made.store.find(name)).head
            await made.tell(name, WorkspaceSnapshotted(through_seq=seq, snapshot=f"{number:040}"))
        await made.tell(name, *(UserMessage(content=(Text(f"words {each}"),)) for each in range(EVENTS // 4)))
    await made.end(name)
    return await made.store.find(name)


@pytest.mark.parametrize("every", [7, NEAR])
async def test_a_point_from_a_checkpoint_is_the_point_from_the_first_event(tmp_path: Path, every: int) -> None:
    async with web_home(tmp_path / "home") as made:
        row = await long(made)
        found = await checkpoints(made.store, row, row.head, KINDS, every=every)
        assert [each.seq for each in found][-1] == row.head
        for at in (5, 12, EVENTS // 4 + 20, EVENTS // 2 + 30, row.head):
            start = max((each for each in found if each.seq <= at), key=lambda each: each.seq, default=None)
            near, far = [await point_at(made.store, row, at, KINDS, begin, NEAR) for begin in (start, None)]
            assert encode(near.state) == encode(far.state)
            assert (near.row, near.kept, near.kept_seq, near.unkept) == (far.row, far.kept, far.kept_seq, far.unkept)
            assert at < row.head or (near.kept_seq, len(near.unkept)) == (far.kept_seq, 0)


async def test_checkpoints_are_kept_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that does not fit keeps every second checkpoint, and others make room; each state stays right."""
    async with web_home(tmp_path / "home") as made:
        row = await long(made)
        calls = []

        async def ahead(row: SessionRow, seq: int, start: Checkpoint | None) -> list[Checkpoint]:
            calls.append((start and start.seq, seq))
            return await checkpoints(made.store, row, seq, KINDS, every=50, start=start)

        folds = Folds(made.store, KINDS, ahead)
        assert (await folds.point(row, 900)).state.seq == 900
        assert calls == []
        assert not folds.quick(row.session_id, EVENTS)
        monkeypatch.setattr("holdfast.serve.folds.KEPT_BYTES", 30_000)
        for at in (EVENTS, 40, 1_030, EVENTS - 1):
            assert (await folds.point(row, at)).state.seq == at
        assert calls == [(None, EVENTS)]
        assert folds.quick(row.session_id, EVENTS)


def test_a_page_of_a_long_session_comes_at_once_and_its_state_after_it(tmp_path: Path) -> None:
    anyio.run(_written, tmp_path / "home")
    with serving(tmp_path / "home") as server, server.browser() as browser:
        page = browser.get(f"/sessions/ses_long?at={EVENTS}").text
        assert f'id="e{EVENTS}"' in page
        assert f"As of e{EVENTS}" not in page
        (later,) = re.findall(r'data-load="([^"]+)"', page)
        assert f"As of e{EVENTS}" in browser.get(later.replace("&amp;", "&")).text
        assert f"As of e{EVENTS - 7}" in browser.get(f"/sessions/ses_long?at={EVENTS - 7}").text


async def _written(home: Path) -> None:
    async with web_home(home) as made:
        row = await long(made)
        state, _ = await recall(row.session_id, made.store, made.store, KINDS)
        await remember(state, made.store)  # as the brain does at the end of a shift
