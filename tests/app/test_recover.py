"""A log that lost acknowledged events is refused by every verb; with consent it goes on, with the loss on record."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast.log.worker_locks import Worker
from tests.app.asking import let_go, processes_of
from tests.app.families import until
from tests.app.terminal import Type, bash, ended, rows, script, spawn, turn, typed

LATE = turn(text="late", delay_s=600.0)
FRAME_BYTES = 4_096 + 24


def types_of(database: Path) -> list[str]:
    """The types of the session's events, in order."""
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("select type from events where session_id != 'ses_home' order by session_id, seq")
        return [type_ for (type_,) in found]


def killed_after_the_call(home: Path, folder: Path, call: dict[str, object]) -> str:
    """Run a session in `folder` to the end of its one call, and kill its brain; the name of its model."""
    work = folder / "work"
    work.mkdir()
    work.chmod(0o777)
    model = script(folder / "m.json", call, LATE)
    brain = spawn("run", "x", "--model", model, "--session-id", "k", "--workspace", work, "--no-sandbox")
    try:
        until(lambda: (home / "holdfast.db").exists() and "agent.tool_result" in _types(home), brain, 300.0)
    finally:
        brain.kill()
        ended(brain)
    return model


def _types(home: Path) -> list[str]:
    try:
        return types_of(home / "holdfast.db")
    except sqlite3.Error:
        return []


def flip_before(home: Path, folder: Path, last: str, lost: str) -> None:
    """Flip the bit of the write-ahead log that makes `last` the end of the log and takes `lost` away."""
    wal = home / "holdfast.db-wal"
    whole = wal.read_bytes()
    for at in range(32, len(whole), FRAME_BYTES):
        flipped = bytearray(whole)
        flipped[at + 2_000] ^= 16
        shutil.copyfile(home / "holdfast.db", folder / "try.db")
        (folder / "try.db-wal").write_bytes(flipped)
        try:
            left = types_of(folder / "try.db")
        except sqlite3.Error:
            continue
        if last in left and lost not in left:
            wal.write_bytes(flipped)
            return
    raise AssertionError(f"no bit separates {last} from {lost}")


@pytest.fixture
def robbed(tmp_path: Path, holdfast_home: Path) -> Iterator[Path]:
    """A home whose session paid once, and whose log ends before the payment was dispatched."""
    killed_after_the_call(holdfast_home, tmp_path, bash("echo PAY >> effects"))
    flip_before(holdfast_home, tmp_path, "agent.tool_use", "tool.dispatched")
    yield holdfast_home
    for pid in processes_of(holdfast_home):  # hands that nobody gave back
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    let_go(holdfast_home)


VERBS = (
    ("wake", "k"), ("verify",), ("ps",), ("send", "k", "x"), ("show", "k"), ("worker",), ("run", "y", "--model", "m"),
)  # fmt: skip


def test_nothing_goes_on_silently_and_nothing_is_done_twice(type: Type, tmp_path: Path, robbed: Path) -> None:
    files = {path.name: path.read_bytes() for path in robbed.glob("holdfast.db*") if not path.name.endswith("-shm")}
    for words in VERBS:
        type(*words).refused(6, "lacks acknowledged events", "holdfast recover")
    shown = type("recover").went(6)
    session = rows_of_copy(robbed, tmp_path)
    assert f"session {session} has events up to 5 and had " in shown.out
    assert "its sandbox started calls that the log does not know: 3.0" in shown.out or "sandbox hnd_" in shown.out
    assert "holdfast recover --yes" in shown.err
    for name, content in files.items():
        assert (robbed / name).read_bytes() == content, f"{name} changed by looking"
    said = type("recover", "--yes", "--json").went()
    (told,) = said.lines
    assert told["recovered"]
    assert (Path(told["kept"]) / "holdfast.db-wal").read_bytes() == files["holdfast.db-wal"]
    assert type("recover").went().out == "no acknowledged event is missing; nothing was changed\n"
    script(tmp_path / "m.json", bash("echo PAY >> effects"), turn(text="done"))
    typed("wake", "k").went()
    assert (tmp_path / "work" / "effects").read_text() == "PAY\n"
    types = types_of(robbed / "holdfast.db")
    assert types.count("session.events_lost") == 1
    assert "tool.outcome_unknown" in types
    assert "tool.dispatched" not in types
    assert type("verify").went().out.endswith("all chains and rows verify\n")
    assert "acknowledged events were lost" in type("logs", "k").went().out


def rows_of_copy(home: Path, folder: Path) -> str:
    """The id of the session."""
    for name in ("holdfast.db", "holdfast.db-wal"):
        shutil.copyfile(home / name, folder / name.replace("holdfast", "look"))
    ((session,),) = rows(folder / "look.db", "select session_id from sessions where key = 'k'")
    return str(session)


def test_recover_says_the_same_twice_and_waits_for_others(type: Type, robbed: Path) -> None:
    with Worker.start(robbed / "workers", "wrk_other"):
        type("recover", "--yes").refused(5, "wrk_other has this home open")
    first, second = (type("recover", "--json").went(6) for _ in range(2))
    assert first.out == second.out
    assert json.loads(first.out)["recovered"] is False


def test_a_restored_backup_is_named_and_accepted(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="one"), turn(text="two"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    with closing(sqlite3.connect(holdfast_home / "holdfast.db")) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    backup = (holdfast_home / "holdfast.db").read_bytes()
    type("send", "k", "more", "--no-wake").went()
    type("wake", "k").went()
    for name in ("holdfast.db-wal", "holdfast.db-shm"):
        (holdfast_home / name).unlink(missing_ok=True)
    (holdfast_home / "holdfast.db").write_bytes(backup)
    type("ps").refused(6, "a restored backup", "holdfast recover")
    assert "had " in type("recover").went(6).out
    type("recover", "--yes").went()
    assert type("verify").went().out.endswith("all chains and rows verify\n")
    type("send", "k", "again", "--no-wake").went()
    type("wake", "k").went()
    assert json.loads(type("ps", "--all", "--json").out)["turns"] == 2


def test_a_whole_home_needs_no_recovery(type: Type) -> None:
    assert type("recover").went().out == "no acknowledged event is missing; nothing was changed\n"
    assert json.loads(type("recover", "--yes", "--json").went().out)["recovered"] is False
