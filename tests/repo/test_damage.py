"""Damage in the store of snapshots: what comes back is what was kept, or an error says that it cannot."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import SnapshotFailed
from holdfast.repo.snapshot_store import ShadowShelf


def flip(data: bytes, chance: random.Random) -> bytes:
    """One bit another way."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def zeros(data: bytes, chance: random.Random) -> bytes:
    """A range without content."""
    at = chance.randrange(len(data))
    end = min(len(data), at + chance.choice((16, 512, 4_096)))
    return data[:at] + bytes(end - at) + data[end:]


def cut(data: bytes, chance: random.Random) -> bytes:
    """The end is missing."""
    return data[: chance.randrange(len(data))]


def gone(data: bytes, chance: random.Random) -> bytes | None:
    """The whole file is missing."""
    return None


DAMAGES: tuple[Callable[[bytes, random.Random], bytes | None], ...] = (flip, flip, flip, zeros, cut, gone)


async def damage_packs(base: Path, seeds: range) -> dict[str, int]:
    """Damage a file of the store in many ways and restore. Returns how often each outcome came."""
    work = base / "work"
    (work / "deep" / "er").mkdir(parents=True)
    chance = random.Random(0)
    kept = []
    shelf = ShadowShelf(base / "snapshots")
    for seq in range(1, 4):
        for number in range(6):
            (work / "deep" / f"file-{number}").write_bytes(chance.randbytes(chance.choice((10, 3_000, 40_000))))
        (work / "deep" / "er" / "text").write_text(f"turn {seq}\n" * 200)
        kept.append(((await shelf.keep("ses_a", work, seq)).snapshot, base / f"was-{seq}"))
        shutil.copytree(work, base / f"was-{seq}", symlinks=True)
    outcomes: dict[str, int] = {}
    for seed in seeds:
        chance = random.Random(seed)
        store = base / "damaged"
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(base / "snapshots", store, symlinks=True)
        files = sorted(path for path in store.rglob("*") if path.suffix in (".pack", ".idx"))
        path = chance.choice(files)
        kind, content = chance.choice(DAMAGES), path.read_bytes()
        changed = kind(content, chance)
        path.chmod(0o600)
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
        snapshot, was = chance.choice(kept)
        target = base / "back"
        shutil.rmtree(target, ignore_errors=True)
        try:
            await ShadowShelf(store).restore(snapshot, target)
        except SnapshotFailed:
            outcome = "refused"
        else:
            outcome = "whole"
            assert _content(target) == _content(was), f"seed {seed}: {kind.__name__} of {path.name}: not what was kept"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_damaged_packs_never_come_back_as_files(tmp_path: Path) -> None:
    outcomes = await damage_packs(tmp_path, range(20))
    assert outcomes.get("refused", 0) >= 3, outcomes


@pytest.mark.faults
async def test_300_damages_of_packs(tmp_path: Path) -> None:
    print("packs", await damage_packs(tmp_path, range(1_000, 1_300)))
