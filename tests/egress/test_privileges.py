"""What a proxy may still do once it reads what strangers send: of a real one, as the kernel tells it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from holdfast import uids
from holdfast.egress.journal import notes
from holdfast.privileges import CAP_KILL
from holdfast.seccomp import assemble_here
from tests.egress.privileges_driver import seen
from tests.support.as_user import run_as_user

ROOT = os.getuid() == 0


MINIMUM = {
    "CapEff": "0" * 16,
    "CapPrm": "0" * 16,
    "CapInh": "0" * 16,
    "CapAmb": "0" * 16,
    "NoNewPrivs": "1",
    "Seccomp": "2",
}


@pytest.fixture(scope="module")
def of_root(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The status of a proxy of whoever runs the tests."""
    folder = tmp_path_factory.mktemp("proxy")
    folder.chmod(0o711)
    return anyio.run(seen, folder)


@pytest.fixture(scope="module")
def of_user(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The status of a proxy of an ordinary user."""
    folder = tmp_path_factory.mktemp("user")
    folder.chmod(0o711)
    found: dict[str, str] = run_as_user(folder, "tests.egress.privileges_driver")
    return found


@pytest.mark.parametrize("name", MINIMUM)
def test_a_proxy_keeps_the_minimum(name: str, of_root: dict[str, str]) -> None:
    assert of_root[name] == MINIMUM[name]


@pytest.mark.parametrize("name", MINIMUM)
def test_a_proxy_of_an_ordinary_user_keeps_the_minimum(name: str, of_user: dict[str, str]) -> None:
    assert of_user[name] == MINIMUM[name]


@pytest.mark.skipif(not ROOT, reason="only a root has other user ids to give")
def test_a_proxy_of_root_is_a_user_of_its_own(of_root: dict[str, str]) -> None:
    (uid,) = set(of_root["Uid"].split())
    assert int(uid) in range(*uids.PROCESSES)
    assert of_root["CapBnd"] == "0" * 16
    assert of_root["files"] == uid
    assert of_root["Groups"] == ""


ATTACKS = {
    "start a program": "os.execv('/bin/true', ['true'])",
    "start one by its descriptor": "os.execve(os.open('/bin/true', os.O_RDONLY), ['true'], {})",
    "a set-user program": "os.execv('/bin/su', ['su', '-c', 'true'])",
    "look into its keeper": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "kill its keeper": "os.kill(os.getppid(), 9)",
    "trace its keeper": "calls.ptrace(16, os.getppid(), 0, 0)",
    "read a file of root's": "open('/etc/shadow').read()",
    "write one": "open('/etc/holdfast-was-here', 'w')",
    "become root": "os.setuid(0)",
    "mount": "calls.mount(b'none', b'/mnt', b'tmpfs', 0, None)",
    "a namespace": "calls.unshare(0x10000000)",
    "a raw socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "a module": "calls.syscall(175, None, 0, b'')",
    "change the root": "os.chroot('/tmp')",
}
"""Code that a taken-over proxy might run. Each raises, or answers -1."""

ATTACKER = """
import ctypes, json, os, socket, sys
sys.path[:] = json.loads(sys.argv[1])
from holdfast import privileges, seccomp
libc = ctypes.CDLL(None)
class calls:
    def __getattr__(self, name):
        def call(*given):
            if getattr(libc, name)(*given) == -1:
                raise OSError(name)
        return call
calls = calls()
parent = os.getpid()
pid = os.fork()
if pid == 0:
    try:
        if sys.argv[2] == "confined":
            uid = int(sys.argv[3])
            privileges.give_up(uid=uid, gid=uid, filter_calls=seccomp.assemble_here(programs=False))
        exec(sys.argv[4])
    except (OSError, PermissionError):
        os._exit(7)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def attacked(how: str, code: str) -> int:
    """The exit status of a process that tries it."""
    uid = uids.set_apart("proxy test", "process") if ROOT else os.getuid()
    words = [sys.executable, "-I", "-c", ATTACKER, json.dumps(sys.path), how, str(uid), code]
    return subprocess.run(words, capture_output=True, check=False).returncode


@pytest.mark.parametrize("name", ATTACKS)
def test_a_proxy_that_was_taken_over_cannot(name: str) -> None:
    if not ROOT and name == "kill its keeper":
        pytest.skip("an ordinary user's proxy and its keeper are one user: signals pass")
    assert attacked("confined", ATTACKS[name]) == 7


@pytest.mark.skipif(not ROOT, reason="an ordinary user can do none of it anyway")
@pytest.mark.parametrize("name", ["start a program", "read a file of root's", "become root", "a namespace"])
def test_without_that_it_could(name: str) -> None:
    assert attacked("free", ATTACKS[name]) == 0


PLANTED: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "noise": lambda path: path.write_bytes(b"\xff" * 1000),
    "another's lines": lambda path: path.write_text('{"n": "x"}\n{"n": 1, "seen": 7}\n'),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_journal_that_was_replaced_is_read_without_harm(name: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    PLANTED[name](journal)
    found = notes(journal, 3)
    assert (found.through, found.seen) == (3, ())


def test_what_is_kept_is_what_was_asked_for() -> None:
    if not ROOT:
        pytest.skip("only root has capabilities to keep")
    kept = f"assert int(privileges.status()['CapEff'], 16) == {1 << CAP_KILL}"
    code = f"privileges.give_up(uid=90000, gid=90000, keep=({CAP_KILL},)); {kept}"
    assert attacked("free", code) == 0
    assert assemble_here(programs=False) != assemble_here()
