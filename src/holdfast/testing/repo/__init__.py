"""The conformance kit of the snapshots: what every shelf must show (S22).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each on your implementation, as the
tests do with `holdfast.repo.snapshot_store` and `holdfast.repo.fake`:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_shelf(name):
        await CHECKS[name](my_rig())

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing.repo import snapshots
from holdfast.testing.repo.rig import Check, Rig

CHECKS: dict[str, Check] = {f"snapshots.{check.__name__}": check for check in snapshots.CHECKS}
"""Name → check, for example `snapshots.the_same_tree_has_the_same_name`."""

__all__ = ["CHECKS", "Check", "Rig"]
