"""The shift of a mission: what its conductor decides is done here, effects beside each other.

An effect that died with its process left facts or nothing; the next conductor names it again (S6, S23). One that cannot
be done now is tried again a few times in a shift, then the shift ends with its error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from holdfast.brain.acts.people import new_item
from holdfast.brain.alongside import alongside
from holdfast.brain.shift import Shift
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
from holdfast.session.context.render import action_digest

TRIES = 3
"""An effect that fails is tried so often in one shift."""

OUTPUT_SHOWN = 2_000
"""So many characters of a check's output are shown to whoever has to set it right."""


WAYS_SHOWN = 12
"""Of so many failing checks a person is told when a mission cannot go on."""


class Effects:
    """What goes on beside the conductor in one shift."""

    def __init__(self) -> None:
        self.running: dict[str, anyio.CancelScope] = {}
        self.ran: set[str] = set()
        self._failures: dict[str, int] = {}
        self._error: HoldfastError | None = None
        self._moved = anyio.Event()

    def start(self, shift: Shift, effect: Effect) -> None:
        """Begin one."""
        scope = anyio.CancelScope()
        self.running[effect.effect] = scope
        shift.background.start_soon(self._run, shift, effect, scope)

    async def _run(self, shift: Shift, effect: Effect, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await _DONE_BY[type(effect)](shift, effect)
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
        """Raise what ended an effect for good."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def wait(self, shift: Shift) -> None:
        """Return when an effect has ended, or something came into the log."""
        self._moved = anyio.Event()
        if self.running:
            await alongside(self._moved.wait, partial(_news, shift, self._moved))
        await shift.refresh()

    async def stop(self) -> None:
        """Let go of all: what they did is in the log, the rest is done again."""
        for scope in self.running.values():
            scope.cancel()
        while self.running:
            await anyio.lowlevel.checkpoint()


async def _left(shift: Shift, effects: Effects, end: End) -> bool:
    """Let go of what runs before a shift ends; whether anything had to be recorded of it."""
    await effects.stop()
    open_ = bool(of_mission(shift.state).verifications)
    if end.fact.status == "parked" or not open_:
        return False
    await verifying.give_up(shift)
    return True


async def _news(shift: Shift, moved: anyio.Event) -> None:
    await shift.doors.log.wait(shift.state.session_id, shift.state.seq)
    moved.set()


class MissionActs(open_roles.Opening):
    """The acts of a mission in one shift: what its conductor decides."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.effects = Effects()

    async def next(self) -> Action | None:
        """Do what the conductor decides; an action that any session can have is returned."""
        return await _step(self.shift, self.effects)


ACTS = MissionActs


async def _step(shift: Shift, effects: Effects) -> Action | None:
    """Do what the conductor decides; returned is what any session's brain can do."""
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
        case _:
            if isinstance(action, End) and await _left(shift, effects, action):
                return None
            return action
    return None


async def _with_evidence(shift: Shift, action: TellRole) -> TellRole:
    """The text with the output of the checks that it is about: as data."""
    parts = [action.text]
    for seq in dict.fromkeys(action.evidence):
        fact = await _check_at(shift, seq)
        if fact is not None:
            parts.append(f"$ {fact.command}\n<output>\n{fact.output[-OUTPUT_SHOWN:]}\n</output>\n({fact.outcome})")
    return msgspec.structs.replace(action, text="\n\n".join(parts))


async def _check_at(shift: Shift, seq: int) -> CriterionChecked | None:
    """The run of a check that stands at a position, None for anything else."""
    event, *_ = await shift.doors.log.read(shift.state.session_id, after=seq - 1, limit=1)
    return event.fact if isinstance(event.fact, CriterionChecked) else None


async def _in_the_way(shift: Shift) -> list[str]:
    """The unmet criteria whose checks fail on the main branch as it is: why, and what to allow or add."""
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
    """Open the item that asks a person how to go on."""
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


_DONE_BY: dict[type[Effect], Callable[[Shift, Any], Awaitable[None]]] = {
    Open: merging.open_mission,
    Inspect: inspecting.inspect,
    Verify: verifying.verify,
    Assemble: merging.assemble,
    Advance: merging.advance,
    Look: merging.look,
    Project: documents.project,
}
