"""Every target and every reply channel shows what the kit asks, the real ones against real servers."""

from __future__ import annotations

import pytest

from holdfast.testing.notify import REPLY_CHECKS, TARGET_CHECKS
from tests.notify.rigs import CHANNELS, TARGETS


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", TARGET_CHECKS)
async def test_target(name: str, kind: str) -> None:
    with TARGETS[kind]() as rig:
        await TARGET_CHECKS[name](rig)


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize("name", REPLY_CHECKS)
async def test_reply_channel(name: str, kind: str) -> None:
    with CHANNELS[kind]() as rig:
        await REPLY_CHECKS[name](rig)
