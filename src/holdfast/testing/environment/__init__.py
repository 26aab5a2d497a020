"""The conformance kit of environments: what every keeper of layers must show.

`CHECKS` maps a name to a coroutine function of a fresh `Rig`. Run each on your implementation, as the tests do with
`holdfast.environment.store` and `holdfast.environment.fake`:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_environments(name):
        await CHECKS[name](my_rig())

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing.environment import layers
from holdfast.testing.environment.rig import Check, Rig

CHECKS: dict[str, Check] = {check.__name__: check for check in layers.CHECKS}
"""Name → check, for example `what_is_sealed_is_found`."""

__all__ = ["CHECKS", "Check", "Rig"]
