"""Removal of sessions from the log: what goes, what stays, and the record in the home's log."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import HeadMoved, LeaseHeld, UnknownSession
from holdfast.log.anchors import Anchor, check
from holdfast.log.base import Lease
from holdfast.log.removal import removed_sessions
from holdfast.testing.log import Scenario
from tests.log.rigs import sqlite_rig


async def _spent(case: Scenario, lease: Lease, pico: int) -> None:
    (start,) = await case.append(lease, case.request(pico))
    await case.append(lease, case.response(start.seq, pico))


async def test_a_removed_session_is_gone(tmp_path: Path) -> None:
    """Its rows, items, keys, and money go; the log still verifies, and the session's key is free again."""
    async with sqlite_rig(tmp_path) as rig:
        case, store = Scenario(rig), rig.store
        await case.open("ses_a", key="mine", cap=100)
        lease = await case.take("ses_a")
        await _spent(case, lease, 10)
        await case.append(lease, case.request(20), case.question("itm_a"))
        await case.open("ses_b")
        await store.release(lease)
        await store.remove([await case.row("ses_a")], "user:ann")
        await case.whole()
        assert [row.session_id for row in await store.sessions()] == ["ses_b"]
        assert await store.items(open_only=False) == []
        assert [account for account, *_ in await case.books()] == ["ses_b"]
        await case.refused(UnknownSession, store.find("ses_a"))
        await case.open("ses_c", key="mine")
        assert (await store.find("mine")).session_id == "ses_c"


async def test_shared_accounts_keep_what_was_spent(tmp_path: Path) -> None:
    """Caps and spend of a shared account outlive its sessions, whatever came before and comes after."""
    async with sqlite_rig(tmp_path) as rig:
        case, store = Scenario(rig), rig.store
        for name in ("ses_a", "ses_b"):
            await case.open(name, accounts=(name, "team"))
        one, other = await case.take("ses_a"), await case.take("ses_b")
        await case.set_cap("team", 10_000, "day", session_id="ses_a")
        for _ in range(40):  # more buckets than an account keeps
            rig.advance(1_000)
            await _spent(case, one, 3)
            await _spent(case, other, 5)
        await case.append(one, case.request(7))
        await store.release(one)
        await store.remove([await case.row("ses_a")], "user:ann")
        await case.whole()
        team = await store.account("team")
        assert team is not None
        assert (team.spent_pico, team.reserved_pico, team.cap_day_pico) == (320, 0, 10_000)
        await case.set_cap("team", 9_000, "day")
        rig.advance(1_000)
        await _spent(case, other, 5)
        await case.whole()


async def test_a_held_session_is_not_removed(tmp_path: Path) -> None:
    """Nothing is removed while a process holds one of the sessions, or after one has moved."""
    async with sqlite_rig(tmp_path) as rig:
        case, store = Scenario(rig), rig.store
        worker = rig.worker()
        await case.open("ses_a")
        await case.open("ses_b")
        await case.take("ses_a", worker=worker)
        rows = [await case.row("ses_b"), await case.row("ses_a")]
        assert not await store.while_quiet(rows[1], lambda: None)
        await case.refused(LeaseHeld, store.remove(rows, "user:ann"), "ses_a", "ses_b")
        rig.kill(worker)
        await case.say("ses_b", "more")
        done: list[str] = []
        assert not await store.while_quiet(rows[0], lambda: done.append("moved"))
        assert await store.while_quiet(rows[1], lambda: done.append("quiet"))
        assert done == ["quiet"]
        await case.refused(HeadMoved, store.remove(rows, "user:ann"), "ses_a", "ses_b")
        await case.whole()


async def test_an_anchor_tells_a_removal_from_a_loss(tmp_path: Path) -> None:
    """The record names the head of a removed session: its anchors hold, a wrong one does not."""
    async with sqlite_rig(tmp_path) as rig:
        case, store = Scenario(rig), rig.store
        await case.open("ses_a")
        await case.open("ses_b")
        row = await case.row("ses_a")
        await store.remove([row], "user:ann")
        gone = await store.look(removed_sessions)
        assert [(each.session_id, each.head, each.hash) for each in gone.values()] == [
            ("ses_a", 1, row.head_hash.hex())
        ]
        assert await check(store, [Anchor("ses_a", 1, row.head_hash.hex(), "now")]) == []
        assert len(await check(store, [Anchor("ses_a", 1, "ab" * 32, "now")])) == 1
        assert len(await check(store, [Anchor("ses_a", 2, "ab" * 32, "now")])) == 1
