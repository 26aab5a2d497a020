"""`service`: a unit that systemd accepts, and a stand-in for systemd that does what the unit says."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.terminal import Type, bash, script, turn, typed
from tests.support import service_manager
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("holdfast_home")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a service manager that is used as this machine's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = service_manager.install(tmp_path, monkeypatch)
    yield folder
    service_manager.kill_all(folder)


def units(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "config" / "systemd" / "user").glob("*"))


def test_a_unit_for_any_path_is_one_that_systemd_accepts(
    type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / 'a "b" %n $HOME \\ c'
    said = type("service", "install", "--print", "--home", home, "--port", "7000", "--concurrency", "2").went()
    assert units(tmp_path) == []
    (command,) = (line for line in said.out.splitlines() if line.startswith("ExecStart="))
    assert command.endswith('"--port" "7000" "--concurrency" "2"')
    assert '\\"b\\" %%n $$HOME \\\\ c"' in command
    assert "KillMode=process" in said.out
    type("service", "install", "--print", "--home", tmp_path / "a\nb").refused(2, "cannot have")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine: apt-get install systemd")
    unit = tmp_path / "holdfast.service"
    unit.write_text(said.out)
    runtime = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command_line = ["systemd-analyze", "--user", "--man=no", "verify", str(unit)]
    done = subprocess.run(command_line, capture_output=True, text=True, env=runtime, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_a_service_manager_nothing_changes(type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    type("service", "install").refused(5, "systemd is not on this machine", "nothing was changed", "--print")
    assert units(tmp_path) == []
    assert "holdfast service install" in type("service", "status").went(1).out
    type("service", "remove").went()
    type("service", "status", "--port", "1").refused(2, "--port")


def test_a_killed_server_starts_again_and_goes_on(
    type: Type, tmp_path: Path, manager: Path, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    said = type("service", "install", "--port", port).went()
    assert "ANTHROPIC_API_KEY=…" in said.out
    assert "sk-secret" not in said.out + said.err + units(tmp_path)[0].read_text()
    assert "enable-linger" in said.out

    def serves() -> bool:
        lines = type("service", "status", "--json").lines
        return bool(lines[0]["serves"]) if lines else False

    until(serves)
    long = bash("echo x >> begun; until [ -e go ]; do sleep 0.02; done")
    model = script(tmp_path / "m.json", long, turn(text="It is over."))
    said = type("run", "x", "--model", model, "--session-id", "k", "--detach").went()
    assert "in the worker of this home" in said.out
    until(lambda: list((holdfast_home / "workspaces").glob("*/begun")))
    first = service_manager.main_pid(manager)
    os.kill(first, signal.SIGKILL)
    until(lambda: service_manager.main_pid(manager) not in (0, first))
    (workspace,) = (holdfast_home / "workspaces").iterdir()
    (workspace / "go").touch()
    until(lambda: type("ps", "--json").lines[0]["state"] == "done")
    assert (workspace / "begun").read_text() == "x\n"
    assert "login?link" not in "".join(path.read_text() for path in manager.glob("*.log"))

    typed("stop", "--all").went()
    second = service_manager.main_pid(manager)
    os.kill(second, signal.SIGKILL)
    until(lambda: service_manager.main_pid(manager) not in (0, second))
    until(serves)
    type("run", "y", "--model", model, "--detach").refused(3, "stopped everything", "nothing was started")

    type("service", "remove").went()
    assert units(tmp_path) == []
    until(lambda: not type("ps").went().err and service_manager.main_pid(manager) == 0)
    type("service", "remove").went()
