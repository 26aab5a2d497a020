"""Next action of a session, decided from its state alone. No clock, no randomness, no I/O: the time is an argument.

This module sets the order of decisions; its neighbors decide the parts.
"""

from __future__ import annotations

from holdfast.facts.shift import ParkReason, ShiftEnded, ShiftStatus
from holdfast.session.actions import Action, AskModel, End, PresumeRequest
from holdfast.session.context.window import inputs_through
from holdfast.session.decide import calls, context, providers, taint, waits
from holdfast.session.rows import Uptime
from holdfast.session.state import CLOCK_STEP_US, ResponseItem, State


def is_idle(state: State, now_us: int, up: Uptime | None = None) -> bool:
    """Return True if a wake has nothing to do: the session ended or parked, and nothing new arrived since.

    A wait is over by the wall clock or, in the boot in which it began, by the uptime `up`: setting the clock back makes
    no wait longer. In another boot, a session whose latest event lies in the future is evaluated again.
    """
    ended = state.ended
    if ended is None or state.in_shift:
        return False
    if ended.due_us is None:
        return True
    over = up is not None and ended.boot_id == up.boot_id and up.us >= ended.due_us - ended.booted_us
    return now_us < ended.due_us and now_us >= state.at_us - CLOCK_STEP_US and not over


def decide(state: State, now_us: int) -> Action:
    """Return the next action of the brain that holds the session's lease."""
    return calls.with_job_deadlines(state, _decide(state, now_us), now_us)


def _decide(state: State, now_us: int) -> Action:
    if state.request is not None:
        return PresumeRequest(state.request.seq, state.request.reserved_pico)
    action = _before_the_work(state, now_us)
    if action is not None:
        return action
    opened = state.open_calls()
    out = any(call.attempt for call in opened)
    action = None if out else taint.step(state, now_us) or state.tenant.kind.after(state)
    if action is not None:
        return action
    if opened:
        return calls.next_call(state, opened, now_us)
    if state.cancelled:
        return waits.cancel_first(state) or end(state, "cancelled", detail="cancelled by a person")
    if state.interrupted > state.message_seq:
        return end(state, "parked", "person", "interrupted; send a message to go on")
    action = providers.check_breakers(state, now_us) or context.step(state, now_us)
    action = state.tenant.kind.instead(state, action)
    if action is not None:
        return action
    if not state.pending and not state.unseen:
        ended = _after_response(state)
        if ended is not None:
            return ended
    return _request(state, now_us)


def _before_the_work(state: State, now_us: int) -> Action | None:
    """Return the action that precedes any call or request: for a pause, a lost workspace, a deadline, or a due item."""
    if any(call.attempt for call in state.open_calls()) or state.cancelled:
        return None
    if state.paused:
        return end(state, "parked", "person", waits.STOPPED if state.stop_seq else waits.PAUSED)
    gone = waits.wait_for_workspace(state, now_us)
    if gone is not None:
        return gone
    if state.environment_error and not state.interrupted:
        return end(state, "parked", "person", state.environment_error)
    return calls.late_jobs(state, now_us) or waits.expire_or_notify(state, now_us)


def end(
    state: State, status: ShiftStatus, reason: ParkReason | None = None, detail: str = "", due_us: int | None = None
) -> End:
    """Return the end of this shift. A session that is over supersedes its open items."""
    over = waits.close_all(state, f"the session is {status}") if status != "parked" else ()
    return End(ShiftEnded(status=status, reason=reason, detail=detail, due_us=due_us), over)


def _after_response(state: State) -> Action | None:
    """Return the end of the session after a response without calls; None when it has to go on."""
    last = state.window[-1] if state.window else None
    if not isinstance(last, ResponseItem) or last.stop_reason is None:
        return None
    if last.stop_reason == "refusal":
        return end(state, "failed", detail="the model refused")
    if last.stop_reason == "max_tokens":
        return None
    working = state.live_children()
    if working:
        names = ", ".join(child.name or child.child_id for child in working[:3])
        return end(state, "parked", "child", f"waits for {len(working)} of its children ({names})")
    at_work = state.live_jobs()
    if at_work:
        return end(state, "parked", "job", calls.waiting_for(at_work))
    return state.tenant.kind.stopped(state) or end(state, "done")


def _request(state: State, now_us: int) -> Action:
    limits = state.limits
    if state.responses >= limits.max_turns:
        return end(state, "parked", "cap", f"the cap of {limits.max_turns} turns is reached")
    tokens = context.window_tokens(state)
    if tokens > limits.context_tokens:
        detail = f"the context has about {tokens} tokens, the line is {limits.context_tokens}"
        return end(state, "parked", "context", detail)
    choice = providers.choose(state, now_us)
    if isinstance(choice, providers.Choice):
        return AskModel(inputs_through(state), choice.attempt, choice.model)
    return choice
