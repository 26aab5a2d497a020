"""Killed in the middle of a commit, a disk that fails, a disk that is full: what was acknowledged is there."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LogFailed, StorageFull
from holdfast.facts.base import text_of
from holdfast.facts.codec import Event, genesis
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolResult
from holdfast.log.base import Lease
from holdfast.log.verify import verify
from holdfast.testing.log import Scenario
from tests.log.processes import acknowledged, needs_strace, run, running
from tests.log.rigs import SqliteRig, open_store, sqlite_rig

pytestmark = pytest.mark.real

SYNCS = "fsync,fdatasync"


async def prepared(home: Path) -> Lease:
    """A session with a shift, in a closed file."""
    async with sqlite_rig(home) as rig:
        return await Scenario(rig).started()


async def check(home: Path, output: str) -> list[Event]:
    """What was acknowledged is there; the chain, the rows and the file are whole. Returns the events."""
    async with await open_store(home) as store:
        events = await store.read("ses_a", prev=genesis("ses_a"))
        by_seq = {event.seq: event.id for event in events}
        lost = [(seq, id_) for seq, id_ in acknowledged(output) if by_seq.get(seq) != id_]
        assert lost == []
        assert (await verify(store)).findings == ()
        assert await store.check_file() == []
        return events


def killed_after(home: Path, lease: Lease, chance: random.Random, verb: str = "append") -> str:
    """A process that appends, killed a random while after a random acknowledgement; what it had said."""
    with running(verb, home, "ses_a", lease.epoch, 100_000) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(chance.randrange(1, 12))]
        for _ in range(chance.randrange(4_000)):  # some way into a commit, wherever that is
            os.getpid()
        child.kill()
        said.append(child.stdout.read())
    return "".join(said)


async def kill_many_times(home: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    lease = await prepared(home)
    said = ""
    for turn in range(times):
        said += killed_after(home, lease, chance)
        events = await check(home, said)
        assert len(events) > turn, f"seed {seed}"


async def test_killed_while_committing(holdfast_home: Path) -> None:
    await kill_many_times(holdfast_home, 8, seed=1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(1, 17))
async def test_killed_while_committing_many_times(holdfast_home: Path, seed: int) -> None:
    await kill_many_times(holdfast_home, 20, seed)


async def prepared_for_posts(home: Path) -> Lease:
    """A session with a shift, and two others that it posts to."""
    async with sqlite_rig(home) as rig:
        case = Scenario(rig)
        for name in ("ses_b", "ses_c"):
            await case.open(name)
        return await case.started()


async def check_scattered(home: Path, output: str) -> int:
    """Each append stands in all four sessions or in none. Returns how many there are."""
    events = await check(home, output)
    async with await open_store(home) as store:
        keys = [event.fact.content for event in events if isinstance(event.fact, ToolResult)]
        for other in ("ses_b", "ses_c"):
            said = [event.fact for event in await store.read(other, prev=genesis(other))]
            assert [text_of(fact.content) for fact in said if isinstance(fact, UserMessage)] == keys
        opened = {row.session_id for row in await store.sessions()} - {"ses_a", "ses_b", "ses_c"}
        assert opened == {f"ses_{key}" for key in keys}
        assert {account.account_id for account in await store.accounts()} >= opened
    return len(keys)


async def kill_while_scattering(home: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    lease = await prepared_for_posts(home)
    said = ""
    for turn in range(times):
        said += killed_after(home, lease, chance, "scatter")
        assert await check_scattered(home, said) > turn, f"seed {seed}"


async def test_killed_while_posting_to_others(holdfast_home: Path) -> None:
    await kill_while_scattering(holdfast_home, 4, seed=1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(1, 7))
async def test_killed_while_posting_to_others_many_times(holdfast_home: Path, seed: int) -> None:
    await kill_while_scattering(holdfast_home, 20, seed)


@needs_strace
@pytest.mark.parametrize(("calls", "number"), [("fdatasync", 3), ("pwrite64", 9), ("pwrite64", 10), ("pwrite64", 25)])
async def test_killed_at_a_call_while_posting_to_others(holdfast_home: Path, calls: str, number: int) -> None:
    lease = await prepared_for_posts(holdfast_home)
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    strace += ["-e", f"inject={calls}:signal=KILL:when={number}"]
    done = run("scatter", holdfast_home, "ses_a", lease.epoch, 2_000, under=strace)
    assert done.returncode in (-9, 137), done.stderr
    assert await check_scattered(holdfast_home, done.stdout) < 2_000


async def kill_at_sync(home: Path, number: int, calls: str) -> None:
    lease = await prepared(home)
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    strace += ["-e", f"inject={calls}:signal=KILL:when={number}"]
    done = run("append", home, "ses_a", lease.epoch, 2_000, under=strace)
    assert done.returncode in (-9, 137), done.stderr
    assert len(acknowledged(done.stdout)) < 2_000
    await check(home, done.stdout)


@needs_strace
@pytest.mark.parametrize("number", [1, 2, 3, 7])
async def test_killed_at_a_sync(holdfast_home: Path, number: int) -> None:
    await kill_at_sync(holdfast_home, number, "fdatasync")


@needs_strace
@pytest.mark.parametrize("number", [1, 5, 30])
async def test_killed_at_a_write(holdfast_home: Path, number: int) -> None:
    await kill_at_sync(holdfast_home, number, "pwrite64")


@needs_strace
@pytest.mark.faults
@pytest.mark.parametrize("calls", ["fdatasync", "pwrite64"])
@pytest.mark.parametrize("number", range(1, 61))
async def test_killed_at_every_call(holdfast_home: Path, calls: str, number: int) -> None:
    await kill_at_sync(holdfast_home, number, calls)


@needs_strace
async def test_an_append_syncs_once(holdfast_home: Path) -> None:
    lease = await prepared(holdfast_home)

    def syncs(appends: int) -> int:
        trace = holdfast_home / f"trace-{appends}"
        strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={SYNCS}"]
        done = run("append", holdfast_home, "ses_a", lease.epoch, appends, under=strace)
        assert done.returncode == 0, done.stderr
        return len(re.findall(r"(?:fsync|fdatasync)\(", trace.read_text()))

    few, many = syncs(10), syncs(60)
    assert many - few == 50


@needs_strace
async def test_appends_at_once_share_syncs(holdfast_home: Path) -> None:
    lease = await prepared(holdfast_home)
    trace = holdfast_home / "trace"
    strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={SYNCS}"]
    done = run("crowd", holdfast_home, "ses_a", lease.epoch, 20, 20, under=strace)
    assert done.returncode == 0, done.stderr
    assert len(acknowledged(done.stdout)) == 400
    assert len(re.findall(r"(?:fsync|fdatasync)\(", trace.read_text())) < 300
    assert len(await check(holdfast_home, done.stdout)) == 402


@needs_strace
@pytest.mark.parametrize("error", ["EIO", pytest.param("ENOSPC", marks=pytest.mark.faults)])
async def test_a_shared_sync_that_fails_is_never_acknowledged(holdfast_home: Path, error: str) -> None:
    lease = await prepared(holdfast_home)
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    strace += ["-e", f"inject=fdatasync:error={error}:when=6+"]
    done = run("crowd", holdfast_home, "ses_a", lease.epoch, 20, 20, under=strace)
    assert done.returncode != 0
    assert len(acknowledged(done.stdout)) < 400
    await check(holdfast_home, done.stdout)


GAVE_UP = ("LogFailed", "StorageFull", "DiskError")
"""What ends a process whose disk stays broken; the last one while it opens the file."""


@needs_strace
@pytest.mark.parametrize("which", ["4", "4+"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
async def test_a_sync_that_fails_is_never_acknowledged(holdfast_home: Path, which: str, error: str) -> None:
    lease = await prepared(holdfast_home)
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    strace += ["-e", f"inject=fdatasync:error={error}:when={which}"]
    done = run("append", holdfast_home, "ses_a", lease.epoch, 200, under=strace)
    if which == "4":  # the disk works again: the commit is looked up, and done again when it is not there
        assert (done.returncode, len(acknowledged(done.stdout))) == (0, 200), done.stderr
    else:
        assert done.stdout.splitlines()[-1] in GAVE_UP
        assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    events = await check(holdfast_home, done.stdout)
    assert len({event.id for event in events}) == len(events)


@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("number", [2, 3, 9, 10, 11])
async def test_a_write_that_fails_is_never_acknowledged(holdfast_home: Path, error: str, number: int) -> None:
    lease = await prepared(holdfast_home)
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64"]
    strace += ["-e", f"inject=pwrite64:error={error}:when={number}+"]
    done = run("append", holdfast_home, "ses_a", lease.epoch, 200, under=strace)
    assert done.stdout.splitlines()[-1] in GAVE_UP
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    await check(holdfast_home, done.stdout)


async def test_a_file_size_limit_is_an_error_of_ours(holdfast_home: Path) -> None:
    lease = await prepared(holdfast_home)
    done = run("limited", holdfast_home, "ses_a", lease.epoch, 400_000)
    assert done.stdout.splitlines()[-1] in GAVE_UP
    assert done.returncode == 5, done.stderr
    assert len(acknowledged(done.stdout)) > 0
    await check(holdfast_home, done.stdout)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("a small file system takes root to mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def test_a_full_disk_loses_nothing_and_goes_on_after_space(small_disk: Path, tmp_path: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * 200_000)
    kept: list[Event] = []
    async with sqlite_rig(small_disk) as rig:
        case = Scenario(rig)
        lease = await case.started()

        async def fill() -> None:
            while True:
                kept.extend(await case.append(lease, case.result("x" * 1_000)))

        with pytest.raises(StorageFull, match="free some space"):
            await fill()
        with pytest.raises(StorageFull):
            await case.append(lease, case.result("x" * 100_000))
        assert await rig.store.read("ses_a", after=2, prev=lease.events[-1].hash) == kept
        assert (await rig.store.sessions())[0].head == kept[-1].seq
        filler.unlink()
        kept += await case.append(lease, case.result("there is room again"))
        assert await rig.store.read("ses_a", after=2, prev=lease.events[-1].hash) == kept
        assert (await verify(rig.store)).findings == ()
    shutil.copytree(small_disk, tmp_path / "copy")


class Deaf(sqlite3.Connection):
    """A connection whose next commit happens, or does not, and fails to say so."""

    trouble = ""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "commit" and Deaf.trouble:
            happens, Deaf.trouble = Deaf.trouble == "after", ""
            super().execute("commit" if happens else "rollback")
            error = sqlite3.OperationalError("disk I/O error: the answer was lost")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, parameters)


@pytest.mark.parametrize("trouble", ["after", "before", "unproven"])
async def test_a_commit_without_an_answer_is_read_back(holdfast_home: Path, trouble: str) -> None:
    lease = await prepared(holdfast_home)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(holdfast_home / "holdfast.db", isolation_level=None, timeout=0.1, factory=Deaf)

    other = sqlite3.connect(holdfast_home / "holdfast.db", isolation_level=None)
    async with await open_store(holdfast_home, patience_s=0.5) as store:
        store._writing._connect = connect
        case = Scenario(SqliteRig(holdfast_home, store))
        await case.append(lease, case.result("first"))
        Deaf.trouble = "before" if trouble == "before" else "after"
        if trouble == "unproven":  # a reader of the past keeps the checkpoint from copying everything
            other.execute("begin")
            other.execute("select count(*) from events").fetchone()
        if trouble != "unproven":
            (event,) = await case.append(lease, case.result("second"))
            assert (await store.read("ses_a"))[-1] == event
            await case.append(lease, case.result("third"))
        else:
            with pytest.raises(LogFailed):
                await case.append(lease, case.result("second"))
            with pytest.raises(LogFailed, match="gives up"):
                await store.append("ses_a", lease.epoch, [case.result("third")])
            with pytest.raises(LogFailed, match="gives up"):
                await store.sessions()
    other.close()
    await check(holdfast_home, "")
