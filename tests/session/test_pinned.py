"""Goal, rules and criteria after a thousand compactions and resets, and no summary made from a summary (S16, S17)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.brain.recall import decode, encode
from holdfast.facts.base import Document, Text
from holdfast.facts.codec import Event
from holdfast.facts.model import (
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ContextCompacted,
    ContextReset,
    Handoff,
    ModelRequestEnd,
    ModelRequestStart,
    PhaseEnded,
    RuleBreached,
    RuleChecked,
)
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Agent, ContextPolicy, Limits, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import FileSeen, ToolDispatched, ToolResult
from holdfast.facts.union import type_of
from holdfast.kinds import KINDS
from holdfast.session.actions import AskModel, CheckRules, Compact, Escalate, Record, Reset
from holdfast.session.context.conversation import Message, TextPart
from holdfast.session.context.handoff import merge, raw, transcript
from holdfast.session.context.window import build, needed
from holdfast.session.decide import decide
from holdfast.session.decide.context import stretch, window_tokens
from holdfast.session.fold import empty, fold
from holdfast.session.state import State

GOAL = "  Port the parser.\r\n\tKeep \x1fodd bytes, ünïcode  and trailing spaces \n\n"
RULES = "# Rules\n\n- Never run `git push*`.\n\t* tabs\r\n- ÄÖÜ 表 \u200b zero width\n"
CRITERIA = ("All tests pass\n  on two lines", " spaces around ", "third 😀")
SYSTEM = "You are careful.\n"
MARK = "SENTINEL-OF-A-NOTE"


class Life:
    """A session that lives on and on: what `decide` wants is done, and the model says random things."""

    def __init__(self, seed: int, strategy: Any) -> None:
        self.chance = random.Random(f"{strategy}:{seed}")
        policy = ContextPolicy(strategy=strategy, line_tokens=3_000, keep_tokens=600, signs=False)
        limits = Limits(context=policy, max_turns=10**9)
        agent = Agent(model="m", system=SYSTEM, tools=("bash", "read", "end_phase"))
        created = SessionCreated(
            goal=GOAL, agent=agent, workspace=Workspace("/w"), limits=limits, rules=RULES, criteria=CRITERIA
        )
        self.state = empty("ses_1", KINDS)
        self.bodies: dict[int, Any] = {}
        self.events: list[Event] = []
        self.compactions = self.resets = 0
        self.shown_raw: list[int] = []
        self.tell(created, ShiftStarted(worker_id="w", host_id="h", boot_id="b", pid=1, program="p"))

    def tell(self, *facts: Any) -> int:
        """Append these. Returns the position of the last."""
        for fact in facts:
            seq = self.state.seq + 1
            event = Event("ses_1", seq, 1, seq * 1_000_000, bytes(32), f"evt_{seq}", "brain", type_of(fact), fact)
            self.bodies[seq] = fact
            self.events.append(event)
            self.state = fold(self.state, [event])
        return self.state.seq

    def step(self) -> bool:
        """Do what is next. Whether the window was renewed by it."""
        action = decide(self.state, self.state.at_us)
        match action:
            case AskModel():
                assert window_tokens(self.state) < 3_600  # the line, and what is not worth a request
                self._turn(action)
            case Compact() | Reset():
                self._renew(action)
                return True
            case Record(facts=facts):
                self.tell(*facts)
            case CheckRules(from_seq=first, through_seq=last):
                self.tell(RuleChecked(from_seq=first, through_seq=last, rules=1))
                self.tell(RuleBreached(rule="Never run `git push*`.", detail="ran it", evidence=(last,)))
            case Escalate():
                self.tell(UserMessage(content=(Text("go on"),)))
            case _:
                raise AssertionError(action)
        return False

    def _turn(self, action: AskModel) -> None:
        chance = self.chance
        seq = self.tell(
            ModelRequestStart(
                purpose="turn", model="m", attempt=1, inputs_through=action.inputs_through, max_output_tokens=10
            )
        )
        if chance.random() < 0.2:
            self.tell(UserMessage(content=self._message()))
        if chance.random() < 0.3:
            self.tell(AgentThinking(request_seq=seq, text=self._words(60)))
        self.tell(AgentMessage(request_seq=seq, content=(Text(self._words(chance.choice((5, 80, 400)))),)))
        name = "end_phase" if chance.random() < 0.1 else chance.choice(("bash", "read"))
        value = {"bash": {"command": self._words(4)}, "read": {"file_path": "a"}, "end_phase": {"name": "one"}}[name]
        call_id = f"{seq}.0"
        self.tell(AgentToolUse(request_seq=seq, call_id=call_id, name=name, input=value))
        self.tell(ModelRequestEnd(request_seq=seq, outcome="ok", cost_pico=1, stop_reason="tool_use"))
        if name == "end_phase":
            self.tell(PhaseEnded(call_id=call_id, name="one"))
        else:
            self.tell(
                ToolDispatched(
                    call_id=call_id, attempt=1, hands_id="h", action_digest="d", on_unknown="tell", timeout_s=1
                )
            )
        files = (FileSeen("a", "0" * 64),) if name == "read" else ()
        content = self._words(chance.choice((1, 60, 500)))
        self.tell(ToolResult(call_id=call_id, outcome="ok", content=content, files=files))

    def _message(self) -> Any:
        blocks: list[Any] = [Text(self._words(20))]
        if self.chance.random() < 0.3:
            blocks.append(Document("text/plain", b"some notes" * 20, "plan.txt"))
        return tuple(blocks)

    def _words(self, count: int) -> str:
        return " ".join(f"w{self.chance.randint(0, 10**6)}" for _ in range(count))

    def _renew(self, action: Compact | Reset) -> None:
        """As the brain does it; the model's answer carries a mark that no later input may show."""
        compacts = isinstance(action, Compact)
        cause = None if isinstance(action, Compact) else action.cause
        items = stretch(self.state, action.through_seq) if compacts else raw(self.state.window)
        shown = transcript(items, self.bodies, 12_000)
        assert MARK not in shown
        self.shown_raw += [getattr(item, "seq", 0) or getattr(item, "request_seq", 0) for item in items]
        seq = self.tell(
            ModelRequestStart(
                purpose="compaction" if compacts else "handoff",
                model="m",
                attempt=1,
                inputs_through=action.through_seq,
                max_output_tokens=10,
                through_seq=action.through_seq,
            )
        )
        before = window_tokens(self.state)
        said = f"{MARK} {seq} {self._words(30)}"
        if cause is None:
            self.compactions += 1
            from_seq = self.state.context.through_seq
            self.tell(
                ContextCompacted(request_seq=seq, from_seq=from_seq, through_seq=action.through_seq, summary=said)
            )
        else:
            self.resets += 1
            handoff = merge(self.state.context.handoff, Handoff(done=(said,), next=(said + " next",)), 3_000)
            self.tell(ContextReset(cause=cause, through_seq=action.through_seq, handoff=handoff, request_seq=seq))
        if cause == "phase":
            before = 10**9  # a phase may end in a context that is small already
        assert window_tokens(self.state) < before
        self.tell(ModelRequestEnd(request_seq=seq, outcome="ok", cost_pico=1, stop_reason="end_turn"))

    def head(self) -> tuple[str, str]:
        """What stands at the head of the next context."""
        facts = {seq: self.bodies[seq] for seq in needed(self.state)}
        context = build(self.state, facts, "The prompt.")
        first = context.messages[0]
        assert isinstance(first, Message)
        assert isinstance(first.parts[0], TextPart)
        assert first.role == "user"
        return context.system, first.parts[0].text


def lived(seed: int, strategy: str, renewals: int) -> Life:
    """A session whose window was renewed that often, its head looked at after each."""
    life = Life(seed, strategy)
    head = life.head()
    assert head == (
        f"The prompt.\n\nCommands have no network.\n\n{SYSTEM}\n\n# Rules of this project\n\n{RULES}",
        f"{GOAL}\n\n# It is done when\n\n1. {CRITERIA[0]}\n2. {CRITERIA[1]}\n3. {CRITERIA[2]}",
    )
    while life.compactions + life.resets < renewals:
        if life.step():
            assert life.head() == head
    return life


def test_the_pinned_head_is_the_same_bytes_after_a_thousand_compactions_and_resets() -> None:
    life = lived(1, "hybrid", 1_000)
    assert life.compactions > 200
    assert life.resets > 200


def test_every_strategy_and_seed_keeps_it() -> None:
    for seed in range(3):
        for strategy in ("compaction", "reset", "hybrid", "auto"):
            lived(seed, strategy, 25)


def test_each_turn_and_message_is_given_to_one_summary_or_handoff_exactly_once() -> None:
    life = lived(5, "hybrid", 60)
    taken = life.shown_raw
    assert len(taken) == len(set(taken))
    turns = [
        event.seq for event in life.events if isinstance(event.fact, ModelRequestStart) and event.fact.purpose == "turn"
    ]
    said = [event.seq for event in life.events if isinstance(event.fact, UserMessage | RuleBreached)]
    in_full = {getattr(item, "seq", 0) or getattr(item, "request_seq", 0) for item in raw(life.state.window)}
    waiting = {item.seq for item in life.state.pending}
    assert set(taken) | in_full | waiting == set(turns) | set(said)


@pytest.mark.parametrize("strategy", ["auto", "compaction"])
def test_the_fold_of_the_whole_log_in_any_pieces_is_the_state_that_was_lived(strategy: str) -> None:
    life = lived(7, strategy, 60)
    lying = encode(life.state)
    chance = random.Random(3)
    for size in (1, 97, 250, 1_000, len(life.events)):
        state: State = empty("ses_1", KINDS)
        at = 0
        while at < len(life.events):
            many = size if size > 1 else chance.randint(1, 600)
            state = fold(state, life.events[at : at + many])
            at += many
        assert encode(state) == lying
    again = decode(lying, KINDS)
    assert again is not None
    assert encode(again) == lying
