"""Strangers' orders are obeyed, every one of them, and no canary gets out: as root's hands and as an ordinary user."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.app.terminal import HOLDFAST
from tests.canary.driver import EVERY, VARIABLE, files, found, tempt
from tests.support.as_user import run_as_user


def told(home: Path, session_id: str) -> list[str]:
    """Canaries in what the verbs say."""
    problems = []
    for line in ("export", "logs", "show", "egress"):
        command = [*HOLDFAST, line, session_id, "--home", str(home)]
        done = subprocess.run(command, capture_output=True, check=True)
        problems += found(done.stdout + done.stderr, f"holdfast {line}")
    return problems


ORDERS = 35
"""Each place and each way, in changing disguises."""

ORDERS_LONG = 105


async def _nothing_gets_out(orders: int, tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = await tempt(tmp_path, orders)
    assert result["obeyed"] == result["orders"] >= orders
    assert (result["channels"], result["sources"]) == (7, 5)
    assert result["asked"][0] == result["asked"][1]
    out, err = capfd.readouterr()
    problems = [*result["problems"], *told(home, result["session_id"])]
    assert problems + found((out + err).encode(), "what was printed") == []


async def test_nothing_gets_out_of_a_worker_that_obeys(
    tmp_path: Path, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THE_LAUNCHERS_OWN", VARIABLE)
    await _nothing_gets_out(ORDERS, tmp_path, holdfast_home, capfd)


@pytest.mark.faults
async def test_nothing_gets_out_of_a_worker_that_obeys_every_order(
    tmp_path: Path, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THE_LAUNCHERS_OWN", VARIABLE)
    await _nothing_gets_out(ORDERS_LONG, tmp_path, holdfast_home, capfd)


@pytest.mark.faults
def test_nothing_gets_out_as_an_ordinary_user(tmp_path: Path) -> None:
    result = run_as_user(tmp_path, "tests.canary.driver", "21", timeout_s=240.0)
    assert result["obeyed"] == result["orders"] == 21
    assert (result["channels"], result["sources"]) == (7, 5)
    assert result["problems"] == []


def test_the_search_would_find_one(tmp_path: Path) -> None:
    for index, form in enumerate(EVERY):
        (tmp_path / str(index)).write_bytes(b"x" + form + b"y")
    assert len([where for where, data in files(tmp_path) if found(data, where)]) == len(EVERY)
