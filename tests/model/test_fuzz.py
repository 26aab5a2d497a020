"""Answers cut into random fragments, with their tails dropped or spoiled at random: no half call is executed.

What the server sent is recorded once for each family, then played back over TCP, mutilated by a seed. Each
answer goes through the client and through the part of the brain that makes facts of it: what comes out has to
be an error, or the whole calls that the server sent. The long form plays 100,000 fragments.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from holdfast.brain.response import Response
from holdfast.errors import ModelError
from holdfast.facts.model import AgentToolUse
from tests.model.rigs import COMMAND, USAGE, Rig, request, user
from tests.support.fault_proxy import Answer, Ending, Fault, ending

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")

CALLS = [
    {"name": "bash", "arguments": {"command": COMMAND}, "id": "call_1"},
    {"name": "bash", "arguments": {"command": "rm -rf /workspace/build", "flags": {"quiet": True}}, "id": "call_2"},
    {"name": "bash", "arguments": {}, "id": "call_3"},
]


def whole_calls() -> list[Any]:
    """What may be executed."""
    return [call["arguments"] for call in CALLS]


@dataclass
class Tally:
    """What was played."""

    fragments: int = 0
    whole: int = 0
    broken: int = 0


async def recorded(rig: Rig) -> Answer:
    """An answer with words, reasoning and three calls, as the server sends it."""
    turn = {"content": "I clean up.", "reasoning": "What is there?", "toolCalls": CALLS, "usage": USAGE}
    rig.server.load({"match": {"userMessage": "the goal"}, "response": turn})
    await rig.ask(request(user()))
    return rig.proxy.answers[-1]


def mutilated(answer: Answer, chance: random.Random, tally: Tally) -> Fault:
    """The answer in fragments; three times in four without its whole tail."""
    ways: tuple[Ending, ...] = ("cut_at", "end_at", "garbage_at")
    fault = Fault()
    if chance.random() < 0.75:
        fault = ending(chance.choice(ways), chance.randrange(len(answer.body)))

    def pieces(body: bytes) -> list[bytes]:
        most = chance.choice([1, 3, 40, 400])
        found, at = [], 0
        while at < len(body):
            size = chance.randint(1, most)
            found.append(body[at : at + size])
            at += size
        tally.fragments += len(found)
        return found

    return replace(fault, replay=answer, pieces=pieces)


async def play(rig: Rig, fault: Fault, tally: Tally) -> None:
    """One mutilated answer, and what became of it."""
    rig.proxy.faults = [fault]
    response, kind = Response(), ""
    try:
        async for part in rig.model.stream(request(user())):
            response.add(part)
    except ModelError as error:
        kind = error.kind
    assert kind in ("", "bad_stream", "unavailable")
    assert (response.finish is None) is bool(kind)
    if kind:
        tally.broken += 1
        return
    uses = [fact for fact in response.facts(1) if isinstance(fact, AgentToolUse)]
    assert [use.input for use in uses if not use.malformed] == whole_calls()
    assert len(uses) == len(CALLS)
    tally.whole += 1


async def test_a_mutilated_answer_is_an_error_or_whole(rig: Rig) -> None:
    answer, tally, chance = await recorded(rig), Tally(), random.Random(20)
    for _ in range(14):
        await play(rig, mutilated(answer, chance, tally), tally)
    assert tally.whole >= 2
    assert tally.broken >= 6


async def test_an_answer_that_ends_between_two_events_is_an_error_or_whole(rig: Rig) -> None:
    answer, tally = await recorded(rig), Tally()
    at = answer.body.find(b"\n\n")
    while at >= 0:
        await play(rig, replace(ending("end_at", at + 2), replay=answer), tally)
        at = answer.body.find(b"\n\n", at + 2)
    assert tally.broken >= 2
    assert tally.whole >= 1


@pytest.mark.faults
async def test_no_half_call_in_100_000_fragments(rig: Rig) -> None:
    answer, tally, chance = await recorded(rig), Tally(), random.Random(21)
    while tally.fragments < 100_000 or tally.whole < 20:
        await play(rig, mutilated(answer, chance, tally), tally)
    print(f"{rig.family}: {tally.fragments} fragments, {tally.whole} whole answers, {tally.broken} broken ones")
    assert tally.broken > 20
