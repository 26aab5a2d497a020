"""Many processes on one cap (S15): it is never passed, and nearly all of it can be used."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.log.verify import rebuild, verify
from holdfast.testing.log import Scenario
from tests.log.child import FLOOR_PICO, WORST_PICO
from tests.log.processes import line, running, tell
from tests.log.rigs import sqlite_rig

WRITERS = 16
CAP_PICO = 20 * WORST_PICO
"""Little more than all writers may hold at one time."""


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.faults)])
async def test_sixteen_writers_share_a_cap(holdfast_home: Path, rounds: int) -> None:
    refused = 0
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        for number in range(rounds):
            await case.open(f"ses_root_{number}", cap=CAP_PICO)
        with ExitStack() as stack:
            writers = [stack.enter_context(running("spend", holdfast_home, name)) for name in range(WRITERS)]
            for number in range(rounds):
                root = f"ses_root_{number}"
                for writer in writers:
                    tell(writer, root)
                assert [line(writer) for writer in writers] == [["holds"]] * WRITERS
                account = await rig.store.account(root)
                assert account is not None
                assert account.reserved_pico == WRITERS * WORST_PICO
                for writer in writers:
                    tell(writer)
                said = [line(writer) for writer in writers]
                assert [words[0] for words in said] == ["spent"] * WRITERS
                account = await rig.store.account(root)
                assert account is not None
                assert account.spent_pico == sum(int(words[1]) for words in said)
                assert (account.reserved_pico, account.cap_pico) == (0, CAP_PICO)
                assert CAP_PICO - FLOOR_PICO < account.spent_pico <= CAP_PICO
                refused += sum(int(words[2]) for words in said)
        assert (await verify(rig.store)).findings == ()
        assert await rebuild(rig.store) == await rig.store.beside()
    assert refused > rounds
