"""Anchors: chain heads kept where the log's writer cannot change them (S1).

An unkeyed chain reveals edits, but not a truncated or rewritten log. A head stored elsewhere reveals both. An anchor
is a line of JSON; a signature is one more line, over the bytes of the lines before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.clock import rfc3339
from holdfast.facts import bounded_json
from holdfast.facts.shift import RemovedSession
from holdfast.log.removal import removed_sessions
from holdfast.log.verify import Finding, Look, Source
from holdfast.session.rows import SessionRow


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="anchor", tag_field="type"):
    """The head of one session's chain. `hash` is in hex, `at` the time of the anchor."""

    session_id: str
    seq: int
    hash: str
    at: str


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="signature", tag_field="type"):
    """An SSH signature over the `lines` lines before it."""

    lines: int
    signature: str


class Block(msgspec.Struct, frozen=True):
    """Anchors that were written together, with their line numbers, bytes, and signature, if any."""

    anchors: tuple[tuple[int, Anchor], ...]
    data: bytes
    signature: str = ""


def lines_of(rows: Iterable[SessionRow], now_us: int) -> bytes:
    """Return an anchor of each session's current head, one line each."""
    at = rfc3339(now_us)
    heads = (Anchor(row.session_id, row.head, row.head_hash.hex(), at) for row in rows)
    return b"".join(msgspec.json.encode(head) + b"\n" for head in heads)


def signature_line(data: bytes, signature: str) -> bytes:
    """Return the signature line for `data`."""
    return msgspec.json.encode(Signature(data.count(b"\n"), signature)) + b"\n"


def parse(data: bytes) -> tuple[list[Block], list[str]]:
    """Return the blocks of an anchor file and the problems of its lines."""
    blocks: list[Block] = []
    problems: list[str] = []
    loose: list[tuple[int, Anchor, bytes]] = []
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.strip():
            continue
        try:
            found = msgspec.convert(bounded_json.decode(line), Anchor | Signature)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            problems.append(f"line {number} is neither an anchor nor a signature")
            continue
        if isinstance(found, Anchor):
            loose.append((number, found, line))
            continue
        signed = loose[-found.lines :] if 0 < found.lines <= len(loose) else []
        if not signed or [each[0] for each in signed] != list(range(number - found.lines, number)):
            problems.append(f"line {number} signs the {found.lines} lines before it, and some of them are missing")
            continue
        blocks.append(_block(loose[: -found.lines]))
        blocks.append(_block(signed, found.signature))
        loose = []
    blocks.append(_block(loose))
    return [block for block in blocks if block.anchors], problems


def _block(lines: Sequence[tuple[int, Anchor, bytes]], signature: str = "") -> Block:
    anchors = tuple((number, anchor) for number, anchor, _ in lines)
    return Block(anchors, b"".join(line for _, _, line in lines), signature)


async def check(source: Source, anchors: Sequence[Anchor], session_id: str | None = None) -> list[Finding]:
    """Compare anchors with the log, for one session or all. Return at most one finding for each session, the first."""
    return await source.look(lambda look: _check(look, anchors, session_id))


def _check(look: Look, anchors: Sequence[Anchor], session_id: str | None) -> list[Finding]:
    findings: dict[str, Finding] = {}
    removed = removed_sessions(look)
    for anchor in anchors:
        name = anchor.session_id
        if name not in findings and session_id in (None, name) and (problem := _problem(look, anchor, removed)):
            findings[name] = Finding(name, anchor.seq, problem)
    return list(findings.values())


def _problem(look: Look, anchor: Anchor, removed: Mapping[str, RemovedSession]) -> str:
    row = look.known(anchor.session_id)
    gone = removed.get(anchor.session_id)
    if row is None and gone is not None and anchor.seq < gone.head:
        return ""
    if row is None and gone is not None and (anchor.seq, anchor.hash) == (gone.head, gone.hash):
        return ""
    if row is None:
        return f"the session had {anchor.seq} events at {anchor.at} and is gone"
    if row.head < anchor.seq:
        return f"it had {anchor.seq} events at {anchor.at} and has {row.head}: the log was truncated"
    found = look.hash_at(anchor.session_id, anchor.seq)
    if found is None or found.hex() != anchor.hash:
        return f"this event has another hash than at {anchor.at}: the log was rewritten"
    return ""
