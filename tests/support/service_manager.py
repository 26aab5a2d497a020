"""A stand-in for systemd that does what a unit says: `systemctl --user` for tests.

    folder = install(tmp_path, monkeypatch)   # from now on, `systemctl` is this program

It reads ExecStart, Environment, Restart, RestartSec, and RestartPreventExitStatus, kills only the main process, and
starts it again after it ends by itself or is killed. `kill_all(folder)` ends everything at the end of a test.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `systemctl` at the beginning of PATH; return the folder of its state."""
    folder, bin_ = tmp_path / "manager", tmp_path / "bin"
    folder.mkdir()
    bin_.mkdir()
    program = bin_ / "systemctl"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, __file__, str(folder)])} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    return folder


def main_pid(folder: Path) -> int:
    """The process of the one unit that runs; 0 for none."""
    found = [path.read_text() for path in folder.glob("*.pid")]
    return int(found[0]) if found and found[0] else 0


def kill_all(folder: Path) -> None:
    """End the keepers and what they keep."""
    for path in [*folder.glob("*.keeper"), *folder.glob("*.pid")]:
        with suppress(ProcessLookupError, ValueError, FileNotFoundError):
            os.kill(int(path.read_text()), signal.SIGKILL)


def _settings(name: str) -> dict[str, str]:
    unit = Path(os.environ["XDG_CONFIG_HOME"]) / "systemd" / "user" / name
    lines = [line.partition("=") for line in unit.read_text().splitlines() if line[:1] not in ("#", "[", "")]
    return {key: value for key, _, value in lines}


def _words(value: str) -> list[str]:
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(value)]


def _keep(folder: Path, name: str) -> None:
    settings = _settings(name)
    variables = dict(word.split("=", 1) for word in _words(settings["Environment"]))
    restarts = -1
    while True:
        restarts += 1
        (folder / f"{name}.restarts").write_text(str(restarts))
        with (folder / f"{name}.log").open("ab") as log:
            own = {"HOME": os.environ["HOME"], "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], **variables}
            main = subprocess.Popen(_words(settings["ExecStart"]), env=own, cwd="/", stdout=log, stderr=log)
        (folder / f"{name}.pid").write_text(str(main.pid))
        status = main.wait()
        (folder / f"{name}.pid").write_text("")
        if settings["Restart"] != "always" or str(status) in settings["RestartPreventExitStatus"].split():
            return
        threading.Event().wait(float(settings["RestartSec"]))


def _end(folder: Path, name: str) -> None:
    with suppress(ProcessLookupError, ValueError, FileNotFoundError):
        os.kill(int((folder / f"{name}.keeper").read_text()), signal.SIGKILL)
    with suppress(ProcessLookupError, ValueError, FileNotFoundError):
        os.kill(int((folder / f"{name}.pid").read_text()), signal.SIGTERM)
    (folder / f"{name}.pid").write_text("")


def _main(folder: Path, words: list[str]) -> None:
    match [word for word in words if not word.startswith("--")]:
        case ["restart", name]:
            _end(folder, name)
            command = [sys.executable, __file__, str(folder), "keep", name]
            keeper = subprocess.Popen(
                command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            (folder / f"{name}.keeper").write_text(str(keeper.pid))
        case ["keep", name]:
            _keep(folder, name)
        case ["disable", name]:
            _end(folder, name)
        case ["show", name]:
            pid = (folder / f"{name}.pid").read_text()
            print(f"ActiveState={'active' if pid else 'activating'}\nSubState=running\nMainPID={pid or 0}")
            print(f"NRestarts={(folder / f'{name}.restarts').read_text()}\nUnitFileState=enabled")
        case ["show-environment" | "daemon-reload" | "enable", *_]:
            pass
        case other:
            sys.exit(f"Unknown command verb {other}.")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
