"""Conformance kit of hands providers (S7 to S10, S12, S18).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each check on your provider:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_hands(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

`NEWS` are checks of job notifications, for a rig that receives them (`HearingRig`).

Nothing here imports a test runner; a check fails with `AssertionError`. The commands that checks run
are the constants of `holdfast.testing.hands.rig`; `effect` and `pace` teach them to hands in memory.
"""

from __future__ import annotations

from holdfast.testing import checks_of
from holdfast.testing.hands import calls, jobs
from holdfast.testing.hands.rig import (
    COUNT,
    FAIL,
    LONG,
    MARK,
    SAY,
    Check,
    HearingRig,
    NewsCheck,
    Rig,
    all_of,
    bash,
    effect,
    job,
    pace,
    run,
    service,
    tool,
)

CHECKS: dict[str, Check] = {
    name: check
    for name, check in (checks_of(calls.__name__) | checks_of(jobs.__name__)).items()
    if check not in jobs.NEWS
}
"""Name → check, for example `calls.a_call_id_runs_once`."""

NEWS: dict[str, NewsCheck] = {f"jobs.{check.__name__}": check for check in jobs.NEWS}
"""Name → check of job notifications."""

__all__ = [
    "CHECKS",
    "COUNT",
    "FAIL",
    "LONG",
    "MARK",
    "NEWS",
    "SAY",
    "Check",
    "HearingRig",
    "NewsCheck",
    "Rig",
    "all_of",
    "bash",
    "effect",
    "job",
    "pace",
    "run",
    "service",
    "tool",
]
