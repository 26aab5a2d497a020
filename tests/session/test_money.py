"""Money is whole pico-dollars, and the ledger moves it as facts say (S15)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BudgetRefused, UsageError
from holdfast.facts.base import Fact, Text, Usage
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalDecided, UserMessage, Verdict
from holdfast.facts.session import Agent, Limits, SessionCreated, SessionForked, SessionUpdated, Workspace
from holdfast.facts.shift import BudgetSet, Period
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.log.ledger import Ledger
from holdfast.session.home import HOME, home_created
from holdfast.session.money import (
    HOUR_US,
    PICO,
    AccountRow,
    Move,
    NameAccount,
    OpenAccount,
    Price,
    Reserve,
    SetCap,
    Settle,
    Spend,
    move,
    path_of,
    pico_from_usd,
    price_per_mtok,
    usd,
    usd_float,
)

amounts = st.integers(0, 10**16)


@given(st.integers(-(10**18), 10**18))
def test_dollars_as_written_are_exact(pico: int) -> None:
    assert pico_from_usd(format(Decimal(pico) / PICO, "f")) == pico


@pytest.mark.parametrize("text", ["", "a lot", "1,5", "nan", "inf", "-inf", "0.0000000000001", "1e-13", "$5", "0x1"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of dollars"):
        pico_from_usd(text)


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (None, "unpriced"),
        (0, "$0.0000"),
        (4_200_000_000, "$0.0042"),
        (999_999_999_999, "$1.0000"),
        (PICO, "$1.00"),
        (2_500 * PICO // 1000, "$2.50"),
        (-PICO // 2, "-$0.5000"),
    ],
)
def test_money_for_people(pico: int | None, text: str) -> None:
    assert usd(pico) == text


def test_an_unknown_cost_is_null_and_never_zero() -> None:
    assert usd_float(None) is None
    assert usd_float(0) == 0.0
    assert usd_float(PICO // 4) == 0.25


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_price_is_linear(a: int, b: int, c: int, d: int) -> None:
    price = price_per_mtok(3.0, 15.0, 0.3, 3.75)
    assert price == Price(3_000_000, 15_000_000, 300_000, 3_750_000)
    whole = price.cost(Usage(a, b, c, d))
    parts = [price.cost(Usage(a, 0, 0, 0)), price.cost(Usage(0, b, 0, 0)), price.cost(Usage(0, 0, c, d))]
    assert whole == sum(parts) == 3_000_000 * a + 15_000_000 * b + 300_000 * c + 3_750_000 * d
    assert price.cost(Usage(a, b, c, d) + Usage(a, b, c, d)) == 2 * whole


def test_cached_tokens_cost_as_input_unless_said_and_fractions_round_up() -> None:
    assert price_per_mtok(0.1, 0.2) == Price(100_000, 200_000, 100_000, 100_000)
    assert price_per_mtok(0.0000001, 0) == Price(1, 0, 1, 1)


def created(cap: int | None, accounts: tuple[str, ...] = ()) -> SessionCreated:
    limits = Limits(budget_pico=cap)
    return SessionCreated(goal="g", agent=Agent("m"), workspace=Workspace("/w"), limits=limits, accounts=accounts)


def start(amount: int | None) -> ModelRequestStart:
    return ModelRequestStart(
        purpose="turn", model="m", attempt=1, inputs_through=1, max_output_tokens=1, reserved_pico=amount
    )


LINE = ("leaf", "root")


def forked(cap: int | None) -> SessionForked:
    workspace = Workspace("/w")
    return SessionForked(
        origin="ses_o",
        origin_seq=3,
        origin_hash="",
        goal="g",
        model="m",
        workspace=workspace,
        accounts=LINE,
        budget_pico=cap,
    )


def decided(verdict: Verdict, cap: int | None) -> ApprovalDecided:
    return ApprovalDecided(item_id="itm_1", verdict=verdict, account_id="root", budget_pico=cap)


def dispatch(amount: int | None) -> ToolDispatched:
    return ToolDispatched(
        call_id="c", attempt=1, hands_id="", action_digest="", on_unknown="tell", timeout_s=1.0, reserved_pico=amount
    )


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (created(5), (OpenAccount("leaf", 5, 9), NameAccount("root"))),
        (created(None), (OpenAccount("leaf", None, 9), NameAccount("root"))),
        (forked(5), (OpenAccount("leaf", 5, 9), NameAccount("root"))),
        (SessionUpdated(budget_pico=7), (SetCap("leaf", 7, "total", 9),)),
        (SessionUpdated(budget_pico=0), (SetCap("leaf", 0, "total", 9),)),
        (SessionUpdated(max_turns=3), ()),
        (BudgetSet(account_id="project:web", period="day", cap_pico=3), (SetCap("project:web", 3, "day", 9),)),
        (BudgetSet(account_id="root", period="total"), (SetCap("root", None, "total", 9),)),
        (decided("approve", 8), (SetCap("root", 8, "total", 9),)),
        (decided("approve", None), ()),
        (decided("deny", 8), ()),
        (start(9), (Reserve(LINE, 4, 9),)),
        (start(0), (Reserve(LINE, 4, 0),)),
        (start(None), ()),
        (dispatch(9), (Reserve(LINE, 4, 9),)),
        (dispatch(None), ()),
        (ModelRequestEnd(request_seq=2, outcome="ok", cost_pico=8), (Settle(LINE, 2, 8, 9),)),
        (ModelRequestEnd(request_seq=2, outcome="presumed", cost_pico=8), (Settle(LINE, 2, 8, 9),)),
        (ModelRequestEnd(request_seq=2, outcome="error"), (Settle(LINE, 2, 0, 9),)),
        (ToolResult(call_id="c", outcome="ok", content="", dispatch_seq=3, cost_pico=2), (Settle(LINE, 3, 2, 9),)),
        (ToolResult(call_id="c", outcome="ok", content="", dispatch_seq=3), (Settle(LINE, 3, 0, 9),)),
        (ToolResult(call_id="c", outcome="denied", content=""), ()),
        (
            ToolOutcomeUnknown(call_id="c", reason="r", content="", dispatch_seq=3, cost_pico=2),
            (Settle(LINE, 3, 2, 9),),
        ),
        (UserMessage(content=(Text("hi"),)), ()),
    ],
)
def test_moves_follow_from_facts(fact: Fact, expected: tuple[Move, ...]) -> None:
    assert move(fact, 4, LINE, 9) == expected


def test_the_home_has_no_money_of_its_own() -> None:
    home = home_created().fact
    assert isinstance(home, SessionCreated)
    assert path_of(home, HOME) == ()
    assert move(home, 1, (), 9) == ()


def test_the_path_is_the_sessions_own_account_unless_named() -> None:
    assert path_of(created(1), "ses_1") == ("ses_1",)
    assert path_of(created(1, ("leaf", "root")), "ses_1") == ("leaf", "root")


class Shelf:
    """Books in two dictionaries."""

    def __init__(self) -> None:
        self.accounts: dict[str, AccountRow] = {}
        self.held: dict[tuple[str, int], int] = {}

    def account(self, account_id: str) -> AccountRow | None:
        return self.accounts.get(account_id)

    def reservation(self, session_id: str, request_seq: int) -> int | None:
        return self.held.get((session_id, request_seq))

    def keep(self, ledger: Ledger) -> None:
        self.accounts.update(ledger.accounts)
        for key, amount in ledger.reservations.items():
            if amount is None:
                self.held.pop(key, None)
            else:
                self.held[key] = amount


PATHS = (("root",), ("mid", "root"), ("leaf", "mid", "root"))


@given(
    st.lists(st.none() | amounts, min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), amounts, st.booleans()), max_size=40),
)
def test_reservations_never_pass_a_cap_and_books_balance(caps: list[int | None], steps: list[Any]) -> None:
    shelf = Shelf()
    for path, cap in zip(PATHS, caps, strict=True):
        ledger = Ledger(shelf, 0)
        ledger.apply(path[0], OpenAccount(path[0], cap))
        shelf.keep(ledger)
    spent = dict.fromkeys(("root", "mid", "leaf"), 0)
    for seq, (which, reserve, amount, cheaply) in enumerate(steps):
        path, ledger = PATHS[which], Ledger(shelf, 0)
        mine = [key for key in shelf.held if key[0] == path[0]]
        if reserve:
            room = [
                a.cap_pico - a.spent_pico - a.reserved_pico
                for a in map(shelf.accounts.get, path)
                if a and a.cap_pico is not None
            ]
            try:
                ledger.apply(path[0], Reserve(path, seq, amount))
            except BudgetRefused as error:
                refused: BudgetRefused | None = error
            else:
                refused = None
                shelf.keep(ledger)
            assert (refused is not None) == any(amount > left for left in room)
            assert refused is None or refused.left_pico == min(room)
        elif mine:
            held = shelf.held[mine[0]]
            cost = min(amount, held) if cheaply else held
            ledger.apply(path[0], Settle(path, mine[0][1], cost))
            shelf.keep(ledger)
            for account in path:
                spent[account] += cost
    for name, row in shelf.accounts.items():
        below = [key for key in shelf.held if name in next(path for path in PATHS if path[0] == key[0])]
        assert row.reserved_pico == sum(shelf.held[key] for key in below)
        assert row.spent_pico == spent[name]
        assert row.cap_pico is None or row.spent_pico + row.reserved_pico <= row.cap_pico


DAY_US, WEEK_US = 24 * HOUR_US, 168 * HOUR_US
NOW = 1_790_000_000_000_000

caps_of_all = st.tuples(*(st.none() | st.integers(0, top) for top in (300, 60, 90)))
wishes = st.lists(st.tuples(st.integers(0, 30 * HOUR_US), st.integers(0, 40), st.integers(0, 40) | st.none()))


def capped(*caps: int | None) -> Shelf:
    """An account with these caps: total, day, week."""
    shelf = Shelf()
    periods: tuple[Period, ...] = ("total", "day", "week")
    for period, cap in zip(periods, caps, strict=True):
        ledger = Ledger(shelf, NOW)
        ledger.apply("a", SetCap("a", cap, period, NOW))
        shelf.keep(ledger)
    return shelf


def refusal(shelf: Shelf, now_us: int, seq: int, amount: int) -> BudgetRefused | None:
    """Reserve; what was said against it."""
    ledger = Ledger(shelf, now_us)
    try:
        ledger.apply("a", Reserve(("a",), seq, amount))
    except BudgetRefused as error:
        return error
    shelf.keep(ledger)
    return None


def settle(shelf: Shelf, now_us: int, seq: int, cost: int) -> None:
    ledger = Ledger(shelf, now_us)
    ledger.apply("a", Settle(("a",), seq, cost, now_us))
    shelf.keep(ledger)


@given(caps_of_all, wishes)
def test_rolling_caps_are_never_passed_and_nearly_all_of_them_can_be_used(
    caps: tuple[int | None, ...], made: list[tuple[int, int, int | None]]
) -> None:
    """Against a list of all that was ever spent: (time, amount). A wish without a cost stays held."""
    shelf, held, now = capped(*caps), 0, NOW
    spent: list[tuple[int, int]] = []
    for seq, (wait_us, amount, cost) in enumerate(made):
        now += wait_us
        lengths = tuple(zip(caps, (now, DAY_US, WEEK_US), strict=True))

        def over(slack_us: int, wish: int = amount + held, lengths: Any = lengths, now: int = now) -> bool:
            sums = [(cap, sum(pico for at, pico in spent if at >= now - length - slack_us)) for cap, length in lengths]
            return any(cap is not None and used + wish > cap for cap, used in sums)

        error = refusal(shelf, now, seq, amount)
        assert not over(0) if error is None else over(HOUR_US)
        if error is not None:
            assert (error.wanted_pico, error.held_pico) == (amount, held)
            assert error.retry_us is None or error.retry_us > now
            continue
        held += amount
        if cost is not None:
            settle(shelf, now, seq, min(cost, amount))
            held -= amount
            spent.append((now, min(cost, amount)))


@given(st.lists(st.tuples(st.integers(0, 10 * HOUR_US), st.integers(1, 20)), min_size=1, max_size=20))
def test_it_fits_at_the_time_that_a_refusal_names_and_not_before(made: list[tuple[int, int]]) -> None:
    shelf, now = capped(None, 40, None), NOW
    for seq, (wait_us, amount) in enumerate(made):
        now += wait_us
        error = refusal(shelf, now, seq, amount)
        if error is not None:
            assert error.retry_us is not None
            assert refusal(shelf, error.retry_us - 1, seq, amount) is not None
            now = error.retry_us
            assert refusal(shelf, now, seq, amount) is None
        settle(shelf, now, seq, amount)


def test_a_settlement_without_a_reservation_still_spends() -> None:
    shelf = Shelf()
    ledger = Ledger(shelf, 0)
    ledger.apply("a", OpenAccount("a", 10))
    ledger.apply("a", Settle(("a",), 5, 3))
    ledger.apply("a", Settle(("a",), 5, 0))
    assert ledger.accounts == {"a": AccountRow("a", 10, 3, 0, spend=Spend(((0, 3),), ((0, 3),)))}
    assert ledger.reservations == {}


def test_a_request_that_ends_in_its_own_batch_holds_nothing() -> None:
    shelf = Shelf()
    ledger = Ledger(shelf, 0)
    ledger.apply("a", OpenAccount("a", 10))
    ledger.apply("a", Reserve(("a",), 5, 8))
    ledger.apply("a", Settle(("a",), 5, 2))
    ledger.apply("a", Reserve(("a",), 7, 8))
    assert ledger.accounts == {"a": AccountRow("a", 10, 2, 8, spend=Spend(((0, 2),), ((0, 2),)))}
    assert ledger.reservations == {("a", 5): None, ("a", 7): 8}


@pytest.mark.parametrize(
    "bad",
    [
        Reserve(("a",), 1, -1),
        Reserve(("a",), 1, 2**62 + 1),
        Reserve(("a", "nobody"), 1, 1),
        Settle(("a",), 1, -1),
        SetCap("a", -1),
        OpenAccount("a", 1),
        OpenAccount("b", -1),
    ],
)
def test_moves_that_mean_nothing_are_refused(bad: Move) -> None:
    ledger = Ledger(Shelf(), 0)
    ledger.apply("a", OpenAccount("a", 10))
    with pytest.raises(UsageError):
        ledger.apply("a", bad)
