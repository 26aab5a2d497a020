"""What killed makers left goes; what lives, or may still testify, stays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.egress import control
from holdfast.egress.control import sweep_doors
from holdfast.hands.box import processes
from holdfast.hands.incarnation import (
    MAKER,
    MakerProcess,
    at_work,
    forsaken,
    note_maker,
    remnants,
    remove,
    sweep_sockets,
)
from tests.hands.rigs import REAL, kill_and_wait, real


def dead() -> MakerProcess:
    """A process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return MakerProcess("ses_a", child.pid, 1)


def plant(folder: Path, maker: MakerProcess | None) -> None:
    """Something like what a killed maker leaves."""
    (folder / "output").mkdir(parents=True)
    (folder / "journal").write_text("")
    if maker is not None:
        (folder / MAKER).write_bytes(msgspec.json.encode(maker))


def unreadable(folder: Path) -> None:
    plant(folder, None)
    (folder / MAKER).write_bytes(b"{")


def supervised(folder: Path) -> None:
    plant(folder, dead())
    processes.hold_lock(str(folder / "lock"))


def of_the_living(folder: Path) -> None:
    plant(folder, None)
    note_maker(folder, "ses_a")


STAYS: dict[str, Callable[[Path], object]] = {
    "its maker lives": of_the_living,
    "nobody knows its maker": lambda folder: plant(folder, None),
    "a maker that cannot be read": unreadable,
    "its supervisor lives": supervised,
    "a file": lambda folder: folder.write_text("x"),
    "a link": lambda folder: folder.symlink_to("/"),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_may_live_stays(name: str, tmp_path: Path) -> None:
    STAYS[name](tmp_path / "hnd_a")
    assert forsaken(tmp_path) == []


def locked(folder: Path) -> None:
    plant(folder, dead())
    (folder / "lock").touch()


def closed(folder: Path) -> None:
    plant(folder, dead())
    (folder / "output").chmod(0)


def linked(folder: Path) -> None:
    plant(folder, dead())
    (folder / "output" / "l").symlink_to("/etc")


LEFT: dict[str, Callable[[Path], None]] = {
    "an empty folder": lambda folder: plant(folder, dead()),
    "a free lock": locked,
    "another process has its number": lambda folder: plant(folder, MakerProcess("ses_a", os.getpid(), 1)),
    "output without rights": closed,
    "a link in it": linked,
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_goes(name: str, tmp_path: Path) -> None:
    LEFT[name](tmp_path / "hnd_a")
    assert forsaken(tmp_path) == [("ses_a", tmp_path / "hnd_a")]
    remove(tmp_path / "hnd_a")
    assert not (tmp_path / "hnd_a").exists()
    assert Path("/etc/passwd").exists()


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """A socket that somebody listens at."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen(1)
        yield


def test_sockets_that_nobody_listens_at_go(tmp_path: Path) -> None:
    with listening(tmp_path / "dead.sock"):
        pass
    with listening(tmp_path / "young.sock"):
        pass
    (tmp_path / "file.sock").touch()
    with listening(tmp_path / "alive.sock"):
        for name in ("dead", "alive", "file"):
            os.utime(tmp_path / f"{name}.sock", (0, 0))
        sweep_sockets(SystemClock(), tmp_path)
        assert {"alive.sock", "young.sock"} <= set(os.listdir(tmp_path))
        assert "dead.sock" not in os.listdir(tmp_path)


def test_folders_whose_removal_was_cut_off_go(tmp_path: Path) -> None:
    for name in ("cut", "young", "journal", "lock", MAKER):
        (tmp_path / f"hnd_{name}" / "output").mkdir(parents=True)
        if name not in ("cut", "young"):
            (tmp_path / f"hnd_{name}" / name).touch()
        if name != "young":
            os.utime(tmp_path / f"hnd_{name}", (0, 0))
    assert remnants(tmp_path, SystemClock()) == [tmp_path / "hnd_cut"]
    remove(tmp_path / "hnd_cut")
    assert not (tmp_path / "hnd_cut").exists()


def test_doors_of_dead_proxies_go(tmp_path: Path) -> None:
    for session in ("ses_dead", "ses_alive", "ses_hands", "ses_turn"):
        control.make(tmp_path / "egress", session).bundle.write_text("x")
    folder = tmp_path / "egress"
    locks = [processes.hold_lock(str(control.places(folder, "ses_alive").lock))]
    assert sweep_doors(folder, {"ses_hands"}) == 2
    assert sorted(os.listdir(folder / "doors")) == ["ses_alive", "ses_hands"]
    assert control.places(folder, "ses_dead").own.is_dir(), "its notes may not be in the log yet"
    assert sweep_doors(folder, None) == 1, "hands that do not say whose they are may see the folder: files alone go"
    assert (folder / "doors" / "ses_hands").is_dir()
    assert control.places(folder, "ses_alive").bundle.exists()
    os.close(locks[0])


@pytest.mark.parametrize("provider", REAL)
async def test_of_real_hands(provider: str, tmp_path: Path) -> None:
    async with real(tmp_path, REAL[provider]) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        folder = rig.folder / hands.identity.hands_id
        assert forsaken(rig.folder) == []
        assert at_work(rig.folder) == {"ses_kit"}
        (folder / MAKER).write_bytes(msgspec.json.encode(dead()))
        assert forsaken(rig.folder) == [], "its supervisor lives"
        await kill_and_wait(rig.supervisor(hands))
        with pytest.raises(Exception, match="gone"):
            await hands.fence(2)
        assert [path for _, path in forsaken(rig.folder)] == [folder]
        assert not Path(hands.identity.address).exists(), "the steward took it away"
        remove(folder)
        assert at_work(rig.folder) == set()
