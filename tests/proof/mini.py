"""The small library of our own, and a suite of it on paper: which tests need which bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.proof.rebuild.probe import Needs
from holdfast.proof.rebuild.stripped import Whole


def needed(whole: Whole, of: Mapping[str, Sequence[int]]) -> Needs:
    """Needs as if each test failed for want of any body that it enters."""
    told: dict[int, frozenset[str]] = {
        number: frozenset(test for test, bodies in of.items() if number in bodies)
        for number in range(len(whole.bodies))
    }
    return Needs({test: frozenset(bodies) for test, bodies in of.items()}, told)


SUITE = {
    "t::scale": (0,),
    "t::parse[1]": (0, 1),
    "t::parse[2]": (0, 1),
    "t::format": (0, 2),
    "t::split": (0, 3),
    "t::leap": (5,),
    "t::length": (5, 6),
    "t::day": (4, 5, 6),
    "t::entry": (0, 1, 4, 5, 6, 9, 13, 24, 25),
    "t::line": (0, 2, 9, 12),
    "t::words": (25,),
    "t::slug": (24, 25),
    "t::book": (0, 1, 4, 5, 6, 9, 13, 14, 15, 19, 24, 25),
    "t::balance": (0, 1, 4, 5, 6, 9, 13, 14, 15, 17, 19, 24, 25),
}
