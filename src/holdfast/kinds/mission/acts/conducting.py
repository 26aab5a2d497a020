"""Shift of a mission: carries out the conductor's decisions, with concurrent effects.

After a crash, the next conductor names an unfinished effect again (S6, S23). A failing effect is retried a few times in
a shift; then the shift ends with its error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift, alongside
from holdfast.errors import HandsError, HoldfastError, Refused
from holdfast.facts.mission import CriterionChecked, MissionEscalated
from holdfast.kinds.mission.acts import documents, inspecting, merging, open_roles, verifying
from holdfast.kinds.mission.check.checking import obstacle, telling
from holdfast.kinds.mission.conductor.actions import (
    Advance,
    Assemble,
    AwaitEffects,
    Effect,
    EscalateMission,
    Inspect,
    Look,
    Open,
    OpenRole,
    Project,
    RaiseChildren,
    TellRole,
    Verify,
)
from holdfast.kinds.mission.conductor.decide import decide
from holdfast.kinds.mission.conductor.ending import unmet_now
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.session.actions import Action, End
from holdfast.session.context.text import action_digest

TRIES = 3
"""Attempts at a failing effect in one shift."""

OUTPUT_SHOWN = 2_000
"""Most characters of a check's output in a message to a worker."""

WAYS_SHOWN = 12
"""Most failing checks listed in the inbox item about a stuck mission."""


class Effects:
    """Effects that run concurrently with the conductor in one shift."""

    def __init__(self) -> None:
        self.running: dict[str, anyio.CancelScope] = {}
        self.ran: set[str] = set()
        self._failures: dict[str, int] = {}
        self._error: HoldfastError | None = None
        self._moved = anyio.Event()

    def start(self, shift: Shift, effect: Effect) -> None:
        """Start an effect."""
        scope = anyio.CancelScope()
        self.running[effect.effect] = scope
        shift.background.start_soon(self._run, shift, effect, scope)

    async def _run(self, shift: Shift, effect: Effect, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await EFFECTS[type(effect)](shift, effect)
                self.ran.add(effect.effect)
        except Refused:
            raise
        except HoldfastError as error:
            failures = self._failures[effect.effect] = self._failures.get(effect.effect, 0) + 1
            if failures >= TRIES or not isinstance(error, HandsError):
                self._error = error
        finally:
            self.running.pop(effect.effect, None)
            self._moved.set()

    def check(self) -> None:
        """Raise the error of an effect that failed for good."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def wait(self, shift: Shift) -> None:
        """Wait until an effect has ended or the log has new events."""
        self._moved = moved = anyio.Event()

        async def news() -> None:
            await shift.doors.log.wait(shift.state.session_id, shift.state.seq)
            moved.set()

        if self.running:
            await alongside(moved.wait, news)
        await shift.refresh()

    async def stop(self) -> None:
        """Cancel all effects: the log has their results, and unfinished ones are repeated."""
        for scope in self.running.values():
            scope.cancel()
        while self.running:
            await anyio.lowlevel.checkpoint()


async def _left(shift: Shift, effects: Effects, end: End) -> bool:
    """Cancel effects before a shift ends. Return True if that appended events."""
    await effects.stop()
    open_ = bool(of_mission(shift.state).verifications)
    if end.fact.status == "parked" or not open_:
        return False
    await verifying.give_up(shift)
    return True


class MissionActs(open_roles.Opening):
    """Acts of a mission in one shift."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.effects = Effects()

    async def next(self) -> Action | None:
        """Carry out the conductor's decision, or return an action of any session."""
        return await _step(self.shift, self.effects)


ACTS = MissionActs


async def _step(shift: Shift, effects: Effects) -> Action | None:
    """Carry out the conductor's decision; return an action of any session for the kernel."""
    effects.check()
    now_us = shift.doors.clock.now_us()
    action = decide(shift.state, now_us, frozenset(effects.running), frozenset(effects.ran))
    match action:
        case Open() | Inspect() | Verify() | Assemble() | Advance() | Look() | Project():
            effects.start(shift, action)
        case AwaitEffects():
            await effects.wait(shift)
        case OpenRole():
            await open_roles.open_role(shift, action)
        case TellRole():
            await open_roles.tell_role(shift, await _with_evidence(shift, action))
        case RaiseChildren():
            await open_roles.raise_children(shift, action)
        case EscalateMission():
            await _escalate(shift, action)
        case End():
            return None if await _left(shift, effects, action) else action
        case _:
            return action  # only kernel actions are left: mypy proves it by the return type
    return None


async def _with_evidence(shift: Shift, action: TellRole) -> TellRole:
    """Add the output of the checks that a message is about, as data."""
    parts = [action.text]
    for seq in dict.fromkeys(action.evidence):
        fact = await _check_at(shift, seq)
        if fact is not None:
            parts.append(f"$ {fact.command}\n<output>\n{fact.output[-OUTPUT_SHOWN:]}\n</output>\n({fact.outcome})")
    return msgspec.structs.replace(action, text="\n\n".join(parts))


async def _check_at(shift: Shift, seq: int) -> CriterionChecked | None:
    """Return the check run at a position; None for another event."""
    event, *_ = await shift.doors.log.read(shift.state.session_id, after=seq - 1, limit=1)
    return event.fact if isinstance(event.fact, CriterionChecked) else None


async def _in_the_way(shift: Shift) -> list[str]:
    """List the unmet criteria whose checks fail on the main branch, each with the reason and advice."""
    mission = of_mission(shift.state)
    lines = []
    for name in unmet_now(mission):
        verdict = mission.verdict(mission.main_tree, name)
        fact = await _check_at(shift, verdict.seq) if verdict is not None and verdict.outcome != "pass" else None
        if fact is None or verdict is None:
            continue
        way = obstacle(fact.command, fact.output, timed_out=fact.outcome == "timeout")
        words = f"{way.words()}; {way.advice()}" if way is not None else " / ".join(telling(fact.output))
        lines.append(f"{name} fails on the main branch (event {verdict.seq}): {words or fact.outcome}")
    return lines[:WAYS_SHOWN]


async def _escalate(shift: Shift, action: EscalateMission) -> None:
    """Open the inbox item that asks the user how to continue."""
    lines = "\n".join(f"- {each}" for each in action.tried)
    why = "".join((action.why, *(f"\n- {each}" for each in await _in_the_way(shift))))
    item = new_item(
        shift,
        kind="escalation",
        title="a mission cannot go on by itself",
        action=f"{why}\n\nTried:\n{lines}\n\nApprove: one more plan; a note goes to its planner. Deny: the end.",
        action_digest=action_digest("mission", {"why": action.why}),
        why=action.why,
        default=None,
    )
    await shift.decision(item, MissionEscalated(why=action.why, tried=action.tried, item_id=item.item_id))


EFFECTS: dict[type[Effect], Callable[[Shift, Any], Awaitable[None]]] = {
    Open: merging.open_mission,
    Inspect: inspecting.inspect,
    Verify: verifying.verify,
    Assemble: merging.assemble,
    Advance: merging.advance,
    Look: merging.look,
    Project: documents.project,
}
"""Effect of the conductor → its function; a test proves that none is missing."""
