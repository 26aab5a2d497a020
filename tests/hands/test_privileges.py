"""What the processes beside a sandbox may still do, of real ones, as the kernel tells it (docs/hands.md)."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from holdfast import uids
from holdfast.privileges import CAP_KILL
from tests.hands.privileges_driver import seen
from tests.support.as_user import run_as_user

ROOT = os.getuid() == 0
Seen = dict[str, dict[str, str]]

WATCHER = f"{1 << 2 | 1 << 5 | 1 << 19:016x}"
"""CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SYS_PTRACE."""

MINIMUM = [
    *((name, "NoNewPrivs", "1") for name in ("supervisor", "steward", "watcher")),
    *((name, "Seccomp", "2") for name in ("supervisor", "steward", "watcher")),
    *(("supervisor", field, f"{1 << CAP_KILL:016x}") for field in ("CapEff", "CapPrm")),
    *(("supervisor", field, "0" * 16) for field in ("CapBnd", "CapInh", "CapAmb")),
    *(("watcher", field, WATCHER) for field in ("CapEff", "CapPrm")),
    ("watcher", "CapBnd", "0" * 16),
]  # fmt: skip


@pytest.fixture(scope="module")
def of_root(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Those of whoever runs the tests."""
    folder = tmp_path_factory.mktemp("hands")
    folder.chmod(0o711)
    return anyio.run(seen, folder)


@pytest.fixture(scope="module")
def of_user(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Those of an ordinary user."""
    folder = tmp_path_factory.mktemp("user")
    folder.chmod(0o711)
    found: Seen = run_as_user(folder, "tests.hands.privileges_driver")
    return found


@pytest.mark.skipif(not ROOT, reason="only root has capabilities to give up")
@pytest.mark.parametrize(("name", "field", "value"), MINIMUM)
def test_root_keeps_the_minimum(name: str, field: str, value: str, of_root: Seen) -> None:
    assert of_root[name][field] == value


@pytest.mark.parametrize("field", ["CapEff", "CapPrm", "CapAmb"])
@pytest.mark.parametrize("name", ["supervisor", "steward", "watcher"])
def test_an_ordinary_user_has_none(name: str, field: str, of_user: Seen) -> None:
    assert of_user[name][field] == "0" * 16
    assert (of_user[name]["NoNewPrivs"], of_user[name]["Seccomp"]) == ("1", "2")


@pytest.mark.skipif(not ROOT, reason="only root has other user ids to give")
def test_a_supervisor_of_root_is_a_user_of_its_own(of_root: Seen) -> None:
    (uid,) = set(of_root["supervisor"]["Uid"].split())
    assert int(uid) in range(*uids.PROCESSES)
    assert uid != of_root["supervisor"]["hands"]
    assert of_root["supervisor"]["Groups"] == ""


RESERVED = {
    "homed": range(60_001, 60_514),
    "mapped users": range(60_514, 60_578),
    "dynamic users": range(61_184, 65_520),
    "nobody": range(65_534, 65_536),
    "subordinate ids": range(100_000, 600_100_001),
    "nspawn": range(524_288, 1_879_048_192),
    "directories": range(200_000, 2_000_200_001),
}


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("ours", [uids.SANDBOXES, uids.PROCESSES, *uids.NARROW.values()])
def test_user_ids_are_nobody_elses(name: str, ours: uids.Range) -> None:
    taken = RESERVED[name]
    assert ours.end <= taken.start or ours.first >= taken.stop


def test_an_id_is_always_the_same(tmp_path: Path) -> None:
    chosen = [uids.set_apart(f"{tmp_path}/{number}") for number in range(50)]
    assert chosen == [uids.set_apart(f"{tmp_path}/{number}") for number in range(50)]
    assert len(set(chosen)) > 45
    assert uids.set_apart("x") != uids.set_apart("x", "process")
