"""Invariants of tool calls and hands: one end, one effect, intent first, fencing, unknown outcomes (S6 to S12)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from holdfast.facts.hands import HandsLost, HandsProvisioned, HandsReleased
from holdfast.facts.model import ContextReset
from holdfast.facts.people import UserCancel, UserInterrupt, UserPause
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.sim.invariants.history import HARNESS, READ_ONLY, CallHistory, History
from holdfast.sim.record import Asked

BLOCKING = ("denied", "unknown", "skipped", "cancelled")

ON_UNKNOWN = {"bash": "tell", "write": "probe", "edit": "probe", "read": "retry", "glob": "retry", "grep": "retry"}

TRIES = 3
"""Dispatches of a harmless call before its outcome may be recorded as unknown."""


def calls_end_once(history: History) -> Iterator[str]:
    """S7: each call ends exactly once, before the next model request; only a parked session has open calls."""
    yield from history.oddities
    starts = [request.start.seq for request in history.requests]
    for call_id, call in history.calls.items():
        waits = not call.ends and history.world.beside.rows[history.session.session_id].status == "parked"
        if len(call.ends) != 1 and not (waits and call.fact.request_seq == max(starts)):
            yield f"call {call_id} has {len(call.ends)} ends"
        later = [seq for seq in starts if seq > call.use.seq]
        if later and call.end_seq > later[0]:
            yield f"call {call_id} ended at {call.end_seq}, after the next request at {later[0]}"


def calls_are_named_by_place(history: History) -> Iterator[str]:
    """S6: a call id consists of the position of its request and its index in the response."""
    for request in history.requests:
        for index, call in enumerate(request.calls):
            if call.fact.call_id != f"{request.start.seq}.{index}":
                yield f"call {index} of the request at {request.start.seq} is named {call.fact.call_id}"


def one_after_another(history: History) -> Iterator[str]:
    """S7: calls of a response run one after another, unless all of them are read-only."""
    for request in history.requests:
        if all(call.fact.name in READ_ONLY for call in request.calls):
            continue
        before = 0
        for call in request.calls:
            for event, _ in call.dispatches:
                if event.seq < before:
                    yield f"{call.fact.call_id} was dispatched at {event.seq}, before the call in front of it ended"
            before = max(before, call.end_seq)


def nothing_after_a_stop(history: History) -> Iterator[str]:
    """S7: after a denied, skipped, cancelled, or unknown call, later calls of the response do not run."""
    for request in history.requests:
        stops = sorted(call.end_seq for call in request.calls if call.end in BLOCKING)
        for call in request.calls:
            for event, fact in call.dispatches:
                if stops and stops[0] < event.seq and fact.attempt == 1:
                    yield f"{call.fact.call_id} was dispatched at {event.seq} after the stop at {stops[0]}"
            if call.fact.name in HARNESS and call.end == "ok" and stops and stops[0] < call.end_seq:
                yield f"{call.fact.call_id} was done at {call.end_seq} after the stop at {stops[0]}"


def only_allowed_calls_run(history: History) -> Iterator[str]:
    """S6: a denied, malformed, or unknown call never reaches a door, and its result says why."""
    for call_id, call in history.calls.items():
        name = call.fact.name
        denied = history.ruling(call) == "deny"
        refused = any(fact.verdict == "deny" for item in history.items_of(call_id) for _, fact in item.answers)
        wrong = _is_wrong(history, call)
        if (denied or wrong) and (call.dispatches or call.effects or (name in HARNESS and call.end == "ok")):
            yield f"{call_id} ({name}) ran although it was {'denied' if denied else 'not valid'}"
        if call.end == "denied" and not denied and not refused:
            yield f"{call_id} ({name}) ended as denied, but no rule or approver denied it"
        if call.end in ("ok", "error") and not call.dispatches and not wrong and name not in HARNESS:
            yield f"{call_id} ({name}) ended as {call.end} and was never dispatched"


def _is_wrong(history: History, call: CallHistory) -> bool:
    if call.fact.malformed or call.fact.name not in history.created.agent.tools:
        return True
    return call.fact.input in ({"file_path": 3}, {"seconds": -1.0}) or (
        call.fact.name == "bash" and not call.fact.input.get("command") and not call.fact.input.get("restart")
    )


def dispatches_are_intents(history: History) -> Iterator[str]:
    """S6, S8, S12: a dispatch names its attempt, live hands, the action, and its tool's policy for unknown outcomes."""
    hands: set[str] = set()
    known: set[str] = set()
    attempts: dict[str, int] = {}
    for event in history.events:
        match event.fact:
            case HandsProvisioned(hands_id=hands_id):
                if hands_id in known:
                    yield f"{hands_id} was provisioned twice, again at {event.seq}"
                if hands:
                    yield f"hands were provisioned at {event.seq} while others lived"
                known.add(hands_id)
                hands = {hands_id}
            case HandsLost(hands_id=hands_id) | HandsReleased(hands_id=hands_id):
                hands.discard(hands_id)
            case ToolDispatched() as fact:
                call = history.calls[fact.call_id]
                attempts[fact.call_id] = attempts.get(fact.call_id, 0) + 1
                if fact.hands_id not in hands:
                    yield f"{fact.call_id} was dispatched at {event.seq} to hands that the log does not have"
                if fact.attempt != attempts[fact.call_id]:
                    yield f"{fact.call_id} was dispatched at {event.seq} as attempt {fact.attempt}"
                if event.seq > call.end_seq:
                    yield f"{fact.call_id} was dispatched at {event.seq} after its end"
                if fact.on_unknown != ON_UNKNOWN.get(call.fact.name) or fact.action_digest != _digest(call):
                    yield f"the dispatch of {fact.call_id} at {event.seq} names another action"


def _digest(call: CallHistory) -> str:
    action = [call.fact.name, call.fact.input]
    text = json.dumps(action, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def effects_happen_once(history: History) -> Iterator[str]:
    """S6, S12: no effect happens twice, whatever was killed in between."""
    for call_id, call in history.calls.items():
        if len(call.effects) > 1:
            yield f"the effect of {call_id} happened {len(call.effects)} times"


def effects_were_intended(history: History) -> Iterator[str]:
    """S6, S9: an effect happens only between the dispatch of its call and its end in the log."""
    for effect in history.strays:
        yield f"the effect {effect.key} belongs to no call of the log"
    for call_id, call in history.calls.items():
        first = call.dispatches[0][0].seq if call.dispatches else 2**62
        for effect in call.effects:
            if effect.head < first:
                yield f"the effect of {call_id} happened before its dispatch"
            if effect.head >= call.end_seq:
                yield f"the effect of {call_id} happened after the log had its end at {call.end_seq}"


def starts_match_the_log(history: History) -> Iterator[str]:
    """S6, S18: the hands are asked for exactly what was dispatched, with the digests that were last read."""
    for asked in _asked(history):
        harness_reads = ".probe" in asked.call_id or ".guard" in asked.call_id  # to settle a call or guard an approval
        if asked.verb != "start" or asked.request is None or harness_reads:
            continue
        call = history.calls.get(asked.call_id)
        sent = [fact for event, fact in call.dispatches if event.seq <= asked.head] if call else []
        if call is None or not sent:
            yield f"{asked.call_id} was started without a dispatch"
            continue
        if asked.hands_id not in {fact.hands_id for fact in sent}:
            yield f"{asked.call_id} was started on hands that it was not dispatched to"
        if (asked.request.tool, asked.request.input) != (call.fact.name, call.fact.input):
            yield f"{asked.call_id} was started as something else"
        if asked.shown <= asked.epoch and asked.request.seen != _seen(history, call, asked.head):
            yield f"{asked.call_id} was started with {asked.request.seen} as last read"


def _seen(history: History, call: CallHistory, head: int) -> dict[str, str]:
    if call.fact.name not in ("write", "edit"):
        return {}
    path = "/workspace/" + call.fact.input["file_path"]
    digest = ""
    for event in history.events[:head]:
        if isinstance(event.fact, ContextReset):
            digest = ""
        if isinstance(event.fact, ToolResult):
            for file in event.fact.files:
                digest = file.digest if file.path == path else digest
    return {path: digest}


def _asked(history: History) -> list[Asked]:
    return [each for each in history.world.record.asked if each.session_id == history.session.session_id]


def hands_refuse_the_past(history: History) -> Iterator[str]:
    """S9: hands that have seen a later epoch accept no verb of an earlier one."""
    released: set[str] = set()  # a repeated release changes nothing and is no error
    for asked in _asked(history):
        if asked.epoch < asked.shown and asked.alive and asked.hands_id not in released:
            yield f"{asked.who} did {asked.verb} {asked.call_id} with epoch {asked.epoch} after {asked.shown}"
        if asked.verb == "release":
            released.add(asked.hands_id)


def hands_are_fenced_first(history: History) -> Iterator[str]:
    """S9: a new shift fences live hands before any other verb, or releases them."""
    for asked in _asked(history):
        worn = asked.hands_id in history.world.worn
        if asked.verb not in ("fence", "release") and asked.alive and asked.shown < asked.epoch and not worn:
            yield f"{asked.who} did {asked.verb} {asked.call_id} with epoch {asked.epoch} and had not fenced"


def results_are_true(history: History) -> Iterator[str]:
    """S8, S10: a result in the log is what the hands journaled, or was verified by a probe."""
    heard: dict[str, list[Any]] = {}
    for each in history.world.record.heard:
        if each.session_id == history.session.session_id:
            heard.setdefault(each.call_id, []).append(each.result)
    for call_id, call in history.calls.items():
        for event, fact in call.ends:
            if isinstance(fact, ToolResult) and call.dispatches:
                yield from _result(call_id, call, fact, heard.get(call_id, []))
            elif call.effects and not call.dispatches:
                yield f"{call_id} has an effect and no dispatch, its end stands at {event.seq}"


def _result(call_id: str, call: CallHistory, fact: ToolResult, heard: list[Any]) -> Iterator[str]:
    if fact.outcome in ("denied", "skipped"):
        yield f"{call_id} was dispatched and is told as {fact.outcome}"
    elif fact.content.startswith("Not run"):
        if call.effects:
            yield f"{call_id} is told as not run, and it ran"
    elif "was done; its content was checked" in fact.content:
        if not call.effects:
            yield f"{call_id} is told as done, and it never happened"
    elif not any(_same(fact, result) for result in heard):
        yield f"the result of {call_id} is not what the hands said"
    elif fact.outcome == "ok" and call.said and call.said.key and not call.effects:
        yield f"{call_id} is told as done, and it never happened"


def _same(fact: ToolResult, result: Any) -> bool:
    outcome = "cancelled" if result.cancelled else "ok" if result.ok else "error"
    told = fact.content.startswith(result.output) and fact.files == result.files
    return told and (fact.outcome, fact.exit_code) == (outcome, result.exit_code)


def unknown_is_honest(history: History) -> Iterator[str]:
    """S8, S12: an outcome is recorded as unknown only if the hands cannot testify; no journaled result is lost."""
    stops = [event.seq for event in history.events if _stops(event.fact)]
    for told in history.world.record.testimonies:
        if told.session_id != history.session.session_id:
            continue
        call = history.calls[told.call_id]
        if not isinstance(history.events[told.seq - 1].fact, ToolOutcomeUnknown):
            yield from _again(told.state, call, told.tick)
        elif told.state not in ("gone", "unknown"):
            yield f"{told.call_id} is told as unknown at {told.seq}, and its hands say {told.state}"
        elif call.fact.name in READ_ONLY and len(call.dispatches) < TRIES and not any(s < told.seq for s in stops):
            yield f"{told.call_id} is told as unknown at {told.seq} after {len(call.dispatches)} tries"


def _stops(fact: object) -> bool:
    return isinstance(fact, UserInterrupt | UserCancel) or (isinstance(fact, UserPause) and bool(fact.stop_seq))


def _again(state: str, call: CallHistory, tick: int) -> Iterator[str]:
    """Check S12: a call is dispatched again only if it never started, is repeatable, or provably did not happen."""
    name = call.fact.name
    happened = [effect for effect in call.effects if effect.tick < tick]
    if state in ("finished", "running"):
        yield f"{call.fact.call_id} was dispatched again although it is {state}"
    elif state != "never_started" and name == "bash":
        yield f"{call.fact.call_id} (bash) was dispatched again although nobody knows what it did"
    elif name not in READ_ONLY and happened:
        yield f"{call.fact.call_id} ({name}) was dispatched again although it had happened"


def groups_are_whole(history: History) -> Iterator[str]:
    """S7: the read-only calls of a response are dispatched together."""
    for request in history.requests:
        free = all(call.fact.name in READ_ONLY and not _is_wrong(history, call) for call in request.calls)
        if len(request.calls) > 1 and free and not history.created.agent.rules:
            first = [call.dispatches[0][0].seq for call in request.calls if call.dispatches]
            if first and len(first) == len(request.calls) and max(first) - min(first) != len(first) - 1:
                yield f"the read-only calls of the request at {request.start.seq} went out one by one"


ALL = (
    calls_end_once,
    calls_are_named_by_place,
    one_after_another,
    nothing_after_a_stop,
    only_allowed_calls_run,
    dispatches_are_intents,
    effects_happen_once,
    effects_were_intended,
    starts_match_the_log,
    hands_refuse_the_past,
    hands_are_fenced_first,
    results_are_true,
    unknown_is_honest,
    groups_are_whole,
)
