"""Sets up canaries on the host, runs the attack script in a sandbox, and says what it found."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from holdfast.hands.base import ExecResult, Layer
from holdfast.testing.hands import bash, run
from tests.hands.rigs import RealRig, bubblewrap, real

CANARY = "canary-of-the-launcher"
"""The value of an environment variable of whoever makes the hands."""

SCRIPT = Path(__file__).parent / "attacks.py"


async def attack(base: Path, *, layered: bool = False) -> dict[str, str]:
    """Attempt → verdict, and beside them what the host saw. `layered` hands stand on an environment too."""
    assert CANARY in os.environ.values()
    async with real(base, bubblewrap) as rig:
        with _Host(base) as host:
            shutil.copy(SCRIPT, rig.workspace / "attacks.py")
            (rig.workspace / "host.json").write_text(json.dumps(host.canaries))
            hands = await rig.provider.provision(rig.spec(layers=_layers(base) if layered else ()), 1)
            result = await run(hands, "1.0", bash("/usr/bin/python3 attacks.py", 60.0))
            found = _verdicts(result)
            found["50 a daemon that outlives its call"] = await _survivors(rig, result)
            after = await run(hands, "2.0", bash("echo still here"))
            found["62 the agent after all that"] = "blocked" if after.output == "still here\n" else f"LEAK {after}"
            found["01 what stood outside"] = "blocked" if os.listdir(host.outside) == [] else "LEAK"
            found["47 git on the host"] = _git(rig.workspace)
            return found


def _layers(base: Path) -> tuple[Layer, ...]:
    """Something over the system's programs, something writable in the workspace, something read-only elsewhere."""
    for name in ("bin", "deps", "shared"):
        (base / "layer" / name).mkdir(parents=True)
        (base / "layer" / name / "added").write_text("added\n")
    for path in (base / "layer", *(base / "layer").iterdir()):
        path.chmod(0o755)
    layer = base / "layer"
    return (
        Layer("/usr", (str(layer),), over=True),
        Layer("/workspace/node_modules", (str(layer / "deps"),), private=True),
        Layer("/opt/environment", (str(layer / "shared"),)),
    )


def _verdicts(result: ExecResult) -> dict[str, str]:
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


class _Host:
    """Things of the host that a command must not reach."""

    def __init__(self, base: Path) -> None:
        self.outside = base / "outside"
        self.outside.mkdir()
        self.outside.chmod(0o777)
        secret = base / "secret"
        secret.write_text("key")
        secret.chmod(0o644)
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._file = socket.socket(socket.AF_UNIX)
        self._file.bind(str(base / "socket"))
        os.chmod(base / "socket", 0o777)
        self._file.listen()
        self._abstract = socket.socket(socket.AF_UNIX)
        name = f"holdfast-test-{os.getpid()}"
        self._abstract.bind("\0" + name)
        self._abstract.listen()
        self.canaries: dict[str, Any] = {
            "outside": str(self.outside),
            "secret_file": str(secret),
            "canary": CANARY,
            "pids": [os.getpid(), os.getppid()],
            "port": self._tcp.getsockname()[1],
            "abstract": name,
            "socket_file": str(base / "socket"),
        }

    def __enter__(self) -> _Host:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._tcp, self._file, self._abstract):
            sock.close()


if __name__ == "__main__":
    print(json.dumps(anyio.run(partial(attack, Path(sys.argv[1]), layered=len(sys.argv) > 2))))
