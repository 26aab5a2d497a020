"""The acts of a context's life: compaction, reset, the look at the rules (S16, S17)."""

from __future__ import annotations

from holdfast.brain.shift import Shift
from holdfast.session.actions import CheckRules, Compact, End, Reset


async def renew(shift: Shift, action: Compact | Reset) -> End | None:
    """Have the older part of the context replaced. An `End` says that money does not allow it."""
    raise NotImplementedError


async def check_rules(shift: Shift, action: CheckRules) -> None:
    """Hold the rules against what was done."""
    raise NotImplementedError
