"""What holds for a whole home: written into a session of its own, `ses_home`, which never runs."""

from __future__ import annotations

from holdfast.facts.base import Fact


class EmergencyStopped(Fact, frozen=True, tag="emergency.stopped"):
    """Nothing starts any more, and what runs rests at its next safe boundary."""

    reason: str = ""


class EmergencyReleased(Fact, frozen=True, tag="emergency.released"):
    """The emergency stop at `stop_seq` is lifted."""

    stop_seq: int
    reason: str = ""


class BriefRead(Fact, frozen=True, tag="brief.read"):
    """A person was told what moved in all sessions up to `through_us`: the next time they hear what came after."""

    through_us: int
