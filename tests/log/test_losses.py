"""Acknowledged events that are gone are found at opening, whatever took them; a healthy home is never refused.

The long form does 300 damages of each kind, and 300 healthy homes; a seed names each of them.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.errors import EventsLost, HoldfastError, LogDamaged, LogUnavailable
from holdfast.facts.codec import genesis
from holdfast.log.sqlite.watermark import SLOTS, forget, heads_behind, marks, missing, watermark_path
from holdfast.log.verify import verify
from holdfast.testing.log import Scenario
from tests.log.processes import line, running
from tests.log.rigs import SqliteRig, open_store, sql_of, sqlite_rig

SESSIONS = ("ses_a", "ses_b", "ses_c")
FILES = ("holdfast.db", "holdfast.db-wal", "holdfast.db-mark")
BUSY_S = 30.0


@dataclass(frozen=True)
class Story:
    """The files of a home whose process was killed, and the heads that were acknowledged."""

    files: dict[str, bytes]
    heads: dict[str, int]

    def put(self, home: Path) -> Path:
        """Lay the files out as a home."""
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        for name, content in self.files.items():
            (home / name).write_bytes(content)
        return home

    @property
    def wal(self) -> bytes:
        return self.files["holdfast.db-wal"]


async def told(home: Path, chance: random.Random, turns: int = 12) -> Story:
    """Three sessions that append in a random order, as a kill would leave them."""
    async with sqlite_rig(home) as rig:
        case = Scenario(rig)
        leases = {name: await case.started(name) for name in SESSIONS}
        if chance.random() < 0.5:  # what was written so far is in the database, and a new log begins
            with rig.sql() as sql:
                sql.execute("pragma wal_checkpoint(restart)")
        for _ in range(turns):
            name = chance.choice(SESSIONS)
            await case.append(leases[name], case.result("x" * chance.choice((10, 500, 3_000, 70_000))))
        heads = {name: (await case.row(name)).head for name in SESSIONS}
        return Story({name: (home / name).read_bytes() for name in FILES}, heads)


async def found(home: Path, heads: dict[str, int]) -> str:
    """What becomes of a home: `refused`, `damaged` when reading or verifying says so, else `whole` or `silent`."""
    try:
        async with await open_store(home, busy_timeout_s=BUSY_S) as store:
            if (await verify(store)).findings or await store.check_file():
                return "damaged"
            for name, head in heads.items():
                events = await store.read(name, prev=genesis(name))
                if [event.seq for event in events] != list(range(1, head + 1)):
                    return "silent"
            return "whole"
    except EventsLost as error:
        return "refused" if error.exit_code == 6 and "holdfast recover" in str(error) else "silent"
    except (LogDamaged, LogUnavailable):
        return "damaged"
    except HoldfastError:
        return "silent"  # a session that is not there, and nothing said why


def flip(data: bytes, chance: random.Random) -> bytes:
    """One bit another way."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def zeros(data: bytes, chance: random.Random) -> bytes:
    """A range of a sector or more without content."""
    size = chance.choice((512, 4_096, 9_000))
    at = chance.randrange(max(1, len(data) - size))
    return data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]


def cut(data: bytes, chance: random.Random) -> bytes:
    """The end is missing."""
    return data[: chance.randrange(len(data))]


def swap(data: bytes, chance: random.Random) -> bytes:
    """Two pieces in each other's place."""
    size = 512
    one, two = sorted(chance.sample(range(max(2, len(data) // size)), 2))
    one, two = one * size, two * size
    return data[:one] + data[two : two + size] + data[one + size : two] + data[one : one + size] + data[two + size :]


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, flip, zeros, cut, swap)


async def damage_file(holdfast_home: Path, tmp_path: Path, name: str, seeds: range) -> dict[str, int]:
    """Damage one file in many ways. Returns how often each outcome came."""
    outcomes: dict[str, int] = {}
    story = None
    for seed in seeds:
        chance = random.Random(seed)
        if story is None or seed % 10 == 0:
            shutil.rmtree(holdfast_home, ignore_errors=True)
            story = await told(holdfast_home, chance)
        home = story.put(tmp_path / "damaged")
        kind = chance.choice(DAMAGES)
        (home / name).write_bytes(kind(story.files[name], chance))
        outcome = await found(home, story.heads)
        assert outcome != "silent", f"seed {seed}: {kind.__name__} of {name} was not noticed"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


async def damage_blobs(holdfast_home: Path, tmp_path: Path, seeds: range) -> dict[str, int]:
    """Damage bodies that lie in `blobs`, inside the database's own format."""
    outcomes: dict[str, int] = {}
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        leases = {name: await case.started(name) for name in SESSIONS}
        for turn in range(9):
            await case.append(leases[SESSIONS[turn % 3]], case.result(f"{turn}" * 70_000))
        heads = {name: (await case.row(name)).head for name in SESSIONS}
    story = Story(
        {name: (holdfast_home / name).read_bytes() for name in FILES if (holdfast_home / name).exists()}, heads
    )
    for seed in seeds:
        chance = random.Random(seed)
        home = story.put(tmp_path / "damaged")
        with sql_of(home / "holdfast.db") as sql:
            digest, content = chance.choice(sql.execute("select digest, bytes from blobs").fetchall())
            kind = chance.choice(DAMAGES)
            changed = kind(content, chance)
            sql.execute("update blobs set bytes = ? where digest = ?", (changed, digest))
        outcome = await found(home, heads)
        assert outcome == "damaged" or changed == content, f"seed {seed}: {kind.__name__} of a blob: {outcome}"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


async def test_damage_of_the_write_ahead_log_is_never_silent(holdfast_home: Path, tmp_path: Path) -> None:
    outcomes = await damage_file(holdfast_home, tmp_path, "holdfast.db-wal", range(20))
    assert outcomes.get("refused", 0) >= 10, outcomes


async def test_damage_of_the_database_is_never_silent(holdfast_home: Path, tmp_path: Path) -> None:
    outcomes = await damage_file(holdfast_home, tmp_path, "holdfast.db", range(100, 120))
    assert set(outcomes) - {"whole"}, outcomes


async def test_damage_of_blobs_is_never_silent(holdfast_home: Path, tmp_path: Path) -> None:
    assert (await damage_blobs(holdfast_home, tmp_path, range(20))).get("damaged", 0) >= 10


async def test_damage_of_the_watermark_refuses_no_healthy_home(holdfast_home: Path, tmp_path: Path) -> None:
    assert await damage_file(holdfast_home, tmp_path, "holdfast.db-mark", range(20)) == {"whole": 20}


@pytest.mark.faults
@pytest.mark.parametrize("name", ["holdfast.db-wal", "holdfast.db", "holdfast.db-mark"])
async def test_300_damages_of_a_file(holdfast_home: Path, tmp_path: Path, name: str) -> None:
    print(name, await damage_file(holdfast_home, tmp_path, name, range(1_000, 1_300)))


@pytest.mark.faults
async def test_300_damages_of_blobs(holdfast_home: Path, tmp_path: Path) -> None:
    print("blobs", await damage_blobs(holdfast_home, tmp_path, range(1_000, 1_300)))


async def healthy(home: Path, chance: random.Random) -> None:
    """A home after rollbacks, kills of several writers, torn tails, and copies; it must open, and lack nothing."""
    async with sqlite_rig(home) as rig:
        case = Scenario(rig)
        lease = await case.started()
        for _ in range(chance.randrange(1, 6)):
            await case.append(lease, case.result("x" * chance.choice((10, 9_000))))
        if chance.random() < 0.3:
            with rig.sql() as sql:
                sql.execute(f"pragma wal_checkpoint({chance.choice(('passive', 'full', 'restart', 'truncate'))})")
        kind = chance.choice(("rollback", "kill", "kills", "tail", "mark", "older mark", "copy", "checkpointed"))
        if kind == "rollback":  # large enough that frames without a commit are in the log
            with rig.sql() as sql:
                sql.execute("pragma cache_size = 2")
                sql.execute("begin immediate")
                sql.execute("create table junk as with recursive n(i) as (select 1 union all select i + 1 from n "
                            "limit 200) select i, zeroblob(4000) as b from n")  # fmt: skip
                sql.execute("rollback")
            if chance.random() < 0.5:
                await case.append(lease, case.result("after the rollback"))
        mark = watermark_path(rig.path).read_bytes()
        await case.append(lease, case.result("last"))
        head = (await case.row()).head
        if kind in ("kill", "kills"):
            head = max(head, killed(home, lease.epoch, chance, 1 if kind == "kill" else 2))
        files = {name: (home / name).read_bytes() for name in FILES}
    if kind == "tail":  # a commit that was cut: frames of the same salt that end nowhere
        files["holdfast.db-wal"] += files["holdfast.db-wal"][32 : 32 + chance.randrange(1, 8_000)]
    elif kind == "mark":
        del files["holdfast.db-mark"]
    elif kind == "older mark":  # killed between the commit and the record
        files["holdfast.db-mark"] = mark
    elif kind in ("copy", "checkpointed"):
        files = {name: (home / name).read_bytes() for name in FILES if (home / name).exists()}
    copy = Story(files, {}).put(home.parent / "copy")
    async with await open_store(copy) as store:
        events = await store.read("ses_a", prev=genesis("ses_a"))
        assert len(events) >= head, kind
        assert (await verify(store)).findings == (), kind
        await store.append("ses_a", lease.epoch, [Scenario(SqliteRig(copy, store)).result("goes on")])
    assert missing(copy / "holdfast.db", BUSY_S) == []
    assert marks(copy / "holdfast.db")


def killed(home: Path, epoch: int, chance: random.Random, writers: int) -> int:
    """Let processes append and kill them; the highest number that one of them acknowledged."""
    with (
        running("append", home, "ses_a", epoch, 100_000) as one,
        running("append" if writers > 1 else "hold", home, "ses_a", *([epoch, 100_000] if writers > 1 else [])) as two,
    ):
        said = [line(one) for _ in range(chance.randrange(1, 8))]
        said += [line(two) for _ in range(chance.randrange(1, 4) if writers > 1 else 0)]
    return max(int(words[0]) for words in said if words and words[0].isdecimal())


EACH_KIND = (0, 1, 5, 6, 8, 9, 13, 19)
"""Seeds that draw each kind of a healthy home once."""


async def test_no_healthy_home_is_refused(holdfast_home: Path) -> None:
    for seed in EACH_KIND:
        shutil.rmtree(holdfast_home, ignore_errors=True)
        await healthy(holdfast_home, random.Random(seed))


@pytest.mark.faults
@pytest.mark.parametrize("part", range(6))
async def test_300_healthy_homes_are_not_refused(holdfast_home: Path, part: int) -> None:
    for seed in range(1_000 + 50 * part, 1_050 + 50 * part):
        shutil.rmtree(holdfast_home, ignore_errors=True)
        await healthy(holdfast_home, random.Random(seed))


async def test_an_older_copy_a_removed_log_and_a_removed_database_are_losses(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        lease = await case.started()
        with rig.sql() as sql:
            sql.execute("pragma wal_checkpoint(truncate)")
        backup = rig.path.read_bytes()
        await case.append(lease, case.result("after the backup"))
        files = {name: (holdfast_home / name).read_bytes() for name in FILES}
    head = 3
    home = holdfast_home.parent / "copy"
    without_log = Story({**files, "holdfast.db-wal": b""}, {}).put(home)
    assert await found(without_log, {"ses_a": head}) == "refused"
    (Story(files, {}).put(home) / "holdfast.db-wal").unlink()
    assert await found(home, {"ses_a": head}) == "refused"
    restored = Story({"holdfast.db": backup, "holdfast.db-mark": files["holdfast.db-mark"]}, {}).put(home)
    with pytest.raises(EventsLost, match="a restored backup") as caught:
        await open_store(restored)
    assert (caught.value.session_id, caught.value.seq) == ("ses_a", head)
    assert (restored / "holdfast.db").read_bytes() == backup
    (Story(files, {}).put(home) / "holdfast.db").unlink()
    assert await found(home, {"ses_a": head}) == "refused"


async def test_what_lies_behind_the_damage_stays_and_is_named(holdfast_home: Path, tmp_path: Path) -> None:
    story = await told(holdfast_home, random.Random(3), turns=20)
    home = story.put(tmp_path / "damaged")
    wal = bytearray(story.wal)
    wal[len(wal) // 2] ^= 4
    (home / "holdfast.db-wal").write_bytes(wal)
    for _ in range(2):
        with pytest.raises(EventsLost):
            await open_store(home)
        assert (home / "holdfast.db-wal").read_bytes() == bytes(wal), "the log was cut by looking at it"
    assert heads_behind(home / "holdfast.db", tmp_path) == story.heads
    lost = missing(home / "holdfast.db", BUSY_S)
    assert lost[-1].seq in story.heads.values()
    forget(home / "holdfast.db", lost)
    async with await open_store(home) as store:
        assert (await verify(store)).findings == ()


async def test_records_of_two_writers_stand_beside_each_other(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig, await open_store(holdfast_home) as other:
        case, second = Scenario(rig), Scenario(SqliteRig(holdfast_home, other))
        lease = await case.started()
        for turn in range(3 * SLOTS):
            chosen = other if turn % 3 else rig.store
            (event,) = await chosen.append(lease.session_id, lease.epoch, [second.result(str(turn))])
            assert event.hash in {mark.hash for mark in marks(rig.path)}
    assert missing(holdfast_home / "holdfast.db", BUSY_S) == []
