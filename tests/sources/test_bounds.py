"""Sources that flood, stop in the middle of a line, or send what is no event; and limits of each kind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import SourceError, UsageError
from holdfast.sources.command import CommandSource, Output
from holdfast.sources.directory import DirectorySource
from holdfast.sources.http import HttpSource
from holdfast.sources.records import RECORDS_MAX, RESPONSE_BYTES, read
from holdfast.sources.settings import CommandSettings, DirectorySettings, HttpSettings, Shape, parse_settings
from holdfast.testing.sources import drain, names
from tests.sources.rigs import PASSWORD, PostgresRig, RedisRig, SqliteRig, postgres, redis_at
from tests.support.receiver import Receiver, Reply

NUMBERED = Shape(key="name", cursor_field="n")


def lines(*values: Any) -> bytes:
    """JSON lines."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


async def poll_command(out: bytes, **changed: Any) -> Any:
    """Poll a command that printed this."""

    async def run(command: str, env: dict[str, str], timeout_s: float, out_bytes: int) -> Output:
        return Output(**{"exit_code": 0, "out": out, **changed})

    return await CommandSource(CommandSettings(command="true", key="name"), run).poll("", 10)


async def test_half_a_line_takes_nothing() -> None:
    whole = lines({"name": "event-1"})
    with pytest.raises(SourceError, match="not complete"):
        await poll_command(whole + b'{"name": "eve')
    assert names(await poll_command(whole + b'{"name": "event-2"}')) == ["event-1", "event-2"]


async def test_a_line_that_is_no_event_is_refused_and_the_others_count() -> None:
    polled = await poll_command(b'{"name": "\xff\xfe"}\nnot json\n[1]\n' + lines({"name": "event-1"}, {"other": 1}))
    assert names(polled) == ["event-1"]
    assert len(polled.rejected) == 4
    assert len({each.key for each in polled.rejected}) == 4
    assert (await poll_command(b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}\n")).rejected


async def test_a_command_that_fails_takes_nothing() -> None:
    out = lines({"name": "event-1"})
    for changed, why in (
        ({"exit_code": 3, "err": "no such\x1b[31m table"}, "status 3: no such"),
        ({"exit_code": None}, "did not end"),
        ({"cut": True}, "printed more than"),
    ):
        with pytest.raises(SourceError, match=why) as caught:
            await poll_command(out, **changed)
        assert "\x1b" not in str(caught.value)


def test_a_flood_is_bounded() -> None:
    with pytest.raises(SourceError, match="larger than"):
        read(b"1\n" * (RESPONSE_BYTES // 2 + 1), Shape(), "", 10)
    with pytest.raises(SourceError, match="no field to continue after"):
        read(lines(*range(RECORDS_MAX + 1)), Shape(), "", 10)
    numbered = lines(*({"name": f"event-{n}", "n": n} for n in range(RECORDS_MAX + 1)))
    polled = read(numbered, NUMBERED, "", 10)
    assert (len(polled.events), polled.cursor, polled.more) == (10, "9", True)
    garbage = read(b"x\n" * 5_000 + b"\n", NUMBERED, "", 10)
    assert (len(garbage.rejected), garbage.note) == (10, "5000 records were refused; 10 of them are named")


def test_events_with_one_value_to_continue_after_are_not_split() -> None:
    found = [{"name": f"event-{n}", "n": n // 3} for n in range(9)]
    polled = read(lines(*found), NUMBERED, "", 5)
    assert (names(polled), polled.cursor) == (["event-0", "event-1", "event-2"], "0")
    with pytest.raises(SourceError, match="same value"):
        read(lines(*found), NUMBERED, "", 2)


def test_an_event_that_is_too_large_is_refused() -> None:
    polled = read(lines({"name": "event-1", "body": "x" * 70_000}), Shape(key="name"), "", 10)
    assert (polled.events, polled.rejected[0].reason) == ((), "the event is larger than 65536 bytes")
    assert len(polled.rejected[0].excerpt) < 300


async def test_a_response_that_is_no_success_or_no_list_takes_nothing() -> None:
    with Receiver() as server:
        source = HttpSource(HttpSettings(url=server.url, items="items", timeout_s=20), lambda name: "")
        for reply, why in (
            (Reply(302, {"location": "/"}), "status 302"),
            (Reply(200, {}, b'{"items": [1, 2'), "not JSON"),
            (Reply(200, {}, b'{"items": {}}'), "no array"),
            (Reply(200, {}, b"[" * 200), "not JSON"),
            (Reply(200, {}, b"x" * (RESPONSE_BYTES + 1)), "larger than"),
        ):
            server.planned.append(reply)
            with pytest.raises(SourceError, match=why):
                await source.poll("", 10)


def directory(folder: Path, **changed: Any) -> DirectorySource:
    """A source of the files of a folder."""
    return DirectorySource(DirectorySettings(**{"path": str(folder), **changed}), SystemClock())


def settle(path: Path) -> None:
    """Make a file look as if it was written long ago."""
    os.utime(path, (1_000_000, 1_000_000))


class Later(SystemClock):
    """A clock that is a minute ahead, so that files have settled."""

    def now_us(self) -> int:
        return super().now_us() + 60_000_000


async def test_a_file_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    source = DirectorySource(DirectorySettings(path=str(tmp_path), settle_s=1.0), Later())
    with (tmp_path / "a.csv").open("wb", buffering=0) as writer:
        writer.write(b"half")
        (tmp_path / "b.csv").write_text("whole")
        polled = await source.poll("", 10)
        assert [each.data["path"] for each in polled.events] == ["b.csv"]
    after = await source.poll(polled.cursor, 10)
    assert [each.data["path"] for each in after.events] == ["a.csv"]
    fresh = await directory(tmp_path, settle_s=3_600.0).poll("", 10)
    assert fresh.events == (), "these files are younger than an hour"


async def test_a_process_that_opens_a_file_during_a_poll_is_not_disturbed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    source = DirectorySource(DirectorySettings(path=str(tmp_path), settle_s=1.0), Later())
    assert len((await source.poll("", 10)).events) == 1
    with (tmp_path / "a").open("ab") as writer:
        assert fcntl.fcntl(writer, fcntl.F_GETLEASE) == fcntl.F_UNLCK


async def test_a_changed_file_counts_again_even_if_it_looks_the_same(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    settle(file)
    _, cursor = await drain_paths(directory(tmp_path, settle_s=0.0), "")
    assert (await directory(tmp_path, settle_s=0.0).poll(cursor, 10)).events == ()
    file.write_text("two")
    settle(file)
    found, cursor = await drain_paths(directory(tmp_path, settle_s=0.0), cursor)
    assert len(found) == 1, "size, time, and file are the same, the content is not"
    file.chmod(0o600)
    again, _ = await drain_paths(directory(tmp_path, settle_s=0.0), cursor)
    assert again <= found, "no content has changed, so the event has the same key"


async def drain_paths(source: DirectorySource, cursor: str) -> tuple[set[str], str]:
    """Poll until nothing is left; return the keys and the cursor."""
    keys = set[str]()
    for _ in range(100):
        polled = await source.poll(cursor, 3)
        keys |= {each.key for each in polled.events}
        if not polled.events:
            return keys, polled.cursor
        cursor = polled.cursor
    raise AssertionError("not empty")


async def test_links_hidden_and_special_files_do_not_count(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("x")
    (inside / ".hidden").write_text("x")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "folder-link").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    (inside / "deep").mkdir()
    (inside / "deep" / "file").write_text("x")
    (inside / os.fsdecode(b"na\xffme")).write_text("x")
    polled = await directory(inside, settle_s=0.0).poll("", 10)
    assert {each.data["path"] for each in polled.events} == {"deep/file", "na\N{REPLACEMENT CHARACTER}me"}


async def test_many_files_come_in_parts_and_are_all_there(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number}").write_text("x")
    source, cursor, paths = directory(tmp_path, settle_s=0.0), "", set[str]()
    for _ in range(600 // 20 + 2):
        polled = await source.poll(cursor, 20)
        paths |= {each.data["path"] for each in polled.events}
        cursor = polled.cursor
    assert len(paths) == 600
    assert len(cursor) < 4_000


async def test_sqlite_cannot_be_written(tmp_path: Path) -> None:
    rig = SqliteRig(tmp_path)
    rig.add("event-1")
    for query in (
        "INSERT INTO events VALUES (:cursor + 7, 'x') RETURNING id -- ORDER BY",
        f"ATTACH '{tmp_path}/other.db' AS o -- :cursor ORDER BY",
        "PRAGMA user_version = 3 -- :cursor ORDER BY",
        "SELECT load_extension(:cursor) ORDER BY 1",
    ):
        with pytest.raises(SourceError):
            await rig.source(query=query).poll("", 10)
    assert not (tmp_path / "other.db").exists()
    endless = "WITH RECURSIVE n(i) AS (SELECT :cursor UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n ORDER BY 1"
    with pytest.raises(SourceError, match="interrupted"):
        await rig.source(query=endless, timeout_s=0.2).poll("", 10)


async def test_rows_out_of_order_or_without_a_value_take_nothing(tmp_path: Path) -> None:
    rig = SqliteRig(tmp_path)
    for number in range(3):
        rig.add(f"event-{number}")
    for query, why in (
        ("SELECT id, body FROM events WHERE id > :cursor ORDER BY id DESC", "not in the order"),
        ("SELECT NULL, body FROM events WHERE id > :cursor ORDER BY id", "no value"),
        ("SELECT id FROM nowhere WHERE id > :cursor ORDER BY id", "no such table"),
    ):
        with pytest.raises(SourceError, match=why):
            await rig.source(query=query).poll("", 10)
    with contextlib.closing(sqlite3.connect(rig.database)) as writer, writer:
        writer.execute("UPDATE events SET body = x'00ff'")
    polled = await rig.source().poll("", 10)
    assert len(polled.events) == 3


async def test_a_row_that_commits_late_is_not_missed(tmp_path: Path) -> None:
    """PostgreSQL gives out ids before transactions commit: a lower id can appear after a higher one was read."""
    with postgres(tmp_path) as address:
        rig = PostgresRig(address)
        try:
            with psycopg.connect(address, password=PASSWORD) as slow:
                slow.execute("INSERT INTO events (body) VALUES ('event-slow')")
                rig.add("event-fast")
                found, cursor = await drain(rig.source())
                assert list(found.values()) == ["event-fast"]
                again, cursor = await drain(rig.source(), cursor)
                assert again == {}, "what was taken is not taken again while the cursor waits"
                slow.commit()
            late, cursor = await drain(rig.source(), cursor)
            assert list(late.values()) == ["event-slow"]
            rig.add("event-last")
            last, cursor = await drain(rig.source(), cursor)
            assert list(last.values()) == ["event-last"]
            _, cursor = await drain(rig.source(), cursor)
            assert json.loads(cursor)["after"] == 3, "the cursor has moved on, and holds no more rows"
            writes = "SELECT nextval('events_id_seq') FROM events WHERE id > :cursor::int ORDER BY 1"
            with pytest.raises(SourceError, match="read-only"):
                await rig.source(query=writes).poll("", 10)
        finally:
            rig.close()


async def test_redis_says_that_entries_were_trimmed(tmp_path: Path) -> None:
    with redis_at(tmp_path) as port:
        rig = RedisRig(port)
        rig.add("event-0")
        start = (await rig.source().poll("", 10)).cursor
        for number in range(1, 4):
            rig.add(f"event-{number}")
        rig.client.xtrim("events", maxlen=1, approximate=False)
        polled = await rig.source().poll(start, 10)
        assert names(polled) == ["event-3"]
        assert polled.note == "2 entries were removed from the stream before they were read"
        assert (await rig.source().poll(polled.cursor, 10)).note == ""
        rig.client.xadd("events", {"body": b"\xff"})
        assert len((await rig.source().poll(polled.cursor, 10)).rejected) == 1
        rig.close()


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("mail", {}, "unknown kind"),
        ("directory", {"path": "here"}, "not absolute"),
        ("directory", {"path": "/x", "tail_bytes": 10**9}, "tail_bytes"),
        ("directory", {"path": "/x", "other": 1}, "unknown field"),
        ("command", {"command": " "}, "empty"),
        ("http", {"url": "http://example.com"}, "begins with http"),
        ("http", {"url": "https://u:p@example.com"}, "user name or password"),
        ("http", {"url": "https://example.com", "cursor_param": "since"}, "cursor_field"),
        ("sql", {"database": "/x.db", "query": "SELECT 1"}, "after :cursor"),
        (
            "sql",
            {"database": "postgresql://u:p@h/d", "query": "SELECT a FROM t WHERE a > :cursor ORDER BY a"},
            "password",
        ),
        ("redis", {"url": "redis://:pw@h", "stream": "s"}, "password"),
        ("webhook", {"secret": ""}, "secret"),
    ],
)
def test_settings_that_cannot_work_are_refused(kind: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_settings(kind, settings)
