"""The conformance kit of notifications: what every target and every reply channel must show.

`TARGET_CHECKS` and `REPLY_CHECKS` map a name to an async function of a fresh rig. Run each on yours:

    @pytest.mark.parametrize("name", TARGET_CHECKS)
    async def test_my_target(name):
        async with my_rig() as rig:
            await TARGET_CHECKS[name](rig)

`holdfast.notify.fake` passes it too. Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing.notify import replies, sends
from holdfast.testing.notify.rig import Received, ReplyCheck, ReplyRig, TargetCheck, TargetRig, example

TARGET_CHECKS: dict[str, TargetCheck] = {check.__name__: check for check in sends.CHECKS}
"""Name → check of a target."""

REPLY_CHECKS: dict[str, ReplyCheck] = {check.__name__: check for check in replies.CHECKS}
"""Name → check of a reply channel."""

__all__ = [
    "REPLY_CHECKS",
    "TARGET_CHECKS",
    "Received",
    "ReplyCheck",
    "ReplyRig",
    "TargetCheck",
    "TargetRig",
    "example",
]
