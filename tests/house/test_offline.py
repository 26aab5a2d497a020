"""The tests themselves: nothing leaves the machine, homes are separate."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CONNECT = "import socket; socket.create_connection(('192.0.2.1', 443), timeout=5)"


def test_this_process_cannot_reach_another_machine() -> None:
    with pytest.raises(RuntimeError, match="do not reach the network"):
        socket.create_connection(("192.0.2.1", 443), timeout=5)
    with pytest.raises(RuntimeError, match="do not reach the network"):
        socket.getaddrinfo("model.example", 443)


def test_a_child_cannot_reach_another_machine() -> None:
    done = subprocess.run([sys.executable, "-c", CONNECT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "do not reach the network" in done.stderr


def test_loopback_and_unix_sockets_work(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))


def test_the_home_is_of_this_test(holdfast_home: Path, tmp_path: Path) -> None:
    assert os.environ["HOLDFAST_HOME"] == str(holdfast_home)
    assert holdfast_home.is_relative_to(tmp_path)
    assert not holdfast_home.exists()


async def test_async_tests_run_on_asyncio_without_a_mark(anyio_backend_name: str) -> None:
    assert anyio_backend_name == "asyncio"
