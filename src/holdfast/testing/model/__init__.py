"""The conformance kit of models: what every one must show (S13 to S15).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each on your model:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_model(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing.model import answers
from holdfast.testing.model.rig import Check, Rig, Said, request

CHECKS: dict[str, Check] = {check.__name__: check for check in answers.CHECKS}
"""Name → check, for example `an_answer_ends_with_one_finish`."""

__all__ = ["CHECKS", "Check", "Rig", "Said", "request"]
