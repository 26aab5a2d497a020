"""What the probes of some checks showed: by criterion, and for a metric against the value that it had without them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.facts.proof import Ability, TestOutcome
from holdfast.kinds.mission.acts.running import Ran, Run
from holdfast.kinds.mission.check import ability, checking, metrics, proofs
from holdfast.kinds.mission.check.ability import Probe
from holdfast.kinds.mission.check.checking import Group

ROUGHLY = 0.1
"""A metric has to be worse by so much of its value before a probe is known to matter to it: values vary."""

Tests = Mapping[str, TestOutcome]


class Seen:
    """What the probes of some checks showed so far, by criterion.

    `absent` are files that they are run without. `floor` is the gain of a metric: a probe shows something when it is
    below.
    """

    def __init__(self, names: Iterable[str], absent: Collection[str] = (), floor: float | None = None) -> None:
        self.absent, self.floor = absent, floor
        self.shown: dict[str, set[str]] = {name: set() for name in names}
        self.unseen: dict[str, str] = {}
        self.runs = 0
        self.duration_ms = 0.0
        self.beside: dict[str, Tests] = {}

    def confirms(self, name: str, own: Mapping[str, Tests]) -> bool:
        """Whether all tests of a check passed once more beside a failing one."""
        found = self.present(own.get(name, {}))
        return bool(found) and name in self.beside and not ability.missing(found, self.beside[name])

    def present(self, tests: Tests) -> Tests:
        """Those tests that are in files which the probes have."""
        return {each: outcome for each, outcome in tests.items() if each.partition("::")[0] not in self.absent}


def name_of(test: str) -> str:
    """The name of a test without its file, its classes, and its case."""
    return test.partition("[")[0].rpartition("::")[2]


def _is_about(probe: Probe, index: int) -> bool:
    """Whether a probe can show something of a check of its group."""
    return probe.kind in ("hollow", "empty") or index in probe.ids


def left(probe: Probe, group: Group, about: Mapping[str, frozenset[str]], seen: Seen) -> list[str]:
    """The criteria of which a probe can show what is wanted and not shown yet.

    A runner's tests fail where the product is gone, whatever the product does: that says nothing of them.
    """
    kind = proofs.kind_of(probe.kind)
    return [
        name
        for index, name in enumerate(group.names)
        if _is_about(probe, index)
        and kind in about.get(name, frozenset()) - seen.shown[name]
        and not (probe.kind == "empty" and "canary" in seen.shown[name])
    ]


def ability_of(
    kind: str, name: str, group: Group, probes: Sequence[Probe], seen: Seen, *, base: bool = False
) -> Ability:
    """How a check can fail on probes of a kind; `base` says that it fails without them."""
    index = group.names.index(name)
    if not any(proofs.kind_of(probe.kind) == kind and _is_about(probe, index) for probe in probes):
        return "impossible"
    shown = kind in seen.shown[name]
    return "yes" if shown and (seen.floor is not None or not base) else "base" if base else "no"


def read_run(group: Group, ran: Ran | Run) -> checking.Read:
    """The end of a run, and the number that a metric's printed."""
    result = ran.result
    return checking.read(group.checks[0], result.exit_code, result.output, timed_out=result.timed_out)


def floor_of(group: Group, ran: Ran | Run, roughly: float = 0.0) -> float | None:
    """The gain of a metric's value; with `roughly`, less its tolerance or such a part of it. None without a value."""
    metric, value = group.checks[0].metric, read_run(group, ran).value
    if metric is None or value is None:
        return None
    return metrics.gain(metric, value) - (max(metric.tolerance, abs(value) * roughly) if roughly else 0.0)
