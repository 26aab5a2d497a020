"""What to do next, from the state alone. No clock, no randomness, no I/O: the time is handed in."""

from __future__ import annotations

from holdfast.facts.shift import ParkReason, ShiftEnded, ShiftStatus
from holdfast.facts.tool import ToolResult
from holdfast.session.actions import (
    Action,
    AskModel,
    Dispatch,
    End,
    EndCalls,
    PresumeRequest,
    Provision,
    Reconcile,
    WaitUntil,
)
from holdfast.session.policy import evaluate
from holdfast.session.retry import PARK_BEYOND_S, RETRYABLE, delay_s
from holdfast.session.state import Call, ResponseItem, State

BLOCKING_ENDS = frozenset({"denied", "unknown", "skipped", "cancelled"})
"""After a call that ended like this, the later calls of its message are not run (S7)."""


def is_idle(state: State, now_us: int) -> bool:
    """Whether a wake has nothing to do: the session ended or parked, and nothing new came since."""
    ended = state.ended
    if ended is None or state.in_shift:
        return False
    return ended.due_us is None or now_us < ended.due_us


def decide(state: State, now_us: int) -> Action:
    """The next action of the brain that holds the session's lease."""
    if state.request is not None:
        return PresumeRequest(state.request.seq, state.request.reserved_pico)
    opened = state.open_calls()
    if opened:
        return _next_call(state, opened)
    if state.cancelled:
        return _end("cancelled", detail="cancelled by a person")
    if state.interrupted and not any(message.seq > state.interrupted for message in state.pending):
        return _end("parked", "person", "interrupted; send a message to go on")
    if not state.pending and not state.unseen:
        ended = _after_response(state)
        if ended is not None:
            return ended
    return _request(state, now_us)


def _end(status: ShiftStatus, reason: ParkReason | None = None, detail: str = "", due_us: int | None = None) -> End:
    return End(ShiftEnded(status=status, reason=reason, detail=detail, due_us=due_us))


def _next_call(state: State, opened: list[Call]) -> Action:
    call = opened[0]
    for dispatched in opened:
        if dispatched.attempt:
            return Reconcile(dispatched.call_id)
    if state.cancelled or state.interrupted:
        return EndCalls(tuple(_not_run(each, "cancelled", "Not run: a person interrupted.") for each in opened))
    blocking = next((each for each in state.calls if each.end in BLOCKING_ENDS), None)
    if blocking is not None:
        why = f"Not run: an earlier call of the same message ended as {blocking.end}. Look before you go on."
        return EndCalls(tuple(_not_run(each, "skipped", why) for each in opened))
    if call.problem:
        return EndCalls((_not_run(call, "error", call.problem),))
    rules = state.created.agent.rules if state.created else ()
    decision, rule = evaluate(rules, call.name)
    if decision == "deny":
        named = f" by the rule for {rule.tool!r}" if rule else ""
        return EndCalls((_not_run(call, "denied", f"Denied{named}: {call.name} is not allowed in this session."),))
    if state.hands is None:
        return Provision()
    return Dispatch(_runnable_together(state, opened))


def _not_run(call: Call, outcome: str, content: str) -> ToolResult:
    return ToolResult(call_id=call.call_id, outcome=outcome, content=content)  # type: ignore[arg-type]


def _runnable_together(state: State, opened: list[Call]) -> tuple[str, ...]:
    rules = state.created.agent.rules if state.created else ()
    if all(call.read_only for call in state.calls):
        fit = [call for call in opened if not call.problem and evaluate(rules, call.name)[0] == "allow"]
        if len(fit) == len(opened):
            return tuple(call.call_id for call in opened)
    return (opened[0].call_id,)


def _after_response(state: State) -> Action | None:
    """How the session ends after a response that asked for nothing; None when it has to go on."""
    last = state.window[-1] if state.window else None
    if not isinstance(last, ResponseItem) or last.stop_reason is None:
        return None
    if last.stop_reason == "refusal":
        return _end("failed", detail="the model refused")
    if last.stop_reason == "max_tokens":
        return None
    return _end("done")


def _request(state: State, now_us: int) -> Action:
    limits = state.limits
    if state.responses >= limits.max_turns:
        return _end("parked", "cap", f"the cap of {limits.max_turns} turns is reached")
    tokens = state.window_tokens + sum(item.tokens for item in state.pending)
    if tokens > limits.context_tokens:
        return _end("parked", "context", f"the context has about {tokens} tokens, the line is {limits.context_tokens}")
    failure = state.failure
    if failure is None:
        return AskModel(state.seq, 1)
    if failure.kind not in RETRYABLE:
        if state.pending:  # somebody said something new: that deserves a try
            return AskModel(state.seq, failure.attempt + 1)
        return _end("failed", detail=f"the model request failed ({failure.kind}): {failure.message}")
    due_us = failure.at_us + int(delay_s(failure, max(1, state.tries)) * 1_000_000)
    if state.tries >= limits.max_attempts:
        return _out_of_attempts(failure.kind, state.tries, failure.message, now_us)
    if now_us >= due_us:
        return AskModel(state.seq, failure.attempt + 1)
    if due_us - now_us > PARK_BEYOND_S * 1_000_000:
        return _end("parked", "provider", f"the provider asked to wait ({failure.kind}): {failure.message}", due_us)
    return WaitUntil(due_us)


def _out_of_attempts(kind: str, attempts: int, message: str, now_us: int) -> End:
    due_us = now_us + int(PARK_BEYOND_S * 1_000_000)
    return _end("parked", "provider", f"{attempts} attempts failed, the last with {kind}: {message}", due_us)
