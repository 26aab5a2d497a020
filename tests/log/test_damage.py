"""A file that is not what was written: an error of ours with its exit status, and nothing written."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from holdfast.errors import LogDamaged, LogUnavailable, SchemaTooNew, UnknownItem, UnknownSession
from holdfast.facts.codec import SCHEMA, Event, body_digest, chain, encode_body, genesis
from holdfast.facts.people import ApprovalDecided
from holdfast.log.base import Post, Snapshot
from holdfast.log.sql.statements import SCHEMA_VERSION
from holdfast.log.verify import Beside, rebuild, verify
from holdfast.testing.log import Scenario
from tests.log.rigs import SqliteRig, open_store, sql_of, sqlite_rig

SESSIONS = ("ses_a", "ses_b", "ses_c")


async def story(home: Path) -> None:
    """Three sessions of some size, in a closed and checkpointed file."""
    async with sqlite_rig(home) as rig:
        case = Scenario(rig)
        for name in SESSIONS:
            lease = await case.started(name, cap=10**6)
            for turn in range(12):
                await case.append(lease, case.request(10))
                await case.append(lease, case.result(f"{name} {turn} " * 40))
                asked = turn == 5
                said = case.question(f"itm_{name[-1]}") if asked else case.message()
                await rig.store.post(Post(name, f"k{turn}", said))
            (event,) = await case.append(lease, case.result("x" * 70_000))
            await rig.store.save(Snapshot(name, event.seq, event.hash, "fold", b"state" * 100))
            await rig.store.release(lease)


async def everything(home: Path) -> tuple[dict[str, list[Event]], Beside]:
    async with await open_store(home) as store:
        events = {name: await store.read(name, prev=genesis(name)) for name in SESSIONS}
        return events, await store.beside()


async def use(home: Path, truth: tuple[dict[str, list[Event]], Beside]) -> int:
    """Do everything with a damaged file. Only errors of ours; what is read is true. Returns how many errors."""
    errors = 0
    try:
        store = await open_store(home, busy_timeout_s=0.2)
    except (LogDamaged, LogUnavailable):
        return 1
    async with store:
        case = Scenario(SqliteRig(home, store))
        for name in SESSIONS:
            attempts = [
                store.read(name, prev=genesis(name)),
                store.find(name),
                store.load(name, "fold"),
                store.wait(name, 0),
                store.look(lambda look, name=name: list(look.stored(name))),  # type: ignore[misc]
                verify(store, name),
                store.post(Post(name, "new", case.message())),
                store.acquire(name, case.shift("wrk_x"), steal=True),
            ]
            for index, attempt in enumerate(attempts):
                try:
                    found: object = await attempt
                    if index == 0:
                        assert found == truth[0][name]
                    if isinstance(found, Snapshot):
                        assert found.state == b"state" * 100
                except (LogDamaged, LogUnavailable, UnknownSession):
                    errors += 1
        lists = [store.sessions(), store.due(2**60), store.accounts(), store.holders(), verify(store)]
        lists += [store.items(), store.item("itm_a"), store.account("ses_a"), store.next_due(0), store.stopped()]
        for last in lists:
            try:
                await last
            except (LogDamaged, UnknownItem):
                errors += 1
    return errors


async def try_flips(home: Path, tmp_path: Path, seed: int, times: int) -> None:
    await story(home)
    truth = await everything(home)
    pristine = (home / "holdfast.db").read_bytes()
    chance = random.Random(seed)
    noticed = 0
    for turn in range(times):
        copy = tmp_path / f"copy-{turn}"
        copy.mkdir()
        flipped = bytearray(pristine)
        for _ in range(chance.choice((1, 1, 8))):
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        (copy / "holdfast.db").write_bytes(flipped)
        noticed += await use(copy, truth) > 0
        shutil.rmtree(copy)
    assert noticed > times / 4, f"seed {seed}: of {times} flipped files only {noticed} met an error"


async def test_a_flipped_byte_is_never_believed(holdfast_home: Path, tmp_path: Path) -> None:
    await try_flips(holdfast_home, tmp_path, seed=1, times=30)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(2, 12))
async def test_flipped_bytes_are_never_believed(holdfast_home: Path, tmp_path: Path, seed: int) -> None:
    await try_flips(holdfast_home, tmp_path, seed, times=100)


@pytest.mark.parametrize("part", [0.0001, 0.003, 0.1, 0.5, 0.9, 0.9999])
async def test_a_truncated_file_is_damage(holdfast_home: Path, part: float) -> None:
    await story(holdfast_home)
    truth = await everything(holdfast_home)
    path = holdfast_home / "holdfast.db"
    path.write_bytes(path.read_bytes()[: max(1, int(path.stat().st_size * part))])
    assert await use(holdfast_home, truth) > 0


@pytest.mark.parametrize("seed", range(4))
async def test_a_damaged_tail_of_the_wal_leaves_a_prefix(holdfast_home: Path, tmp_path: Path, seed: int) -> None:
    """What was not checkpointed may be cut by a disk that lied; the rest is whole, and the chain says so."""
    chance = random.Random(seed)
    copy = tmp_path / "copy"
    copy.mkdir()
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        lease = await case.started()
        written = list(await rig.store.read("ses_a"))
        for turn in range(20):
            written += await case.append(lease, case.result(f"{turn} " * 100))
        wal = (holdfast_home / "holdfast.db-wal").read_bytes()
        shutil.copy(holdfast_home / "holdfast.db", copy)
    if seed % 2:
        wal = wal[: -chance.randrange(1, 100_000)]
    else:
        at = len(wal) - chance.randrange(1, 100_000)
        wal = wal[:at] + bytes([wal[at] ^ 1 << chance.randrange(8)]) + wal[at + 1 :]
    (copy / "holdfast.db-wal").write_bytes(wal)
    async with await open_store(copy) as store:
        events = await store.read("ses_a", prev=genesis("ses_a"))
        assert events == written[: len(events)]
        assert 1 <= len(events) < len(written)
        assert (await verify(store)).findings == ()


@pytest.mark.parametrize(
    ("statement", "session", "seq"),
    [
        ("update events set body = cast(replace(body, 'ses_b', 'ses_c') as blob) where seq = 4", "ses_b", 4),
        ("update events set at_us = at_us + 1 where session_id = 'ses_b' and seq = 7", "ses_b", 7),
        ("update events set epoch = 2 where session_id = 'ses_b' and seq = 7", "ses_b", 7),
        ("update events set type = 'user.cancel' where session_id = 'ses_b' and seq = 7", "ses_b", 7),
        ("update events set hash = zeroblob(32) where session_id = 'ses_b' and seq = 7", "ses_b", 7),
        ("update events set seq = 'x' where session_id = 'ses_b' and seq = 7", "ses_b", 7),
        ("update events set body = 7 where session_id = 'ses_b' and seq = 7", "ses_b", 7),
        ("delete from events where session_id = 'ses_b' and seq = 7", "ses_b", 7),
        ("delete from events where session_id = 'ses_b' and seq = 40", "ses_b", 40),
        ("update events set seq = seq + 100 where session_id = 'ses_b' and seq > 6", "ses_b", 7),
        ("delete from blobs", "ses_b", 39),
        ("update blobs set bytes = zeroblob(100)", "ses_b", 39),
        ("update sessions set head = 39 where session_id = 'ses_b'", "ses_b", 40),
        ("update sessions set head_hash = zeroblob(32) where session_id = 'ses_b'", "ses_b", 40),
    ],
)
async def test_an_edit_is_named(holdfast_home: Path, statement: str, session: str, seq: int) -> None:
    await story(holdfast_home)
    with sql_of(holdfast_home / "holdfast.db") as sql:
        sql.execute(statement)
    async with await open_store(holdfast_home) as store:
        with pytest.raises(LogDamaged) as caught:
            await store.read(session, prev=genesis(session))
        assert (caught.value.session_id, caught.value.seq) == (session, seq)
        assert caught.value.exit_code == 6
        findings = {(each.session_id, each.seq) for each in (await verify(store)).findings}
        assert (session, seq) in findings


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("update sessions set goal = 'another' where session_id = 'ses_b'", "goal"),
        ("update sessions set vocabulary = 99 where session_id = 'ses_b'", "schema version"),
        ("update sessions set due_us = null where session_id = 'ses_b'", "due_us"),
        ("delete from sessions where session_id = 'ses_b'", "no row"),
        ("delete from events where session_id = 'ses_b'", "none"),
        ("delete from posts where session_id = 'ses_b' and key = 'k3'", "posts"),
        ("update posts set seq = 2 where session_id = 'ses_b' and key = 'k3'", "posts"),
        ("update accounts set spent_pico = 1 where account_id = 'ses_b'", "account ses_b"),
        ("delete from accounts where account_id = 'ses_b'", "account ses_b"),
        ("delete from reservations where session_id = 'ses_b' and seq = 3", "reservations"),
        ("insert into reservations values ('ses_b', 4, 10)", "reservations"),
        ("update sessions set root = 'ses_a' where session_id = 'ses_b'", "root"),
        ("update sessions set owner = 'eve' where session_id = 'ses_b'", "owner"),
        ("update accounts set spend = x'929192010190' where account_id = 'ses_a'", "account ses_a"),
        ("update accounts set cap_day_pico = 1 where account_id = 'ses_a'", "account ses_a"),
        ("update accounts set caps_us = caps_us + 1 where account_id = 'ses_a'", "account ses_a"),
        ("update items set status = 'approved' where item_id = 'itm_b'", "items"),
        ("update items set title = 'delete less' where item_id = 'itm_b'", "items"),
        ("delete from items where item_id = 'itm_b'", "items"),
        ("insert into items values ('itm_x', 'ses_b', 4, 'tool', 't', 1, null, 'open', null, null)", "items"),
    ],
)
async def test_rows_that_do_not_follow_are_named(holdfast_home: Path, statement: str, what: str) -> None:
    await story(holdfast_home)
    with sql_of(holdfast_home / "holdfast.db") as sql:
        sql.execute(statement)
    async with await open_store(holdfast_home) as store:
        findings = (await verify(store)).findings
        assert len(findings) == 1
        assert what in findings[0].message


async def test_rows_can_be_dropped_and_made_again(holdfast_home: Path) -> None:
    """S20: nothing beside the events is needed to make what lies beside them."""
    await story(holdfast_home)
    _, before = await everything(holdfast_home)
    with sql_of(holdfast_home / "holdfast.db") as sql:
        for table in ("sessions", "posts", "items", "accounts", "reservations", "snapshots"):
            sql.execute(f"delete from {table}")
    async with await open_store(holdfast_home) as store:
        assert await store.beside() == Beside()
        assert await rebuild(store) == before


async def test_tables_of_a_newer_version_are_left_alone(holdfast_home: Path) -> None:
    await story(holdfast_home)
    with sql_of(holdfast_home / "holdfast.db") as sql:
        sql.execute("update meta set value = ? where name = 'schema'", (str(SCHEMA_VERSION + 1),))
    before = contents(holdfast_home)
    with pytest.raises(SchemaTooNew, match="upgrade Holdfast") as caught:
        await open_store(holdfast_home)
    assert caught.value.exit_code == 6
    assert contents(holdfast_home) == before


async def test_events_of_a_newer_schema_are_not_skipped_and_not_acquired(holdfast_home: Path) -> None:
    """Written by a program of tomorrow, chained as it should be: S19."""
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        await case.open()
        row = await case.row()
        body = b'{"v":%d,"id":"evt_new","actor":"brain","fact":{"type":"task.opened","n":1}}' % (SCHEMA + 1)
        hash_ = chain(row.head_hash, "ses_a", 2, 0, 5, "task.opened", body_digest(body))
        with rig.sql() as sql:
            sql.execute("insert into events values ('ses_a', 2, 0, 5, 'task.opened', ?, ?, null)", (hash_, body))
            sql.execute("update sessions set head = 2, head_hash = ?, vocabulary = ?", (hash_, SCHEMA + 1))
        error = await case.refused(SchemaTooNew, rig.store.read("ses_a", prev=genesis("ses_a")), "ses_a")
        assert (error.session_id, error.seq) == ("ses_a", 2)
        await case.refused(SchemaTooNew, case.take(), "ses_a")
        await case.refused(SchemaTooNew, case.take(steal=True), "ses_a")
        assert [finding.seq for finding in (await verify(rig.store)).findings] == [2]
        await case.say("ses_a", "a post is still taken")
        await case.refused(SchemaTooNew, case.take(), "ses_a")


async def test_a_second_answer_is_found(holdfast_home: Path) -> None:
    """The log takes one (S21); put behind its back and chained as it should be, verify names it."""
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        lease = await case.started()
        await case.append(lease, case.question("itm_a"))
        await case.answer("ses_a", "itm_a")
        row = await case.row()
        body = encode_body(case.draft(ApprovalDecided(item_id="itm_a", verdict="deny")), "another key")
        hash_ = chain(row.head_hash, "ses_a", 5, 1, 5, "approval.decided", body_digest(body))
        with rig.sql() as sql:
            sql.execute("insert into events values ('ses_a', 5, 1, 5, 'approval.decided', ?, ?, null)", (hash_, body))
            sql.execute("update sessions set head = 5, head_hash = ?", (hash_,))
        (finding,) = (await verify(rig.store)).findings
        assert finding.seq == 5
        assert "item itm_a already has an answer, at event 4" in finding.message


async def test_a_file_of_another_program_is_left_alone(holdfast_home: Path) -> None:
    holdfast_home.mkdir()
    with sql_of(holdfast_home / "holdfast.db") as sql:
        sql.execute("create table songs (name text)")
    before = contents(holdfast_home)
    with pytest.raises(LogUnavailable, match="another program"):
        await open_store(holdfast_home)
    assert contents(holdfast_home) == before


async def test_a_file_that_is_no_database_is_left_alone(holdfast_home: Path) -> None:
    holdfast_home.mkdir()
    (holdfast_home / "holdfast.db").write_text("dear diary, " * 1_000)
    before = contents(holdfast_home)
    with pytest.raises(LogDamaged, match="damaged"):
        await open_store(holdfast_home)
    assert contents(holdfast_home) == before


async def test_a_database_that_stays_locked_is_said(holdfast_home: Path) -> None:
    await story(holdfast_home)
    async with await open_store(holdfast_home, busy_timeout_s=0.05) as store:
        case = Scenario(SqliteRig(holdfast_home, store))
        other = sqlite3.connect(holdfast_home / "holdfast.db", isolation_level=None)
        other.execute("begin immediate")
        await case.refused(LogUnavailable, case.say("ses_a", "new"), "ses_a")
        assert len(await store.read("ses_a", prev=genesis("ses_a"))) == 40
        other.execute("rollback")
        other.close()
        await case.say("ses_a", "new")


async def test_a_place_that_cannot_hold_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogUnavailable, match="--home"):
        await open_store(tmp_path / "file")
    (tmp_path / "holdfast.db").mkdir()
    with pytest.raises(LogUnavailable, match="--home"):
        await open_store(tmp_path)


async def test_a_closed_store_says_so(holdfast_home: Path) -> None:
    store = await open_store(holdfast_home)
    await store.close()
    await store.close()
    case = Scenario(SqliteRig(holdfast_home, store))
    with pytest.raises(LogUnavailable, match="closed"):
        await case.open()
    with pytest.raises(LogUnavailable, match="closed"):
        await store.wait("ses_a", 0)
    with pytest.raises(LogUnavailable, match="closed"):
        await store.changed(0)


async def test_the_file_is_its_users_alone(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        await Scenario(rig).open()
        modes = {path.name: path.stat().st_mode & 0o777 for path in holdfast_home.glob("holdfast.db*")}
    assert modes == dict.fromkeys(("holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "holdfast.db-mark"), 0o600)


def contents(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
