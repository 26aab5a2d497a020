"""Sessions that renew their contexts or ask people, killed while they do, and what has to hold afterwards."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from holdfast.app.compose import PROGRAM, open_runtime
from holdfast.app.settings.config import Settings
from holdfast.app.settings.prompts import load_prompt
from holdfast.brain.recall import shown
from holdfast.errors import ItemClosed
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import ContextCompacted, ContextReset, ModelRequestStart
from holdfast.facts.people import ApprovalDecided, ApprovalRequested
from holdfast.facts.session import Agent, ContextPolicy, Limits, Rule, SessionCreated, Workspace
from holdfast.facts.tool import ToolDispatched
from holdfast.kinds import KINDS
from holdfast.session.context.window import build, head
from holdfast.session.fold import empty, fold
from tests.faults import oracle
from tests.faults.brains import Brain, Nursery
from tests.faults.deaths import pass_time
from tests.faults.seams import Seam
from tests.faults.story import FINISH, Session, Story, effect, story, turn, write

CRITERIA = ("report.md has three lines", "nothing else was touched")
RULES = "- Never edit `tests/**`.\n- Use tabs."

LONG = "; seq 1 400"
"""Output that fills a context."""

ASKED = "two"
"""The effect that a person has to allow."""

HANDOFF = json.dumps({"done": ["one and two happened"], "next": ["go on with three"]})


def _long(*more: dict[str, object]) -> Story:
    base = story(
        turn("I begin.", effect("one", LONG)),
        turn("", effect("two", LONG)),
        turn("", write("notes.md", "# Notes\n"), write("part.txt", "part\n")),
        turn("", effect("three", LONG)),
        turn("", effect("four", LONG)),
        FINISH,
        keys=("one", "two", "three", "four"),
    )
    script = {**base.script, "compaction": list(more), "handoff": list(more)}
    return Story(script, base.keys, spare_turns=12)


COMPACTED = _long(*(turn(f"Summary {number}: so far so good.", delay_s=0.15) for number in range(6)))
RESET = _long(*(turn(HANDOFF, delay_s=0.15) for _ in range(6)))
APPROVED = story(
    turn("I begin.", effect("one")),
    turn("May I?", effect(ASKED)),
    turn("", write("notes.md", "# Notes\n"), write("part.txt", "part\n")),
    FINISH,
    keys=("one", "two"),
)


OFF = ContextPolicy(strategy="off")


@dataclass(frozen=True)
class Kept:
    """A story, and how its session keeps its context or asks people."""

    story: Story
    context: ContextPolicy = OFF
    rules: tuple[Rule, ...] = ()


def policy(strategy: str) -> ContextPolicy:
    """A context that is full soon."""
    return ContextPolicy(strategy=strategy, line_tokens=900, keep_tokens=200, signs=False)  # type: ignore[arg-type]


COMPACTING = Kept(COMPACTED, policy("compaction"))
RESETTING = Kept(RESET, policy("reset"))
APPROVING = Kept(APPROVED, rules=(Rule("bash", "ask", match=f"*did {ASKED}*"),))


def open_kept(home: Path, kept: Kept) -> Session:
    """Open that session in a new home, and run nothing."""
    home.mkdir(mode=0o711)
    (home / "script.json").write_text(json.dumps(kept.story.script))

    async def opened() -> Session:
        async with open_runtime(Settings(home=str(home))) as runtime:
            session_id = runtime.intake.new_session_id()
            workspace = runtime.home.workspaces / session_id
            workspace.mkdir(mode=0o755)
            created = SessionCreated(
                goal="Count to four, and report.",
                agent=Agent(model=f"scripted:{home / 'script.json'}", rules=kept.rules),
                workspace=Workspace(str(workspace), True, "", "none"),
                limits=Limits(budget_pico=kept.story.budget_pico, context=kept.context),
                accounts=(session_id,),
                program=PROGRAM,
                rules=RULES,
                criteria=CRITERIA,
            )
            await runtime.intake.open(session_id, created)
        return Session(home, session_id, workspace)

    return anyio.run(opened)


def answer(session: Session) -> bool:
    """Approve what waits; False when it is decided already."""

    async def approved() -> bool:
        async with open_runtime(Settings(home=str(session.home))) as runtime:
            for item in await runtime.store.items():
                try:
                    await runtime.intake.approve(item, "go on")
                except ItemClosed:
                    return False
                return True
        return False

    return anyio.run(approved)


def undisturbed(home: Path, brains: Nursery, kept: Kept) -> oracle.Record:
    """The session without a death."""
    session = open_kept(home, kept)
    acknowledged = run_to_end(session, brains)
    record = oracle.look(session)
    assert broken(record, kept, acknowledged) == []
    assert set(record.effects) == set(kept.story.keys)
    return record


def run_to_end(session: Session, brains: Nursery) -> list[tuple[int, str]]:
    """Wake it, and answer what it asks, until it is done. Returns what was acknowledged."""
    acknowledged: list[tuple[int, str]] = []
    for _ in range(3):
        brain = brains.wake(session.home, session.session_id)
        status = brain.wait()
        acknowledged += brain.acknowledged()
        if status == 0 or not answer(session):
            break
    return acknowledged


def killed_after(
    session: Session, brains: Nursery, chance: random.Random, seam: Seam, span_s: float
) -> tuple[Brain, bool]:
    """Kill a brain at a random moment of that span, which begins at the seam. Says whether it was alive."""
    brain = brains.wake(session.home, session.session_id, seam)
    assert brain.until_stopped(), brain.errors()
    brain.send(signal.SIGCONT)
    pass_time(chance.uniform(0.0, span_s))
    brain.send(signal.SIGKILL)
    return brain, brain.wait() == -9


def span_of(record: oracle.Record, first: Callable[[Event], bool], last: Callable[[Event], bool]) -> float:
    """Seconds from the first event of one kind to the next event of another kind."""
    begin = next(event for event in record.events if first(event))
    end = next(event for event in record.events if event.seq > begin.seq and last(event))
    return (end.at_us - begin.at_us) / 1_000_000


def broken(record: oracle.Record, kept: Kept, acknowledged: Sequence[tuple[int, str]]) -> list[str]:
    """What does not hold, whoever died."""
    out = oracle.broken(record, kept.story, acknowledged)
    heads, created = _heads(record), record.facts(SessionCreated)[0]
    wanted = head(created, load_prompt("worker")[0])
    out += [f"a context begins with {each}, not with what is pinned" for each in heads if each != wanted]
    if RULES not in wanted[0] or any(text not in wanted[1] for text in (created.goal, *CRITERIA)):
        out.append("what is pinned is not whole")
    notes: list[ContextCompacted | ContextReset] = [*record.facts(ContextCompacted), *record.facts(ContextReset)]
    through = Counter((type(fact).__name__, fact.through_seq) for fact in notes)
    out += [f"{count} {name} through {seq}" for (name, seq), count in through.items() if count > 1]
    asked = Counter(fact.call_id for fact in record.facts(ApprovalRequested))
    out += [f"call {call_id} was asked for {count} times" for call_id, count in asked.items() if count > 1]
    decided = Counter(fact.item_id for fact in record.facts(ApprovalDecided))
    used = Counter(fact.approval_id for fact in record.facts(ToolDispatched) if fact.approval_id)
    out += [f"{item_id} was decided {count} times" for item_id, count in decided.items() if count > 1]
    out += [f"{item_id} was used {count} times" for item_id, count in used.items() if count > 1]
    if set(used) != {fact.item_id for fact in record.facts(ApprovalRequested)}:
        out.append(f"approvals used: {dict(used)}, asked for: {dict(asked)}")
    return out


def _heads(record: oracle.Record) -> set[tuple[str, str]]:
    """System text and first words of every context that the log makes."""
    state = empty(record.session.session_id, KINDS)
    bodies: dict[int, Fact] = {}
    prompt, _ = load_prompt("worker")
    found = set()
    for event in record.events:
        if isinstance(event.fact, ModelRequestStart) and event.fact.purpose == "turn":
            context = build(state, bodies, prompt)
            found.add((context.system, str(getattr(context.messages[0].parts[0], "text", ""))))
        state = fold(state, [event])
        bodies.update(shown([event]))
    return found


def same_notes(record: oracle.Record, golden: oracle.Record) -> list[str]:
    """A death makes no more and no fewer compactions and resets."""
    out = []
    for kind in (ContextCompacted, ContextReset):
        have, want = len(record.facts(kind)), len(golden.facts(kind))
        if have != want:
            out.append(f"{have} {kind.__name__}, they should be {want}")
    return out
