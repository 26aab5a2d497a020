"""Tool calls: dispatch, wait, and reconciliation after a crash (S6 to S12)."""

from __future__ import annotations

import posixpath

import anyio
import msgspec

from holdfast.brain.acts import egress as egress_act
from holdfast.brain.acts import guards as guards_act
from holdfast.brain.acts import hands as hands_act
from holdfast.brain.acts import harness
from holdfast.brain.acts import jobs as jobs_act
from holdfast.brain.acts.people import ask_person, does_not_fit
from holdfast.brain.acts.results import content_of, wait
from holdfast.brain.shift import Shift, first_error
from holdfast.errors import BudgetRefused, HandsLost
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import ApprovalRequested, ApprovalSuperseded
from holdfast.facts.tool import FileSeen, ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, FileExpectation, Hands
from holdfast.session.actions import AskPerson, Dispatch, End, Reconcile
from holdfast.session.context.text import action_digest
from holdfast.session.decide.taint import wants_rewiring
from holdfast.session.decide.waits import ask_for
from holdfast.session.state import Call
from holdfast.session.tools import TOOLS, timeout_s
from holdfast.session.tools.jobs import WEB_SEARCH, search_input
from holdfast.session.tools.policy import GRANT

RETRIES = 3
"""Maximum dispatches of one call; after them its outcome is reported as unknown."""

UNKNOWN = (
    "The outcome of this call is unknown: {reason}. It may have happened, in whole, in part or not at all, and it "
    "was not repeated. Look at the actual state before you go on."
)


async def dispatch(shift: Shift, action: Dispatch) -> End | None:
    """Run calls that were never dispatched: intent first, then the door (S6).

    Returns an `End` if the budget does not cover a priced tool.
    """
    uses = [await _use(shift, shift.state.call(call_id)) for call_id in action.call_ids]
    if action.approval_id and not await _still_approved(shift, uses[0], action.approval_id):
        return None
    if shift.state.call(action.call_ids[0]).where == "process":
        for use in uses:
            harness.custom_runner(shift, use.name)
        try:
            await shift.decision(*(_intent(shift, use, 1, None, action.approval_id) for use in uses))
        except BudgetRefused as refused:
            return await does_not_fit(shift, refused)
        shift.room_waits = 0
        await harness.run_custom(shift, uses)
        return None
    if not all(shift.state.call(call_id).read_only for call_id in action.call_ids):
        await hands_act.settle_snapshot(shift)
        if shift.state.seq != shift.decided_at:
            return None  # the snapshot is an event: decide again
    if problem := jobs_act.refusal(shift, uses[0]):
        await shift.decision(ToolResult(call_id=uses[0].call_id, outcome="error", content=problem))
        return None
    if wants_rewiring(shift.state) and not shift.state.hands_at_work():
        await hands_act.give_back(shift)  # the next hands get the network of the current policy
        return None
    hands = await hands_act.current(shift)
    await egress_act.ready(shift)
    await shift.decision(*(_intent(shift, use, 1, hands, action.approval_id) for use in uses))
    try:
        await _run_all(shift, hands, uses)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))
    await egress_act.record(shift)
    return None


async def _still_approved(shift: Shift, use: AgentToolUse, approval_id: str) -> bool:
    call = shift.state.call(use.call_id)
    if approval_id.startswith(GRANT):
        held = next(each for each in shift.state.grants if f"{GRANT}{each.seq}" == approval_id)
        reason = await guards_act.outdated(shift, call, use, held)
        if reason:
            await shift.decision(ApprovalSuperseded(item_id=approval_id, reason=reason))
        return not reason
    ask = shift.state.asks[approval_id]
    item = await shift.body(ask.seq)
    assert isinstance(item, ApprovalRequested)
    reason = await guards_act.changed(shift, call, use, item.guards, item.uncounted, ask.seq)
    if action_digest(use.name, use.input) != item.action_digest:
        reason = "the action is another one than was approved"
    if reason:
        await shift.decision(ApprovalSuperseded(item_id=approval_id, reason=reason))
    return not reason


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


def _intent(
    shift: Shift, use: AgentToolUse, attempt: int, hands: Hands | None, approval_id: str = "", *, happened: bool = True
) -> ToolDispatched:
    """Return the intent to run a call. An earlier dispatch is charged unless it is known that it never `happened`."""
    call = shift.state.call(use.call_id)
    before = call.reserved_pico
    tool = shift.state.tool(use.name)
    assert tool is not None
    return ToolDispatched(
        call_id=use.call_id,
        attempt=attempt,
        hands_id=hands.identity.hands_id if hands is not None else "",
        action_digest=action_digest(use.name, use.input),
        on_unknown=call.on_unknown,
        timeout_s=timeout_s(tool, use.input),
        place="process" if hands is None else "",
        approval_id=approval_id,
        reserved_pico=call.price_pico or None,
        settles_seq=call.dispatch_seq if before is not None else 0,
        settled_pico=before if before is not None and happened else 0,
    )


def _request(shift: Shift, use: AgentToolUse, root: str) -> ExecRequest:
    seen: dict[str, str] = {}
    path = use.input.get("file_path")
    if use.name in ("write", "edit") and isinstance(path, str):
        full = posixpath.normpath(posixpath.join(root, path))
        seen = {full: shift.state.seen.get(full, "")}
    given = use.input
    if use.name == WEB_SEARCH and shift.state.created is not None:
        given = search_input(given, shift.state.created.searchers, shift.state.outside.policy.secrets)
    return ExecRequest(use.name, given, timeout_s(TOOLS[use.name], use.input), seen=seen)


async def _run(shift: Shift, hands: Hands, use: AgentToolUse) -> None:
    if use.name not in jobs_act.STOPS and not await shift.acts.before_call(hands, use):
        return
    if use.name in jobs_act.RUNS:
        await jobs_act.run(shift, hands, use)
        return
    await hands.start(shift.fence, use.call_id, _request(shift, use, hands.identity.root))
    await _ended(shift, hands, use, await wait(shift, hands, use.call_id))


async def _ended(
    shift: Shift, hands: Hands, use: AgentToolUse, result: ExecResult, *, reconciled: bool = False
) -> None:
    """Record a call's end with the facts that the session's kind adds."""
    said = await shift.acts.after_call(hands, use, result)
    await shift.fact(_result(shift.state.call(use.call_id), result, reconciled=reconciled), *said)


def _result(call: Call, result: ExecResult, *, reconciled: bool) -> ToolResult:
    outcome = "cancelled" if result.cancelled else "ok" if result.ok else "error"
    return ToolResult(
        call_id=call.call_id,
        outcome=outcome,  # type: ignore[arg-type]
        content=content_of(result),
        exit_code=result.exit_code,
        signal=result.signal,
        timed_out=result.timed_out,
        truncated=result.truncated,
        bytes_total=result.bytes_total,
        output_path=result.output_path,
        duration_ms=result.duration_ms,
        files=result.files,
        reconciled=reconciled,
        untrusted=TOOLS[call.name].untrusted and bool(result.ok or result.bytes_total),
    )


async def reconcile(shift: Shift, action: Reconcile) -> End | None:
    """End a dispatched call that has no end, on the evidence of the hands it went to and of nothing else.

    Returns an `End` if the budget does not cover another run of a priced tool.
    """
    call = shift.state.call(action.call_id)
    try:
        if action.verdict is not None:
            await _as_a_person_said(shift, call, repeat=action.verdict == "approve")
        elif call.where == "process":
            await _reconcile_custom(shift, call)
        else:
            await _reconcile_hands(shift, call)
            await egress_act.record(shift)
    except BudgetRefused as refused:
        return await does_not_fit(shift, refused)
    return None


async def _reconcile_hands(shift: Shift, call: Call) -> None:
    if call.name in jobs_act.STOPS:
        await jobs_act.stop(shift, await _use(shift, call))
        return
    hands = await shift.doors.hands.attach(shift.state.hands_known[call.hands_id])
    status = await hands.status(shift.fence, call.call_id)
    match status.state:
        case "finished" | "running" if call.name in jobs_act.RUNS:
            await _adopt(shift, hands, call)
        case "finished":
            assert status.result is not None
            await _ended(shift, hands, await _use(shift, call), status.result, reconciled=True)
        case "running":
            await _attach(shift, hands, call)
        case "never_started" if shift.state.stopping:
            content = "Not run: a person interrupted."
            await shift.fact(ToolResult(call_id=call.call_id, outcome="cancelled", content=content))
        case "never_started":
            await _again(shift, call)
        case _:
            await _unknown(shift, call, status)


async def _adopt(shift: Shift, hands: Hands, call: Call) -> None:
    """Adopt a job or service whose start an earlier shift did not record before it died."""
    try:
        await jobs_act.adopt(shift, hands, await _use(shift, call), reconciled=True)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))


async def _attach(shift: Shift, hands: Hands, call: Call) -> None:
    try:
        result = await wait(shift, hands, call.call_id)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))
        return
    await _ended(shift, hands, await _use(shift, call), result, reconciled=True)


async def _again(shift: Shift, call: Call, approval_id: str = "", *, happened: bool = True) -> None:
    """Dispatch a call again: it did not happen, is safe to repeat, or `approval_id` allows it.

    With `happened` False, it is known that it did not happen.
    """
    use = await _use(shift, call)
    reason = ""
    if call.approval_seq and not approval_id:
        item = await shift.body(call.approval_seq)
        assert isinstance(item, ApprovalRequested)
        reason = await guards_act.changed(shift, call, use, item.guards, item.uncounted, call.approval_seq)
    if reason:
        content = f"Not run: a person allowed it, but {reason}. Call it again if it is still wanted: they are asked."
        paid = call.reserved_pico if happened else None
        ended = ToolResult(call_id=call.call_id, outcome="cancelled", content=content, cost_pico=paid)
        held = call.reserved_pico is not None
        await shift.fact(msgspec.structs.replace(ended, dispatch_seq=call.dispatch_seq) if held else ended)
        return
    if call.where == "process":
        await shift.decision(_intent(shift, use, call.attempt + 1, None, approval_id, happened=happened))
        shift.room_waits = 0
        await harness.run_custom(shift, [use])
        return
    if shift.state.hands is None:
        await hands_act.provision(shift)
        return
    hands = await hands_act.current(shift)
    await shift.decision(_intent(shift, use, call.attempt + 1, hands, approval_id))
    try:
        await _run(shift, hands, use)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))


async def _unknown(shift: Shift, call: Call, status: CallStatus) -> None:
    """Resolve an unknown outcome: retry if harmless, probe if possible, else ask a user or tell the model (S12)."""
    if not shift.state.stopping and call.attempt < RETRIES:
        if call.on_unknown == "retry":
            await _again(shift, call)
            return
        if call.on_unknown == "probe" and status.expectation is not None:
            found = await _digest(shift, status.expectation, f"{call.call_id}.probe{call.attempt}")
            if found == status.expectation.after:
                await shift.fact(_happened(call, status.expectation))
                return
            if found == status.expectation.before:
                await _again(shift, call)
                return
    await _nobody_knows(shift, call, "the hands that ran it are gone and left no record of its end")


async def _nobody_knows(shift: Shift, call: Call, reason: str) -> None:
    """Ask a user if the tool requires it; otherwise tell the model that the outcome is unknown."""
    if call.on_unknown == "ask" and not shift.state.stopping and call.attempt < RETRIES:
        await ask_person(shift, AskPerson(call.call_id))
        return
    told = UNKNOWN.format(reason=reason)
    fact = ToolOutcomeUnknown(
        call_id=call.call_id,
        reason=reason,
        content=told,
        dispatch_seq=call.dispatch_seq if call.reserved_pico is not None else 0,
        cost_pico=call.reserved_pico,
    )
    await shift.fact(fact)


async def _reconcile_custom(shift: Shift, call: Call) -> None:
    """Reconcile a call of a function whose process has exited: only the tool's own probe can give evidence (S12)."""
    stop = shift.state.stopping
    if not stop and call.attempt < RETRIES:
        happened = await harness.probe_custom(shift, await _use(shift, call)) if call.on_unknown == "probe" else None
        if happened is True:
            content = f"The {call.name} was done; that was checked after an interruption."
            await shift.fact(harness.custom_settled(call, "ok", content, reconciled=True))
            return
        if happened is False or call.on_unknown == "retry":
            await _again(shift, call, happened=happened is None)
            return
    await _nobody_knows(shift, call, "the process that ran it is gone")


async def _as_a_person_said(shift: Shift, call: Call, *, repeat: bool) -> None:
    ask = ask_for(shift.state, call.call_id, "unknown")
    if repeat and ask is not None:
        await _again(shift, call, ask.item_id)
        return
    late = ask is not None and ask.expired
    reason = "a person was asked and nobody answered in time" if late else "a person decided that it is not repeated"
    fact = ToolOutcomeUnknown(
        call_id=call.call_id,
        reason=reason,
        content=UNKNOWN.format(reason=reason),
        dispatch_seq=call.dispatch_seq if call.reserved_pico is not None else 0,
        cost_pico=call.reserved_pico,
    )
    await shift.fact(fact)


def _happened(call: Call, expectation: FileExpectation) -> ToolResult:
    content = f"The {call.name} of {expectation.path} was done; its content was checked after an interruption."
    files = (FileSeen(expectation.path, expectation.after),)
    return ToolResult(call_id=call.call_id, outcome="ok", content=content, files=files, reconciled=True)


async def _digest(shift: Shift, expectation: FileExpectation, probe_id: str) -> str | None:
    """Return the file's current digest, read through hands; None if it cannot be determined.

    An unreadable file counts as absent only if it was absent before the call: repeating the call is then harmless,
    since a write refuses a file that it does not know (S18).
    """
    await hands_act.provision(shift)
    hands = await hands_act.current(shift)
    request = ExecRequest("read", {"file_path": expectation.path, "view_range": [1, 1]}, TOOLS["read"].timeout_s)
    try:
        await hands.start(shift.fence, probe_id, request)
        result = await hands.wait(shift.fence, probe_id)
    except HandsLost as error:
        await hands_act.lost(shift, hands.identity.hands_id, str(error))
        return None
    if result.ok and result.files:
        return result.files[0].digest
    return "" if not expectation.before else None
