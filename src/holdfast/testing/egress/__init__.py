"""The conformance kit of the way outside: what everything that opens one must show.

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each on your own:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_egress(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

`holdfast.egress.fake` passes it too. Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing.egress.checks import ALL
from holdfast.testing.egress.rig import SECRETS, Answer, Check, Place, Rig, use_of, variable_of

CHECKS: dict[str, Check] = {check.__name__: check for check in ALL}
"""Name → check."""

__all__ = ["CHECKS", "SECRETS", "Answer", "Check", "Place", "Rig", "use_of", "variable_of"]
