"""What a command may not change in a loop: the file of the items; progress.txt, but for adding to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.kinds.loop.items import edits
from holdfast.kinds.loop.plan import Kept, Stage
from holdfast.kinds.loop.spec import PROGRESS, LoopSpec


def kept(data: bytes | None) -> Kept:
    """A file's content, as a plan carries it."""
    if data is None:
        return Kept(there=False)
    try:
        return Kept(data.decode())
    except UnicodeDecodeError:
        return Kept(raw=data)


def content(found: Kept | None) -> bytes | None:
    """The content that a plan carries; None for no file."""
    if found is None or not found.there:
        return None
    return found.raw or found.text.encode()


def guarded(spec: LoopSpec, stage: Stage) -> str:
    """The name of the items' file where a command may not change it; empty where it is to write it."""
    return spec.items if stage == "items" else ""


def differences(spec: LoopSpec, stage: Stage, before: Mapping[str, Kept], now: Mapping[str, bytes | None]) -> list[str]:
    """What a command did that is put back, in words."""
    notes = []
    name = guarded(spec, stage)
    original = content(before.get(name)) if name else None
    if original is not None:
        said = edits(original, now.get(name), name)
        notes += [f"the command changed what is the harness's: {said}; put back"] if said else []
    lost = _lost(content(before.get(PROGRESS)), now.get(PROGRESS))
    return [*notes, lost] if lost else notes


def _lost(before: bytes | None, now: bytes | None) -> str:
    if not before:
        return ""
    if now is None:
        return f"the command removed {PROGRESS}, or made something else of it; put back"
    return "" if holds(before, now) else f"the command took lines out of {PROGRESS}; put back"


def holds(before: bytes, now: bytes) -> bool:
    """Whether all lines of `before` are still there, in their order. Others may stand between them."""
    lines = iter(now.splitlines())
    return all(any(line == other for other in lines) for line in before.splitlines())


def restored(
    spec: LoopSpec, stage: Stage, before: Mapping[str, Kept], now: Mapping[str, bytes | None]
) -> dict[str, bytes]:
    """What has to be written so that all is as it has to be. Nothing when it is."""
    out: dict[str, bytes] = {}
    name = guarded(spec, stage)
    original = content(before.get(name)) if name else None
    if original is not None and now.get(name) != original:
        out[name] = original
    told = content(before.get(PROGRESS))
    found = now.get(PROGRESS)
    if told and (found is None or not holds(told, found)):
        known = set(told.splitlines())
        added = [line for line in (found or b"").splitlines() if line not in known]
        out[PROGRESS] = b"\n".join([told.rstrip(b"\n"), *added]) + b"\n"
    return out
