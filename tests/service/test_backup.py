"""Backups of a home in use, and what restoring refuses."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, SchemaTooNew, UsageError
from holdfast.facts.codec import SCHEMA
from holdfast.facts.session import SessionEventsLost
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.ids import system_entropy
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.verify import verify
from holdfast.log.worker_locks import Worker
from holdfast.repo.snapshot_store import ShadowShelf
from holdfast.service.backup import MANIFEST, Manifest, Restoration, Saved, back_up, restore
from holdfast.service.posting import Caller
from tests.service.finished import Builder, building, draft


def manifest(home: Path, **fields: object) -> Manifest:
    made = Manifest(1, "evt_backup", SystemClock().now_us(), str(home), "holdfast", SCHEMA)
    return msgspec.structs.replace(made, **fields)


async def saved(home: Path, file: Path, **fields: object) -> Saved:
    return await back_up(home, home / "holdfast.db", file, manifest(home, **fields))


async def restored(file: Path, home: Path) -> Restoration:
    return await restore(file, home, SystemClock(), system_entropy, Caller("user:ann"))


async def at_work(made: Builder, session_id: str, acknowledged: dict[str, int]) -> None:
    """Append and keep snapshots, and note what was acknowledged, until cancelled."""
    path = made.workspace(session_id)
    with Worker.start(made.home / "workers", f"wrk_live_{session_id}") as worker:
        shift = ShiftStarted(worker_id=worker.worker_id, host_id="h", boot_id="b", pid=1, program="t")
        lease = await made.store.acquire(session_id, draft(shift))
        number = 0
        while True:
            number += 1
            (path / "file").write_text(f"{session_id} {number}")
            kept = await made.shelf.keep(session_id, path, 1_000 + number)
            result = ToolResult(call_id="1.0", outcome="ok", content=kept.snapshot)
            events = await made.store.append(session_id, lease.epoch, [draft(result)])
            acknowledged[session_id] = events[-1].seq


async def test_a_home_in_use(tmp_path: Path) -> None:
    """No acknowledged event is missing, and each snapshot that an event names is there."""
    home, file, then = tmp_path / "home", tmp_path / "b.tar", tmp_path / "then"
    names = [f"ses_{number}" for number in range(4)]
    acknowledged: dict[str, int] = {}
    async with building(home) as made:
        for name in names:
            await made.session(name, over=False, big=70_000)
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(at_work, made, name, acknowledged)
            while len(acknowledged) < len(names):
                await made.store.wait(names[0], (await made.store.find(names[0])).head)
            before = dict(acknowledged)
            await saved(home, file)
            group.cancel_scope.cancel()
    done = await restored(file, then)
    assert (done.sessions, done.told) == (4, 4)
    shelf = ShadowShelf(then / "snapshots")
    async with await SqliteStore.open(then / "holdfast.db", workers=then / "workers", clock=SystemClock()) as store:
        assert (await verify(store)).findings == ()
        for name in names:
            events = await store.read(name)
            results = [event for event in events if isinstance(event.fact, ToolResult)]
            assert results[-1].seq >= before[name]
            assert isinstance(results[-1].fact, ToolResult)
            copy = tmp_path / f"copy-{name}"
            await shelf.restore(str(results[-1].fact.content), copy)
            assert (copy / "file").read_text().startswith(name)
            assert isinstance(events[-1].fact, SessionEventsLost)
            assert events[-1].fact.workspace == str(then / "workspaces" / name)
            assert (await store.find(name)).workspace == str(then / "workspaces" / name)


async def test_a_restored_home_at_the_same_place_keeps_its_paths(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "b.tar.gz"
    async with building(home) as made:
        await made.session("ses_over")
        await made.session("ses_parked", over=False)
        (home / "secrets").mkdir()
        (home / "secrets" / "github").write_text("s3cret")
        assert (await saved(home, file)).secrets == ("github",)
    home.rename(tmp_path / "lost")
    assert (await restored(file, home)).told == 1
    assert (home / "secrets" / "github").read_text() == "s3cret"
    assert [path.stat().st_mode & 0o077 for path in (home / "holdfast.db", file)] == [0, 0]
    async with building(home) as made:
        assert (await made.store.find("ses_over")).status == "done"
        assert (await made.store.find("ses_parked")).status == "runnable"
        assert [type(event.fact) for event in await made.store.read("ses_over")].count(SessionEventsLost) == 0


async def refused(attempt: Awaitable[object], kind: type[HoldfastError] = UsageError) -> str:
    with pytest.raises(kind) as said:
        await attempt
    return str(said.value)


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


HOSTILE: dict[str, Callable[[], tarfile.TarInfo]] = {
    "link": lambda: member("secrets/x", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": lambda: member("secrets/x", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "above": lambda: member("../holdfast.db"),
    "absolute": lambda: member("/tmp/holdfast.db"),
    "inside": lambda: member("snapshots/git/hooks/post-index-change"),
    "up inside": lambda: member("snapshots/git/refs/holdfast/../../config"),
    "device": lambda: member("secrets/x", type=tarfile.CHRTYPE),
    "twice": lambda: member("holdfast.db"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_archive_is_refused(tmp_path: Path, what: str) -> None:
    home, file, then = tmp_path / "home", tmp_path / "b.tar", tmp_path / "then"
    async with building(home) as made:
        await made.session("ses_a")
        await saved(home, file)
    with tarfile.open(file, "a") as tar:
        tar.addfile(HOSTILE[what](), io.BytesIO())
    assert "nothing was restored" in await refused(restored(file, then))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar", "home"]


async def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    home, file, then = tmp_path / "home", tmp_path / "b.tar", tmp_path / "then"
    async with building(home) as made:
        await made.session("ses_a")
        await saved(home, file)
        await saved(home, tmp_path / "new.tar", schema=SCHEMA + 1)
        assert "exists" in await refused(saved(home, file))
        assert "is not a folder" in await refused(saved(home, tmp_path / "none" / "b.tar"))
        assert ".tar.gz" in await refused(saved(home, tmp_path / "b.zip"))
    assert "is not empty" in await refused(restored(file, home))
    cut = tmp_path / "cut.tar"
    cut.write_bytes(file.read_bytes()[:-40_000])
    await refused(restored(cut, then))
    only = tmp_path / "only.tar"
    with tarfile.open(only, "w") as tar:
        content = msgspec.json.encode(manifest(home))
        tar.addfile(member(MANIFEST, size=len(content)), io.BytesIO(content))
    assert "complete" in await refused(restored(only, then))
    assert "upgrade" in await refused(restored(tmp_path / "new.tar", then), SchemaTooNew)
    damaged = bytearray(file.read_bytes())
    at = damaged.index(b"scripted:none")
    damaged[at] ^= 1
    (tmp_path / "damaged.tar").write_bytes(damaged)
    await refused(restored(tmp_path / "damaged.tar", then), HoldfastError)
    assert not then.exists()
    assert not list(tmp_path.glob(".*"))
