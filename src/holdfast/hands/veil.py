"""What of Holdfast's home the user of a sandbox gets to see, where root made it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.hands.base import HandsSpec
from holdfast.hands.user import HandsUser
from holdfast.privileges import folder_mode


class Veil(msgspec.Struct, frozen=True):
    """The home, and the files and folders in it that stay in sight; see `box.veil`."""

    home: str
    shown: tuple[str, ...]


def needed() -> bool:
    """Whether the folders of a home are closed to the users of sandboxes."""
    return os.geteuid() == 0 and folder_mode() == 0o700


def veil_of(spec: HandsSpec, folder: Path, user: HandsUser) -> Veil | None:
    """The veil for those hands, whose own folder that is; None where none is needed."""
    if user.uid == os.geteuid() or not needed():
        return None
    home = os.path.realpath(folder.parent.parent)
    wanted = sorted({os.path.realpath(path) for path in _sources(spec, folder)})
    shown: list[str] = []
    for path in wanted:
        if path.startswith(f"{home}/") and not any(path.startswith(f"{other}/") for other in shown):
            shown.append(path)
    return Veil(home, tuple(shown))


def _sources(spec: HandsSpec, folder: Path) -> Iterator[str]:
    """Everything of this host that they are shown."""
    yield spec.workspace.path
    yield str(folder)
    yield from spec.read_only
    for layer in spec.layers:
        yield from layer.lower
        if layer.upper:
            yield os.path.dirname(layer.upper)  # what is written needs a folder of its own beside it
    if spec.network is not None:
        yield os.path.dirname(spec.network.socket)
