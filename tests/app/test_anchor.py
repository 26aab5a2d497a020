"""Heads of chains noted elsewhere: a log that was cut off, written anew, or lost a session shows."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.terminal import Said, Type, script, spawn, turn
from tests.support.child import await_end, command_of
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that only talks."""
    return script(tmp_path / "m.json", turn(text="Done."))


def sessions(type: Type, model: str, *names: str) -> None:
    for name in names:
        type("run", "x", "--model", model, "--session-id", name, "--no-sandbox").went()


def change(home: Path, *statements: str) -> None:
    """What a thief of the file can do: change it as he likes."""
    with closing(sqlite3.connect(home / "holdfast.db")) as connection:
        for trigger in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            connection.execute(f"drop trigger {trigger[0]}")
        connection.execute("pragma foreign_keys = off")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def id_of(type: Type, name: str) -> str:
    (line,) = type("show", name, "--json").went().lines
    return str(line["session_id"])


def test_a_log_that_grew_holds_its_anchors(type: Type, model: str, tmp_path: Path) -> None:
    file = tmp_path / "anchors"
    sessions(type, model, "a", "b")
    type("anchor", "--to", file).went()
    type("send", "a", "go on").went()
    type("wake", "a").went()
    type("anchor", "--to", file, "a").went()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [set(line) for line in lines] == [{"type", "session_id", "seq", "hash", "at"}] * len(lines)
    first, *_, last = [line for line in lines if line["session_id"] == id_of(type, "a")]
    assert last["seq"] > first["seq"]
    said = type("verify", "--anchor", file).went()
    assert f"and {len(lines)} anchors" in said.out
    assert type("verify", "a", "--anchor", file, "--json").went().lines[0]["findings"] == []


def cut_off(home: Path, name: str) -> None:
    """The newest events of a session go, and its row is made to fit."""
    with closing(sqlite3.connect(home / "holdfast.db")) as connection:
        hash_, seq = connection.execute(
            "select hash, seq from events where session_id = ? order by seq desc limit 1 offset 2", (name,)
        ).fetchone()
    change(
        home,
        f"delete from events where session_id = '{name}' and seq > {seq}",
        f"update sessions set head = {seq}, head_hash = x'{bytes(hash_).hex()}' where session_id = '{name}'",
    )


def gone(home: Path, name: str) -> None:
    change(home, *(f"delete from {table} where session_id = '{name}'" for table in ("events", "sessions")))


def other_hash(seq: str) -> Callable[[Path, str], None]:
    def act(home: Path, name: str) -> None:
        where = f"session_id = '{name}' and seq = (select {seq}(seq) from events where session_id = '{name}')"
        change(home, f"update events set hash = x'{'ab' * 32}' where {where}")

    return act


def new_home(home: Path, name: str) -> None:
    for file in home.glob("holdfast.db*"):
        file.unlink()


ATTACKS: dict[str, tuple[Callable[[Path, str], None], str]] = {
    "cut off": (cut_off, "the log was truncated"),
    "session gone": (gone, "is gone"),
    "written anew": (other_hash("max"), "the log was rewritten"),
    "another log": (new_home, "is gone"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_done_to_the_log_shows(
    type: Type, model: str, tmp_path: Path, holdfast_home: Path, attack: str
) -> None:
    file = tmp_path / "anchors"
    sessions(type, model, "a", "b")
    type("anchor", "--to", file).went()
    name = id_of(type, "a")
    act, said = ATTACKS[attack]
    act(holdfast_home, name)
    (holdfast_home / "holdfast.db-mark").unlink(missing_ok=True)  # whoever may write the log may write its watermark
    found = type("verify", "--anchor", file)
    assert found.code == 6
    (line,) = [line for line in found.out.splitlines() if name in line and said in line]
    assert line.startswith("DAMAGED")
    assert "Traceback" not in found.err


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Two SSH keys, and a file that allows the first."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen here")
    for name in ("mine", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name)], check=True
        )
    public = (tmp_path / "mine.pub").read_text()
    (tmp_path / "allowed").write_text(f'anna@example.com namespaces="holdfast" {public}')
    return tmp_path


def verified(type: Type, keys: Path, *, allowed: bool = True) -> Said:
    words = ("--allowed-signers", keys / "allowed") if allowed else ()
    return type("verify", "--anchor", keys / "anchors", *words)


def test_signed_anchors_hold(type: Type, model: str, keys: Path) -> None:
    sessions(type, model, "a")
    for _ in range(2):
        assert "signed" in type("anchor", "--to", keys / "anchors", "--sign", keys / "mine").went().out
    verified(type, keys).went()
    verified(type, keys, allowed=False).went()


def unsigned(file: Path, keys: Path, type: Type) -> None:
    type("anchor", "--to", file).went()


def by_another_key(file: Path, keys: Path, type: Type) -> None:
    file.unlink()
    type("anchor", "--to", file, "--sign", keys / "other").went()


def for_another_purpose(file: Path, keys: Path, type: Type) -> None:
    *data, _ = file.read_bytes().splitlines(keepends=True)
    command = ["ssh-keygen", "-Y", "sign", "-f", str(keys / "mine"), "-n", "git"]
    made = subprocess.run(command, input=b"".join(data), capture_output=True, check=True).stdout.decode()
    line = json.dumps({"type": "signature", "lines": len(data), "signature": made})
    file.write_bytes(b"".join(data) + line.encode() + b"\n")


def a_line_changed(file: Path, keys: Path, type: Type) -> None:
    file.write_text(file.read_text().replace('"at":"20', '"at":"19', 1))


def a_line_gone(file: Path, keys: Path, type: Type) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))


def no_json(file: Path, keys: Path, type: Type) -> None:
    file.write_bytes(file.read_bytes() + b"\xff\xfe[[[\n" + b"[" * 5_000 + b"\n")


FORGERIES = {
    "unsigned": (unsigned, "are not signed"),
    "by another key": (by_another_key, "does not allow its key"),
    "for another purpose": (for_another_purpose, "is not good"),
    "a line changed": (a_line_changed, "is not good"),
    "a line gone": (a_line_gone, "are missing"),
    "no JSON": (no_json, "neither an anchor nor a signature"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_anchor_shows(type: Type, model: str, keys: Path, forgery: str) -> None:
    sessions(type, model, "a", "b")
    type("anchor", "--to", keys / "anchors", "--sign", keys / "mine").went()
    verified(type, keys).went()
    act, said = FORGERIES[forgery]
    act(keys / "anchors", keys, type)
    found = verified(type, keys)
    assert found.code == 6
    assert any(line.startswith("DAMAGED") and said in line for line in found.out.splitlines()), found
    assert "Traceback" not in found.err


def test_a_torn_line_does_not_spoil_the_next(type: Type, model: str, tmp_path: Path) -> None:
    file = tmp_path / "anchors"
    sessions(type, model, "a")
    file.write_text('{"type":"anchor","session')
    type("anchor", "--to", file).went()
    said = type("verify", "--anchor", file)
    assert said.code == 6
    assert len([line for line in said.out.splitlines() if line.startswith("DAMAGED")]) == 1
    assert "line 1 is neither" in said.out
    assert {json.loads(line)["type"] for line in file.read_text().splitlines()[1:]} == {"anchor"}


def test_a_command_takes_them(type: Type, model: str, tmp_path: Path) -> None:
    sessions(type, model, "a")
    kept = tmp_path / "kept"
    type("anchor", "--exec", "sh", "-c", f"cat >> {kept}").went()
    type("verify", "--anchor", kept).went()


def test_a_command_that_reads_nothing_is_fine(type: Type, model: str) -> None:
    sessions(type, model, "a")
    type("anchor", "--exec", "true").went()


def test_a_command_that_closes_its_input_with_much_on_the_way(type: Type, model: str) -> None:
    sessions(type, model, "a")
    many = ["a"] * 2_000
    type("anchor", *many, "--exec", "sh", "-c", "exec <&-; exit 0").went()


def test_a_command_that_never_ends_is_ended_with_its_children(
    type: Type, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions(type, model, "a")
    monkeypatch.setattr("holdfast.app.cli.integrity.LIMIT_S", 1.0)
    known = tmp_path / "pid"
    type("anchor", "--exec", "sh", "-c", f"tail -f /dev/null & echo $! > {known}; wait").refused(
        5, "did not end within 1 s"
    )
    child = int(known.read_text())
    await_end(child, PATIENCE_S)  # its end follows the signal, but not at once
    assert command_of(child) == b""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "say where the anchors go"),
        (("--to", "f", "--exec", "true"), 2, "say where the anchors go"),
        (("--exec",), 2, "say where the anchors go"),
        (("--exec", "/nowhere/at/all"), 2, "cannot be run"),
        (("--exec", "false"), 5, "ended with status 1"),
        (("--to", "/dev/full"), 5, "No space left"),
        (("--to", "/nowhere/at/all"), 5, "No such file"),
        (("--to", "f", "--sign", "/nowhere/key"), 5, "cannot sign"),
        (("nobody", "--to", "f"), 2, "nobody"),
    ],
)
def test_what_cannot_be_done_is_said(type: Type, model: str, words: tuple[str, ...], code: int, said: str) -> None:
    sessions(type, model, "a")
    type("anchor", *words).refused(code, said)
    assert not Path("f").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--anchor", "none"), "cannot be read"),
        (("--anchor", "/dev/null"), "has no anchors"),
        (("--allowed-signers", "x"), "name their file"),
    ],
)
def test_an_anchor_file_that_says_nothing_is_refused(type: Type, words: tuple[str, ...], said: str) -> None:
    type("verify", *words).refused(2, said)


def test_anchors_are_written_while_sessions_run(model: str, type: Type, tmp_path: Path) -> None:
    file = tmp_path / "anchors"
    slow = script(tmp_path / "slow.json", turn(text="…", delay_s=0.2), turn(text="Done."))
    running = [spawn("run", "x", "--model", slow, "--session-id", f"s{n}", "--no-sandbox") for n in range(2)]
    for _ in range(3):
        type("anchor", "--to", file).went()
    for process in running:
        process.communicate(timeout=120)
    type("anchor", "--to", file).went()
    type("verify", "--anchor", file).went()
