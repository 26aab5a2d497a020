"""Conformance kit of the log (S1–S5, S15, S19–S22).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each check on your implementation:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_store(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing import checks_of
from holdfast.testing.log import appends, budgets, children, leases, limits, rows
from holdfast.testing.log.rig import Check, JumpingClock, Rig, Scenario, Store

CHECKS: dict[str, Check] = {
    name: check
    for module in (appends, leases, budgets, limits, rows, children)
    for name, check in checks_of(module.__name__).items()
}
"""Name → check, for example `leases.a_second_holder_is_refused`."""

__all__ = ["CHECKS", "Check", "JumpingClock", "Rig", "Scenario", "Store"]
