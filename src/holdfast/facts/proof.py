"""What the harness found out about checks: whether they can fail, before the work and again before they count."""

from __future__ import annotations

from typing import Literal

from holdfast.facts.base import Fact

Ability = Literal["yes", "no", "impossible", "base"]
"""`impossible`: there is no such probe for this check. `base`: the check fails on the base, which shows nothing."""

TestOutcome = Literal["passed", "failed", "skipped"]

TESTS_MAX = 20_000
"""The tests of a check are recorded by name unless there are more of them."""


class CheckProbed(Fact, frozen=True, omit_defaults=True, tag="check.probed"):
    """How the check of a criterion can fail, measured on `tree`, which no worker changed.

    `digest` is that of its command and runner configuration; under another one it is measured again. `canary` says
    whether its runner reports a failing test that is put beside its tests, `flip` whether it reports a test whose
    expected value was replaced, or fails when the programs that judge expect something else, `data` whether it
    reports a test when the files that hold what tests expect do not, `hollow` whether the check fails when the product
    does not work. `tests` are the outcomes that its runner reported by test id, empty when it
    reports none or more than can be kept; `collected` counts them, `passed` those that passed.
    """

    criterion: str
    tree: str
    digest: str
    canary: Ability
    flip: Ability
    data: Ability
    hollow: Ability
    reports: bool = False
    collected: int = 0
    passed: int = 0
    tests: dict[str, TestOutcome] = {}
    duration_ms: float = 0.0


class CheckProved(Fact, frozen=True, omit_defaults=True, tag="check.proved"):
    """A check was about to count as passed on `tree`, and was run again where it has to fail.

    `shown` are the kinds of probes that it failed on; none means that it is not proven able to fail. `lost` are those
    that it no longer fails on although it did when it was probed, and `apart` when it passes only beside test files
    that were added; `output` is then the end of the check's own output and `probe_output` that of the first probe that
    was not seen. `key` is that of the verdict.
    """

    criterion: str
    tree: str
    key: str = ""
    shown: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    output: str = ""
    probe_output: str = ""
    runs: int = 0
    duration_ms: float = 0.0
