"""Checks and the network: they may talk to what the mission may, and are asked again when that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.egress.fake import FakeEgress
from holdfast.facts.hands import EgressRecorded
from holdfast.facts.mission import Check, Contract, Criterion, CriterionChecked, Item
from holdfast.facts.session import Destination, EgressPolicy, SecretUse, SessionUpdated
from holdfast.hands.fake.calls import Files
from tests.brain.merge_stage import MergeStage, checked, state_of, task

pytestmark = pytest.mark.anyio


def stage_of(outside: FakeEgress) -> MergeStage:
    """A mission whose only check is a request to a host."""

    def get(command: str, files: Files) -> tuple[int, str]:
        try:
            verdict = outside.request("ses_1", command.split()[1])
        except ConnectionError:
            return 1, "Name or service not known\n"
        return (0, "fine\n") if verdict == "allowed" else (1, f"{verdict}\n")

    criterion = Criterion("net", "", Check("get packages.example"))
    stage = MergeStage(Contract("g", (Item("i", "all", criteria=(criterion,)),)), {"a.txt": b"x\n"}, checks=get)
    stage.mission_id = stage.stage.session_id = "ses_1"
    stage.doors = replace(stage.doors, egress=outside)
    return stage


async def test_a_check_may_talk_to_what_the_mission_may_and_is_asked_again_when_that_changes() -> None:
    outside = FakeEgress()
    stage = stage_of(outside)
    shift = await stage.begin(task("t", "net"))
    work = await stage.branch({"a.txt": b"y\n"})

    async def verdict(*hosts: str) -> str:
        secrets = (SecretUse("key", ("packages.example",)),)
        policy = EgressPolicy(allow=tuple(Destination(host) for host in hosts), secrets=secrets if hosts else ())
        await shift.fact(SessionUpdated(egress=policy))
        assert state_of(shift).verdict(work.tree, "net") is None, "a conductor asks again"
        await checked(stage, shift, work)
        return state_of(shift).verdicts[work.tree]["net"].outcome

    assert await verdict() == "fail"
    assert outside.alive() == []
    assert await verdict("other.example") == "fail"
    noted = [each for fact in await stage.facts(EgressRecorded) for each in fact.seen]
    assert {(each.verdict, each.host) for each in noted} == {("refused", "packages.example")}
    assert await verdict("other.example", "packages.example") == "pass"
    assert len({fact.key for fact in await stage.facts(CriterionChecked)}) == 3
    assert outside.secrets("ses_1") == (), "checks get no secrets"
