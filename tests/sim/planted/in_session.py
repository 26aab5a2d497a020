"""Bugs in the pure part: the fold, decide, the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.brain import shift, wake
from holdfast.brain.acts import model as model_act
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.people import UserMessage
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session import decide, fold
from holdfast.session.actions import Action, AskModel, Dispatch, End
from holdfast.session.context import window
from holdfast.session.context.conversation import Message, TextPart, ToolResultPart
from holdfast.session.context.window import Context
from holdfast.session.decide import calls
from holdfast.session.fold import calls as fold_calls
from holdfast.session.fold import requests as fold_requests
from holdfast.session.state import ResponseItem, State
from holdfast.session.tools.policy import Ruling
from tests.sim.planted.kit import Bed

BED = Bed()


def _deciding(patch: pytest.MonkeyPatch, change: Callable[[State, Action], Action]) -> None:
    whole = decide.decide
    patch.setattr(shift, "decide", lambda state, now_us: change(state, whole(state, now_us)))


def _after(patch: pytest.MonkeyPatch, change: Callable[[State, Fact, Event], None]) -> None:
    whole = fold._apply

    def apply(state: State, fact: Fact, event: Event) -> None:
        whole(state, fact, event)
        change(state, fact, event)

    patch.setattr(fold, "_apply", apply)


def _showing(patch: pytest.MonkeyPatch, change: Callable[[State, Context], Context]) -> None:
    whole = window.build

    def build(state: State, facts: Mapping[int, Fact], prompt: str) -> Context:
        return change(state, whole(state, facts, prompt))

    patch.setattr(model_act, "build", build)


@BED.plant("S7", "nothing_after_a_stop")
def calls_go_on_after_a_denied_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "BLOCKING_ENDS", frozenset({"unknown", "skipped", "cancelled"}))


@BED.plant("S7", "nothing_after_a_stop", first=33)
def calls_go_on_after_an_unknown_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "BLOCKING_ENDS", frozenset({"denied", "skipped", "cancelled"}))


@BED.plant("S7", "one_after_another")
def everything_runs_side_by_side(patch: pytest.MonkeyPatch) -> None:
    def together(state: State, opened: list[Any], now_us: int) -> tuple[str, ...]:
        return tuple(call.call_id for call in opened if not call.problem)

    patch.setattr(calls, "_runnable_together", together)


@BED.plant("S7", "groups_are_whole")
def readers_go_one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "_runnable_together", lambda state, opened, now_us: (opened[0].call_id,))


@BED.plant("S7", "one_after_another", first=29)
def writers_count_as_readers(patch: pytest.MonkeyPatch) -> None:
    whole = fold_calls._call

    def call(state: State, fact: Any, event: Event) -> Any:
        made = whole(state, fact, event)
        made.read_only = made.read_only or fact.name == "write"
        return made

    patch.setattr(fold_calls, "_call", call)


@BED.plant("S6", "only_allowed_calls_run")
def rules_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "rule_for", lambda state, call, now_us: Ruling("allow"))


@BED.plant("S6", "only_allowed_calls_run", first=19)
def a_wrong_call_is_dispatched(patch: pytest.MonkeyPatch) -> None:
    whole = fold_calls._call

    def call(state: State, fact: Any, event: Event) -> Any:
        made = whole(state, fact, event)
        made.problem = "" if fact.name == "read" else made.problem
        return made

    patch.setattr(fold_calls, "_call", call)


@BED.plant("S3", "no_input_is_forgotten", first=27)
def done_in_spite_of_a_message(patch: pytest.MonkeyPatch) -> None:
    whole = decide.decide

    def careless(state: State, now_us: int) -> Action:
        kept, state.pending = state.pending, []
        try:
            action = whole(state, now_us)
        finally:
            state.pending = kept
        return action if isinstance(action, End) else whole(state, now_us)

    patch.setattr(shift, "decide", careless)


@BED.plant("S27", "no_shift_for_nothing")
def a_parked_session_is_taken_up_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wake, "is_idle", lambda *_: False)


@BED.plant("S14", "all_is_at_rest")
def a_cancel_only_parks(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, action: Action) -> Action:
        if isinstance(action, End) and action.fact.status == "cancelled":
            return End(ShiftEnded(status="parked", reason="person"))
        return action

    _deciding(patch, change)


@BED.plant("S14", "stops_are_honoured")
def an_interrupt_ends_with_its_shift(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, fact: Fact, event: Event) -> None:
        if isinstance(fact, ShiftEnded):
            state.interrupted = 0

    _after(patch, change)


@BED.plant("S14", "stops_are_honoured", first=47)
def a_message_takes_an_interrupt_back(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, fact: Fact, event: Event) -> None:
        if isinstance(fact, UserMessage):
            state.interrupted = 0

    _after(patch, change)


@BED.plant("S14", "stops_are_honoured")
def interrupted_calls_are_run_all_the_same(patch: pytest.MonkeyPatch) -> None:
    whole = calls.next_call

    def next_call(state: State, opened: list[Any], now_us: int) -> Action:
        kept, state.interrupted = state.interrupted, 0
        try:
            return whole(state, opened, now_us)
        finally:
            state.interrupted = kept

    patch.setattr(calls, "next_call", next_call)


@BED.plant("S2", "ends_have_reasons")
def a_cap_is_reached_too_early(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, action: Action) -> Action:
        early = isinstance(action, AskModel) and state.responses >= 2
        return End(ShiftEnded(status="parked", reason="cap")) if early else action

    _deciding(patch, change)


@BED.plant("S2", "ends_have_reasons", first=17)
def a_refusal_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, action: Action) -> Action:
        refused = isinstance(action, End) and action.fact.detail == "the model refused"
        return End(ShiftEnded(status="done")) if refused else action

    _deciding(patch, change)


@BED.plant("S13", "comes_to_rest")
def attempts_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, action: Action) -> Action:
        return AskModel(action.inputs_through, 1, action.model) if isinstance(action, AskModel) else action

    _deciding(patch, change)


@BED.plant("S13", "requests_are_logged_first")
def a_request_takes_in_less_than_it_shows(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, action: Action) -> Action:
        return (
            AskModel(action.inputs_through - 1, action.attempt, action.model)
            if isinstance(action, AskModel)
            else action
        )

    _deciding(patch, change)


@BED.plant("S13", "requests_settle_once")
def a_lost_request_is_left_open(patch: pytest.MonkeyPatch) -> None:
    whole = decide.decide

    def careless(state: State, now_us: int) -> Action:
        if state.request is not None:
            state.request = None
        return whole(state, now_us)

    patch.setattr(shift, "decide", careless)


@BED.plant("S18", "starts_match_the_log", first=24)
def the_fold_forgets_what_was_read(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, fact: Fact, event: Event) -> None:
        if isinstance(fact, ToolResult):
            state.seen.clear()

    _after(patch, change)


@BED.plant("S3", "context_is_what_happened", first=14)
def a_message_stays_pending(patch: pytest.MonkeyPatch) -> None:
    whole = fold_requests._started

    def request(state: State, fact: Any, event: Event) -> None:
        kept = list(state.pending)
        whole(state, fact, event)
        if isinstance(fact, ModelRequestStart) and fact.attempt > 1:
            state.pending = kept

    table: dict[type[Fact], Any] = {**fold._APPLY, ModelRequestStart: request}
    patch.setattr(fold, "_APPLY", table)


@BED.plant("S19", "fold_is_one")
def the_fold_keeps_a_count_of_its_own(patch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**9))

    def change(state: State, fact: Fact, event: Event) -> None:
        state.window_tokens += next(count) % 3

    _after(patch, change)


@BED.plant("S19", "fold_is_one")
def a_response_is_known_by_its_object(patch: pytest.MonkeyPatch) -> None:
    latest: dict[str, ResponseItem] = {}

    def response(state: State, request_seq: int) -> ResponseItem:
        last = latest.get(state.session_id)
        if state.window and last is state.window[-1] and last.request_seq == request_seq:
            return last
        item = latest[state.session_id] = ResponseItem(request_seq, 0, [], [])
        state.calls = []
        state.place(item)
        return item

    patch.setattr(fold_calls, "response_at", response)
    patch.setattr(fold_requests, "response_at", response)


@BED.plant("S17", "head_is_pinned")
def the_goal_falls_out_of_a_long_context(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, context: Context) -> Context:
        if len(state.window) < 3:
            return context
        first = Message("user", (TextPart("go on"), *context.messages[0].parts[1:]))
        return Context(context.system, (first, *context.messages[1:]), context.digest)

    _showing(patch, change)


@BED.plant("S17", "head_is_pinned")
def the_rules_fall_out_after_a_response(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, context: Context) -> Context:
        system = context.system.partition("# Rules")[0] if state.responses else context.system
        return Context(system, context.messages, context.digest)

    _showing(patch, change)


@BED.plant("S7", "context_is_what_happened")
def results_are_shown_backwards(patch: pytest.MonkeyPatch) -> None:
    whole = window._response

    def response(messages: list[Message], facts: Mapping[int, Fact], item: Any) -> None:
        whole(messages, facts, item)
        last = messages[-1]
        if all(isinstance(part, ToolResultPart) for part in last.parts):
            messages[-1] = Message(last.role, last.parts[::-1])

    patch.setattr(window, "_response", response)


@BED.plant("S12", "context_is_what_happened", first=33)
def unknown_is_not_told(patch: pytest.MonkeyPatch) -> None:
    whole = window._result

    def result(call: Any, fact: Fact | None) -> ToolResultPart:
        part = whole(call, fact)
        return replace(part, content="ok", is_error=False) if isinstance(fact, ToolOutcomeUnknown) else part

    patch.setattr(window, "_result", result)


@BED.plant("S14", "context_is_what_happened", first=14)
def cut_words_are_not_shown(patch: pytest.MonkeyPatch) -> None:
    whole = window._response

    def response(messages: list[Message], facts: Mapping[int, Fact], item: Any) -> None:
        if item.stop_reason is not None:
            whole(messages, facts, item)

    patch.setattr(window, "_response", response)


@BED.plant("S8", "dispatches_are_intents", first=59)
def hands_are_never_waited_for(patch: pytest.MonkeyPatch) -> None:
    def change(state: State, action: Action) -> Action:
        opened = state.open_calls()
        if opened and all(call.attempt for call in opened) and not state.interrupted:
            return Dispatch((opened[0].call_id,))
        return action

    _deciding(patch, change)
