"""Checks of caps over time, of shared caps and of priced tools (S15)."""

from __future__ import annotations

from holdfast.errors import BudgetRefused
from holdfast.facts.budget import Period
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionUpdated
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.log.base import Lease, Post
from holdfast.session.accounts import AccountRow, spent_within
from holdfast.session.items import item_key
from holdfast.testing.log.rig import Check, Rig, Scenario

_HOUR_S = 3_600.0
_HOUR_US = 3_600_000_000


async def _account(case: Scenario, account_id: str = "ses_a") -> AccountRow:
    account = await case.store.account(account_id)
    assert account is not None
    return account


async def _spend(case: Scenario, lease: Lease, pico: int) -> int:
    """A request of that cost, from start to end; when it ended."""
    (start,) = await case.append(lease, case.request(pico))
    (end,) = await case.append(lease, case.response(start.seq, pico))
    return end.at_us


async def a_rolling_cap_frees_with_time(rig: Rig) -> None:
    """What was spent counts for its whole period, at most an hour longer; the refusal says until when."""
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
    """Waiting for siblings, for time, or for a person."""
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
    """Of all accounts and periods the one with the least left, so that a smaller wish can fit at once."""
    case = Scenario(rig)
    await case.open("ses_a", accounts=("ses_a", "project:web"), cap=80)
    lease = await case.take()
    await case.set_cap("project:web", 60, "week")
    await case.set_cap("project:web", 50, "day")
    error = await case.refused(BudgetRefused, case.append(lease, case.request(81)), "ses_a")
    assert (error.account_id, error.period, error.left_pico) == ("project:web", "day", 50)
    await case.append(lease, case.request(error.left_pico))


async def caps_are_set_from_anywhere(rig: Rig) -> None:
    """From the home, from another session, by an approval; the last one counts whatever the clock does."""
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
    """Only an approval sets the cap that it names."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    await case.append(lease, case.question("itm_a"))
    denied = case.draft(ApprovalDecided(item_id="itm_a", verdict="deny", account_id="ses_a", budget_pico=40))
    await rig.store.post(Post("ses_a", item_key("itm_a"), denied))
    assert (await _account(case)).cap_pico == 10


async def a_cap_below_what_is_spent_stops_spending(rig: Rig) -> None:
    """It is taken, and means that nothing more is spent; what is held already may still be settled."""
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
    """As a request is: held by its dispatch, settled by its end, known or not; it counts as the session's cost."""
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
        fact = type(end)(**{name: getattr(end, name) for name in end.__struct_fields__} | _settles(sent.seq, cost))
        await case.append(lease, case.draft(fact))
        spent += settled
        assert await case.books() == [("ses_a", 100, spent, 0)]
    assert (await case.row()).cost_pico == spent == 55
    await case.refused(BudgetRefused, case.append(lease, case.dispatch(46)), "ses_a")
    await case.append(lease, case.dispatch(None), case.result())
    await case.whole()


def _settles(seq: int, cost: int | None) -> dict[str, int | None]:
    return {"dispatch_seq": seq, "cost_pico": cost}


async def the_last_hour_can_be_read(rig: Rig) -> None:
    """For a breaker: what was spent within the hour, from the row alone, at most five minutes too much."""
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


async def what_the_dead_held_stays_held(rig: Rig) -> None:
    """A reservation belongs to its session: a later shift settles it, and until then it counts."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    (held,) = await case.append(lease, case.request(60))
    rig.kill(lease.worker_id)
    again = await case.take()
    await case.refused(BudgetRefused, case.append(again, case.request(41)), "ses_a")
    await case.append(again, case.response(held.seq, 60), case.request(40))
    assert await case.books() == [("ses_a", 100, 60, 40)]
    await case.whole()


CHECKS: tuple[Check, ...] = (
    a_rolling_cap_frees_with_time,
    a_refusal_says_what_would_help,
    the_narrowest_cap_is_named,
    caps_are_set_from_anywhere,
    a_denied_raise_raises_nothing,
    a_cap_below_what_is_spent_stops_spending,
    a_priced_call_is_held_and_settled,
    the_last_hour_can_be_read,
    what_the_dead_held_stays_held,
)
