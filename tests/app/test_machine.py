"""What the machine cannot do: full disks, folders that cannot be written, no sandbox. Exit status 5, and all is kept.

Each lack is real, and made for one command alone: a small file system, a read-only mount or a closed door in a mount
namespace of its own (made by bubblewrap), or a limit of the process.
"""

from __future__ import annotations

import argparse
import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.app.call import Call
from holdfast.app.cli.start import start
from tests.app.terminal import HOLDFAST, Said, Type, bash, ended, in_scratch, kept, rows, script, spawn, turn, typed

BWRAP = "/usr/bin/bwrap"


@pytest.fixture(autouse=True)
def _can_make_namespaces() -> None:
    tried = subprocess.run([BWRAP, "--dev-bind", "/", "/", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"bubblewrap makes no mount namespace here: {tried.stderr.decode().strip()}")


@pytest.fixture
def note(tmp_path: Path) -> str:
    """A model that writes a note."""
    return script(tmp_path / "m.json", bash("echo hello > note.txt"), turn(text="There is a note now."))


def within(mounts: list[str], *words: str | Path, **options: object) -> Said:
    """A command in a mount namespace of its own."""
    command = [BWRAP, "--dev-bind", "/", "/", *mounts, "--", *HOLDFAST, *in_scratch(words)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


STORY = """
holdfast() { printf '\\0'; {holdfast} "$@" 2>&1; printf '\\1%s' $?; }
fill() { dd if=/dev/zero of="$HOLDFAST_HOME/ballast" bs=1k 2>/dev/null; }
free() { rm "$HOLDFAST_HOME/ballast"; }
keep_full() {
  until ls "$HOLDFAST_HOME"/workspaces/*/ballast > /dev/null 2>&1; do sleep 0.05; done
  until [ -e "$1" ]; do
    dd if=/dev/zero of="$HOLDFAST_HOME/ballast" oflag=append conv=notrunc bs=1k 2> /dev/null
    sleep 0.02
  done
}
"""


def story(home: Path, size: int, text: str) -> list[tuple[int, str]]:
    """Type several commands with a home on a file system of that many bytes. (exit status, what was said) of each."""
    home.mkdir()
    shell = STORY.replace("{holdfast}", " ".join(HOLDFAST)) + text
    mounts = ["--size", str(size), "--tmpfs", str(home)]
    command = [BWRAP, "--dev-bind", "/", "/", *mounts, "--", "/bin/sh", "-c", shell]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    said = []
    for piece in done.stdout.split("\0")[1:]:
        text, _, code = piece.partition("\1")
        assert "Traceback" not in text
        assert "should not happen" not in text
        said.append((int(code), text))
    return said


def test_a_disk_that_fills_between_commands(note: str, holdfast_home: Path) -> None:
    said = story(
        holdfast_home,
        3_000_000,
        f"""
        holdfast run x --scratch --model {note} --session-id k
        fill
        holdfast send k more
        holdfast run x --scratch --model {note} --session-id new
        holdfast ps
        free
        holdfast ps
        holdfast send k more
        holdfast wake k
        holdfast verify
        """,
    )
    assert [code for code, _ in said] == [0, 5, 5, 5, 0, 0, 0, 0]
    for _, text in said[1:4]:
        (line,) = text.splitlines()
        assert "is full" in line
        assert "free some space" in line
    assert len(said[4][1].splitlines()) == 2, "no second session"
    assert said[5][1].startswith("posted as event 16 of k")
    assert said[7][1].startswith("1 session, ")


def test_a_disk_that_fills_in_the_middle_of_a_run(holdfast_home: Path, tmp_path: Path) -> None:
    """It stays full until the run has ended, whatever frees a page meanwhile."""
    model = script(
        tmp_path / "m.json",
        bash("echo x >> traces; dd if=/dev/zero of=ballast bs=1k 2>/dev/null; true"),
        bash("cat traces"),
        turn(text="over"),
    )
    said = story(
        holdfast_home,
        3_000_000,
        f"""
        keep_full {tmp_path}/ended &
        holdfast run x --scratch --model {model} --session-id k
        touch {tmp_path}/ended
        wait
        rm "$HOLDFAST_HOME"/workspaces/*/ballast "$HOLDFAST_HOME/ballast"
        holdfast ps
        holdfast wake k
        holdfast logs k --type agent.tool_result tool.outcome_unknown
        holdfast verify
        """,
    )
    assert [code for code, _ in said] == [5, 0, 0, 0, 0]
    assert "is full" in said[0][1].splitlines()[-1]
    assert "died" in said[1][1]
    assert said[3][1].splitlines()[-1].endswith(": x"), "the command ran once"


def test_a_disk_that_was_always_full(holdfast_home: Path) -> None:
    said = story(holdfast_home, 40_000, "holdfast ps\nholdfast doctor")
    assert [code for code, _ in said] == [5, 5]
    (line,) = said[0][1].splitlines()
    assert "is full" in line
    assert "BAD    log: the disk" in said[1][1]


def test_a_first_start_that_failed_is_repeated_well(holdfast_home: Path) -> None:
    said = story(holdfast_home, 400_000, "fill\nholdfast ps\nfree\nholdfast ps\nholdfast verify")
    assert [code for code, _ in said] == [5, 0, 0]


def test_a_file_size_limit(type: Type, note: str, holdfast_home: Path) -> None:
    type("run", "x", "--model", note, "--session-id", "k").went()
    before = kept(holdfast_home)
    # A first start needs more than this; later ones write their next pages beyond it.
    for limit, words in ((20_000, ("ps", "--home", f"{holdfast_home}-new")), (20_000, ("send", "k", "x" * 50_000))):

        def limited(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        ended(spawn(*words, preexec_fn=limited)).refused(5)
    assert kept(holdfast_home) == before
    type("send", "k", "more", "--no-wake").went()
    assert type("wake", "k").went().out.startswith("The script has no more turns")


def test_a_home_that_cannot_be_written(type: Type, note: str, holdfast_home: Path, tmp_path: Path) -> None:
    type("run", "x", "--model", note, "--session-id", "k").went()
    before = kept(holdfast_home)
    locked = ["--ro-bind", str(tmp_path), str(tmp_path)]
    for home in (holdfast_home, holdfast_home / "inner"):
        for words in (("ps",), ("wake", "k"), ("run", "x", "--model", note)):
            within(locked, *words, "--home", home).refused(5, "Read-only file system", "--home")
    (tmp_path / "file").touch()
    type("ps", "--home", tmp_path / "file").refused(5, str(tmp_path / "file"), "--home DIR or HOLDFAST_HOME")
    type("ps", "--home", "/proc/home").refused(5, "/proc/home", "--home DIR or HOLDFAST_HOME")
    assert kept(holdfast_home) == before


def test_a_workspace_that_cannot_be_written(type: Type, note: str, holdfast_home: Path, tmp_path: Path) -> None:
    type("ps").went()
    before = kept(holdfast_home)
    folder = tmp_path / "project"
    folder.mkdir(0o755)
    locked = ["--ro-bind", str(folder), str(folder)]
    within(locked, "run", "x", "--model", note, "--workspace", folder).refused(2, str(folder), "not writable")
    assert kept(holdfast_home) == before


def test_no_bubblewrap(type: Type, note: str, holdfast_home: Path, tmp_path: Path) -> None:
    type("ps").went()
    before = kept(holdfast_home)
    folder = tmp_path / "project"
    folder.mkdir(0o755)
    gone = ["--ro-bind", "/dev/null", BWRAP]
    refused = ("run", "x", "--model", note)
    for words in (refused, (*refused, "--workspace", str(folder)), (*refused, "--detach", "--session-id", "k")):
        within(gone, *words).refused(5, "bubblewrap is not installed", "bubblewrap", "holdfast doctor", "--no-sandbox")
    if os.getuid() == 0:
        within(gone, *refused, "--workspace", str(folder), "--take-over").refused(5, "bubblewrap is not installed")
        assert folder.stat().st_uid == 0, "nothing was given away"
    assert kept(holdfast_home) == before
    doctor = within(gone, "doctor").went(5)
    assert "BAD    bubblewrap: bubblewrap is not installed" in doctor.out
    assert "fix: type: " in doctor.out
    free = within(gone, *refused, "--no-sandbox").went()
    assert "WARNING: tools run without a sandbox" in free.err


def test_a_session_whose_sandbox_went_away(type: Type, holdfast_home: Path) -> None:
    model = script(Path("n.json"), turn(text="ok"), bash("echo late"), turn(text="made it"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    type("send", "k", "go on", "--no-wake").went()
    refused = within(["--ro-bind", "/dev/null", BWRAP], "wake", "k")
    assert refused.code == 5
    assert refused.err.splitlines()[-1].startswith("holdfast wake: bubblewrap is not installed")
    assert rows(holdfast_home / "holdfast.db", "select status from sessions") == [("runnable",)]
    assert type("wake", "k").went().out == "made it\n"


def test_user_namespaces_are_closed(type: Type, note: str, holdfast_home: Path) -> None:
    type("ps").went()
    before = kept(holdfast_home)
    closed = ["--unshare-user", "--disable-userns"]
    said = within(closed, "run", "x", "--model", note)
    said.refused(5, "cannot isolate tool calls", "nothing was started", "holdfast doctor")
    assert kept(holdfast_home) == before
    assert "BAD    sandbox: " in within(closed, "doctor").went(5).out


def test_no_git_and_no_path(type: Type, note: str) -> None:
    assert typed("run", "x", "--model", note, env={"PATH": "/nowhere"}).went().out == "There is a note now.\n"


def test_the_folder_that_one_stands_in_is_gone(tmp_path: Path, note: str) -> None:
    here = tmp_path / "gone"
    for words in ("ps", f"run x --scratch --model {note}"):
        command = f"mkdir {here} && cd {here} && rmdir {here} && exec {' '.join(HOLDFAST)} {words}"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        Said(done.returncode, done.stdout, done.stderr).went()


def test_a_workspace_that_was_removed(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(Path("m.json"), bash("true"), bash("true"), turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "k", "--max-turns", "1").went(4)
    (folder,) = (holdfast_home / "workspaces").iterdir()
    shutil.rmtree(folder)
    assert type("run", "--session-id", "k", "--max-turns", "9").went().out == "ok\n"
    (told,) = type("logs", "k", "--type", "hands.restored", "--json").lines
    assert "as it was kept" in str(told)
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("error", "code", "pieces"),
    [
        (ZeroDivisionError("a bug"), 1, ("ZeroDivisionError: a bug", "intact in the log", "please report")),
        (OSError(errno.ENOSPC, "No space left on device", "/somewhere"), 5, ("the disk is full", "/somewhere")),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 5, ("the disk is full", "quota")),
        (PermissionError(errno.EACCES, "Permission denied", "/there"), 5, ("the machine refused", "/there")),
    ],
    ids=["bug", "full", "quota", "denied"],
)
def test_whatever_else_goes_wrong_is_one_line(
    capfd: pytest.CaptureFixture[str], error: Exception, code: int, pieces: tuple[str, ...]
) -> None:
    async def broken(call: Call) -> int:
        raise error

    assert start(broken, argparse.Namespace(verb="ps")) == code
    out, err = capfd.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith("holdfast ps: ")
    assert all(piece in line for piece in pieces), line
    if code == 1:
        place = Path(line.split("The details are in ")[1].split(":")[0])
        assert "ZeroDivisionError: a bug" in place.read_text()
        assert place.stat().st_mode & 0o077 == 0
        place.unlink()
