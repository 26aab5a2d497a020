"""Three-way merges of trees and of lines, for the repository in memory."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from holdfast.repo.plumbing.objects import Entries, Entry


def merge_entries(
    base: Entries, ours: Entries, theirs: Entries, blobs: Mapping[str, bytes], keep: Callable[[bytes], Entry]
) -> tuple[dict[bytes, Entry], list[bytes]]:
    """The merged tree, and the paths at which there is none."""
    out: dict[bytes, Entry] = {}
    conflicts: list[bytes] = []
    for path in sorted(base.keys() | ours.keys() | theirs.keys()):
        was, mine, other = base.get(path), ours.get(path), theirs.get(path)
        if mine == other or other == was:
            result = mine
        elif mine == was:
            result = other
        else:
            merged = was and mine and other and merge_lines(blobs[was.id], blobs[mine.id], blobs[other.id])
            result = keep(merged) if isinstance(merged, bytes) else None
            if result is None:
                conflicts.append(path)
        if result is not None:
            out[path] = result
    return out, conflicts + [path for path in out if any(each.startswith(path + b"/") for each in out)]


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Both sides' changes of a text, None where they touch each other or it is no text."""
    if any(b"\0" in side[:8000] for side in (base, ours, theirs)):
        return None
    lines = [side.splitlines(keepends=True) for side in (base, ours, theirs)]
    out: list[bytes] = []
    at = (0, 0, 0)
    for start, length in _unchanged(*lines):
        piece = _piece([side[begin:end] for side, begin, end in zip(lines, at, start, strict=True)])
        if piece is None:
            return None
        out += piece
        out += lines[0][start[0] : start[0] + length]
        at = (start[0] + length, start[1] + length, start[2] + length)
    return b"".join(out)


def _piece(sides: list[list[bytes]]) -> list[bytes] | None:
    was, mine, other = sides
    if mine == other or other == was:
        return mine
    return other if mine == was else None


def _unchanged(
    base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes]
) -> list[tuple[tuple[int, int, int], int]]:
    """The runs of lines that are in all three, with where they begin in each; the end last."""
    mine = difflib.SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    other = difflib.SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    out: list[tuple[tuple[int, int, int], int]] = []
    left = right = 0
    while left < len(mine) and right < len(other):
        one, two = mine[left], other[right]
        start, end = max(one.a, two.a), min(one.a + one.size, two.a + two.size)
        if start < end:
            out.append(((start, one.b + start - one.a, two.b + start - two.a), end - start))
        if one.a + one.size < two.a + two.size:
            left += 1
        else:
            right += 1
    return [*out, ((len(base), len(ours), len(theirs)), 0)]
