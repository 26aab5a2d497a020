"""Actions of a duty beside those of any session. `conductor.decide` names one; `acts.conducting` carries it out."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.kinds.duty.fold import Offer

FiringOutcome = Literal["done", "failed", "cancelled", "timeout", "stopped", "silent"]


class OpenFiring(msgspec.Struct, frozen=True):
    """Open the session of a firing for these waiting triggers."""

    number: int
    offers: tuple[Offer, ...]


class EndFiring(msgspec.Struct, frozen=True):
    """Take over the state of the firing under way if it is done, and record its end.

    `events` are the keys that become dead letters if it failed.
    """

    number: int
    outcome: FiringOutcome
    detail: str
    events: tuple[str, ...]


class PollSource(msgspec.Struct, frozen=True):
    """Read the source of a trigger, for at most `limit` events."""

    trigger: str
    limit: int


class RaiseAlert(msgspec.Struct, frozen=True):
    """Raise an alert: its condition holds, as `detail` shows."""

    alert: str
    detail: str


class ClearAlert(msgspec.Struct, frozen=True):
    """Clear an alert: its condition no longer holds, or it is no longer defined."""

    alert: str
    detail: str


DutyAction = OpenFiring | EndFiring | PollSource | RaiseAlert | ClearAlert
