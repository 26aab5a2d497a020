"""A log that is not what was written: exit status 6, one line that names the place, and not a byte changed."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.facts.codec import body_digest, chain
from holdfast.log.sql.statements import SCHEMA_VERSION
from tests.app.terminal import Said, Type, bash, kept, rows, script, turn

EVERY = (
    ("ps",),
    ("show", "k"),
    ("logs", "k"),
    ("export", "k"),
    ("verify",),
    ("wake", "k"),
    ("send", "k", "hello"),
    ("interrupt", "k"),
    ("cancel", "k"),
    ("run", "--session-id", "k"),
)


@pytest.fixture
def database(type: Type, holdfast_home: Path) -> Path:
    """The closed log of a done session `k` that has got a message, and of another, `other`."""
    model = script(Path("m.json"), bash("echo a unique output"), turn(text="ok"), turn(text="ok again"))
    type("run", "x", "--model", model, "--session-id", "other").went()
    type("run", "x", "--model", model, "--session-id", "k").went()
    type("send", "k", "a unique message", "--no-wake").went()
    return holdfast_home / "holdfast.db"


def fingerprint(database: Path) -> dict[str, str]:
    """Digests of the log's files."""
    files = sorted(database.parent.glob(f"{database.name}*"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.stat().st_size}


def flip(database: Path, text: bytes) -> None:
    """Turn one bit over in the middle of the only place where `text` stands."""
    content = bytearray(database.read_bytes())
    assert content.count(text) == 1
    content[content.index(text) + len(text) // 2] ^= 1
    database.write_bytes(content)


def test_a_flipped_bit_in_what_a_wake_has_to_read(type: Type, database: Path, holdfast_home: Path) -> None:
    flip(database, b"a unique message")
    before = kept(holdfast_home)
    seq = rows(database, "select max(seq) from events")[0][0]
    for words in (("wake", "k"), ("run", "--session-id", "k"), ("show", "k")):
        type(*words).refused(6, "is damaged", f"at event {seq}:", "holdfast verify")
        assert kept(holdfast_home) == before
    assert _findings(type("verify", "k"), before == kept(holdfast_home)) == {seq}
    assert _findings(type("verify"), before == kept(holdfast_home)) == {seq}
    exported = type("export", "k")
    assert exported.code == 6
    assert len(exported.out.splitlines()) < seq
    assert type("verify", "other").went().code == 0
    assert type("wake", "other").went().out == "ok\n", "another session is not held up"


def test_a_flipped_bit_long_past(type: Type, database: Path, holdfast_home: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        query = "select session_id, seq, body from events join sessions using (session_id) where key = ? and type = ?"
        session, at, body = connection.execute(query, ("k", "agent.tool_result")).fetchone()
        changed = (body.replace(b"unique", b"uniqve"), session, at)
        connection.execute("update events set body = ? where session_id = ? and seq = ?", changed)
    before = kept(holdfast_home)
    (seq,) = _findings(type("verify"), True)
    assert seq == at
    assert kept(holdfast_home) == before


def _findings(said: Said, unchanged: bool) -> set[int]:
    """Where `verify` found damage."""
    assert said.went(6).err == ""
    assert unchanged
    *findings, last = said.out.splitlines()
    assert "finding" in last
    return {int(line.split(" at ")[1].split(":")[0]) for line in findings if line.startswith("DAMAGED  ses_")}


@pytest.fixture(params=["half", "three pages", "header", "text"])
def ruined(request: pytest.FixtureRequest, database: Path) -> Path:
    """A file that is cut off, overwritten, or nothing of ours."""
    content = database.read_bytes()
    match request.param:
        case "half":
            database.write_bytes(content[: len(content) // 2])
        case "three pages":
            database.write_bytes(content[: 3 * 8192 + 100])
        case "header":
            database.write_bytes(b"\0" * 100 + content[100:])
        case _:
            database.write_text("a letter to a friend\n" * 100)
    for beside in database.parent.glob("holdfast.db-*"):
        beside.unlink()
    return database


def test_a_ruined_file(type: Type, ruined: Path) -> None:
    before = fingerprint(ruined)
    codes = set()
    for words in (*EVERY, ("run", "x", "--model", "scripted:m.json"), ("doctor",)):
        said = type(*words)
        if words == ("doctor",):
            assert "BAD    log: " in said.went(6).out
        elif words == ("verify",) and said.out:
            said.went(6)
        elif said.code != 0 or words not in (("ps",), ("logs", "k")):
            said.refused(6, str(ruined))
        codes.add(said.code)
        assert fingerprint(ruined) == before, words
    assert 6 in codes


def test_tables_of_a_newer_version(type: Type, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update meta set value = '9' where name = 'schema'")
    before = fingerprint(database)
    for words in EVERY:
        type(*words).refused(6, "version 9", f"this Holdfast supports {SCHEMA_VERSION}", "upgrade Holdfast")
        assert fingerprint(database) == before


def test_an_event_of_the_future(type: Type, database: Path, holdfast_home: Path) -> None:
    body = b'{"v":99,"id":"evt_future","actor":"brain","fact":{"type":"mission.opened","plan":"grand"}}'
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute("select * from sessions where key = 'k'").fetchone()
        session, seq = row["session_id"], row["head"] + 1
        link = chain(row["head_hash"], session, seq, row["epoch"], 1, "mission.opened", body_digest(body))
        event = (session, seq, row["epoch"], 1, "mission.opened", link, body, None)
        connection.execute("insert into events values (?, ?, ?, ?, ?, ?, ?, ?)", event)
        change = "update sessions set head = ?, head_hash = ?, vocabulary = 99 where session_id = ?"
        connection.execute(change, (seq, link, session))
    before = kept(holdfast_home)
    for words in (("wake", "k"), ("run", "--session-id", "k"), ("show", "k")):
        type(*words).refused(6, "newer", "upgrade Holdfast")
        assert kept(holdfast_home) == before
    assert type("wake", "other").went().out == "ok\n"


def test_a_database_of_another_program(type: Type, holdfast_home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("create table recipes (name)")
    before = fingerprint(other)
    type("ps", "--db", f"sqlite:///{other}").refused(5, "another program", "--db")
    assert fingerprint(other) == before


def test_a_backup_takes_its_place(type: Type, database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup.db"
    shutil.copy(database, copy)
    flip(database, b"a unique message")
    type("wake", "k").refused(6)
    assert type("wake", "k", "--db", f"sqlite:///{copy}").went().out == "ok again\n"
