"""Checks of the ledger (S15): money is held before it is spent, from leaf to root."""

from __future__ import annotations

import anyio

from holdfast.errors import BudgetRefused, UsageError
from holdfast.facts.session import SessionUpdated
from holdfast.log.base import Lease, Post
from holdfast.testing.log.rig import Check, Rig, Scenario


async def a_reservation_is_held_and_settled(rig: Rig) -> None:
    """Held by the request's start, replaced by the cost at its end, as events and as rows."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    (start,) = await case.append(lease, case.request(60))
    assert await case.books() == [("ses_a", 100, 0, 60)]
    await case.append(lease, case.response(start.seq, 25))
    assert await case.books() == [("ses_a", 100, 25, 0)]
    row = await case.row()
    assert (row.turns, row.cost_pico, row.input_tokens, row.output_tokens) == (1, 25, 10, 5)


async def what_does_not_fit_is_refused(rig: Rig) -> None:
    """To the last pico-dollar; the error says what is left; nothing of the batch is written."""
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
    """The narrowest cap decides, wherever it stands; a settlement moves all of them."""
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
    """Fifty reservations at once against one cap, from sessions that share it: exactly what fits is held."""
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


async def a_person_raises_the_cap(rig: Rig) -> None:
    """The new cap counts from its own event on."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    await case.refused(BudgetRefused, case.append(lease, case.request(20)), "ses_a")
    await rig.store.post(Post("ses_a", "raise", case.draft(SessionUpdated(budget_pico=30), "user:ann")))
    await case.append(lease, case.request(20))
    await rig.store.post(Post("ses_a", "lower", case.draft(SessionUpdated(budget_pico=5), "user:ann")))
    error = await case.refused(BudgetRefused, case.append(lease, case.request(0)), "ses_a")
    assert error.left_pico == -15


async def the_unpriced_and_the_uncapped_pass(rig: Rig) -> None:
    """No price reserves nothing; no cap holds any amount; a cost that is unknown spends nothing."""
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
    """What was spent is recorded although it is more than was held; the next reservation meets the cap."""
    case = Scenario(rig)
    lease = await case.started(cap=10)
    (start,) = await case.append(lease, case.request(5))
    await case.append(lease, case.response(start.seq, 12))
    assert await case.books() == [("ses_a", 10, 12, 0)]
    await case.refused(BudgetRefused, case.append(lease, case.request(0)), "ses_a")


CHECKS: tuple[Check, ...] = (
    a_reservation_is_held_and_settled,
    what_does_not_fit_is_refused,
    requests_of_one_batch_share_the_cap,
    every_account_of_the_path_is_asked,
    a_race_never_passes_the_cap,
    a_person_raises_the_cap,
    the_unpriced_and_the_uncapped_pass,
    a_cost_is_a_fact,
)
