"""Shift of a run over a list: carries out the conductor's decisions. The outcomes of children and the sessions for the
next items are one transaction (S4), so that no item is worked on twice and none is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.brain.acts.child import NO_ONE_ELSE, SUMMARY_CHARACTERS
from holdfast.brain.shift import Acts, Shift
from holdfast.facts.base import Fact, Text, text_of
from holdfast.facts.items import (
    ItemAudited,
    ItemData,
    ItemEnded,
    ItemFailed,
    ItemPurpose,
    ItemQuarantined,
    ItemsAdded,
    ItemsForecast,
    ItemsReduced,
    ItemStarted,
    ItemWork,
)
from holdfast.facts.model import AgentMessage
from holdfast.facts.people import UserCancel, UserMessage, UserResume
from holdfast.facts.session import Agent, Parent, SessionCreated
from holdfast.facts.shift import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.task import Run
from holdfast.ids import new_session_id
from holdfast.kinds.items import commands, conductor, goals
from holdfast.kinds.items.conductor import Advance, Checkpoint, Forecast, Opening, Raise, Reduce, RunListCommand, Wait
from holdfast.kinds.items.output import Output
from holdfast.kinds.items.state import Work, is_audited, items_of, items_state
from holdfast.log.base import Post
from holdfast.session.actions import Action, WaitUntil
from holdfast.session.decide.taint import is_tainted
from holdfast.session.money import path_of
from holdfast.session.tools.output import OUTPUT, functions

LINGER_US = 1_000_000
"""Time for which a run waits inside a shift for the next report. It then parks, which costs nothing."""

GOAL_CHARACTERS = 200
"""Characters of a goal that the run's own log repeats; the child's log has all of it."""

PARTS_KEPT = 4
"""Events with items kept in memory."""

GO_ON = "The budget was raised: go on."

GONE = "the item was changed or removed meanwhile"


class ItemsActs(Acts):
    """Acts of a run in one shift. `waited_at` is the head at which it last waited for a report."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.output = Output(shift)
        self.waited_at = 0
        self._parts: dict[int, ItemsAdded] = {}

    async def next(self) -> Action | None:
        """Carry out the conductor's decision, or return an action of any session."""
        shift = self.shift
        now_us = shift.doors.clock.now_us()
        action = conductor.decide(shift.state, now_us, waited=self.waited_at == shift.state.seq)
        match action:
            case Advance():
                await self._advance(action)
            case Wait():
                self.waited_at = shift.state.seq
                return WaitUntil(now_us + LINGER_US)
            case Checkpoint():
                await shift.decision(await self.output.checkpoint())
            case Forecast():
                await shift.decision(_forecast(shift))
            case Raise():
                await self._raise(action)
            case RunListCommand():
                await self._record(await commands.list_items(shift))
            case Reduce():
                await self._record(await commands.reduce(shift, self.output))
            case _:
                return action  # only kernel actions are left: mypy proves it by the return type
        return None

    async def _record(self, facts: list[Fact]) -> None:
        if facts:
            await self.shift.fact(*facts)

    async def _advance(self, action: Advance) -> None:
        facts: list[Fact] = []
        posts: list[Post] = []
        for child_id in action.over:
            more, sent = await self._settle(child_id)
            facts += more
            posts += sent
        for opening in action.openings:
            more, sent = await self._open(opening)
            facts += more
            posts += sent
        await self.shift.decision(*facts, posts=posts)
        await self.shift.bodies()  # forget the reports

    # --- outcomes ------------------------------------------------------------------------------------

    async def _settle(self, child_id: str) -> tuple[list[Fact], list[Post]]:
        """Return the facts about a child's report. A child that needs its parent to go on is cancelled instead."""
        shift, own = self.shift, items_state(self.shift.state)
        work = own.works[child_id]
        fact = await shift.body(work.finished_seq)
        assert isinstance(fact, ChildFinished)
        facts: list[Fact] = []
        posts: list[Post] = []
        if fact.status == "parked" and fact.reason in NO_ONE_ELSE:
            facts.append(ChildCancelled(child_id=child_id))
            cancel = UserCancel(reason="its run goes on without it")
            posts.append(shift.post_to(child_id, f"cancel:{shift.state.session_id}", cancel, _actor(shift)))
        known = fact.cost_pico is not None and work.cost_pico is not None
        cost_pico = (fact.cost_pico or 0) - (work.cost_pico or 0) if known else None
        problem = "" if fact.status == "done" else fact.detail or f"its session was {fact.status}"
        if work.purpose == "reduce":
            result = await self._words(fact)
            ended = ItemsReduced(ok=not problem, result=result, detail=problem, child_id=child_id, cost_pico=cost_pico)
            return [*facts, ended], posts
        if work.purpose == "audit":
            return [*facts, *self._audited(work.keys[0], fact, cost_pico)], posts
        results = await self._results(work, fact) if not problem else {}
        share = None if cost_pico is None else cost_pico // len(work.keys)
        for number, key in enumerate(work.keys):
            rest = 0 if cost_pico is None or share is None or number else cost_pico - share * len(work.keys)
            cost = None if share is None else share + rest
            facts.append(self._outcome(key, fact, work, results, problem, cost))
        return facts, posts

    async def _results(self, work: Work, fact: ChildFinished) -> dict[str, Any]:
        """Return the results in a report by key. The child has checked its output against the schema."""
        items = items_of(self.shift.state.created)
        if OUTPUT not in fact.submitted:
            return {} if items.schema or len(work.keys) > 1 else {work.keys[0]: await self._words(fact)}
        output = fact.submitted[OUTPUT]
        started = await self._body(work.seq)
        assert isinstance(started, ItemStarted)
        if len(started.keys) < 2:
            return {started.keys[0]: output}
        return {each["key"]: each["result"] for each in output}

    def _outcome(
        self, key: str, fact: ChildFinished, work: Work, results: dict[str, Any], problem: str, cost_pico: int | None
    ) -> Fact:
        """Return the outcome of one item of a child."""
        state = self.shift.state
        own, items = items_state(state), items_of(state.created)
        item = own.items.get(key)
        child_id, attempt = fact.child_id, work.attempt
        if item is None or item.child_id != child_id:
            return ItemFailed(key=key, child_id=child_id, attempt=attempt, reason=GONE, cost_pico=cost_pico)
        if key in results:
            return ItemEnded(
                key=key,
                child_id=child_id,
                attempt=item.tries,
                result=results[key],
                cost_pico=cost_pico,
                duration_ms=max(0, state.at_us - work.at_us) // 1_000,
                audit=is_audited(key, state.session_id, items.audit),
            )
        reason = problem or "it submitted no result for the item"
        failed = ItemQuarantined if item.tries >= items.tries else ItemFailed
        return failed(key=key, child_id=child_id, attempt=item.tries, reason=reason, cost_pico=cost_pico)

    def _audited(self, key: str, fact: ChildFinished, cost_pico: int | None) -> list[Fact]:
        own, items = items_state(self.shift.state), items_of(self.shift.state.created)
        unknown = fact.status != "done" or OUTPUT not in fact.submitted
        verdict = {"ok": True, "why": fact.detail or "no verdict"} if unknown else fact.submitted[OUTPUT]
        ok, why = bool(verdict["ok"]), str(verdict["why"])
        audited = ItemAudited(key=key, child_id=fact.child_id, ok=ok, why=why, unknown=unknown, cost_pico=cost_pico)
        item = own.items.get(key)
        if ok or item is None or item.child_id != fact.child_id or item.tries < items.tries:
            return [audited]
        reason = f"its last result was refused by the audit: {why}"
        last = ItemQuarantined(key=key, child_id=fact.child_id, attempt=item.tries, reason=reason, cost_pico=cost_pico)
        return [audited, last]

    async def _words(self, fact: ChildFinished) -> str:
        """Return a child's whole last message; its report may have only the end."""
        if len(fact.summary) < SUMMARY_CHARACTERS:
            return fact.summary
        events = await self.shift.doors.log.read(fact.child_id)
        said = [event.fact for event in events if isinstance(event.fact, AgentMessage)]
        return "\n".join(text_of(each.content) for each in said if each.request_seq == said[-1].request_seq)

    # --- sessions ------------------------------------------------------------------------------------

    async def _open(self, opening: Opening) -> tuple[list[Fact], list[Post]]:
        """Return the facts and the post that give work to a new child, or to an idle one of a rolling context."""
        shift, items = self.shift, items_of(self.shift.state.created)
        data = [await self._data(key) for key in opening.keys]
        schema = goals.VERDICT if opening.purpose == "audit" else goals.output_schema(items, opening.keys)
        if opening.purpose == "work":
            failed_seq = items_state(shift.state).items[opening.keys[0]].failed_seq
            failed = await self._body(failed_seq) if failed_seq else None
            why = failed.why if isinstance(failed, ItemAudited) else str(getattr(failed, "reason", ""))
            goal = goals.work_goal(items, data, schema, why)
        elif opening.purpose == "audit":
            ended = await self._body(items_state(shift.state).items[opening.keys[0]].ended_seq)
            assert isinstance(ended, ItemEnded)
            goal = goals.audit_goal(items, data[0], ended.result)
        else:
            goal, schema = goals.reduce_goal(items), {}
        child_id = opening.child_id or self._child_id(opening)
        started = ItemStarted(child_id=child_id, keys=opening.keys, attempt=opening.attempt, purpose=opening.purpose)
        if opening.child_id:
            said = UserMessage(content=(Text(goal),))
            told = ChildMessaged(child_id=child_id, call_id="", text=goal[:GOAL_CHARACTERS])
            key = f"items:{shift.state.session_id}:{shift.decided_at}"
            return [started, told], [shift.post_to(child_id, key, said, _actor(shift))]
        child = await self._session(opening, child_id, goal, schema)
        name = child.agent.name
        opened = ChildOpened(child_id=child_id, call_id="", goal=goal[:GOAL_CHARACTERS], name=name)
        return [opened, started], [shift.post_to(child_id, "created", child)]

    async def _session(self, opening: Opening, child_id: str, goal: str, schema: dict[str, Any]) -> SessionCreated:
        shift, state = self.shift, self.shift.state
        created, items = state.created, items_of(state.created)
        assert created is not None
        workspace = created.workspace
        if opening.purpose == "reduce" or (opening.purpose == "work" and items.own_workspace):
            workspace = shift.doors.workspace(child_id, workspace)
        if opening.purpose == "reduce":
            await self.output.copy_to(workspace.path)
        up = created.parent
        environment = created.environment
        if workspace.path != created.workspace.path:
            environment = msgspec.structs.replace(environment, setup=(), submodules=False, lfs=False)
        return SessionCreated(
            goal=goal,
            agent=_agent(created.agent, items.judge, opening, schema),
            workspace=workspace,
            limits=msgspec.structs.replace(state.limits, budget_pico=None),
            rules=created.rules,
            accounts=(child_id, *path_of(created, state.session_id)),
            program=created.program,
            parent=Parent(
                session_id=state.session_id,
                call_id="",
                depth=(up.depth if up else 0) + 1,
                root=(up.root if up else "") or state.session_id,
                tainted=is_tainted(state),
            ),
            people=msgspec.structs.replace(created.people, owner=state.owner),
            hands=created.hands,
            egress=state.outside.policy,
            environment=environment,
            searchers=created.searchers,
            run=items.run if opening.purpose == "work" else Run(),
            item=ItemWork(run_id=state.session_id, purpose=opening.purpose, keys=opening.keys, schema=schema),
        )

    def _child_id(self, opening: Opening) -> str:
        """Derive the child's id from its work: the next brain finds what a killed one left behind."""
        state = self.shift.state
        own = items_state(state)
        marks: list[object] = [state.session_id, opening.purpose, opening.attempt]
        for key in opening.keys:
            item = own.items[key]
            marks += [key, item.seq, item.ended_seq, item.failed_seq]
        drawn = hashlib.sha256(msgspec.json.encode(marks)).digest()
        return new_session_id(state.created_us, lambda size: drawn[:size])

    async def _raise(self, action: Raise) -> None:
        shift = self.shift
        facts = [ChildMessaged(child_id=each, call_id="", text=GO_ON) for each in action.child_ids]
        key = f"items:{shift.state.session_id}:{shift.decided_at}"
        posts = [shift.post_to(each, key, UserResume(reason=GO_ON), _actor(shift)) for each in action.child_ids]
        await shift.decision(*facts, posts=posts)

    # --- reading the log -----------------------------------------------------------------------------

    async def _data(self, key: str) -> ItemData:
        item = items_state(self.shift.state).items[key]
        if item.seq not in self._parts:
            while len(self._parts) >= PARTS_KEPT:
                del self._parts[next(iter(self._parts))]
            part = await self._body(item.seq)
            assert isinstance(part, ItemsAdded)
            self._parts[item.seq] = part
        return self._parts[item.seq].items[item.place]

    async def _body(self, seq: int) -> Fact:
        event, *_ = await self.shift.doors.log.read(self.shift.state.session_id, after=seq - 1, limit=1)
        return event.fact


ACTS = ItemsActs


def _actor(shift: Shift) -> str:
    return f"session:{shift.state.session_id}"


def _agent(mine: Agent, judge: str, opening: Opening, schema: dict[str, Any]) -> Agent:
    """Return the agent of a child: the run's, with a tool for its output; a judge has no other tool."""
    names: dict[ItemPurpose, Sequence[str]] = {"work": opening.keys, "audit": ("audit", *opening.keys), "reduce": ()}
    name = " ".join(names[opening.purpose])[:80] or opening.purpose
    tools = (goals.tool_for(schema),) if schema else ()
    if opening.purpose == "audit":
        other = bool(judge) and judge != mine.model
        model, fallbacks = judge or mine.model, () if other else mine.fallbacks
        return msgspec.structs.replace(mine, name=name, model=model, fallbacks=fallbacks, tools=(), custom=tools)
    return msgspec.structs.replace(mine, name=name, custom=(*functions(mine), *tools))


def _forecast(shift: Shift) -> ItemsForecast:
    """Forecast time and cost of the whole list from the items so far."""
    own = items_state(shift.state)
    share = len(own.items) / own.ended
    return ItemsForecast(
        after=own.ended,
        count=len(own.items),
        seconds=round((own.ended_us - own.began_us) * share / 1e6, 3),
        cost_pico=None if own.unpriced else round(own.spent_pico * share),
    )
