"""Sessions that open others: real brains and a real dispatcher over a log in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from holdfast.brain.doors import Doors
from holdfast.brain.wake import wake
from holdfast.errors import CannotRunSafely
from holdfast.facts.session import Agent, Limits, Rule, SessionCreated, Workspace
from holdfast.facts.shift import ChildCancelled, ChildFinished, ChildOpened
from holdfast.facts.tool import ToolResult
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.log.verify import verify
from holdfast.model.base import Model
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.session.money import pico_from_usd
from holdfast.session.rows import SessionRow
from holdfast.session.tools import CHILD_TOOLS
from tests.brain.stage import Stage, turn
from tests.support.waiting import PATIENCE_S

PRICE = {"input_per_mtok": 10.0, "output_per_mtok": 0.0}
COST = {"usage": {"input_tokens": 100_000, "output_tokens": 0}}
"""A turn with it costs a dollar."""

FREE = {"usage": {"input_tokens": 0, "output_tokens": 0}}

TOOLS = ("bash", "sleep", "ask_person", *CHILD_TOOLS)


@dataclass
class Family:
    """A session at the top and whatever comes to stand below it; each follows the script of its agent's name."""

    scripts: dict[str, list[dict[str, Any]]]
    limits: Limits = field(default_factory=Limits)
    rules: tuple[Rule, ...] = ()
    price: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self.stage = Stage([])
        self.store, self.top = self.stage.store, self.stage.session_id
        self.names: dict[str, str] = {}
        self.refuse = ""

    def _model(self, name: str) -> Model:
        script = {"turns": self.scripts[name], **({"price": self.price} if self.price else {})}
        return ScriptedModel(parse_script(json.dumps(script)), self.stage.clock)

    async def _doors(self, session_id: str) -> Doors:
        row = await self.store.find(session_id)
        return replace(self.stage.doors, model=lambda _: self._model(row.name), workspace=self.workspace)

    def workspace(self, session_id: str, near: Workspace) -> Workspace:
        if self.refuse:
            raise CannotRunSafely(self.refuse)
        return replace_path(near, f"/fresh/{session_id}")

    async def open(self) -> None:
        """Open the one at the top."""
        agent = Agent(model="scripted", name="top", tools=TOOLS, rules=self.rules)
        created = SessionCreated(goal="all of it", agent=agent, workspace=Workspace("/w"), limits=self.limits)
        await self.stage.intake.open(self.top, created)

    async def run(self) -> None:
        """Run the tree until it has come to rest, as `run` in the foreground does."""

        async def handle(session_id: str) -> None:
            await wake(session_id, await self._doors(session_id))

        with anyio.fail_after(PATIENCE_S):
            dispatcher = InlineDispatcher(self.store, self.stage.clock, boot_id="fake-boot", only=self.top, limit=64)
            await dispatcher.ring(self.top)
            await dispatcher.run(handle)

    async def rows(self) -> dict[str, SessionRow]:
        """All sessions by their agents' names."""
        return {row.name: row for row in await self.store.sessions()}

    async def stands(self) -> dict[str, str]:
        """How each stands."""
        return {name: f"{row.status} {row.reason}".strip() for name, row in (await self.rows()).items()}

    async def facts(self, kind: type[Any], name: str = "top") -> list[Any]:
        """The facts of a kind in the log of the session of that name."""
        events = await self.store.read((await self.rows())[name].session_id)
        return [event.fact for event in events if isinstance(event.fact, kind)]

    async def results(self, name: str = "top") -> list[str]:
        """What its calls returned."""
        return [result.content for result in await self.facts(ToolResult, name)]


def replace_path(workspace: Workspace, path: str) -> Workspace:
    """The same, elsewhere."""
    return Workspace(path, True, workspace.user, workspace.isolation)


def spawn(name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call that opens a child of that name."""
    return "spawn", {"goal": f"the part of {name}", "name": name, **more}


WAIT: tuple[str, dict[str, Any]] = ("wait_for_children", {})


async def begun(family: Family) -> Family:
    """Opened, and run until it rests."""
    await family.open()
    await family.run()
    return family


async def test_children_work_and_report_and_their_parent_goes_on_once() -> None:
    family = await begun(
        Family(
            {
                "top": [turn("", spawn("left"), spawn("right", workspace="same")), turn("", WAIT), turn("both are in")],
                "left": [turn("left is done")],
                "right": [turn("", ("bash", {"command": "ls"})), turn("right is done")],
            }
        )
    )
    assert await family.stands() == {"top": "done", "left": "done", "right": "done"}
    opened, finished = await family.facts(ChildOpened), await family.facts(ChildFinished)
    assert [fact.name for fact in opened] == ["left", "right"]
    assert sorted((fact.status, fact.summary) for fact in finished) == [
        ("done", "left is done"),
        ("done", "right is done"),
    ]
    report = (await family.results())[-1]
    assert "left is done" in report
    assert "right is done" in report
    rows = await family.rows()
    top = rows["top"].session_id
    for name, folder in (("left", f"/fresh/{rows['left'].session_id}"), ("right", "/w")):
        row = rows[name]
        assert (row.parent, row.root, row.depth, row.workspace) == (top, top, 1, folder)
    assert (await verify(family.store)).findings == ()


async def test_a_parent_that_says_it_is_done_waits_for_those_that_work() -> None:
    family = await begun(
        Family(
            {
                "top": [turn("", spawn("slow")), turn("I am done"), turn("now I am")],
                "slow": [turn("", ("ask_person", {"question": "which?"})), turn("that one")],
            }
        )
    )
    assert await family.stands() == {"top": "parked child", "slow": "parked person"}
    (item,) = await family.store.items()
    await family.stage.intake.approve(item, "the first")
    await family.run()
    assert await family.stands() == {"top": "done", "slow": "done"}
    assert len(await family.facts(ChildFinished)) == 1


async def test_a_child_that_is_parked_for_good_is_reported() -> None:
    loop = [turn("", ("bash", {"command": "ls"})) for _ in range(5)]
    family = await begun(
        Family({"top": [turn("", spawn("stuck", max_turns=2)), turn("", WAIT), turn("so be it")], "stuck": loop})
    )
    assert await family.stands() == {"top": "done", "stuck": "parked cap"}
    (finished,) = await family.facts(ChildFinished)
    assert (finished.status, finished.reason) == ("parked", "cap")
    assert "stuck" in str(finished.detail) or "turns" in finished.detail


async def test_a_message_reopens_a_child_and_its_second_end_is_a_second_report() -> None:
    family = Family(
        {"top": [turn("", spawn("a")), turn("", WAIT), turn("so far")], "a": [turn("first"), turn("second")]}
    )
    await family.open()
    await family.run()
    child = (await family.rows())["a"].session_id
    family.scripts["top"] += [
        turn("", ("message_child", {"child_id": child, "text": "more"})),
        turn("", WAIT),
        turn("that is all"),
    ]
    await family.stage.post("send", "go on")
    await family.run()
    assert await family.stands() == {"top": "done", "a": "done"}
    assert [fact.summary for fact in await family.facts(ChildFinished)] == ["first", "second"]
    assert "second" in (await family.results())[-1]


async def test_a_child_that_a_person_reopens_later_reports_again_and_wakes_nobody_who_is_done() -> None:
    family = await begun(Family({"top": [turn("", spawn("a")), turn("", WAIT)], "a": [turn("first"), turn("second")]}))
    head = (await family.rows())["top"].epoch
    await family.stage.intake.send((await family.rows())["a"], "once more")
    await family.run()
    assert await family.stands() == {"top": "done", "a": "done"}
    assert len(await family.facts(ChildFinished)) == 2
    assert (await family.rows())["top"].epoch == head


async def test_cancelling_a_parent_cancels_all_below_it_whatever_they_wait_for() -> None:
    family = await begun(
        Family(
            {
                "top": [turn("", spawn("asks"), spawn("stuck", max_turns=1), spawn("middle")), turn("done so far")],
                "asks": [turn("", ("ask_person", {"question": "?"}))],
                "stuck": [turn("", ("bash", {"command": "ls"}))],
                "middle": [turn("", spawn("deep")), turn("", WAIT)],
                "deep": [turn("", ("sleep", {"seconds": 3_600}))],
            }
        )
    )
    stands = await family.stands()
    assert stands == {
        "top": "parked child",
        "asks": "parked person",
        "stuck": "parked cap",
        "middle": "parked child",
        "deep": "parked timer",
    }
    await family.stage.post("cancel")
    await family.run()
    assert set((await family.stands()).values()) == {"cancelled"}
    assert len(await family.facts(ChildCancelled)) == 3
    assert await family.store.items() == []
    assert (await verify(family.store)).findings == ()


async def test_a_parent_cancels_one_child_and_keeps_the_others() -> None:
    family = Family({"top": [turn("", spawn("a"), spawn("b")), turn("waiting")], "a": [], "b": [turn("b is in")]})
    family.scripts["top"].append(turn("b has told me"))
    family.scripts["a"] = [turn("", ("sleep", {"seconds": 3_600}))]
    await family.open()
    await family.run()
    child = (await family.rows())["a"].session_id
    family.scripts["top"] += [turn("", ("cancel_child", {"child_id": child}), WAIT), turn("over")]
    await family.stage.post("send", "a is not needed")
    await family.run()
    assert await family.stands() == {"top": "done", "a": "cancelled", "b": "done"}


async def test_caps_on_generations_and_on_numbers_are_kept_and_the_model_is_told() -> None:
    family = await begun(
        Family(
            {
                "top": [turn("", spawn("a"), spawn("b"), spawn("c")), turn("", WAIT)],
                "a": [turn("", spawn("deeper")), turn("", WAIT)],
                "b": [turn("ok")],
                "deeper": [turn("", spawn("deepest")), turn("ok")],
            },
            limits=Limits(max_children=2, max_depth=2),
        )
    )
    assert await family.stands() == {"top": "done", "a": "done", "b": "done", "deeper": "done"}
    refused = [text for name in ("top", "deeper") for text in await family.results(name) if "No child" in text]
    assert "2 work already" in refused[0]
    assert "2 generations down" in refused[1]


async def test_no_child_has_a_tool_that_its_parent_has_not() -> None:
    family = await begun(
        Family({"top": [turn("", spawn("a", tools=["write"]), spawn("b", tools=["bash"])), turn("", WAIT)], "b": []})
    )
    assert "you do not have write" in (await family.results())[0]
    (created,) = await family.facts(SessionCreated, "b")
    assert created.agent.tools == ("bash",)


async def test_a_folder_that_cannot_be_made_is_told_to_the_model() -> None:
    family = Family({"top": [turn("", spawn("a")), turn("alone then")]})
    family.refuse = "the disk is read-only"
    await family.open()
    await family.run()
    assert await family.stands() == {"top": "done"}
    assert await family.results() == ["No child was opened: the disk is read-only."]


async def test_a_budget_needs_a_price() -> None:
    family = await begun(Family({"top": [turn("", spawn("a", budget_usd=1.0)), turn("alone then")]}))
    assert await family.stands() == {"top": "done"}
    assert "has no price" in (await family.results())[0]


@pytest.mark.parametrize(("of_child", "of_top", "turns"), [(2.0, 10.0, 2), (50.0, 4.0, 3)])
async def test_a_childs_money_comes_out_of_its_parents(of_child: float, of_top: float, turns: int) -> None:
    """The smaller cap holds: the child's own, or what its parent has left after the turn that opened it."""
    busy = [turn("", ("bash", {"command": f"echo {number}"}), **COST) for number in range(20)]
    family = Family(
        {"top": [turn("", spawn("a", budget_usd=of_child), **COST), turn("", WAIT, **FREE)], "a": busy},
        limits=Limits(budget_pico=pico_from_usd(str(of_top))),
        price=PRICE,
    )
    await family.open()
    await family.run()
    assert (await family.rows())["a"].turns == turns
    top = await family.store.account(family.top)
    child = await family.store.account((await family.rows())["a"].session_id)
    assert top is not None
    assert child is not None
    assert child.spent_pico == turns * pico_from_usd("1")
    assert top.spent_pico == (turns + 1) * pico_from_usd("1")
    assert top.reserved_pico == child.reserved_pico == 0
    (finished,) = await family.facts(ChildFinished)
    assert (finished.status, finished.reason) == ("parked", "budget")


async def test_a_spawn_that_died_half_way_is_taken_up_again() -> None:
    """The folder is made, then the brain dies before the append: the next one opens the child in that very folder."""
    family = Family({"top": [turn("", spawn("a")), turn("", WAIT)], "a": [turn("ok")]})
    made: list[str] = []
    workspace = family.workspace

    class Died(Exception):
        pass

    def dies_once(session_id: str, near: Workspace) -> Workspace:
        made.append(session_id)
        if len(made) == 1:
            raise Died
        return workspace(session_id, near)

    family.workspace = dies_once  # type: ignore[method-assign]
    await family.open()
    with pytest.raises(Died):
        await family.run()
    await family.run()
    assert await family.stands() == {"top": "done", "a": "done"}
    assert made == [(await family.rows())["a"].session_id] * 2
