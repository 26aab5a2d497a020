"""Taking away what hands left whose making was killed: their folders, and sockets that nobody listens at."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.errors import CannotRunSafely
from holdfast.hands.box import places, tree
from holdfast.hands.box.journal import replay
from holdfast.hands.box.kernel import is_locked
from holdfast.hands.host import run_directory
from holdfast.hands.launch import remove_folder

MAKER = "maker"
"""The file of an incarnation's folder that says who made it, and for which session."""

YOUNG_S = 60.0
"""How old a socket must be, or a folder without a maker: both are so for a moment when hands are made."""


class Maker(msgspec.Struct, frozen=True):
    """A process that made hands. `start` tells it from a later one with its pid."""

    session_id: str
    pid: int
    start: int


_decode = msgspec.json.Decoder(Maker).decode


def note_maker(folder: Path, session_id: str) -> None:
    """Leave word in the folder of new hands. Raises `OSError`."""
    mine = tree.entry_of(os.getpid())
    said = Maker(session_id, os.getpid(), mine.start if mine is not None else 0)
    (folder / MAKER).write_bytes(msgspec.json.encode(said))


def _maker(folder: Path) -> Maker | None:
    try:
        return _decode((folder / MAKER).read_bytes())
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _folders(hands: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in hands.iterdir() if path.is_dir() and not path.is_symlink())


def forsaken(hands: Path) -> list[tuple[str, Path]]:
    """Sessions and folders of incarnations whose maker and supervisor are both dead: in a log, or left over."""
    out = []
    for folder in _folders(hands):
        maker = _maker(folder)
        if maker is None or _lives(folder):
            continue
        process = tree.entry_of(maker.pid)
        if process is None or process.start != maker.start:
            out.append((maker.session_id, folder))
    return out


def remnants(hands: Path, clock: Clock) -> list[Path]:
    """Folders of incarnations whose removal was cut off: nothing in them says whose they were, or testifies."""
    return [
        folder
        for folder in _folders(hands)
        if not any((folder / name).exists() for name in (MAKER, "journal", "lock")) and _age_s(folder, clock) > YOUNG_S
    ]


def _age_s(path: Path, clock: Clock) -> float:
    try:
        return clock.now_us() / 1e6 - path.lstat().st_mtime
    except OSError:
        return 0.0


def at_work(hands: Path) -> set[str] | None:
    """The sessions that have living hands; None when some do not say whose they are."""
    makers = [_maker(folder) for folder in _folders(hands) if _lives(folder)]
    known = {maker.session_id for maker in makers if maker is not None}
    return known if None not in makers else None


def _lives(folder: Path) -> bool:
    try:
        return is_locked(str(folder / "lock"))
    except OSError:
        return True


def remove(folder: Path) -> None:
    """Take the folder of dead hands away, with what they held in the workspace. Never fails."""
    with contextlib.suppress(OSError):
        for place in replay(str(folder / "journal")).opened.get("places", ()):
            places.drop(place)
        remove_folder(folder)


def sweep_sockets(clock: Clock, folder: Path | None = None) -> int:
    """Remove sockets at which nobody listens, of any home of this user. Returns how many."""
    removed = 0
    with contextlib.suppress(OSError, CannotRunSafely):
        for path in (folder or run_directory(os.getuid())).glob("*.sock"):
            with contextlib.suppress(OSError):
                if _age_s(path, clock) > YOUNG_S and is_deserted(path):
                    path.unlink()
                    removed += 1
    return removed


def is_deserted(path: Path) -> bool:
    """Whether no process listens at that socket. A supervisor takes no notice of this look."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)) as sock:
        try:
            sock.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
