"""Wake of a session: lease, fold, decide, act, append, until it parks. Any process can do it."""

from __future__ import annotations

from typing import assert_never

import anyio
import msgspec

from holdfast.brain.acts import child as child_act
from holdfast.brain.acts import context as context_act
from holdfast.brain.acts import egress as egress_act
from holdfast.brain.acts import hands as hands_act
from holdfast.brain.acts import harness as harness_act
from holdfast.brain.acts import jobs as jobs_act
from holdfast.brain.acts import people as people_act
from holdfast.brain.acts import results as results_act
from holdfast.brain.acts import tool as tool_act
from holdfast.brain.acts.model import ask_model
from holdfast.brain.acts.people import ask_use
from holdfast.brain.doors import Doors, ObserverGone, uptime
from holdfast.brain.recall import recall, remember, shown
from holdfast.brain.shift import Shift, alongside, first_error
from holdfast.errors import (
    CannotRunSafely,
    Fenced,
    HandsError,
    HandsLost,
    HeadMoved,
    LogDamaged,
    LogUnavailable,
    Refused,
    StorageFull,
    UnknownSession,
    WorkspaceGone,
)
from holdfast.facts.base import Fact
from holdfast.facts.codec import Draft
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.session import SessionError
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.ids import new_event_id
from holdfast.log.base import Lease
from holdfast.session.actions import (
    Action,
    AskModel,
    AskPerson,
    AskUse,
    CancelChildren,
    CheckRules,
    Compact,
    Dispatch,
    End,
    EndCalls,
    Escalate,
    Expire,
    Notify,
    PresumeRequest,
    Provision,
    Reconcile,
    Record,
    Reset,
    RunHarness,
    Verify,
    WaitUntil,
)
from holdfast.session.decide import is_idle, waits
from holdfast.session.fold import fold
from holdfast.session.fold.clock import was_set
from holdfast.session.state import State

LOG_TROUBLE = (Refused, LogDamaged, LogUnavailable, StorageFull)
"""Errors after which this brain cannot append anything and only stops."""


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of a wake. `ended` is the session's latest end of a shift, None while it is unfinished.

    With `fenced`, another brain took the session over; with `idle`, there was nothing to do.
    """

    state: State
    ended: ShiftEnded | None
    fenced: bool = False
    idle: bool = False


async def wake(session_id: str, doors: Doors, *, steal: bool = False) -> Outcome:
    """Run the session until it parks, finishes, or is taken over.

    A session with nothing to do is left unchanged: nothing is appended. Raises `LeaseHeld` if a live process holds it,
    `UnknownSession`, `LogDamaged`, and any error that makes it unsafe to continue on this machine; the session is then
    runnable.
    """
    state, bodies = await recall(session_id, doors.log, doors.snapshots, doors.kinds)
    if state.created is None:
        raise UnknownSession(f"session {session_id} has no beginning; `holdfast verify {session_id}` says more")
    state, lease = await _acquire(doors, state, bodies, steal=steal)
    if lease is None:
        return Outcome(state, state.ended, idle=True)
    shift = Shift(doors, state, lease, bodies)
    try:
        return await _hold(shift)
    finally:
        with anyio.CancelScope(shield=True):
            await doors.leases.release(lease)
        vars(shift).clear()  # its acts and frames of cancelled tasks refer to it: the state would wait for a collection


async def _acquire(doors: Doors, state: State, bodies: dict[int, Fact], *, steal: bool) -> tuple[State, Lease | None]:
    """Take the lease under the folded head (S2); no lease if there is nothing to do.

    Another brain may have finished the work since, so its events are folded first.
    """
    while _is_rung(doors, state) or not is_idle(state, doors.clock.now_us(), uptime(doors.clock, doors.worker.boot_id)):
        try:
            draft = _shift_started(doors)
            return state, await doors.leases.acquire(state.session_id, draft, steal=steal, head=state.seq)
        except HeadMoved:
            events = await doors.log.read(state.session_id, after=state.seq, prev=state.hash)
            state = fold(state, events)
            bodies.update(shown(events))
    return state, None


def _is_rung(doors: Doors, state: State) -> bool:
    """Return True if a source of a parked session changed. A session that has ended is no longer watched."""
    rung = doors.bell.rung(state.session_id)
    parked = state.in_shift or (state.ended is not None and state.ended.status == "parked")
    if rung and not parked:
        doors.bell.watch(state.session_id, {})
    return bool(rung) and parked


def _shift_started(doors: Doors) -> Draft:
    worker = doors.worker
    up_us = uptime(doors.clock, worker.boot_id).us
    fact = ShiftStarted(
        worker_id=worker.worker_id,
        host_id=worker.host_id,
        boot_id=worker.boot_id,
        pid=worker.pid,
        program=worker.program,
        prompt_digests=doors.prompt_digests,
        booted_us=doors.clock.now_us() - up_us,
        up_us=up_us,
        place=worker.place,
    )
    return Draft(new_event_id(doors.clock.now_us(), doors.entropy), "brain", fact)


async def _hold(shift: Shift) -> Outcome:
    """Hold the lease while the shift runs. Events posted before it are folded first."""
    try:
        async with anyio.create_task_group() as shift.background:
            await shift.refresh()
            await _run(shift)
            shift.background.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = first_error(group)
        if not isinstance(error, Fenced):
            raise error from None
        return Outcome(shift.state, shift.state.ended, fenced=True)
    await remember(shift.state, shift.doors.snapshots)
    return Outcome(shift.state, shift.state.ended)


async def _run(shift: Shift) -> None:
    """Run the loop until the shift ends."""
    try:
        await hands_act.fence(shift)
        await egress_act.resume(shift)
        await results_act.look(shift)
        while shift.state.in_shift:
            try:
                shift.decided_at = shift.state.seq
                action = await _next(shift)
                if action is not None:
                    await _act(shift, action)
            except HeadMoved:
                await shift.refresh()
            except WorkspaceGone as error:
                await people_act.escalate(shift, Escalate(waits.WORKSPACE, str(error)))
            except HandsLost as error:
                identity = shift.state.hands
                if identity is None:
                    raise
                await hands_act.lost(shift, identity.hands_id, str(error))
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _let_go(shift, "the process was asked to stop")
        raise
    except Exception as error:
        if isinstance(error, (*LOG_TROUBLE, ObserverGone)) or not await _failed(shift, error):
            raise


async def _failed(shift: Shift, error: Exception) -> bool:
    """Record that this wake failed. True if it failed like the previous one, at the same event: the session then parks,
    since another try would only cost money. A problem of the machine may resolve itself, so it does not park the
    session as long as no model request is wasted.
    """
    kind = type(error).__name__
    message = str(error) or kind
    while True:
        state = shift.state
        mends = isinstance(error, CannotRunSafely | HandsError) and not state.failing.asked
        fact = SessionError(kind=kind, message=message, at_seq=state.failing.progress_seq)
        if mends or not state.failing.repeated(kind):
            await _let_go(shift, message, fact)
            return False
        if not state.in_shift:
            return True
        detail = f"failed twice in the same way at event {fact.at_seq}, and is not tried again by itself: {message}"
        # A park is a decision: a message that arrived meanwhile is a reason to try again (S2).
        shift.decided_at = state.seq
        park = shift.acts.given_up(ShiftEnded(status="parked", reason="person", detail=detail))
        if await _gave_back(shift, park):
            continue  # the message is an event: decide again
        try:
            posts = await child_act.notice_to_parent(shift, park)
            await shift.decision(*_presumed(state), fact, park, posts=posts)
        except HeadMoved:
            await shift.refresh()
        else:
            return True


async def _gave_back(shift: Shift, park: ShiftEnded) -> bool:
    """Release hands that a failed wake still holds and in which nothing runs. True if that is in the log."""
    state = shift.state
    if state.hands is None or hands_act.kept(state, park) or any(call.attempt for call in state.open_calls()):
        return False
    try:
        await hands_act.give_back(shift)
    except LOG_TROUBLE:
        raise
    except Exception:  # any error at all: a session that fails repeatedly has to park
        return False
    return True


def _presumed(state: State) -> tuple[Fact, ...]:
    """Return the end of a request cut off by an error: a parked session holds no reservation."""
    open_ = state.request
    if open_ is None:
        return ()
    return (ModelRequestEnd(request_seq=open_.seq, outcome="presumed", cost_pico=open_.reserved_pico),)


async def _next(shift: Shift) -> Action | None:
    """Return the next action; None if the kind has already done it, or if the clock was set, which is recorded."""
    clock = shift.look_at_clock()
    if was_set(shift.state, clock.boot_id, clock.booted_us):
        await shift.fact(clock)
        return None
    return await shift.acts.next()


async def _let_go(shift: Shift, detail: str, *before: SessionError) -> None:
    """End the shift in the middle of the work: the session stays runnable, and running calls continue."""
    if shift.state.in_shift:
        await shift.fact(*before, ShiftEnded(status="released", detail=detail))


_Appending = (
    PresumeRequest | EndCalls | Record | CheckRules | AskPerson | AskUse | Escalate | Expire | Notify | CancelChildren
)
"""Actions that only append to the log, or notify approvers."""


async def _act(shift: Shift, action: Action) -> None:
    match action:
        case AskModel():
            await _end_if(shift, await ask_model(shift, action))
        case Compact() | Reset():
            await _end_if(shift, await context_act.renew(shift, action))
        case Dispatch():
            await _end_if(shift, await tool_act.dispatch(shift, action))
        case Provision():
            await hands_act.provision(shift)
        case Reconcile():
            await _end_if(shift, await tool_act.reconcile(shift, action))
        case RunHarness(call_id=call_id):
            await harness_act.run(shift, call_id)
        case WaitUntil(at_us=at_us):
            await _wait_until(shift, at_us)
        case Verify():
            await shift.acts.verify()
        case End():
            await _end(shift, action)
        case _:
            await _append(shift, action)


async def _append(shift: Shift, action: _Appending) -> None:
    match action:
        case PresumeRequest(request_seq=request_seq, reserved_pico=reserved):
            await shift.fact(ModelRequestEnd(request_seq=request_seq, outcome="presumed", cost_pico=reserved))
        case EndCalls(results=results, before=before):
            await shift.decision(*before, *results)
        case Record(facts=facts):
            await shift.decision(*facts)
        case CheckRules():
            await context_act.check_rules(shift, action)
        case AskPerson():
            await people_act.ask_person(shift, action)
        case AskUse():
            await ask_use(shift, action)
        case Escalate():
            await people_act.escalate(shift, action)
        case Expire():
            await people_act.expire(shift, action)
        case Notify():
            await people_act.notify(shift, action)
        case CancelChildren(child_ids=child_ids):
            await child_act.cancel_all(shift, child_ids)
        case _:
            assert_never(action)


async def _end_if(shift: Shift, end: End | None) -> None:
    if end is not None:
        await _end(shift, end)


async def _wait_until(shift: Shift, at_us: int) -> None:
    seconds = max(0.0, (at_us - shift.doors.clock.now_us()) / 1_000_000)
    scope = anyio.CancelScope()

    async def sleep() -> None:
        with scope:
            await shift.doors.clock.sleep(seconds)

    async def watch() -> None:
        await shift.doors.log.wait(shift.state.session_id, shift.state.seq)
        scope.cancel()

    await alongside(sleep, watch)
    await shift.refresh()


async def _end(shift: Shift, end: End) -> None:
    """Release the hands and check the head again, then end the shift under the folded head (S2).

    Jobs and services end with the session; while they run, a parked session keeps its hands.
    """
    if end.fact.status != "parked" and shift.state.hands_at_work():
        await jobs_act.end_all(shift)
        return
    await hands_act.snapshot_before_end(shift)
    if shift.state.seq != shift.decided_at:
        return  # the snapshot is an event: decide again
    if await shift.acts.before_end(end.fact):
        return  # the kind appended an event: decide again
    held = shift.state.hands is not None and not hands_act.kept(shift.state, end.fact)
    if held or shift.provisioned is not None:
        await hands_act.give_back(shift)
        return
    if await hands_act.clear_lost(shift):
        return  # the returned workspace is an event: decide again
    if await egress_act.finish(shift, end.fact):
        return  # the recorded traffic is an event: decide again
    posts = await child_act.notice_to_parent(shift, end.fact)
    await shift.decision(*end.before, end.fact, posts=posts)
