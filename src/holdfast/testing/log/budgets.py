"""Checks of budgets: reservations from leaf to root, caps over time, shared caps, and priced tools (S15)."""

from __future__ import annotations

import anyio

from holdfast.errors import BudgetRefused, UsageError
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionUpdated
from holdfast.facts.shift import Period
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.log.base import Lease, Post
from holdfast.session.money import AccountRow, spent_within
from holdfast.session.rows import item_key
from holdfast.testing.log.rig import Rig, Scenario


async def a_reservation_is_held_and_settled(rig: Rig) -> None:
    """The start of a request reserves; its end replaces the reservation by the cost."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    (start,) = await case.append(lease, case.request(60))
    assert await case.books() == [("ses_a", 100, 0, 60)]
    await case.append(lease, case.response(start.seq, 25))
    assert await case.books() == [("ses_a", 100, 25, 0)]
    row = await case.row()
    assert (row.turns, row.cost_pico, row.input_tokens, row.output_tokens) == (1, 25, 10, 5)


async def a_reservation_over_the_cap_is_refused(rig: Rig) -> None:
    """A cap holds to the last pico-dollar; the error says what is left, and the batch is not written."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    await case.append(lease, case.request(60))
    error = await case.refused(BudgetRefused, case.append(lease, case.result(), case.request(41)), "ses_a")
    assert (error.account_id, error.left_pico) == ("ses_a", 40)
    assert await case.books() == [("ses_a", 100, 0, 60)]
    await case.append(lease, case.request(40))
    await case.refused(BudgetRefused, case.append(lease, case.request(1)), "ses_a")
    await case.append(lease, case.request(0))


async def requests_of_one_batch_share_the_cap(rig: Rig) -> None:
    """The second reservation of a batch sees the first."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    await case.refused(BudgetRefused, case.append(lease, case.request(60), case.request(60)), "ses_a")
    assert await case.books() == [("ses_a", 100, 0, 0)]


async def every_account_of_the_path_is_asked(rig: Rig) -> None:
    """The narrowest cap of the path decides; a settlement updates all its accounts."""
    case = Scenario(rig)
    await case.open("ses_root", cap=100)
    await case.open("ses_mid", accounts=("mid", "ses_root"))
    await case.open("ses_leaf", accounts=("leaf", "mid", "ses_root"), cap=80)
    leaf, mid = await case.take("ses_leaf"), await case.take("ses_mid")
    await case.append(mid, case.request(50))
    error = await case.refused(BudgetRefused, case.append(leaf, case.request(60)), "ses_leaf")
    assert (error.account_id, error.left_pico) == ("ses_root", 50)
    (start,) = await case.append(leaf, case.request(50))
    await case.append(leaf, case.response(start.seq, 20))
    assert await case.books() == [
        ("leaf", 80, 20, 0),
        ("mid", None, 20, 50),
        ("ses_root", 100, 20, 50),
    ]
    await case.refused(UsageError, case.open("ses_x", accounts=("leaf",)))
    await case.refused(UsageError, case.open("ses_x", accounts=("x", "x")))


async def a_race_never_passes_the_cap(rig: Rig) -> None:
    """Fifty sessions reserve from one shared cap at once; exactly as many succeed as fit."""
    case = Scenario(rig)
    await case.open("ses_root", cap=100)
    leases: list[Lease] = []
    for number in range(50):
        await case.open(f"ses_{number:02d}", accounts=(f"acc_{number:02d}", "ses_root"))
        leases.append(await case.take(f"ses_{number:02d}"))
    taken: list[int] = []
    refused: list[int] = []

    async def reserve(lease: Lease) -> None:
        try:
            (start,) = await case.append(lease, case.request(7))
            taken.append(start.seq)
        except BudgetRefused as error:
            refused.append(error.left_pico)

    async with anyio.create_task_group() as group:
        for lease in leases:
            group.start_soon(reserve, lease)
    assert (len(taken), len(refused)) == (14, 36)
    assert set(refused) == {2}
    assert ("ses_root", 100, 0, 98) in await case.books()


async def the_cap_can_be_raised(rig: Rig) -> None:
    """A new cap applies from its own event on."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    await case.refused(BudgetRefused, case.append(lease, case.request(20)), "ses_a")
    await rig.store.post(Post("ses_a", "raise", case.draft(SessionUpdated(budget_pico=30), "user:ann")))
    await case.append(lease, case.request(20))
    await rig.store.post(Post("ses_a", "lower", case.draft(SessionUpdated(budget_pico=5), "user:ann")))
    error = await case.refused(BudgetRefused, case.append(lease, case.request(0)), "ses_a")
    assert error.left_pico == -15


async def the_unpriced_and_the_uncapped_pass(rig: Rig) -> None:
    """A request without a price reserves nothing, a missing cap allows any amount, an unknown cost spends nothing."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    (start,) = await case.append(lease, case.request(None))
    await case.append(lease, case.response(start.seq, None))
    assert await case.books() == [("ses_a", 10, 0, 0)]
    free = await case.started("ses_b")
    await case.append(free, case.request(10**15))
    for amount in (-1, 2**63):
        await case.refused(UsageError, case.append(free, case.request(amount)), "ses_b")


async def a_cost_is_a_fact(rig: Rig) -> None:
    """A cost above its reservation is recorded; the next reservation meets the cap."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    (start,) = await case.append(lease, case.request(5))
    await case.append(lease, case.response(start.seq, 12))
    assert await case.books() == [("ses_a", 10, 12, 0)]
    await case.refused(BudgetRefused, case.append(lease, case.request(0)), "ses_a")


_HOUR_S = 3_600.0
_HOUR_US = 3_600_000_000


async def _account(case: Scenario, account_id: str = "ses_a") -> AccountRow:
    account = await case.store.account(account_id)
    assert account is not None
    return account


async def _spend(case: Scenario, lease: Lease, pico: int) -> int:
    """Start and end a request of that cost; return the time of its end."""
    (start,) = await case.append(lease, case.request(pico))
    (end,) = await case.append(lease, case.response(start.seq, pico))
    return end.at_us


async def a_rolling_cap_frees_with_time(rig: Rig) -> None:
    """Spend counts for its whole period and at most an hour longer; the refusal names the end."""
    case = Scenario(rig)
    periods: tuple[tuple[Period, int], ...] = (("day", 24), ("week", 168))
    for period, hours in periods:
        name = f"ses_{period}"
        lease = await case.started(name)
        await case.set_cap(name, 100, period)
        at_us = await _spend(case, lease, 70)
        await case.append(lease, case.request(30))
        error = await case.refused(BudgetRefused, case.append(lease, case.request(31)), name)
        assert (error.account_id, error.period, error.cap_pico) == (name, period, 100)
        assert (error.left_pico, error.wanted_pico, error.held_pico) == (0, 31, 30)
        assert error.retry_us is not None
        assert 0 <= error.retry_us - (at_us + hours * _HOUR_US) <= _HOUR_US
        rig.advance((hours - 1) * _HOUR_S)
        await case.refused(BudgetRefused, case.append(lease, case.request(1)), name)
        rig.advance(2 * _HOUR_S)
        await case.append(lease, case.request(70))
        await case.refused(BudgetRefused, case.append(lease, case.request(1)), name)
        await case.whole()


async def a_refusal_says_what_would_help(rig: Rig) -> None:
    """A refusal tells whether to wait for siblings, for time, or for a raised cap."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    await _spend(case, lease, 30)
    await case.append(lease, case.request(50))
    total = await case.refused(BudgetRefused, case.append(lease, case.request(40)), "ses_a")
    assert (total.period, total.left_pico, total.held_pico, total.wanted_pico) == ("total", 20, 50, 40)
    assert total.retry_us is None
    await case.set_cap("ses_a", 90, "day")
    day = await case.refused(BudgetRefused, case.append(lease, case.request(40)), "ses_a")
    assert (day.period, day.left_pico, day.held_pico) == ("day", 10, 50)
    assert day.retry_us is not None
    both = await case.refused(BudgetRefused, case.append(lease, case.request(85)), "ses_a")
    assert both.retry_us == day.retry_us
    never = await case.refused(BudgetRefused, case.append(lease, case.request(91)), "ses_a")
    assert never.retry_us is None


async def the_narrowest_cap_is_named(rig: Rig) -> None:
    """The refusal names the account and period with the least left, so that a smaller request can fit."""
    case = Scenario(rig)
    await case.open("ses_a", accounts=("ses_a", "project:web"), cap=80)
    lease = await case.take()
    await case.set_cap("project:web", 60, "week")
    await case.set_cap("project:web", 50, "day")
    error = await case.refused(BudgetRefused, case.append(lease, case.request(81)), "ses_a")
    assert (error.account_id, error.period, error.left_pico) == ("project:web", "day", 50)
    await case.append(lease, case.request(error.left_pico))


async def caps_are_set_from_anywhere(rig: Rig) -> None:
    """Caps can be set from the home, another session, or an approval; the last one counts, whatever the clock does."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    await case.open("ses_b")
    await case.set_cap("ses_a", 20, session_id="ses_b")
    rig.advance(-3 * _HOUR_S)
    await case.set_cap("ses_a", 30)
    assert (await _account(case)).cap_pico == 30
    rig.advance(-3 * _HOUR_S)
    raised = case.draft(ApprovalDecided(item_id="itm_a", verdict="approve", account_id="ses_a", budget_pico=40))
    await case.append(lease, case.question("itm_a"))
    await rig.store.post(Post("ses_a", item_key("itm_a"), raised))
    assert (await _account(case)).cap_pico == 40
    await case.append(lease, case.draft(SessionUpdated(budget_pico=50)), case.draft(SessionUpdated(budget_pico=45)))
    assert (await _account(case)).cap_pico == 45
    await case.whole()
    await case.append(lease, case.request(45))
    await case.refused(BudgetRefused, case.append(lease, case.request(1)), "ses_a")
    await case.set_cap("ses_a", None, session_id="ses_b")
    await case.append(lease, case.request(10**6))
    await case.whole()


async def a_denied_raise_raises_nothing(rig: Rig) -> None:
    """A denied approval does not set its cap."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    await case.append(lease, case.question("itm_a"))
    denied = case.draft(ApprovalDecided(item_id="itm_a", verdict="deny", account_id="ses_a", budget_pico=40))
    await rig.store.post(Post("ses_a", item_key("itm_a"), denied))
    assert (await _account(case)).cap_pico == 10


async def a_cap_below_what_is_spent_stops_spending(rig: Rig) -> None:
    """A cap below the spend refuses further reservations; existing ones can still settle."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    await _spend(case, lease, 60)
    (held,) = await case.append(lease, case.request(20))
    await case.set_cap("ses_a", 50)
    error = await case.refused(BudgetRefused, case.append(lease, case.request(0)), "ses_a")
    assert error.left_pico == -30
    await case.append(lease, case.response(held.seq, 20))
    account = await _account(case)
    assert (account.cap_pico, account.spent_pico, account.reserved_pico) == (50, 80, 0)
    await case.whole()


async def a_priced_call_is_held_and_settled(rig: Rig) -> None:
    """The dispatch of a priced call reserves, its end settles, and the cost counts for the session."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    ends = (
        (ToolResult(call_id="1.0", outcome="ok", content=""), 25, 25),
        (ToolResult(call_id="1.0", outcome="error", content=""), None, 0),
        (ToolOutcomeUnknown(call_id="1.0", reason="lost", content=""), 30, 30),
    )
    spent = 0
    for end, cost, settled in ends:
        (sent,) = await case.append(lease, case.dispatch(30))
        assert await case.books() == [("ses_a", 100, spent, 30)]
        settled_by = {"dispatch_seq": sent.seq, "cost_pico": cost}
        fact = type(end)(**{name: getattr(end, name) for name in end.__struct_fields__} | settled_by)
        await case.append(lease, case.draft(fact))
        spent += settled
        assert await case.books() == [("ses_a", 100, spent, 0)]
    assert (await case.row()).cost_pico == spent == 55
    await case.refused(BudgetRefused, case.append(lease, case.dispatch(46)), "ses_a")
    await case.append(lease, case.dispatch(None), case.result())
    await case.whole()


async def the_last_hour_can_be_read(rig: Rig) -> None:
    """The row gives the spend of the last hour, with at most five minutes too much."""
    case = Scenario(rig)
    lease = await case.started(cap=1_000)
    await _spend(case, lease, 10)
    rig.advance(0.5 * _HOUR_S)
    at_us = await _spend(case, lease, 7)
    spend = (await _account(case)).spend
    assert spent_within(spend, "hour", at_us) == 17
    assert spent_within(spend, "hour", at_us + 36 * 60_000_000) == 7
    assert spent_within(spend, "hour", at_us + 66 * 60_000_000) == 0
    assert spent_within(spend, "day", at_us + 66 * 60_000_000) == 17


async def a_dead_workers_reservation_stays(rig: Rig) -> None:
    """A reservation outlives its worker: it counts until a later shift settles it."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    (held,) = await case.append(lease, case.request(60))
    rig.kill(lease.worker_id)
    again = await case.take()
    await case.refused(BudgetRefused, case.append(again, case.request(41)), "ses_a")
    await case.append(again, case.response(held.seq, 60), case.request(40))
    assert await case.books() == [("ses_a", 100, 60, 40)]
    await case.whole()
