"""Whether a check can fail: its runner, the report that it writes, and trees on which it has to fail. Pure."""

from holdfast.mission.ability.configuration import digest
from holdfast.mission.ability.place import Probe
from holdfast.mission.ability.probes import ends, probes, shown
from holdfast.mission.ability.programs import added
from holdfast.mission.ability.report import Outcome, Reporting, missing, outcomes, reporting

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
