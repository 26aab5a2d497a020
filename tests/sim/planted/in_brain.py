"""Bugs in the brain: its acts, its shift, its way to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from holdfast.brain import recall, response, wake
from holdfast.brain.acts import hands as hands_act
from holdfast.brain.acts import model as model_act
from holdfast.brain.acts import tool as tool_act
from holdfast.brain.acts.results import wait
from holdfast.brain.shift import Shift
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.hands.base import Hands
from holdfast.log.base import Post
from holdfast.session.actions import Action, Dispatch, End, EndCalls, Reconcile
from holdfast.session.state import Call, State
from tests.sim.planted.kit import Bed

BED = Bed()


@BED.plant("S2", "decisions_name_the_head")
def a_park_is_appended_as_a_fact(patch: pytest.MonkeyPatch) -> None:
    async def end(shift: Shift, ending: End) -> None:
        if shift.state.hands is not None or shift.provisioned is not None:
            await hands_act.give_back(shift)
            return
        await shift.fact(ending.fact)

    patch.setattr(wake, "_end", end)


@BED.plant("S2", "decisions_name_the_head")
def a_dispatch_is_appended_as_a_fact(patch: pytest.MonkeyPatch) -> None:
    whole = Shift._append

    async def append(self: Shift, facts: Sequence[Fact], posts: Sequence[Post], *, head: bool) -> list[Event]:
        return await whole(self, facts, posts, head=head and not isinstance(facts[0], ToolDispatched))

    patch.setattr(Shift, "_append", append)


@BED.plant("S2", "requests_are_logged_first", first=69)
def the_head_is_that_of_now(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.decision

    async def decision(self: Shift, *facts: Fact, posts: Sequence[Post] = ()) -> list[Event]:
        await self.refresh()
        self.decided_at = self.state.seq
        return await whole(self, *facts, posts=posts)

    patch.setattr(Shift, "decision", decision)


@BED.plant("S6", "groups_are_whole", first=14)
def a_call_starts_before_its_intent(patch: pytest.MonkeyPatch) -> None:
    async def dispatch(shift: Shift, action: Dispatch) -> None:
        hands = await hands_act.current(shift)
        use = await tool_act._use(shift, shift.state.call(action.call_ids[0]))
        await hands.start(shift.fence, use.call_id, tool_act._request(shift, use, hands.identity.root))
        await shift.decision(tool_act._intent(shift, use, 1, hands))
        result = await wait(shift, hands, use.call_id)
        await shift.fact(tool_act._result(shift.state.call(use.call_id), result, reconciled=False))

    patch.setattr(tool_act, "dispatch", dispatch)


def _statuses(patch: pytest.MonkeyPatch, seen: str, taken_for: str) -> None:
    """Reconcile takes one testimony of the hands for another."""
    reconcile = tool_act.reconcile

    async def careless(shift: Shift, action: Reconcile) -> None:
        provider = shift.doors.hands
        attach = provider.attach

        async def attached(identity: Any) -> Hands:
            hands = await attach(identity)
            status = hands.status

            async def said(epoch: int, asked: str) -> Any:
                answer = await status(epoch, asked)
                if answer.state != seen:
                    return answer
                return msgspec.structs.replace(answer, state=taken_for)

            patch.setattr(hands, "status", said)
            return hands

        provider.attach = attached  # type: ignore[method-assign]
        try:
            await reconcile(shift, action)
        finally:
            provider.attach = attach  # type: ignore[method-assign]

    patch.setattr(tool_act, "reconcile", careless)


@BED.plant("S8", "effects_were_intended", first=109)
def a_running_call_is_told_as_unknown(patch: pytest.MonkeyPatch) -> None:
    _statuses(patch, "running", "unknown")


@BED.plant("S8", "unknown_is_honest", first=19)
def a_call_that_never_started_is_told_as_unknown(patch: pytest.MonkeyPatch) -> None:
    _statuses(patch, "never_started", "unknown")


@BED.plant("S8", "effects_happen_once", first=45)
def an_unknown_call_is_taken_for_never_started(patch: pytest.MonkeyPatch) -> None:
    _statuses(patch, "unknown", "never_started")


@BED.plant("S8", "unknown_is_honest")
def a_journaled_result_is_dropped(patch: pytest.MonkeyPatch) -> None:
    _statuses(patch, "finished", "unknown")


@BED.plant("S8", "unknown_is_honest", first=607)
def the_newest_hands_are_asked_about_every_call(patch: pytest.MonkeyPatch) -> None:
    whole = tool_act.reconcile

    async def careless(shift: Shift, action: Reconcile) -> None:
        call = shift.state.call(action.call_id)
        if shift.state.hands is not None:
            call.hands_id = shift.state.hands.hands_id
        await whole(shift, action)

    patch.setattr(tool_act, "reconcile", careless)


@BED.plant("S12", "unknown_is_honest", first=45)
def an_unknown_command_is_run_again(patch: pytest.MonkeyPatch) -> None:
    whole = tool_act._unknown

    async def unknown(shift: Shift, call: Call, status: Any) -> None:
        if call.on_unknown == "tell" and not shift.state.stopping:
            await tool_act._again(shift, call)
        else:
            await whole(shift, call, status)

    patch.setattr(tool_act, "_unknown", unknown)


@BED.plant("S12", "results_are_true", first=33)
def a_probe_always_says_that_it_happened(patch: pytest.MonkeyPatch) -> None:
    async def unknown(shift: Shift, call: Call, status: Any) -> None:
        if status.expectation is not None:
            await shift.fact(tool_act._happened(call, status.expectation))
        else:
            await whole(shift, call, status)

    whole = tool_act._unknown
    patch.setattr(tool_act, "_unknown", unknown)


@BED.plant("S12", "unknown_is_honest", first=31)
def a_probe_always_says_that_it_did_not_happen(patch: pytest.MonkeyPatch) -> None:
    async def unknown(shift: Shift, call: Call, status: Any) -> None:
        if status.expectation is not None and not shift.state.stopping:
            await tool_act._again(shift, call)
        else:
            await whole(shift, call, status)

    whole = tool_act._unknown
    patch.setattr(tool_act, "_unknown", unknown)


@BED.plant("S12", "unknown_is_honest", first=33)
def a_harmless_call_is_not_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tool_act, "RETRIES", 1)


@BED.plant("S7", "comes_to_rest")
def a_result_is_appended_twice(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.fact

    async def fact(self: Shift, *facts: Fact) -> list[Event]:
        if isinstance(facts[0], ToolResult) and facts[0].reconciled:
            await whole(self, *facts)
        return await whole(self, *facts)

    patch.setattr(Shift, "fact", fact)


@BED.plant("S7", "results_are_true")
def lost_hands_end_the_call_as_an_error(patch: pytest.MonkeyPatch) -> None:
    whole = hands_act.lost

    async def lost(shift: Shift, hands_id: str, reason: str) -> None:
        await whole(shift, hands_id, reason)
        for call in shift.state.open_calls():
            if call.attempt:
                await shift.fact(ToolResult(call_id=call.call_id, outcome="error", content=reason))

    patch.setattr(hands_act, "lost", lost)


@BED.plant("S9", "hands_are_fenced_first")
def hands_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    async def fence(shift: Shift) -> None:
        return None

    patch.setattr(hands_act, "fence", fence)


@BED.plant("S9", "hands_are_fenced_first")
def hands_at_work_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    whole = hands_act.fence

    async def fence(shift: Shift) -> None:
        if not any(call.attempt for call in shift.state.open_calls()):
            await whole(shift)

    patch.setattr(hands_act, "fence", fence)


@BED.plant("S8", "dispatches_are_intents")
def hands_are_made_twice(patch: pytest.MonkeyPatch) -> None:
    def begin(shift: Shift) -> None:
        if shift.provisioned is None:
            shift.provisioned = anyio.Event()
            shift.provision_error = None
            shift.background.start_soon(hands_act._provision, shift)

    patch.setattr(hands_act, "begin_provisioning", begin)
    patch.setattr(model_act, "begin_provisioning", begin)


@BED.plant("S27", "hands_are_given_back")
def a_parked_session_keeps_its_hands(patch: pytest.MonkeyPatch) -> None:
    async def end(shift: Shift, ending: End) -> None:
        await shift.decision(ending.fact)

    patch.setattr(wake, "_end", end)


@BED.plant("S10", "hands_are_given_back", first=175)
def lost_hands_live_on(patch: pytest.MonkeyPatch) -> None:
    async def clear_lost(shift: Shift) -> None:
        return None

    patch.setattr(hands_act, "clear_lost", clear_lost)


@BED.plant("S6", "calls_are_named_by_place")
def call_ids_are_random(patch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**9))
    patch.setattr(response, "call_id", lambda request_seq, index: f"call-{next(count)}")


@BED.plant("S2", "context_is_what_happened")
def the_tail_before_the_lease_is_not_folded(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.__init__

    def init(self: Shift, doors: Any, state: State, lease: Any, bodies: Any) -> None:
        state.pending = [item for item in state.pending if item.seq < lease.events[0].seq - 1]
        whole(self, doors, state, lease, bodies)

    patch.setattr(Shift, "__init__", init)


@BED.plant("S19", "no_input_is_forgotten", first=47)
def a_snapshot_loses_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    whole = recall.remember

    async def remember(state: State, snapshots: Any) -> None:
        await whole(msgspec.structs.replace(state, pending=[], unseen=False), snapshots)

    patch.setattr(wake, "remember", remember)


@BED.plant("S19", "starts_match_the_log", first=1_149)
def a_snapshot_loses_what_was_read(patch: pytest.MonkeyPatch) -> None:
    whole = recall.remember

    async def remember(state: State, snapshots: Any) -> None:
        await whole(msgspec.structs.replace(state, seen={}), snapshots)

    patch.setattr(wake, "remember", remember)


@BED.plant("S14", "hands_are_given_back", first=19)
def a_goodbye_ends_the_session(patch: pytest.MonkeyPatch) -> None:
    async def let_go(shift: Shift, detail: str, *before: Any) -> None:
        if shift.state.in_shift:
            await shift.fact(ShiftEnded(status="done", detail=detail))

    patch.setattr(wake, "_let_go", let_go)


@BED.plant("S14", "stops_are_prompt", first=230)
def a_running_call_is_not_stopped(patch: pytest.MonkeyPatch) -> None:
    async def wait(shift: Shift, hands: Hands, call_id: str) -> Any:
        return await hands.wait(shift.fence, call_id)

    patch.setattr(tool_act, "wait", wait)


@BED.plant("S14", "only_allowed_calls_run")
def skipped_calls_are_told_as_done(patch: pytest.MonkeyPatch) -> None:
    whole = wake._act

    async def act(shift: Shift, action: Action) -> None:
        if isinstance(action, EndCalls):
            done = tuple(msgspec.structs.replace(result, outcome="ok") for result in action.results)
            action = EndCalls(done)
        await whole(shift, action)

    patch.setattr(wake, "_act", act)
