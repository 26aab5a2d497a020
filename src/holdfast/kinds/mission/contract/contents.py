"""Digest of a contract, stable ids of its items, and command line and metric of a check."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import unicodedata
from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.facts.mission import Check, Contract, Metric

SLUG_LENGTH = 40


def canonical_bytes(contract: Contract) -> bytes:
    """Encode a contract as canonical bytes, which do not depend on the formatting of its file."""
    return msgspec.json.encode(contract, order="sorted")


def contract_digest(contract: Contract) -> str:
    """SHA-256 of the canonical bytes, in hex: the digest under which a contract is sealed."""
    return hashlib.sha256(canonical_bytes(contract)).hexdigest()


def slug(text: str) -> str:
    """Make a short, stable id from words. Four hex digits of a digest distinguish truncated texts."""
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", folded)
    whole = "-".join(words)
    mark = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:4]
    if not words or len(folded) < len(text) // 2:
        return f"item-{mark}"
    if len(whole) <= SLUG_LENGTH:
        return whole
    cut = whole[: SLUG_LENGTH - 5]
    return f"{cut.rpartition('-')[0] or cut}-{mark}"


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return the wanted name, with the first free number appended if it is taken."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


def find_ring(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a cycle in a dependency graph, its first name repeated at the end; empty if there is none."""
    done: set[str] = set()
    path: list[str] = []
    waiting = [(name, 0) for name in reversed([*edges])]
    while waiting:
        name, depth = waiting.pop()
        done.update(path[depth:])
        del path[depth:]
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            path.append(name)
            waiting += [(other, depth + 1) for other in edges.get(name, ())]
    return []


def command_line(check: Check) -> str:
    """Return the command of a check, followed by its tests."""
    return " ".join([check.command, *map(shlex.quote, check.tests)])


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def metric_value(output: str) -> float | None:
    """Return the last number on the last line of an output, or None."""
    lines = [line for line in output.splitlines() if line.strip()]
    found = _NUMBER.findall(lines[-1]) if lines else []
    value = float(found[-1]) if found else math.nan
    return value if math.isfinite(value) else None


def metric_holds(metric: Metric, value: float) -> bool:
    """Return True if a value reaches the target within its tolerance."""
    if metric.direction == "at_least":
        return value >= metric.target - metric.tolerance
    if metric.direction == "at_most":
        return value <= metric.target + metric.tolerance
    return abs(value - metric.target) <= metric.tolerance


def in_words(check: Check) -> str:
    """Describe what a check demands, as a sentence without a period. Ids are made of it: do not reword."""
    typed = f"`{command_line(check)}`"
    if check.metric is None:
        return f"{typed} passes"
    metric = check.metric
    side = {"at_least": "at least ", "at_most": "at most ", "equal": ""}[metric.direction]
    off = f", {metric.tolerance:g} off at most" if metric.tolerance else ""
    return f"{typed} prints {side}{metric.target:g}{off}"
