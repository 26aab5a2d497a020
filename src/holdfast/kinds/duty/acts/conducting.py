"""Shift of a duty: carries out the conductor's decisions. Each is one transaction over both logs (S4).

Preparation is idempotent: an unfinished workspace is removed and filled again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from holdfast.brain.acts.hands import thin
from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Acts, Shift
from holdfast.errors import CannotRunSafely, HoldfastError, Refused
from holdfast.facts.base import Fact
from holdfast.facts.duty import SCHEDULE, WEBHOOK, Firing, FiringEnded, TriggerDead, TriggerFired
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.people import ApprovalRequested, ApprovalSuperseded
from holdfast.facts.session import Parent, SessionCreated, Workspace
from holdfast.facts.shift import ChildFinished, ChildOpened
from holdfast.hands.user import choose_user
from holdfast.ids import new_session_id
from holdfast.kinds.duty.actions import ClearAlert, EndFiring, FiringOutcome, OpenFiring, PollSource, RaiseAlert
from holdfast.kinds.duty.acts.watching import clear_alert, poll, raise_alert, watched
from holdfast.kinds.duty.briefing import goal_of
from holdfast.kinds.duty.conductor import EVENTLESS, decide
from holdfast.kinds.duty.firing import REPORT, rules_of
from holdfast.kinds.duty.fold import Running, of_duty
from holdfast.repo.base import Kept, Owner
from holdfast.session.actions import Action, End
from holdfast.session.context.text import action_digest
from holdfast.session.money import path_of

SUMMARY_CHARACTERS = 4_000
"""Most characters of a firing's report in the duty's log; the firing's log has all of it."""


class DutyActs(Acts):
    """Acts of a duty in one shift."""

    async def next(self) -> Action | None:
        """Carry out the conductor's decision, or return an action of any session."""
        state, bell = self.shift.state, self.shift.doors.bell
        rung = bell.rung(state.session_id)
        action = decide(state, self.shift.doors.clock.now_us(), rung)
        match action:
            case OpenFiring():
                await _open(self.shift, action)
            case EndFiring():
                await _end(self.shift, action)
            case PollSource():
                bell.answered(state.session_id, frozenset((action.trigger,)))
                await poll(self.shift, action)
            case RaiseAlert():
                await raise_alert(self.shift, action)
            case ClearAlert():
                await clear_alert(self.shift, action)
            case End():
                bell.answered(state.session_id, rung)
                bell.watch(state.session_id, watched(state))
                return action
            case _:
                return action
        return None


ACTS = DutyActs


async def _open(shift: Shift, action: OpenFiring) -> None:
    """Open the session of a firing, in a workspace with the duty's state."""
    state, created = shift.state, shift.state.created
    own, now_us = of_duty(state), shift.doors.clock.now_us()
    assert created is not None
    drawn = hashlib.sha256(f"{state.session_id} firing {action.number}".encode()).digest()
    child_id = new_session_id(state.created_us, lambda size: drawn[:size])
    triggers = [await shift.body(offer.seq) for offer in action.offers]
    first, up = action.offers[0], created.parent
    # Who has the secret of a webhook can forge its deliveries, and no agent needs it.
    proving = {each.settings.get("secret") for each in own.duty.triggers if each.kind == WEBHOOK}
    policy = state.outside.policy
    child = SessionCreated(
        goal=goal_of(own, action.number, triggers, now_us),
        agent=msgspec.structs.replace(
            created.agent,
            name=f"{own.duty.name} {action.number}",
            tools=tuple(dict.fromkeys((*created.agent.tools, REPORT))),
            rules=rules_of(created.agent.rules, own.duty),
        ),
        workspace=await _fill(shift, child_id),
        limits=msgspec.structs.replace(state.limits, budget_pico=own.duty.budget_pico, max_turns=own.duty.max_turns),
        rules=created.rules,
        accounts=(child_id, *path_of(created, state.session_id)),
        program=created.program,
        parent=Parent(
            session_id=state.session_id,
            call_id="",
            depth=(up.depth if up else 0) + 1,
            root=(up.root if up else "") or state.session_id,
            tainted=first.trigger not in EVENTLESS,
        ),
        people=msgspec.structs.replace(created.people, owner=state.owner),
        hands=created.hands,
        egress=msgspec.structs.replace(policy, secrets=tuple(use for use in policy.secrets if use.name not in proving)),
        environment=created.environment,
        searchers=created.searchers,
        firing=Firing(state.session_id, action.number, own.duty.values),
    )
    opened = ChildOpened(
        child_id=child_id, call_id="", goal=own.goal, name=child.agent.name, budget_pico=child.limits.budget_pico
    )
    fired = TriggerFired(
        firing=action.number,
        child_id=child_id,
        trigger=first.trigger,
        keys=tuple(offer.key for offer in action.offers),
        time_us=first.at_us if first.trigger == SCHEDULE else first.waits_us,
    )
    await shift.decision(opened, fired, posts=[shift.post_to(child_id, "created", child)])


# --- state -----------------------------------------------------------------------------------------------


async def _fill(shift: Shift, child_id: str) -> Workspace:
    """Make the workspace of a firing, with the state that the last one left."""
    created, shelf = shift.state.created, shift.doors.shelf
    assert created is not None
    shift.doors.discard(shift.doors.workspace(child_id, created.workspace))
    workspace = shift.doors.workspace(child_id, created.workspace)
    if shift.state.snapshot:
        if shelf is None:
            raise CannotRunSafely("the state of a duty is kept in snapshots, which need git: install it")
        user = choose_user(workspace)
        await shelf.restore(shift.state.snapshot, Path(workspace.path), user=Owner(user.uid, user.gid))
    return workspace


async def _keep(shift: Shift, child_id: str, snapshot: str) -> Kept:
    """Keep the workspace of a firing as the duty's own snapshot: the firing may be removed."""
    created, shelf = shift.state.created, shift.doors.shelf
    assert created is not None
    if shelf is None:
        raise CannotRunSafely("the state of a duty is kept in snapshots, which need git: install it")
    workspace = shift.doors.workspace(child_id, created.workspace)
    path, user = Path(workspace.path), choose_user(workspace)
    if not any(path.iterdir()):
        await shelf.restore(snapshot, path, user=Owner(user.uid, user.gid))
    return await shelf.keep(shift.state.session_id, path, shift.state.seq, user=Owner(user.uid, user.gid))


# --- the end of a firing -----------------------------------------------------------------------------------


async def _end(shift: Shift, action: EndFiring) -> None:
    """Record the end of a firing. The state of one that is done is kept; that of another is not carried over."""
    own, created = of_duty(shift.state), shift.state.created
    running = own.running
    assert running is not None
    assert created is not None
    finished = await shift.body(running.ended_seq)
    assert isinstance(finished, ChildFinished)
    outcome, detail, facts = action.outcome, action.detail, list[Fact]()
    kept: Kept | None = None
    if outcome == "done" and not finished.summary.strip() and not running.values:
        outcome, detail = "silent", "it ended without a report"
    if outcome in ("done", "silent") and finished.tree:
        try:
            kept = await _keep(shift, running.child_id, finished.tree)
        except Refused:
            raise
        except HoldfastError as error:
            outcome, detail = "failed", f"its state could not be kept: {error}"
        else:
            facts.append(
                WorkspaceSnapshotted(
                    through_seq=shift.state.seq, snapshot=kept.snapshot, files=kept.files, bytes=kept.bytes
                )
            )
    item, about = _item(shift, running, outcome, detail)
    ended = FiringEnded(
        firing=running.number,
        child_id=running.child_id,
        outcome=outcome,
        summary=finished.summary[-SUMMARY_CHARACTERS:],
        detail=detail,
        cost_pico=finished.cost_pico,
        turns=finished.turns,
        item_id=item,
    )
    if outcome != "done" and action.events:
        facts.append(TriggerDead(keys=action.events, reason=f"its firing: {outcome}", firing=running.number))
    await shift.decision(*facts, *about, ended)
    if kept is not None:
        await thin(shift, kept)
    if outcome == "done":
        shift.doors.discard(shift.doors.workspace(running.child_id, created.workspace))


def _item(shift: Shift, running: Running, outcome: FiringOutcome, detail: str) -> tuple[str, tuple[Fact, ...]]:
    """Return the inbox item about a failure, and the facts that open it or close an earlier one.

    One item is open at a time: later failures point to it, and a success closes it.
    """
    own = of_duty(shift.state)
    ask = shift.state.asks.get(own.item_id)
    is_open = ask is not None and ask.verdict is None
    if outcome == "done":
        over = ApprovalSuperseded(item_id=own.item_id, reason=f"firing {running.number} succeeded")
        return "", (over,) if is_open else ()
    if outcome == "cancelled":
        return "", ()
    if is_open:
        return own.item_id, ()
    name, why = own.duty.name, f"{outcome}: {detail}" if detail else outcome
    item: ApprovalRequested = new_item(
        shift,
        kind="escalation",
        title=f"firing {running.number} of the duty {name}: {outcome}",
        action=f"{why}\n\nIts log: holdfast logs {running.child_id}\n\nApprove: go on. Deny: stop the duty until "
        f"`holdfast duty resume {name}`. After {own.duty.failures_max} failures in a row it waits for the answer.",
        action_digest=action_digest("duty", {"firing": running.child_id, "why": why}),
        why=why,
        default=None,
    )
    return item.item_id, (item,)
