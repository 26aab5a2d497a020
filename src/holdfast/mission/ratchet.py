"""The ratchet: what may not become weaker. Which rule a change of a guarded file breaks, if any."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.facts.contract import Contract
from holdfast.facts.task import Violation
from holdfast.mission.globs import matches
from holdfast.mission.pristine import ALWAYS, is_test_file, planted


class Trees(msgspec.Struct, frozen=True):
    """Two trees: the regular files of both, the new modes of what differs, and what is protected of them."""

    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    modes: Mapping[str, str]
    protected: tuple[str, ...]
    contract: Contract


def violations(trees: Trees, path: str) -> list[Violation]:
    """What a changed path breaks."""
    old, new = trees.before.get(path), trees.after.get(path)
    if new is not None and planted([path], trees.before):
        return [Violation("planted", path, "a new file that decides what checks say")]
    if not matches(path, (*trees.protected, *ALWAYS)):
        return []
    if trees.modes.get(path) == "120000":
        return [Violation("linked", path, "a link stands where a protected file was")]
    if old is None:
        return [] if is_test_file(path) else [Violation("protected_edited", path, "new among protected files")]
    if new is None:
        return [Violation("test_deleted", path, "it is gone")]
    if old == new:
        return [Violation("mode_changed", path, f"its mode is {trees.modes.get(path)} now")]
    return [Violation("test_edited", path, "its content differs")]
