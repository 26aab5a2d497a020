"""A probe, and where probes are placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from holdfast.facts.contract import Check

CANARIES = 3
"""Files that get a canary, when a check selects more than one."""

FLIPS = 40
"""Tests of each check that are turned."""

FILES = 400
"""Files of tests that are looked at for one check."""


class Probe(NamedTuple):
    """A run that has to fail. `checks` is what is typed for it, `files` what differs from the tree (None: not there).

    `ids` has the tests that must be reported as failed, by the index of the check; of data, the files of tests of which
    one must. A check that is not in it cannot be shown by this probe, unless it is a hollow or an empty one.
    """

    kind: Literal["canary", "flip", "data", "hollow", "empty"]
    checks: tuple[Check, ...]
    files: dict[str, bytes | None]
    ids: dict[int, tuple[str, ...]]


class Place(NamedTuple):
    """Where probes are placed: checks that share a command, and their tree."""

    checks: tuple[Check, ...]
    files: Mapping[str, bytes]
    protected: Sequence[str]
    word: str
