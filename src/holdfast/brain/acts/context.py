"""Acts on the context: compaction, reset, and rule checks (S16, S17)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.brain.acts import model as model_act
from holdfast.brain.acts.model import model_or_rest
from holdfast.brain.response import Response
from holdfast.brain.shift import Shift
from holdfast.facts.base import Fact
from holdfast.facts.model import ContextCompacted, ContextFailed, ContextReset, Handoff, RuleBreached, RuleChecked
from holdfast.model.base import ModelRequest
from holdfast.session.actions import CheckRules, Compact, End, Reset
from holdfast.session.context.conversation import Message, TextPart
from holdfast.session.context.handoff import files_of, mechanical, merge, parse, raw, schema, transcript
from holdfast.session.context.notes import note_of, running
from holdfast.session.context.text import BYTES_PER_TOKEN, estimate
from holdfast.session.context.window import line_tokens
from holdfast.session.decide.context import checkable, note_characters, stretch, window_tokens
from holdfast.session.signs.rules import GRACE_TURNS, Breach, Checkable, Deed, check, deeds_of
from holdfast.session.state import Item, State

SUMMARY_TOKENS = 4_096
"""Maximum length of a summary or a handoff."""

PAGE = 2_000
"""Number of events read at once for a rule check."""

Purpose = Literal["compaction", "handoff"]


async def renew(shift: Shift, action: Compact | Reset) -> End | None:
    """Replace the older part of the context. Returns an `End` if the budget does not allow it."""
    if isinstance(action, Reset) and not action.model:
        # no model wrote a handoff: code writes one from the log
        note = mechanical(shift.state.window, await shift.bodies(), "no model wrote a better note")
        await shift.decision(_torn_down(shift.state, action, 0, note, window_tokens(shift.state)))
        return None
    model = await model_or_rest(shift, action.model)
    if model is None:
        return None
    purpose: Purpose = "compaction" if isinstance(action, Compact) else "handoff"
    state = shift.state
    items = stretch(state, action.through_seq) if isinstance(action, Compact) else raw(state.window)
    request = _request(shift, purpose, action.attempt, items, await shift.bodies())
    digest = hashlib.sha256(msgspec.json.encode((request.system, request.messages))).hexdigest()
    started = await model_act.begin(
        shift,
        model,
        request,
        name=action.model,
        inputs_through=action.through_seq,
        digest=digest,
        through_seq=action.through_seq,
    )
    if isinstance(started, End):
        return started
    before = window_tokens(state)
    size = sum(item.tokens for item in items)

    def whole(response: Response) -> Sequence[Fact]:
        if isinstance(action, Compact):
            return [_compacted(shift.state, action, started.start_seq, response, before, size)]
        return [_reset(shift.state, action, started.start_seq, response, before)]

    await model_act.run(started, whole, keep_part=False)
    return None


def _request(shift: Shift, purpose: Purpose, number: int, items: list[Item], facts: Mapping[int, Fact]) -> ModelRequest:
    """Build the request: the pinned head for orientation, then the raw events."""
    state = shift.state
    system = shift.doors.prompts.get(purpose, "")
    pinned = _pinned(state)
    room = max(4_000, line_tokens(state) * BYTES_PER_TOKEN - len(system) - len(pinned))
    log = transcript(items, facts, room)
    text = f"{pinned}\n\n# What happened\n\n{log}\n\n# End of what happened"
    return ModelRequest(
        purpose=purpose,
        system=system,
        messages=(Message("user", (TextPart(text),)),),
        tools=(),
        max_output_tokens=min(SUMMARY_TOKENS, state.limits.max_output_tokens),
        responses=state.summaries if purpose == "compaction" else state.handoffs,
        attempt=number,
        input_tokens_estimate=(estimate(system) + estimate(text)) * state.context.scale_milli // 1_000,
        output_schema=schema() if purpose == "handoff" else None,
    )


def _pinned(state: State) -> str:
    created = state.created
    assert created is not None
    blocks = [("Goal", created.goal), ("Rules of this project", created.rules)]
    blocks.append(("It is done when", "\n".join(f"- {text}" for text in created.criteria)))
    said = "\n\n".join(f"# {title}\n\n{text}" for title, text in blocks if text)
    return f"For your orientation, what the agent always has before it and needs from nobody:\n\n{said}"


def _unusable(response: Response) -> str:
    finish = response.finish
    if finish is not None and finish.stop_reason == "refusal":
        return "the model refused"
    if finish is not None and finish.stop_reason == "max_tokens":
        return "the answer was cut at the output limit"
    return "" if response.text().strip() else "the answer is empty"


def _compacted(state: State, action: Compact, seq: int, response: Response, before: int, size: int) -> Fact:
    why = _unusable(response)
    fact = ContextCompacted(
        request_seq=seq,
        from_seq=state.context.through_seq,
        through_seq=action.through_seq,
        summary="\n".join((response.text().strip(), *running(state.live_jobs(), state.services.values(), state.seq))),
        tokens_before=before,
    )
    summary = estimate(note_of(fact))
    if not why and summary >= size:
        why = f"the summary has about {summary} tokens and what it stands for {size}"
    if why:
        return ContextFailed(request_seq=seq, purpose="compaction", reason=why)
    gone = (size - summary) * state.context.scale_milli // 1_000
    return msgspec.structs.replace(fact, tokens_after=before - gone)


def _reset(state: State, action: Reset, seq: int, response: Response, before: int) -> Fact:
    why = _unusable(response)
    note = why or parse(response.text())
    if isinstance(note, str):
        return ContextFailed(request_seq=seq, purpose="handoff", reason=note)
    return _torn_down(state, action, seq, note, before)


def _torn_down(state: State, action: Reset, seq: int, note: Handoff, before: int) -> ContextReset:
    at_work = running(state.live_jobs(), state.services.values(), state.seq)
    note = msgspec.structs.replace(note, workspace=(*note.workspace, *at_work))
    handoff = merge(state.context.handoff, note, note_characters(state))
    return ContextReset(
        cause=action.cause,
        through_seq=action.through_seq,
        handoff=handoff,
        request_seq=seq,
        detail=action.detail,
        files=files_of(handoff, state.seen),
        tokens_before=before,
    )


# --- rules ---------------------------------------------------------------------------------------


async def check_rules(shift: Shift, action: CheckRules) -> None:
    """Check the rules against the events. A breach is recorded once, and the model is notified."""
    created = shift.state.created
    assert created is not None
    rules = checkable(created.rules)
    deeds = await _deeds(shift, action)
    roots = ("/workspace", created.workspace.path)
    found = [breach for rule in rules for breach in _new_breaches(rule, deeds, roots, action.from_seq)]
    breached = [RuleBreached(rule=each.line, detail=each.detail, evidence=each.evidence) for each in found]
    checked = RuleChecked(from_seq=action.from_seq, through_seq=action.through_seq, rules=len(rules))
    await shift.decision(checked, *breached)


async def _deeds(shift: Shift, action: CheckRules) -> tuple[Deed, ...]:
    """Return the deeds of the stretch and of the few turns before it, since some rules look back past its beginning."""
    earlier = [step.seq for step in shift.state.trace if step.seq <= action.from_seq and not step.boundary]
    after = min(earlier[-GRACE_TURNS:], default=action.from_seq + 1) - 1
    facts: list[tuple[int, Fact]] = []
    while after < action.through_seq:
        limit = min(PAGE, action.through_seq - after)
        events = await shift.doors.log.read(shift.state.session_id, after=after, limit=limit)
        facts += [(event.seq, event.fact) for event in events]
        after += limit
    return deeds_of(facts)


def _new_breaches(rule: Checkable, deeds: Sequence[Deed], roots: Sequence[str], from_seq: int) -> list[Breach]:
    """Return the first breach of a rule that no earlier check has seen."""
    if rule.kind in ("never_run", "never_edit", "only_edit"):
        deeds = [deed for deed in deeds if deed.seq > from_seq]
    while deeds:
        found = check((rule,), deeds, roots=roots)
        if not found or max(found[0].evidence) > from_seq:
            return found
        deeds = [deed for deed in deeds if deed.seq > max(found[0].evidence)]
    return []
