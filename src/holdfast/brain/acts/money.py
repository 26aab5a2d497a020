"""When money does not fit: wait for what others hold, or park and ask for more (S15)."""

from __future__ import annotations

from holdfast.brain.acts.people import out_of_money
from holdfast.brain.shift import Shift
from holdfast.errors import BudgetRefused, HeadMoved
from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import End

HELD_FIRST_S = 0.1
HELD_LONGEST_S = 5.0
HELD_TRIES = 40
"""Money that others hold for open requests may come back: it is waited for about three minutes, then for a timer."""

HELD_PARK_US = 60_000_000


async def does_not_fit(shift: Shift, refused: BudgetRefused) -> End:
    """Not even a short response fits: wait for what others hold, or park.

    Raises `HeadMoved` after a wait, and after a person was asked, so that everything is looked at again.
    """
    fits_later = refused.wanted_pico <= refused.left_pico + refused.held_pico
    if fits_later and shift.money_waits < HELD_TRIES:
        shift.money_waits += 1
        pause_s = min(HELD_LONGEST_S, HELD_FIRST_S * 2.0 ** min(shift.money_waits, 10))
        await shift.doors.clock.sleep(pause_s * (0.5 + shift.doors.entropy(1)[0] / 512))
        raise HeadMoved("money that others held may be free again", folded=shift.state.seq, head=shift.state.seq)
    if fits_later:
        due_us = shift.doors.clock.now_us() + HELD_PARK_US
        detail = "the money that is left is held by other sessions for now"
        return End(ShiftEnded(status="parked", reason="budget", detail=detail, due_us=due_us))
    return await out_of_money(shift, refused)
