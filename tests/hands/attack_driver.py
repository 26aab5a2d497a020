"""Sets up canaries on the host, runs the attack script in a sandbox, and says what it found."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import zlib
from contextlib import ExitStack, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import anyio

from holdfast.facts.session import HandsPolicy
from holdfast.hands.base import ExecResult, Layer, Network
from holdfast.testing.hands import bash, run
from tests.hands.rigs import RealRig, bubblewrap, real

CANARY = "canary-of-the-launcher"
"""The value of an environment variable of whoever makes the hands."""

HERE = Path(__file__).parent
SCRIPTS = ("attack_tools", "attacks", "attacks_own", "attacks_doors")

LIMITED = HandsPolicy(memory_bytes=1 << 30, processes=200, cpus=1.0, disk_bytes=1 << 30)

BRIDGE = 3128
"""The port inside that leads to the host's end of the way outside."""


async def attack(base: Path, *, full: bool = False) -> dict[str, str]:
    """Attempt → verdict, and beside them what the host saw. `full` hands have layers, a way outside and limits too."""
    assert CANARY in os.environ.values()
    async with real(base, bubblewrap) as rig:
        with Host(base) as host:
            put_scripts(rig.workspace, {**host.canaries, "full": full}, SCRIPTS)
            hands = await rig.provider.provision(rig.spec(**_everything(base, host) if full else {}), 1)
            result = await run(hands, "1.0", bash("/usr/bin/python3 -m tests.hands.attacks", 60.0))
            found = verdicts(result)
            found["50 a daemon that outlives its call"] = await _survivors(rig, result)
            for more in ("attacks_own", "attacks_doors"):
                found |= verdicts(await run(hands, more, bash(f"/usr/bin/python3 -m tests.hands.{more}", 60.0)))
            ended = await run(hands, "1.2", bash("kill -9 -1; sleep 60", 20.0))
            found["62 kill everything"] = "blocked" if not ended.ok and not ended.timed_out else f"LEAK {ended}"
            after = await run(hands, "2.0", bash("echo still here"))
            found["62 the agent after all that"] = "blocked" if after.output == "still here\n" else f"LEAK {after}"
            found["01 what stood outside"] = "blocked" if os.listdir(host.outside) == [] else "LEAK"
            found["47 git on the host"] = _git(rig.workspace)
            if full:
                found["own: what lies under layers, on the host"] = _lower(base)
            return found


def put_scripts(workspace: Path, canaries: dict[str, Any], names: tuple[str, ...]) -> None:
    """What runs inside, and what it is told of the host."""
    folder = workspace / "tests" / "hands"
    folder.mkdir(parents=True)
    for name in names:
        shutil.copy(HERE / f"{name}.py", folder / f"{name}.py")
    (workspace / "host.json").write_text(json.dumps(canaries))


def _everything(base: Path, host: Host) -> dict[str, Any]:
    return {"layers": _layers(base), "network": Network(host.canaries["door"], BRIDGE), "policy": LIMITED}


def _lower(base: Path) -> str:
    folder = base / "layer" / "deps"
    seen = {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    as_it_was = seen == {"added": 0o644, "inner": 0o755} and (folder / "added").read_text() == "added\n"
    return "blocked" if as_it_was and not os.listxattr(folder) else f"LEAK {seen}"


def _layers(base: Path) -> tuple[Layer, ...]:
    """Something over the system's programs, something writable in the workspace, something read-only elsewhere."""
    for name in ("bin", "deps", "shared"):
        (base / "layer" / name).mkdir(parents=True)
        (base / "layer" / name / "added").write_text("added\n")
    (base / "layer" / "deps" / "inner").mkdir(mode=0o755)
    for path in (base / "layer", *(base / "layer").iterdir()):
        path.chmod(0o755)
    layer = base / "layer"
    return (
        Layer("/usr", (str(layer),), over=True),
        Layer("/workspace/node_modules", (str(layer / "deps"),), private=True),
        Layer("/opt/environment", (str(layer / "shared"),)),
    )


def verdicts(result: ExecResult) -> dict[str, str]:
    assert result.exit_code == 0, result
    found: dict[str, str] = json.loads(result.output)
    return found


async def _survivors(rig: RealRig, result: ExecResult) -> str:
    """The planted daemon writes every 50 ms while it lives: it must have been ended with its call."""
    planted = rig.workspace / "survivor"
    before = planted.read_text() if planted.exists() else ""
    await anyio.sleep(0.2)
    after = planted.read_text() if planted.exists() else ""
    return "blocked" if before == after and result.killed >= 1 else f"LEAK killed {result.killed}"


def _git(workspace: Path) -> str:
    """Git on the host must not take the workspace for a repository of the attacker's."""
    asked = subprocess.run(
        ["/usr/bin/git", "-C", str(workspace), "rev-parse", "--git-dir"],
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(workspace.parent)},
    )
    return "blocked" if asked.returncode != 0 else f"LEAK {asked.stdout!r}"


class Host:
    """Things of the host that a command must not reach."""

    def __init__(self, base: Path, label: str = "") -> None:
        self.outside = base / "outside"
        self.outside.mkdir()
        self.outside.chmod(0o777)
        secret = base / "secret"
        secret.write_text("key")
        secret.chmod(0o644)
        self._open = ExitStack()
        tcp = self._open.enter_context(socket.create_server(("127.0.0.1", 0)))
        name = f"holdfast-test-{os.getpid()}{label}"
        self._listen("\0" + name)
        self._listen(str(base / "socket"))
        (base / "door").mkdir(mode=0o755)
        door = self._listen(str(base / "door" / "socket"))
        Thread(target=_greet, args=(door,), daemon=True).start()
        key = self._shared(name)
        argument = f"canary-argument-{os.getpid()}"
        waiting = ["/bin/sh", "-c", "read line", argument]
        self._open.enter_context(subprocess.Popen(waiting, stdin=subprocess.PIPE))
        self.canaries: dict[str, Any] = {
            "outside": str(self.outside),
            "secret_file": str(secret),
            "canary": CANARY,
            "pids": [os.getpid(), os.getppid()],
            "port": tcp.getsockname()[1],
            "abstract": name,
            "socket_file": str(base / "socket"),
            "argument": argument,
            "door": str(base / "door" / "socket"),
            "bridge": BRIDGE,
            "hostname": socket.gethostname(),
            "addresses": _addresses(),
            "shm_key": key,
            "shm_file": name,
            "queue": f"/{name}",
        }

    def _listen(self, path: str) -> socket.socket:
        sock = self._open.enter_context(socket.socket(socket.AF_UNIX))
        sock.bind(path)
        if path.startswith("/"):
            os.chmod(path, 0o777)
        sock.listen(512)
        self._open.callback(sock.shutdown, socket.SHUT_RDWR)
        return sock

    def _shared(self, name: str) -> int:
        """Memory and a queue that have names for all of the machine; returns the key of the memory."""
        libc = ctypes.CDLL(None, use_errno=True)
        key = 0x47000000 | zlib.crc32(name.encode()) & 0xFFFFFF
        segment = libc.shmget(key, 4096, 0o1666)
        assert segment >= 0, os.strerror(ctypes.get_errno())
        self._open.callback(libc.shmctl, segment, 0, None)
        queue = libc.mq_open(f"/{name}".encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
        assert queue >= 0, os.strerror(ctypes.get_errno())
        self._open.callback(libc.mq_unlink, f"/{name}".encode())
        file = Path("/dev/shm") / name
        file.write_text("shared")
        file.chmod(0o666)
        self._open.callback(file.unlink)
        return key

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _greet(door: socket.socket) -> None:
    """The host's end of the way outside: says hello to everybody, until it is closed."""
    while True:
        try:
            client, _ = door.accept()
        except OSError:
            return
        with client, suppress(OSError):
            client.send(b"hello")


def _addresses() -> list[str]:
    """Addresses of this machine that are no loopback, as the kernel lists them."""
    lines = Path("/proc/net/fib_trie").read_text().splitlines()
    local = [before.split()[-1] for before, line in pairwise(lines) if "host LOCAL" in line]
    return sorted({address for address in local if not address.startswith("127.")})


if __name__ == "__main__":
    print(json.dumps(anyio.run(partial(attack, Path(sys.argv[1]), full=len(sys.argv) > 2))))
