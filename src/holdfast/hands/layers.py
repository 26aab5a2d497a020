"""Mounts for the layers of a spec: plain ones where sufficient, overlays otherwise."""

from __future__ import annotations

import os
import posixpath
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from holdfast.errors import UsageError
from holdfast.hands.base import Finding, HandsSpec, Layer
from holdfast.hands.box.supervisor import mounts
from holdfast.hands.box.supervisor.mounts import is_mount_point
from holdfast.hands.launch import PYTHON, Laying, Overlay, Place
from holdfast.uids import set_apart

STAGE = "stage"
"""The folder of an incarnation in which its overlays are mounted, in their own namespaces."""

Standing = Literal["folder", "file", "absent", "blocked"]


class Laid(NamedTuple):
    """Mount plan of the layers. `usr` and `workspace` are the sources shown at those paths; `mounts` follow them.

    `folders` are created in the incarnation's own folder for the hands' user.
    """

    usr: str
    workspace: str
    mounts: list[str]
    places: tuple[Place, ...]
    laying: Laying | None
    folders: tuple[str, ...]


def lay_out(spec: HandsSpec, folder: Path, workspace: str, root: str) -> Laid:
    """Plan the layers and files of `spec` for the incarnation with that folder. Mounts nothing yet."""
    out = _Laying(folder, workspace, root)
    for number, layer in enumerate(spec.layers):
        out.add(layer, str(number))
    for number, path in enumerate(spec.files):
        out.show(path, f"{{fd:file{number}}}")
    for path in spec.held:
        above, _, name = path.rstrip("/").rpartition("/")
        out.places.append(Place(above or "/", name, "held"))
    laying = Laying(str(folder / STAGE), tuple(out.overlays)) if out.overlays else None
    folders = (STAGE, *out.folders) if out.overlays else ()
    return Laid(out.usr, out.shown, out.mounts, tuple(out.places), laying, folders)


def contents(spec: HandsSpec) -> dict[str, bytes]:
    """Return the contents of the files of a spec, by the names that `lay_out` gave them."""
    return {f"file{number}": content for number, content in enumerate(spec.files.values())}


class _Laying:
    def __init__(self, folder: Path, workspace: str, root: str) -> None:
        self._folder = folder
        self._workspace = workspace
        self._root = root
        self.usr = "/usr"
        self.shown = workspace
        self.mounts: list[str] = []
        self.places: list[Place] = []
        self.overlays: list[Overlay] = []
        self.folders: list[str] = []

    def add(self, layer: Layer, name: str) -> None:
        inside = posixpath.normpath(layer.inside)
        kind: Literal["folder", "file"] = "folder"
        if len(layer.lower) == 1 and os.path.isfile(layer.lower[0]):
            kind = "file"
        if not self._stands(inside, kind):
            return
        writable = bool(layer.upper or layer.private)
        source = layer.lower[0] if layer.lower else ""
        if kind == "folder" and (writable or layer.over or len(layer.lower) != 1):
            source = self._overlay(layer, inside, name)
        if inside == "/usr":
            self.usr = source
        elif inside == self._root:
            self.shown = source
        else:
            self.mounts += ["--bind" if writable and kind == "folder" else "--ro-bind", source, inside]

    def show(self, path: str, content: str) -> None:
        """Mount a file with that content at a path inside."""
        if not self._stands(posixpath.normpath(path), "file"):
            raise UsageError(f"{path} cannot be shown in the workspace: its folder is not there, or is a link")
        self.mounts += ["--perms", "0444", "--ro-bind-data", content, path]

    def _overlay(self, layer: Layer, inside: str, name: str) -> str:
        lower = list(layer.lower)
        if layer.over:
            below = self._below(inside)
            lower.append(inside if below is None else posixpath.join(self._workspace, below))
        if not lower:
            self.folders.append(f"lower{name}")
            lower = [str(self._folder / f"lower{name}")]
        upper, work = layer.upper, f"{layer.upper}.work"
        if layer.private:
            upper, work = (str(self._folder / f"{part}{name}") for part in ("upper", "work"))
            self.folders += [f"upper{name}", f"work{name}"]
        self.overlays.append(Overlay(name, tuple(lower), upper, work if upper else ""))
        return str(self._folder / STAGE / name)

    def _below(self, inside: str) -> str | None:
        """Return the path in the workspace; None for one elsewhere."""
        if inside == self._root:
            return ""
        return inside[len(self._root) + 1 :] if inside.startswith(f"{self._root}/") else None

    def _stands(self, inside: str, kind: Literal["folder", "file"]) -> bool:
        """Return True if a mount is possible there; plan a mount point if there is none."""
        below = self._below(inside)
        if not below:
            return True
        found = standing(self._workspace, below)
        if found == "absent":
            self.places.append(Place(self._workspace, below, kind))
        return found in ("absent", kind)


def standing(folder: str, below: str) -> Standing:
    """Classify a path in a folder that commands may have changed; no link is followed.

    A mount point that we created counts as absent.
    """
    *middle, _ = below.split("/")
    path = folder
    for part in middle:
        path = os.path.join(path, part)
        if not _is_folder(path):
            return "blocked"
    path = os.path.join(folder, below)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "absent"
    except OSError:
        return "blocked"
    if stat.S_ISDIR(found.st_mode):
        return "absent" if is_mount_point(found) and not os.listdir(path) else "folder"
    if stat.S_ISREG(found.st_mode):
        return "absent" if is_mount_point(found) else "file"
    return "blocked"


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


_FIX = (
    "environments (`[environment]`) need overlay mounts by ordinary users: Linux 5.11 or later, user namespaces, and a "
    "home on a disk of its own kind (ext4, xfs, btrfs, tmpfs; not an overlay or a network share): type --home FOLDER, "
    "or leave the environment out"
)


def layers_finding(said: str) -> Finding:
    """Finding for a machine that cannot mount overlays."""
    return Finding("layers", "bad", f"folders cannot be laid over folders here ({said})", _FIX)


def try_layers(folder: Path) -> Finding:
    """Mount two overlays once, as the user that the sandbox would have, on the disk of `folder`."""
    while not folder.is_dir():
        folder = folder.parent
    uid, gid = os.getuid() or set_apart("trial"), os.getgid() or set_apart("trial")
    drop = {"user": uid, "group": gid, "extra_groups": []} if os.getuid() == 0 else {}
    program = Path(mounts.__file__).read_text()
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".layers-") as base:
            os.chmod(base, 0o711)
            for name in (STAGE, "lower", "lower/whited", "upper", "work"):
                os.mkdir(os.path.join(base, name))
                os.chown(os.path.join(base, name), uid, gid)
            done = subprocess.run(  # type: ignore[call-overload]
                [PYTHON, "-I", "-S", "-c", program, ".", str(uid), str(gid)],
                **drop,
                env={},
                cwd=base,  # the user may lack access to the folders above
                capture_output=True,
                timeout=20,
                check=False,
            )
    except (OSError, subprocess.SubprocessError) as error:
        return layers_finding(str(error))
    if done.returncode != 0:
        return layers_finding(done.stderr.decode("utf-8", "replace").strip().splitlines()[-1][:200])
    return Finding("layers", "ok", "folders can be laid over folders, tried on the disk of the home")
