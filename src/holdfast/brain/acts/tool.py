"""Tool calls: dispatch, wait, and finding out what became of a call after a death (S6 to S12)."""

from __future__ import annotations

import hashlib
import posixpath

import anyio
import msgspec

from holdfast.brain.acts import hands as hands_act
from holdfast.brain.alongside import alongside, first_error
from holdfast.brain.shift import Shift
from holdfast.errors import HandsLost
from holdfast.facts.model import AgentToolUse
from holdfast.facts.tool import FileSeen, ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, FileExpectation, Hands
from holdfast.session.state import Call
from holdfast.session.tools import TOOLS, timeout_s

RETRIES = 3
"""Dispatches of one call at most; then its outcome is told as unknown."""

UNKNOWN = (
    "The outcome of this call is unknown: {reason}. It may have happened, in whole, in part or not at all, and it "
    "was not repeated. Look at the actual state before you go on."
)


async def dispatch(shift: Shift, call_ids: tuple[str, ...]) -> None:
    """Run calls that were never dispatched: intent first, then the door (S6)."""
    hands = await hands_act.current(shift)
    uses = {call_id: await _use(shift, shift.state.call(call_id)) for call_id in call_ids}
    await shift.decision(*(_intent(shift, uses[call_id], 1, hands) for call_id in call_ids))
    try:
        await _run_all(shift, hands, [uses[call_id] for call_id in call_ids])
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))


async def _run_all(shift: Shift, hands: Hands, uses: list[AgentToolUse]) -> None:
    if len(uses) == 1:
        await _run(shift, hands, uses[0])
        return
    try:
        async with anyio.create_task_group() as group:
            for use in uses:
                group.start_soon(_run, shift, hands, use)
    except BaseExceptionGroup as error:
        raise first_error(error) from None


async def _use(shift: Shift, call: Call) -> AgentToolUse:
    fact = await shift.body(call.seq)
    assert isinstance(fact, AgentToolUse)
    return fact


def action_digest(use: AgentToolUse) -> str:
    """SHA-256 hex of what a call would do: its tool and its input, keys sorted."""
    return hashlib.sha256(msgspec.json.encode([use.name, use.input], order="deterministic")).hexdigest()


def _intent(shift: Shift, use: AgentToolUse, attempt: int, hands: Hands) -> ToolDispatched:
    return ToolDispatched(
        call_id=use.call_id,
        attempt=attempt,
        hands_id=hands.identity.hands_id,
        action_digest=action_digest(use),
        on_unknown=TOOLS[use.name].on_unknown,
        timeout_s=timeout_s(use.name, use.input),
    )


def _request(shift: Shift, use: AgentToolUse, root: str) -> ExecRequest:
    seen: dict[str, str] = {}
    path = use.input.get("file_path")
    if use.name in ("write", "edit") and isinstance(path, str):
        full = posixpath.normpath(posixpath.join(root, path))
        seen = {full: shift.state.seen.get(full, "")}
    return ExecRequest(use.name, use.input, timeout_s(use.name, use.input), seen=seen)


async def _run(shift: Shift, hands: Hands, use: AgentToolUse) -> None:
    await hands.start(shift.epoch, use.call_id, _request(shift, use, hands.identity.root))
    result = await _wait(shift, hands, use.call_id)
    await shift.fact(_result(use.call_id, result, reconciled=False))


async def _wait(shift: Shift, hands: Hands, call_id: str) -> ExecResult:
    """Wait on the effect and on the log at once; a person's stop ends the call (S14)."""

    async def kill_when_stopped() -> None:
        await shift.until_stopped()
        await hands.kill(shift.epoch, call_id)

    return await alongside(lambda: hands.wait(shift.epoch, call_id), kill_when_stopped)


def _result(call_id: str, result: ExecResult, *, reconciled: bool) -> ToolResult:
    outcome = "cancelled" if result.cancelled else "ok" if result.ok else "error"
    return ToolResult(
        call_id=call_id,
        outcome=outcome,  # type: ignore[arg-type]
        content=_content(result),
        exit_code=result.exit_code,
        signal=result.signal,
        timed_out=result.timed_out,
        truncated=result.truncated,
        bytes_total=result.bytes_total,
        output_path=result.output_path,
        duration_ms=result.duration_ms,
        files=result.files,
        reconciled=reconciled,
    )


def _content(result: ExecResult) -> str:
    """What the model reads: the output, then in brackets what the output cannot say."""
    notes = []
    if result.cancelled:
        notes.append("stopped by a person before it ended")
    if result.timed_out:
        notes.append("ended at its timeout")
    elif result.signal:
        notes.append(f"ended by signal {result.signal}")
    elif result.exit_code:
        notes.append(f"exit status {result.exit_code}")
    if result.truncated:
        where = f"; the whole output is in {result.output_path}" if result.output_path else ""
        notes.append(f"{result.bytes_total} bytes of output, the middle is left out{where}")
    if result.killed:
        notes.append(f"{result.killed} processes left behind were ended")
    lines = [result.output] if result.output else []
    return "\n".join(lines + [f"[{note}]" for note in notes]) or "[no output]"


async def reconcile(shift: Shift, call_id: str) -> None:
    """End a dispatched call that has no end: ask the hands it went to, and believe only them."""
    call = shift.state.call(call_id)
    hands = await shift.doors.hands.attach(shift.state.hands_known[call.hands_id])
    status = await hands.status(shift.epoch, call_id)
    stop = bool(shift.state.interrupted or shift.state.cancelled)
    match status.state:
        case "finished":
            assert status.result is not None
            await shift.fact(_result(call_id, status.result, reconciled=True))
        case "running":
            await _attach(shift, hands, call_id)
        case "never_started" if stop:
            content = "Not run: a person interrupted."
            await shift.fact(ToolResult(call_id=call_id, outcome="cancelled", content=content))
        case "never_started":
            await _again(shift, call)
        case _:
            await _unknown(shift, call, status, stop)


async def _attach(shift: Shift, hands: Hands, call_id: str) -> None:
    try:
        result = await _wait(shift, hands, call_id)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))
        return
    await shift.fact(_result(call_id, result, reconciled=True))


async def _again(shift: Shift, call: Call) -> None:
    """Dispatch a call once more: it did not happen, or may safely happen again."""
    use = await _use(shift, call)
    if shift.state.hands is None:
        await hands_act.provision(shift)
        return
    hands = await hands_act.current(shift)
    await shift.decision(_intent(shift, use, call.attempt + 1, hands))
    try:
        await _run(shift, hands, use)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))


async def _unknown(shift: Shift, call: Call, status: CallStatus, stop: bool) -> None:
    """S12: retry what is harmless, probe what can be looked at, tell the rest."""
    if not stop and call.attempt < RETRIES and call.on_unknown == "retry":
        await _again(shift, call)
        return
    if not stop and call.attempt < RETRIES and call.on_unknown == "probe" and status.expectation is not None:
        found = await _digest(shift, status.expectation, f"{call.call_id}.probe{call.attempt}")
        if found == status.expectation.after:
            await shift.fact(_happened(call, status.expectation))
            return
        if found == status.expectation.before:
            await _again(shift, call)
            return
    reason = "the hands that ran it are gone and left no record of its end"
    told = UNKNOWN.format(reason=reason)
    await shift.fact(ToolOutcomeUnknown(call_id=call.call_id, reason=reason, content=told))


def _happened(call: Call, expectation: FileExpectation) -> ToolResult:
    content = f"The {call.name} of {expectation.path} was done; its content was checked after an interruption."
    files = (FileSeen(expectation.path, expectation.after),)
    return ToolResult(call_id=call.call_id, outcome="ok", content=content, files=files, reconciled=True)


async def _digest(shift: Shift, expectation: FileExpectation, probe_id: str) -> str | None:
    """The digest of the file now, through hands; None when nobody can say.

    A file that cannot be read counts as absent only when it was absent before the call: doing the call
    again is then harmless, since a write refuses a file that it does not know (S18).
    """
    await hands_act.provision(shift)
    hands = await hands_act.current(shift)
    request = ExecRequest("read", {"file_path": expectation.path, "view_range": [1, 1]}, TOOLS["read"].timeout_s)
    try:
        await hands.start(shift.epoch, probe_id, request)
        result = await hands.wait(shift.epoch, probe_id)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))
        return None
    if result.ok and result.files:
        return result.files[0].digest
    return "" if not expectation.before else None
