"""Workspaces as tar streams, packed and unpacked by `tar_program` as the folder's owner."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import anyio

from holdfast.errors import HandsError, UsageError
from holdfast.hands.far import tar_program
from holdfast.hands.launch import PYTHON

MOST = 64 << 30
"""Maximum bytes of one workspace."""


@cache
def _program() -> str:
    return Path(tar_program.__file__).read_text()


async def pack_folder(folder: str, target: Path, *, git: bool) -> int:
    """Write a tar of the folder to `target`, read as its owner; returns its size in bytes."""
    with target.open("wb") as out:
        await anyio.to_thread.run_sync(_run, ["pack-all" if git else "pack", "."], folder, None, out.fileno())
    return target.stat().st_size


async def unpack_folder(folder: str, source: Path, *, most: int = MOST) -> None:
    """Make the folder match the tar, written as its owner; every `.git` there is left alone."""
    await _put("unpack", folder, source, most)


async def fill_folder(folder: str, source: Path, *, most: int = MOST) -> None:
    """Extract a whole tar into an empty folder, as its owner."""
    await _put("fill", folder, source, most)


async def _put(how: str, folder: str, source: Path, most: int) -> None:
    with source.open("rb") as tar:
        await anyio.to_thread.run_sync(_run, [how, str(most), "."], folder, tar.fileno(), None)


def _run(words: list[str], folder: str, source: int | None, target: int | None) -> None:
    """Run the program in the folder, entered before becoming its owner, who may lack access above it."""
    try:
        here = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"the workspace {folder} cannot be used: {error.strerror}") from None
    try:
        _run_in(here, words, folder, source, target)
    finally:
        os.close(here)


def _run_in(here: int, words: list[str], folder: str, source: int | None, target: int | None) -> None:
    owner = os.fstat(here)
    very = f"/proc/self/fd/{here}"  # this folder itself, even if its path was replaced since
    drop = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run(  # type: ignore[call-overload]
        [PYTHON, "-I", "-S", "-c", _program(), *words],
        stdin=subprocess.DEVNULL if source is None else source,
        stdout=subprocess.DEVNULL if target is None else target,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd=very if os.path.isdir(very) else folder,  # macOS has no /proc
        check=False,
        **drop,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        what = "sent" if target is not None else "taken over"
        raise HandsError(f"the workspace {folder} could not be {what}: {said[-1]}; it is as it was")
