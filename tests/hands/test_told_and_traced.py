"""What an approver is told of a command, against what strace sees of it in the sandbox."""

from __future__ import annotations

import posixpath
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from holdfast.facts.session import Destination, EgressPolicy, Workspace
from holdfast.session.tools.commands import ROOT
from holdfast.session.tools.effects import Effects, effects_of, told
from holdfast.testing.hands import bash, run
from tests.hands.rigs import REAL, RealRig, real
from tests.hands.told_commands import COMMANDS, FILES

OPEN = EgressPolicy(allow=(Destination("docs.example.com"),))
DEFINITE = 45

_CALLS = "trace=open,openat,creat,truncate,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,"
_CALLS += "symlink,symlinkat,chdir,fchdir,chmod,fchmodat,connect,sendto,execve"
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (\d+)")
_HALF = re.compile(r"^(\d+) +(.*) <unfinished \.\.\.>$")
_REST = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_ATTEMPT = re.compile(r"^\d+ +(?:connect|sendto)\(.*sa_family=AF_INET", re.MULTILINE)
_PATH = re.compile(r'(?:AT_FDCWD<([^>]*)>|\d+<([^>]*)>)?(?:, )?"([^"]*)"')
_WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
_MARK = "/tmp/mark-"


class Seen(NamedTuple):
    """What one command did: paths that it changed, programs of the workspace that it ran, whether it used a network."""

    changed: set[str]
    executed: set[str]
    network: bool


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RealRig]:
    async with real(tmp_path, REAL["bubblewrap"]) as made:
        for name, content in FILES.items():
            path = made.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        yield made


async def test_sixty_commands_do_what_approvers_are_told(rig: RealRig, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed; scripts/setup installs it for root")
    hands = await rig.provider.provision(rig.spec(), 1)
    trace = tmp_path / "trace"
    strace = await _attached(rig.supervisor(hands), trace)
    try:
        for number, command in enumerate(COMMANDS):
            await run(hands, f"{number}.0", bash(f": > {_MARK}{number}\n{command}"))
    finally:
        strace.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(strace.wait)
    pieces = re.split(rf'.*"{_MARK}\d+", O_.*\n', trace.read_text())[1:]
    assert len(pieces) == len(COMMANDS), f"{len(pieces)} commands in the trace"
    definite = 0
    for command, piece in zip(COMMANDS, pieces, strict=True):
        effects = effects_of("bash", {"command": command}, main="command")
        definite += effects.writes is not None and not effects.network
        assert _false_statements(effects, _seen(piece)) == [], command
    assert len(COMMANDS) >= 60
    assert definite >= DEFINITE, f"{definite} commands are told of definitely"
    assert _ATTEMPT.search(pieces[COMMANDS.index("curl -s --max-time 1 http://192.0.2.1/ || true")])
    assert "sorted.csv" in _seen(pieces[COMMANDS.index("sort data.csv > sorted.csv")]).changed


def _false_statements(effects: Effects, seen: Seen) -> list[str]:
    text = told(effects, Workspace("/home/u/work"), OPEN)
    false = []
    if effects.writes is None:
        assert "unknown" in text
    else:
        assert ("changes no files" in text) == (not effects.writes)
        false += [
            f"changed {path}"
            for path in seen.changed
            if not any(path == name or name == "." or path.startswith(f"{name}/") for name in effects.writes)
        ]
    if "no network" in text and seen.network:
        false.append("used a network")
    if effects.executes == () and seen.executed:
        false.append(f"ran {seen.executed}")
    return false


def _seen(piece: str) -> Seen:
    changed: set[str] = set()
    made: set[str] = set()
    executed: set[str] = set()
    folders: dict[str, str] = {}
    for pid, call, arguments in _calls(piece):
        for base, _, _ in _PATH.findall(arguments):
            folders[pid] = base or folders.get(pid, ROOT)
        paths = [_full(base or of or folders[pid], name) for base, of, name in _PATH.findall(arguments)]
        if call == "fchdir":
            folders[pid] = arguments.partition("<")[2].rstrip(">")
        elif call == "chdir":
            folders[pid] = paths[0]
        elif call == "execve":
            executed |= {path for path in paths[:1] if path.startswith(ROOT + "/")}
        elif call in ("open", "openat") and not _WRITING.search(arguments):
            continue
        elif call.startswith("symlink"):
            changed |= set(paths[-1:])
        elif call.startswith(("unlink", "rename")):
            changed = (changed - made) | {path for path in paths if path not in made}
            made -= set(paths)
        elif call not in ("connect", "sendto"):
            made |= set(paths[-1:]) if "O_EXCL" in arguments else set()
            changed |= set(paths[-1:])
    inside = {path.removeprefix(ROOT + "/") for path in changed if path.startswith(ROOT + "/")}
    scratch = {path for path in changed if path.startswith("/tmp/") and "mark-" not in path}
    return Seen(inside | scratch, executed, bool(_ATTEMPT.search(piece)))


def _calls(piece: str) -> Iterator[tuple[str, str, str]]:
    """The calls that succeeded: pid, name, arguments. One that strace shows in two halves is put together."""
    halves: dict[str, str] = {}
    for line in piece.splitlines():
        if half := _HALF.match(line):
            halves[half[1]] = half[2]
            continue
        rest = _REST.match(line)
        whole = _LINE.match(f"{rest[1]} {halves.pop(rest[1], '')}{rest[2]}" if rest else line)
        if whole:
            yield whole[1], whole[2], whole[3]


def _full(base: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(base, path))


async def _attached(supervisor: int, trace: Path) -> subprocess.Popen[bytes]:
    """strace on all that runs below the supervisor, once it watches."""
    pids = [word for pid in _below(supervisor) for word in ("-p", str(pid))]
    command = ["strace", "-f", "-y", "-s", "4096", "-e", _CALLS, "-o", str(trace), *pids]
    said = Path(f"{trace}.said")
    strace = _started(command, said)
    with anyio.fail_after(60):
        while said.read_text().count(" attached") < len(pids) // 2:
            if strace.poll() is not None:
                pytest.skip(f"strace may not watch the sandbox here: {said.read_text().strip()[-200:]}")
            await anyio.sleep(0.01)
    return strace


def _started(command: list[str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("wb") as stderr:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr)


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *_below(child))]
