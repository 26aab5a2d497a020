"""The conformance kit of the log: what every store must show (S1–S5, S15, S19–S22).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each on your implementation:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_store(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing.log import appends, caps, forks, home, items, leases, ledger, posts, rows, tree, waits
from holdfast.testing.log.rig import Check, JumpingClock, Rig, Scenario, Store

CHECKS: dict[str, Check] = {
    f"{module.__name__.rpartition('.')[2]}.{check.__name__}": check
    for module in (appends, posts, leases, ledger, caps, rows, items, tree, forks, home, waits)
    for check in module.CHECKS
}
"""Name → check, for example `leases.a_second_holder_is_refused`."""

__all__ = ["CHECKS", "Check", "JumpingClock", "Rig", "Scenario", "Store"]
