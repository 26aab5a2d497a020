"""Values that product code seems to have from the tests: a guess for the judge, listed and never refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_VALUES = re.compile(rb"\"[^\"\n]{4,}\"|'[^'\n]{4,}'|\b\d[\d_.]+\b")

FEW = 2


def special(path: str, old: bytes | None, new: bytes, expected: Iterable[bytes]) -> list[str]:
    """A line on a file that has several values which tests expect and that it did not have, in words."""
    fresh = values(new) - values(old or b"")
    found = sorted(fresh & set(expected))
    if len(found) < FEW:
        return []
    shown = ", ".join(each.decode("utf-8", "replace")[:40] for each in found[:3])
    return [f"{path}: it has values that tests expect ({shown}); a judge should look for special cases"]


def expected(tests: Mapping[str, bytes], product: Iterable[bytes]) -> frozenset[bytes]:
    """Telling values of tests that the product does not have by itself."""
    wanted = {each for content in tests.values() for each in values(content)}
    return frozenset(wanted - {each for content in product for each in values(content)})


def values(content: bytes) -> set[bytes]:
    """Texts of some length and numbers of more than one digit, as they are written."""
    return {each.strip(b"'\"") for each in _VALUES.findall(content)}
