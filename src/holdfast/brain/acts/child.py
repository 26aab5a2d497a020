"""Child sessions: each act is one transaction over both logs (S4)."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

import anyio
import msgspec

from holdfast.brain.shift import Shift
from holdfast.errors import CannotRunSafely, HeadMoved, UsageError
from holdfast.facts.base import Fact, Text, Usage, text_of
from holdfast.facts.model import AgentMessage
from holdfast.facts.people import UserCancel, UserMessage
from holdfast.facts.session import Agent, Parent, SessionCreated
from holdfast.facts.shift import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened, ShiftEnded
from holdfast.facts.tool import ToolResult
from holdfast.ids import new_session_id
from holdfast.log.base import Post
from holdfast.session.context.notes import child_report
from holdfast.session.decide.taint import is_tainted
from holdfast.session.decide.waits import deadline_us
from holdfast.session.money import path_of, pico_from_usd
from holdfast.session.state import Call, ResponseItem
from holdfast.session.tools.output import functions

SUMMARY_CHARACTERS = 8_000
"""Maximum characters of a child's last message in its parent's context; the child's log has all of it."""

NO_ONE_ELSE = frozenset({"cap", "budget", "context"})
"""Reasons to park that only the parent or a user can resolve: the child notifies its parent."""


async def spawn(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Open a child: its first event, the parent's event, and the call's result commit together."""
    child_id = _child_id(shift.state.session_id, call)
    found = _beginning(shift, call, value, child_id)
    if isinstance(found, str):
        await _answer(shift, call, found, ok=False)
        return
    opened, child = found
    result = ToolResult(
        call_id=call.call_id, outcome="ok", content=f"Child session {child_id} is open and begins to work."
    )
    await shift.decision(opened, result, posts=[shift.post_to(child_id, "created", child)])


async def run_for(shift: Shift, call_id: str, key: str, value: dict[str, Any]) -> str:
    """Open a child for a function that runs this call, wait for the child's end, and return its id.

    When the call is repeated after a crash, the same key finds the same child. Raises `UsageError` if none may be
    opened, and when the session is stopped.
    """
    call = shift.state.call(call_id)
    child_id = _child_id(shift.state.session_id, call, key)
    async with shift.opening:
        while child_id not in shift.state.children:
            await shift.refresh()
            if shift.state.paused or shift.state.stopping:  # S14: nothing new begins, as with a call
                raise UsageError("No child was opened: the session was paused or stopped.")
            found = _beginning(shift, call, value, child_id)
            if isinstance(found, str):
                raise UsageError(found)
            opened, child = found
            shift.decided_at = shift.state.seq
            with suppress(HeadMoved), anyio.CancelScope(shield=True):
                await shift.decision(opened, posts=[shift.post_to(child_id, "created", child)])
    while shift.state.children[child_id].status is None:
        if shift.state.stopping:
            raise UsageError(f"the session was stopped while its child {child_id} worked")
        await shift.doors.log.wait(shift.state.session_id, shift.state.seq)
        await shift.refresh()
    return child_id


def _beginning(
    shift: Shift, call: Call, value: dict[str, Any], child_id: str
) -> tuple[ChildOpened, SessionCreated] | str:
    """Return the parent's event and the child's first one, or the reason why no child may be opened."""
    problem = _may_not(shift)
    if problem:
        return problem
    created = shift.state.created
    assert created is not None
    agent = _agent(created.agent, value)
    if isinstance(agent, str):
        return agent
    try:
        budget_pico = _budget(shift, agent, value.get("budget_usd"))
        near = created.workspace
        workspace = near if value.get("workspace") == "same" else shift.doors.workspace(child_id, near)
    except (CannotRunSafely, UsageError) as error:
        return f"No child was opened: {error}."
    mine, turns = shift.state.limits, value.get("max_turns")
    turns = min(turns, mine.max_turns) if turns is not None else mine.max_turns
    environment = created.environment
    if workspace.path != near.path:  # a workspace of its own, without the parts about the parent's files
        environment = msgspec.structs.replace(environment, setup=(), submodules=False, lfs=False)
    up = created.parent
    child = SessionCreated(
        goal=str(value["goal"]),
        agent=agent,
        workspace=workspace,
        limits=msgspec.structs.replace(mine, budget_pico=budget_pico, max_turns=turns),
        rules=created.rules,
        accounts=(child_id, *path_of(created, shift.state.session_id)),
        program=created.program,
        criteria=tuple(str(each) for each in value.get("criteria", ())),
        parent=Parent(
            session_id=shift.state.session_id,
            call_id=call.call_id,
            depth=(up.depth if up else 0) + 1,
            root=(up.root if up else "") or shift.state.session_id,
            tainted=is_tainted(shift.state),
        ),
        people=msgspec.structs.replace(created.people, owner=shift.state.owner),
        hands=created.hands,
        egress=shift.state.outside.policy,
        environment=environment,
        searchers=created.searchers,
    )
    opened = ChildOpened(
        child_id=child_id,
        call_id=call.call_id,
        goal=child.goal,
        name=str(value.get("name", "")),
        budget_pico=budget_pico,
    )
    return opened, child


def _child_id(parent_id: str, call: Call, key: str = "") -> str:
    """Return the id of the child that a call opens, or a function that runs the call, under a key.

    It is derived from them, so a retry after a crash takes up everything that the interrupted one left behind.
    """
    drawn = hashlib.sha256(f"{parent_id} {call.call_id}{key and f' {key}'}".encode()).digest()
    return new_session_id(call.at_us, lambda size: drawn[:size])


def _budget(shift: Shift, agent: Agent, usd: float | None) -> int | None:
    """Return the child's own cap. Raises `UsageError` if its model has no price, so no cap could apply (S15)."""
    if usd is None:
        return None
    model = shift.model(agent.model)
    if not shift.state.limits.unpriced and model.cost_pico(Usage(input_tokens=1)) is None:
        raise UsageError(f"{agent.model} has no price, so a budget of its own cannot be kept; leave `budget_usd` out")
    budget_pico = pico_from_usd(f"{usd:.12f}")
    if budget_pico <= 0:
        raise UsageError(f"a budget of {usd} dollars leaves nothing to spend")
    return budget_pico


def _may_not(shift: Shift) -> str:
    """Return the reason why no child may be opened now; empty if one may."""
    limits, created = shift.state.limits, shift.state.created
    depth = created.parent.depth if created is not None and created.parent is not None else 0
    if depth >= limits.max_depth:
        return f"No child was opened: this session is {depth} generations down, and {limits.max_depth} is the cap."
    if len(shift.state.live_children()) >= limits.max_children:
        return f"No child was opened: {limits.max_children} work already, which is the cap. Wait for one of them first."
    return ""


def _agent(mine: Agent, value: dict[str, Any]) -> Agent | str:
    """Return the child's agent: the parent's, with a subset of its tools if requested, or an error message."""
    wanted = value.get("tools")
    name = str(value.get("name") or mine.name)
    if wanted is None:
        return msgspec.structs.replace(mine, name=name, custom=functions(mine))
    custom = {each.name for each in functions(mine)}
    strange = [tool for tool in wanted if tool not in mine.tools and tool not in custom]
    if strange:
        return f"No child was opened: you do not have {', '.join(strange)}, so a child cannot either."
    return msgspec.structs.replace(
        mine,
        name=name,
        tools=tuple(tool for tool in mine.tools if tool in wanted),
        custom=tuple(each for each in mine.custom if each.name in wanted),
    )


async def _answer(shift: Shift, call: Call, content: str, *, ok: bool = True, facts: tuple[Fact, ...] = ()) -> None:
    result = ToolResult(call_id=call.call_id, outcome="ok" if ok else "error", content=content)
    await shift.decision(*facts, result)


async def message(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Send a message to a child."""
    child_id, text = str(value["child_id"]), str(value["text"])
    child = shift.state.children.get(child_id)
    if child is None or child.status == "cancelled":
        await _answer(shift, call, f"There is no child {child_id} that could be told anything.", ok=False)
        return
    said = shift.post_to(
        child_id,
        f"parent:{call.call_id}",
        UserMessage(content=(Text(text),)),
        actor=f"session:{shift.state.session_id}",
    )
    told = ChildMessaged(child_id=child_id, call_id=call.call_id, text=text)
    result = ToolResult(call_id=call.call_id, outcome="ok", content=f"Told {child_id}.")
    await shift.decision(told, result, posts=[said])


async def cancel(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Cancel a child."""
    child_id = str(value["child_id"])
    child = shift.state.children.get(child_id)
    if child is None:
        await _answer(shift, call, f"There is no child {child_id}.", ok=False)
        return
    if child.status in ("done", "failed", "cancelled"):
        await _answer(shift, call, f"{child_id} is {child.status} already.")
        return
    facts, posts = _cancelling(shift, (child_id,), call.call_id)
    result = ToolResult(call_id=call.call_id, outcome="ok", content=f"{child_id} is told to stop.")
    await shift.decision(*facts, result, posts=posts)


async def cancel_all(shift: Shift, child_ids: tuple[str, ...]) -> None:
    """Cancel children because their parent is cancelled."""
    facts, posts = _cancelling(shift, child_ids, "")
    await shift.decision(*facts, posts=posts)


def _cancelling(shift: Shift, child_ids: tuple[str, ...], call_id: str) -> tuple[list[Fact], list[Post]]:
    parent = shift.state.session_id
    facts: list[Fact] = [ChildCancelled(child_id=each, call_id=call_id) for each in child_ids]
    posts = [
        shift.post_to(each, f"cancel:{parent}", UserCancel(reason="its parent"), actor=f"session:{parent}")
        for each in child_ids
    ]
    return facts, posts


async def report(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """End a wait with the reports of the children, and the children still at work."""
    lines = []
    for child_id in call.waits_for:
        child = shift.state.children.get(child_id)
        if child is None:
            lines.append(f"[There is no child {child_id}.]")
        elif child.status is None:
            lines.append(f"[Child session {child_id} still works.]")
        else:
            fact = await shift.body(child.finished_seq)
            lines.append(child_report(fact) if isinstance(fact, ChildFinished) else f"[{child_id}: {child.status}]")
    await _answer(shift, call, "\n\n".join(lines) or "You have no children that work.")


async def notice_to_parent(shift: Shift, ended: ShiftEnded) -> list[Post]:
    """Return the post that reports a child's park or end to its parent; none if the parent needs no report."""
    state = shift.state
    parent = state.created.parent if state.created else None
    if parent is None or ended.status == "released":
        return []
    moves = ended.due_us is not None and ended.due_us != deadline_us(state)  # a cap that frees itself, not a reminder
    if ended.status == "parked" and (ended.reason not in NO_ONE_ELSE or moves):
        return []
    report = await shift.acts.report()
    fact = ChildFinished(
        child_id=state.session_id,
        status=ended.status,
        reason=ended.reason,
        summary=(await _last_words(shift))[-SUMMARY_CHARACTERS:],
        detail=ended.detail,
        cost_pico=None if state.unpriced else state.cost_pico,
        turns=state.responses,
        untrusted=is_tainted(state),
        submitted=report.submitted,
        commit=report.commit,
        tree=report.tree,
    )
    actor = f"session:{state.session_id}"
    return [shift.post_to(parent.session_id, f"child:{state.session_id}:{shift.epoch}", fact, actor)]


async def _last_words(shift: Shift) -> str:
    """Return the model's latest message that is still in the window."""
    for item in reversed(shift.state.window):
        if isinstance(item, ResponseItem):
            facts = [await shift.body(seq) for seq in item.parts]
            words = "\n".join(text_of(fact.content) for fact in facts if isinstance(fact, AgentMessage))
            if words:
                return words
    return ""
