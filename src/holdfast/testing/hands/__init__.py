"""The conformance kit of the hands: what every provider must show (S7 to S10, S12, S18).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each on your provider:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_hands(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

`NEWS` are checks of what is told when a job has news: for a rig that can hear it (`HearingRig`).

Nothing here imports a test runner; a check fails with `AssertionError`. The commands that checks run
are the capital names of `holdfast.testing.hands.rig`; `effect` and `pace` teach them to hands in memory.
"""

from __future__ import annotations

from holdfast.testing.hands import jobs, lives, streams, tools
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
    f"{module.__name__.rpartition('.')[2]}.{check.__name__}": check
    for module in (lives, tools, streams, jobs)
    for check in module.CHECKS
}
"""Name → check, for example `lives.a_call_id_runs_once`."""

NEWS: dict[str, NewsCheck] = {f"jobs.{check.__name__}": check for check in jobs.NEWS}
"""Name → check of what is told."""

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
