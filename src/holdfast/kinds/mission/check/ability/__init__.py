"""Probes that show that a check can fail: runners, reports, and trees on which the check must fail. Pure."""

from holdfast.kinds.mission.check.ability.placement import Probe
from holdfast.kinds.mission.check.ability.probes import ends, probes, shown
from holdfast.kinds.mission.check.ability.programs import added
from holdfast.kinds.mission.check.ability.report import Outcome, Reporting, missing, outcomes, reporting
from holdfast.kinds.mission.check.ability.runners import digest

__all__ = [
    "Outcome",
    "Probe",
    "Reporting",
    "added",
    "digest",
    "ends",
    "missing",
    "outcomes",
    "probes",
    "reporting",
    "shown",
]
