"""The Python API for people: approvals, grants, money, messages, pauses, also from another process."""

from __future__ import annotations

import sys
from decimal import Decimal
from functools import partial
from pathlib import Path

import anyio
import pytest

import holdfast
from holdfast.facts.people import ApprovalDecided, UserMessage
from holdfast.facts.shift import ShiftEnded
from tests.app.api_program import call, publish, types
from tests.app.terminal import script, turn

ANSWER = """
import asyncio, sys, holdfast
async def main() -> None:
    async with holdfast.open() as hf:
        (item,) = await hf.inbox()
        print((await hf.approve(item, "Go.", by="anna")).status)
asyncio.run(main())
"""


async def test_an_approval_is_answered_from_another_process(hf: holdfast.Holdfast, publisher: str) -> None:
    waiting = await hf.run(holdfast.Agent(publisher, tools=[publish], ask=["publish"]), "x", key="k")
    assert (waiting.status, waiting.reason) == ("parked", "person")
    (item,) = waiting.items
    assert (item.kind, item.action, item.why) == ("tool", "publish:\n  page: front", "Now publish.")
    assert await hf.inbox() == [item]
    done = await anyio.run_process([sys.executable, "-c", ANSWER])
    assert done.stdout == b"approved\n"
    (answer,) = [event async for event in hf.events("k") if isinstance(event.fact, ApprovalDecided)]
    assert answer.actor == "user:anna"
    assert isinstance(answer.fact, ApprovalDecided)
    assert (answer.fact.via, answer.fact.note) == ("api", "Go.")
    with pytest.raises(holdfast.ItemClosed, match="already approved by anna"):
        await hf.deny(item)
    assert (await hf.resume("k")).status == "done"
    assert await hf.inbox() == []
    assert [each.status for each in await hf.inbox(open_only=False)] == ["approved"]


async def test_a_denial_reaches_the_model(hf: holdfast.Holdfast, publisher: str) -> None:
    waiting = await hf.run(holdfast.Agent(publisher, tools=[publish], ask=["pub*"]), "x", owner="anna")
    with pytest.raises(holdfast.UsageError, match="may be answered by anna"):
        await hf.deny(waiting.items[0], by="ben")
    await hf.deny(waiting.items[0].item_id, "Not on a Friday.", by="anna")
    result = await hf.resume(waiting.session_id)
    (fact,) = [event.fact async for event in hf.events(result.session_id) if event.type == "agent.tool_result"]
    assert getattr(fact, "outcome", "") == "denied"
    assert "Not on a Friday." in getattr(fact, "content", "")


async def test_a_grant_lets_more_calls_through(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", *[call("publish", page=page) for page in "aba"], turn(text="Over."))
    waiting = await hf.run(holdfast.Agent(model, tools=[publish], ask=["publish"]), "x", key="k")
    with pytest.raises(holdfast.UsageError, match="needs a bound"):
        await hf.approve(waiting.items[0], match="*")
    await hf.approve(waiting.items[0], uses=5)
    second = await hf.resume("k")
    assert second.items[0].action == "publish:\n  page: b"
    await hf.approve(second.items[0])
    assert (await hf.resume("k")).text == "Over.", "the third call is like the first"


async def test_a_tool_that_costs_too_much_waits_for_money(hf: holdfast.Holdfast, publisher: str) -> None:
    parked = await hf.run(holdfast.Agent(publisher, tools=[publish]), "x", key="k", budget_usd="0.50")
    assert (parked.status, parked.reason, parked.cost_usd) == ("parked", "budget", Decimal("0.315"))
    (item,) = parked.items
    assert (item.kind, item.proposed_usd) == ("budget", Decimal("1"))
    assert "tool.dispatched" not in await types(hf, "k")
    with pytest.raises(holdfast.UsageError, match="has spent"):
        await hf.approve(item, budget_usd="0.10")
    await hf.approve(item)
    result = await hf.resume("k")
    assert (result.status, result.cost_usd) == ("done", Decimal("0.88"))


async def test_a_price_needs_no_budget_but_a_budget_needs_prices(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Hi."))
    agent = holdfast.Agent(model, tools=[])
    with pytest.raises(holdfast.UsageError, match="has no price"):
        await hf.run(agent, "x", budget_usd=1)
    assert await hf.sessions() == []
    result = await hf.run(agent, "x", budget_usd=1, unpriced=True)
    assert (result.status, result.cost_usd) == ("done", None)


# --- steering -------------------------------------------------------------------------------------


async def test_messages_pauses_and_the_end(hf: holdfast.Holdfast, publisher: str) -> None:
    agent = holdfast.Agent(publisher, tools=[publish], ask=["publish"])
    await hf.run(agent, "x", key="k")
    await hf.send("k", "Wait.", key="once", by="anna")
    await hf.send("k", "Wait.", key="once", by="anna")
    await hf.pause("k")
    assert (await hf.show("k")).status == "runnable"
    await hf.limit("k", budget_usd=5, max_turns=3)
    said = [event.actor async for event in hf.events("k") if isinstance(event.fact, UserMessage)]
    assert said == ["user:anna"]
    resumed = await hf.resume("k")
    assert "user.resume" in await types(hf, "k")
    assert (resumed.status, resumed.text) == ("done", "It is out."), "who says something instead of answering says no"
    await hf.cancel("k", "enough")
    await hf.cancel("k")
    assert (await hf.show("k")).status == "cancelled"
    with pytest.raises(holdfast.UsageError, match="was cancelled"):
        await hf.send("k", "x")
    assert (await types(hf, "k")).count("user.cancel") == 1


async def test_what_another_process_does_is_followed(hf: holdfast.Holdfast, publisher: str) -> None:
    await hf.run(holdfast.Agent(publisher, tools=[publish], ask=["publish"]), "x", key="k")
    seen = []

    async def follow() -> None:
        async for event in hf.events("k", follow=True):
            seen.append(event.type)
            if event.type == "approval.decided":
                return

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.run_process([sys.executable, "-c", ANSWER])
    assert seen == await types(hf, "k")


async def test_a_home_may_be_open_twice_in_one_program(hf: holdfast.Holdfast, publisher: str) -> None:
    waiting = await hf.run(holdfast.Agent(publisher, tools=[publish], ask=["publish"]), "x", key="k")
    async with holdfast.open() as again:
        assert len(await again.sessions()) == 1
    await anyio.run_process([sys.executable, "-c", ANSWER])
    assert (await hf.show("k")).events == waiting.events + 1, "what another process writes is still seen"


async def test_a_program_that_serves_goes_on_at_once(hf: holdfast.Holdfast, publisher: str, tmp_path: Path) -> None:
    agent = holdfast.Agent(publisher, tools=[publish], ask=["publish"])
    await hf.run(agent, "x", key="k")

    @holdfast.tool(on_unknown="tell")
    def foreign() -> str:
        """Another program's."""
        return "done"

    other = holdfast.Agent(script(tmp_path / "o.json", call("foreign")), tools=[foreign], ask=["foreign"])
    async with holdfast.open() as elsewhere:
        waiting = await elsewhere.run(other, "x", key="o")
        await elsewhere.approve(waiting.items[0])
    errors: list[tuple[str, str]] = []
    async with anyio.create_task_group() as group:
        group.start_soon(partial(hf.serve, on_error=lambda name, error: errors.append((name, str(error)))))
        await anyio.run_process([sys.executable, "-c", ANSWER])
        async for event in hf.events("k", follow=True):
            if isinstance(event.fact, ShiftEnded) and event.fact.status == "done":
                break
        side_by_side = [hf.run(holdfast.Agent(publisher, tools=[publish]), "x", key=f"k{n}") for n in range(5)]
        assert [(await each).status for each in side_by_side] == ["done"] * 5, "a run and the service do not quarrel"
        group.cancel_scope.cancel()
    assert [name for name, _ in errors] == [waiting.session_id], "left alone"
    assert "uses the function 'foreign', which this program did not pass" in errors[0][1]
    assert (await hf.show("o")).status == "runnable"
