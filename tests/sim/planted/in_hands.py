"""Bugs in the hands."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult
from holdfast.hands.fake.provider import FakeHands, FakeProvider
from tests.sim.planted.kit import Bed

BED = Bed()


@BED.plant("S9", "hands_refuse_the_past", first=95)
def hands_forget_the_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FakeHands, "_check", lambda self, made, epoch: None)


@BED.plant("S9", "hands_refuse_the_past", first=95)
def hands_do_not_hear_the_fence(patch: pytest.MonkeyPatch) -> None:
    async def fence(self: FakeHands, epoch: int) -> None:
        made = self._provider.find(self.identity)
        if made is None or made.gone:
            raise HandsLost("these hands are gone")

    patch.setattr(FakeHands, "fence", fence)


@BED.plant("S6", "effects_happen_once")
def hands_forget_call_ids(patch: pytest.MonkeyPatch) -> None:
    whole = FakeHands.start

    async def start(self: FakeHands, epoch: int, call_id: str, request: ExecRequest) -> None:
        made = await self._living(epoch)
        made.calls.pop(call_id, None)
        await whole(self, epoch, call_id, request)

    patch.setattr(FakeHands, "start", start)


def _saying(patch: pytest.MonkeyPatch, seen: str, said: str) -> None:
    whole = FakeHands.status

    async def status(self: FakeHands, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        answer = await whole(self, epoch, call_id, wait_s=wait_s)
        return CallStatus(said) if answer.state == seen else answer  # type: ignore[arg-type]

    patch.setattr(FakeHands, "status", status)


@BED.plant("S8", "unknown_is_honest", first=31)
def hands_call_an_unknown_call_never_started(patch: pytest.MonkeyPatch) -> None:
    _saying(patch, "unknown", "never_started")


@BED.plant("S10", "unknown_is_honest")
def hands_forget_what_ended(patch: pytest.MonkeyPatch) -> None:
    _saying(patch, "finished", "unknown")


@BED.plant("S10", "results_are_true", first=33)
def hands_make_results_up(patch: pytest.MonkeyPatch) -> None:
    whole = FakeHands.status

    async def status(self: FakeHands, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        answer = await whole(self, epoch, call_id, wait_s=wait_s)
        return CallStatus("finished", ExecResult(True, "done")) if answer.state == "unknown" else answer

    patch.setattr(FakeHands, "status", status)


@BED.plant("S8", "effects_were_intended", first=184)
def a_dead_command_goes_on(patch: pytest.MonkeyPatch) -> None:
    whole = FakeProvider._end

    def end(self: FakeProvider, made: Any, reason: str, news: str = "lost") -> None:
        running = [call for call in made.calls.values() if call.running]
        whole(self, made, reason, news)
        for call in running:
            call.running = True

    patch.setattr(FakeProvider, "_end", end)


@BED.plant("S8", "unknown_is_honest", first=1_134)
def a_new_incarnation_answers_for_an_old_one(patch: pytest.MonkeyPatch) -> None:
    whole = FakeProvider.find

    def find(self: FakeProvider, identity: HandsProvisioned) -> Any:
        alive = [made for made in self._made.values() if not made.gone]
        same = [made for made in alive if made.identity.workspace == identity.workspace]
        return same[-1] if same else whole(self, identity)

    patch.setattr(FakeProvider, "find", find)
