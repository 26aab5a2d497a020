"""Briefs: everything that matters is in them or two commands away, no claim without an event, 40 lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from holdfast.facts.base import Usage
from holdfast.facts.codec import Event, export_line
from holdfast.facts.mission import Contract, Criterion, CriterionChecked, Item, MissionFinished, MissionPolicy, Task
from holdfast.facts.model import AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalDecided, ApprovalRequested
from holdfast.facts.session import Agent, SessionCreated, SessionForked, Workspace
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.task import FindingNoted, Judged, JudgeOpened, RatchetViolated, RepoMerged, TaskJudged, Violation
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.kinds import KINDS
from holdfast.kinds.mission.brief.audit import audit
from holdfast.kinds.mission.brief.brief import Brief, Evidence, Line, brief
from holdfast.kinds.mission.brief.document import LINES_MAX, markdown
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.service.event_lines import in_detail
from holdfast.session.fold import empty, fold
from tests.mission.brief_mission import MAIN, PLANTED, Told, World, big_mission, contract_of, sha


@pytest.fixture(scope="module")
def big() -> World:
    return big_mission()


def commands(text: str) -> list[list[str]]:
    """What a text says can be typed."""
    return [shlex.split(each) for each in re.findall(r"`(holdfast [^`]+)`", text)]


def typed(world: World, told: Brief, command: Sequence[str]) -> str:
    """What a command prints: the events of a log, as people read them, or the brief as data."""
    match list(command[1:]):
        case ["logs", session_id, "--type", *types]:
            (log,) = [each for each in (world.top.events, *world.logs) if each[0].session_id == session_id]
            return "\n".join(in_detail(event) + str(export_line(event)) for event in log if event.type in types)
        case ["brief", "ses_top", "--json"]:
            return msgspec.json.encode(told).decode()
        case _:
            return ""


# --- what is in it -----------------------------------------------------------------------------------


def test_it_is_a_mission_of_ten_thousand_events_by_the_real_fold(big: World) -> None:
    assert sum(len(log) for log in (big.top.events, *big.logs)) >= 10_000
    mission = of_mission(big.state())
    assert sum(task.status == "merged" for task in mission.tasks.values()) == 219
    assert len(PLANTED) >= 20


def steps_to(world: World, told: Brief, text: str, planted: str) -> int:
    """So many commands lead from the brief's text to a problem: 0 when it is in the text, 9 when none does."""
    word = re.compile(rf"PLANT-{planted}(?![\w-])")
    if word.search(text):
        return 0
    known = commands(text)
    if any(word.search(typed(world, told, command)) for command in known if command[1] == "logs"):
        return 1
    as_data = ["holdfast", "brief", "ses_top", "--json"]
    return 2 if as_data in known and word.search(typed(world, told, as_data)) else 9


def test_each_planted_problem_is_there_or_two_steps_away(big: World) -> None:
    told = big.brief()
    text = markdown(told)
    steps = {each: steps_to(big, told, text, each) for each in PLANTED if each != "unpriced"}
    assert max(steps.values()) <= 2, steps
    assert 1 in steps.values(), steps
    assert sum(count == 0 for count in steps.values()) >= 16, steps
    assert "without a price" in text
    assert "worker T111: bash curl PLANT-unknown: the hands are gone" in text


def test_the_decisions_come_first_each_with_its_commands(big: World) -> None:
    told = big.brief()
    assert [section.title for section in told.sections] == ["Decisions", "Status", "Changes", "Problems", "Cost"]
    text = markdown(told)
    assert re.match(
        r"# big: stopped after 2 h 2\d min, needs 2 decisions. Cost at least \$\d\.\d+. Main branch: 219 ", text
    )
    first = text[: text.index("## Status")]
    assert "`holdfast approve itm_top --note NOTE`" in first
    assert "`holdfast deny itm_top`: the mission ends as failed; what is merged stays on holdfast/big/main" in first
    assert "**worker T111: PLANT-waits-child**" in first
    assert "`holdfast approve itm_child`: the call runs once" in first
    stands = text[text.index("## Status") : text.index("## Changes")]
    assert "876 of 881 criteria are met" in stands
    assert "PLANT-orphan: never checked; no task is for it" in stands
    assert "task T111 is failed: PLANT-failed-task" in stands


def test_an_unknown_cost_is_said_and_never_shown_as_nothing(big: World) -> None:
    told = big.brief()
    (spend,) = [line for line in told.lines if line.kind == "spend"]
    assert "1 of" in spend.text
    assert "without a price" in spend.text
    world = World(*contract_of(1))
    world.asks(world.child("worker", "T000"), cost_pico=None)
    alone = world.brief()
    assert alone.numbers["worker_pico"] is None
    assert "worker unknown cost, 1 of 1 request without a price" in markdown(alone)
    assert "$0" not in markdown(alone)


# --- the bound ---------------------------------------------------------------------------------------


def test_a_huge_mission_fits_into_40_lines_and_the_most_important_stays(big: World) -> None:
    text = markdown(big.brief())
    assert 20 < text.count("\n") <= LINES_MAX
    assert re.search(r"submissions sent back: 73\*\*: T219 \(checks\)", text), "the latest stand first"
    for count in ("ratchet violations", "calls with an unknown outcome", "verdicts refused: 2"):
        assert count in text


def test_40_lines_hold_whatever_happened() -> None:
    contract, tasks = contract_of(120)
    world = World(contract, tasks)
    wordy = " ".join(f"w{n}" for n in range(60))
    for number, task in enumerate(tasks):
        child = world.works(task)
        world.top.tell(
            RatchetViolated(task_id=task.id, tree="t", violations=(Violation("r", wordy),)),
            FindingNoted(task_id=task.id, child_id=child.session_id, text=wordy),
            ApprovalRequested(item_id=f"itm_{number}", kind="question", title=wordy, action="x"),
        )
        child.tell(ToolOutcomeUnknown(call_id="a", reason=wordy, content=wordy))
    told = world.brief()
    text = markdown(told)
    assert text.count("\n") <= LINES_MAX
    assert len(re.findall(r"`holdfast answer itm_\d+ ANSWER`", text)) >= 6
    assert re.search(r"and \d+ more decisions: `holdfast inbox`", text)
    assert "0 of 481 criteria are met" in text
    assert audit(told, world.top.events, world.logs) == []


def test_as_data_nothing_is_left_out(big: World) -> None:
    told = big.brief()
    again = msgspec.json.decode(msgspec.json.encode(told), type=Brief)
    assert again == told
    (findings,) = [line for line in told.lines if line.kind == "finding"]
    assert len(findings.examples) == findings.count == 219


def test_what_agents_wrote_cannot_pass_for_a_link_a_command_or_a_control_code() -> None:
    world = World(*contract_of(1))
    world.top.tell(FindingNoted(task_id="T000", child_id="c", text="a`holdfast stop`\n## Done\n[e1] \x1b[2J<b>"))
    text = markdown(world.brief())
    assert ["holdfast", "stop"] not in commands(text)
    assert "\n## Done" not in text
    assert "\x1b" not in text
    assert "<b>" not in text


# --- no claim without an event -----------------------------------------------------------------------


def all_evidence(told: Brief) -> Iterator[tuple[Line, Evidence]]:
    for line in told.lines:
        for each in (*line.evidence, *(one for example in line.examples for one in example.evidence)):
            yield line, each


def test_every_line_stands_on_events_that_are_there_and_are_about_it(big: World) -> None:
    told = big.brief()
    events = {(event.session_id, event.seq): event for log in (big.top.events, *big.logs) for event in log}
    assert sum(1 for _ in all_evidence(told)) > 1_000
    for line, each in all_evidence(told):
        assert events[each.session_id, each.seq].type == each.type, line
    for line in told.lines:
        assert line.evidence or (line.examples and all(example.evidence for example in line.examples)), line


def test_a_criterion_is_proven_by_a_verdict_on_the_main_line_or_its_merge(big: World) -> None:
    told = big.brief()
    (passed,) = [line for line in told.lines if line.kind == "proven"]
    merged = {event.fact.tree for event in big.top.events if isinstance(event.fact, RepoMerged)}
    for example in passed.examples:
        name = example.text.split(" (")[0]
        fact = big.top.events[example.evidence[0].seq - 1].fact
        assert isinstance(fact, CriterionChecked)
        assert name in fact.criteria
        assert fact.outcome == "pass"
        assert fact.tree in merged


def test_it_agrees_with_the_log(big: World) -> None:
    told = big.brief()
    assert audit(told, big.top.events, big.logs) == []
    half = big.top.events[len(big.top.events) // 2].at_us
    later = big.brief(since_us=half)
    assert audit(later, big.top.events, big.logs) == []
    assert 0 < (later.numbers["merged"] or 0) < (told.numbers["merged"] or 0)
    assert 0 < (later.numbers["worker_pico"] or 0) < (told.numbers["worker_pico"] or 0)
    assert later.numbers["met"] == told.numbers["met"]


def _forged(told: Brief) -> Iterator[tuple[str, Brief]]:
    """The same brief with one lie in each."""
    for name in told.numbers:
        yield name, msgspec.structs.replace(told, numbers={**told.numbers, name: 987_654})
    for place, section in enumerate(told.sections):
        for at, line in enumerate(section.lines):

            def with_line(other: Line, place: int = place, at: int = at) -> Brief:
                lines = list(told.sections[place].lines)
                lines[at] = other
                sections = list(told.sections)
                sections[place] = msgspec.structs.replace(sections[place], lines=tuple(lines))
                return msgspec.structs.replace(told, sections=tuple(sections))

            replace = msgspec.structs.replace
            bare = tuple(replace(each, evidence=()) for each in line.examples)
            yield f"{line.kind} without", with_line(replace(line, evidence=(), examples=bare))
            wrong = (Evidence("ses_top", 1, "session.created"),)
            nowhere = (Evidence("ses_top", 10**9, "mission.planned"),)
            yield f"{line.kind} nowhere", with_line(replace(line, evidence=nowhere))
            if line.evidence:
                named = tuple(replace(each, type="user.message") for each in line.evidence)
                yield f"{line.kind} of another type", with_line(replace(line, evidence=named))
            if line.kind not in ("stands", "unmet", "stopped"):
                moved = tuple(replace(each, evidence=wrong) for each in line.examples)
                yield f"{line.kind} elsewhere", with_line(replace(line, evidence=wrong, examples=moved))
            if line.examples and line.kind not in ("spend", "calls"):
                yield f"{line.kind} short", with_line(replace(line, examples=line.examples[:-1]))
            commits = tuple(replace(each, commits=(sha("lie"),)) for each in line.examples[:1])
            if commits:
                yield f"{line.kind} commit", with_line(replace(line, examples=(*commits, *line.examples[1:])))


def test_a_brief_that_lies_does_not_agree() -> None:
    world = big_mission(events=1, tasks_in_all=8)
    told = world.brief()
    assert audit(told, world.top.events, world.logs) == []
    lies = list(_forged(told))
    assert len(lies) > 100
    for name, forged in lies:
        assert audit(forged, world.top.events, world.logs), name


def test_a_claim_that_something_passes_is_held_against_the_main_line() -> None:
    contract, tasks = contract_of(2)
    world = World(contract, tasks)
    world.works(tasks[0])
    world.merges(tasks[0], 1)
    world.checks(sha("elsewhere"), tasks[1].criteria)
    told = world.brief()
    assert audit(told, world.top.events, world.logs) == []
    assert told.numbers["met"] == 4
    (passed,) = [line for line in told.lines if line.kind == "proven"]
    more = msgspec.structs.replace(passed.examples[0], criteria=("c001.0",))
    forged = msgspec.structs.replace(
        told,
        sections=tuple(
            msgspec.structs.replace(
                each,
                lines=tuple(
                    msgspec.structs.replace(line, examples=(more, *line.examples[1:])) if line is passed else line
                    for line in each.lines
                ),
            )
            for each in told.sections
        ),
    )
    assert any("disagree about c001.0" in each for each in audit(forged, world.top.events, world.logs))


# --- how it stands -----------------------------------------------------------------------------------


def done(world: World) -> World:
    """The mission is over."""
    met = tuple(of_mission(world.state()).passed)
    world.top.tell(
        MissionFinished(status="done", head=world.main, met=met), ShiftEnded(status="done", detail="all met")
    )
    return world


def test_a_mission_that_is_done_says_so_first() -> None:
    contract = Contract("g", (Item("a", "a", criteria=(Criterion("look", "it looks well"),), paths=("a.py",)),))
    task = Task("T", "t", ("look",), ("a.py",))
    world = World(contract, (task,), MissionPolicy(judge="per_task"))
    child = world.works(task)
    world.top.tell(
        JudgeOpened(child_id="j", tree=sha("t-T"), criteria=("look",), attempt=1, task_id="T"),
        TaskJudged(
            child_id="j", tree=sha("t-T"), decision="pass", task_id="T", criteria=(Judged("look", True, ("a.py:1",)),)
        ),
    )
    world.top.tell(
        RepoMerged(batch=1, ref=MAIN, commit=sha("c"), tree=sha("m"), onto=world.main, tasks=("T",), passed=())
    )
    told = done(world).brief()
    text = markdown(told)
    assert re.match(r"# big: done after \d+ s, needs nothing. Cost \$0.0030. Main branch: 1 merge.\n## Status\n", text)
    assert "accepted by a judge: 1**: look [e" in text
    assert audit(told, world.top.events, world.logs) == []
    assert "## Decisions" not in text
    assert "## Problems" not in text
    assert child.session_id in text


def test_an_answer_takes_a_question_away() -> None:
    world = World(*contract_of(1))
    world.top.tell(ApprovalRequested(item_id="itm_1", kind="question", title="which?", action="x"))
    assert world.brief().numbers["waits"] == 1
    world.top.tell(ApprovalDecided(item_id="itm_1", verdict="approve", note="the left one"), actor="user:anna")
    told = world.brief()
    assert told.numbers["waits"] == 0
    assert "the left one" in markdown(told)
    assert audit(told, world.top.events, world.logs) == []


# --- ordinary sessions -------------------------------------------------------------------------------


def session() -> Told:
    """A session that works without a mission."""
    agent = Agent("m", name="agent", tools=())
    return Told("ses_one", SessionCreated(goal="mend it", agent=agent, workspace=Workspace("/w"), key="mend"))


def told_of(log: Sequence[Event]) -> Brief:
    return brief(log, fold(empty("ses_one", KINDS), log))


def test_an_ordinary_session_says_what_it_did() -> None:
    one = session()
    seq = one.tell(ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=1, max_output_tokens=9))
    one.tell(
        *(AgentToolUse(request_seq=seq, call_id=each, name="bash", input={"command": "make"}) for each in "abc"),
        ModelRequestEnd(request_seq=seq, outcome="ok", usage=Usage(1, 1), cost_pico=5_000_000_000),
        ToolResult(call_id="a", outcome="ok", content="fine"),
        ToolResult(call_id="b", outcome="denied", content="no"),
        ToolOutcomeUnknown(call_id="c", reason="the power went", content="?"),
        ShiftEnded(status="parked", reason="budget", detail="the cap is reached"),
    )
    told = told_of(one.events)
    text = markdown(told)
    assert text.startswith("# mend: stopped by its budget after 9 s, needs 1 decision. Cost $0.0050.\n## Decisions\n")
    assert "`holdfast budget mend --set USD`" in text
    assert "calls ended: 2**: 1 ok [e7]; 1 denied [e8]" in text
    assert "calls with an unknown outcome: 1**: bash make: the power went" in text
    assert "$0.0050" in text
    assert audit(told, one.events) == []


def test_a_fork_tells_of_its_own_events_alone() -> None:
    one = session()
    one.tell(ModelRequestEnd(request_seq=1, outcome="ok", cost_pico=7_000_000_000))
    one.tell(
        SessionForked(
            origin="ses_0", origin_seq=2, origin_hash="00", goal="mend it", model="m", workspace=Workspace("/w"),
            accounts=("ses_one",),
        )
    )  # fmt: skip
    one.tell(ModelRequestEnd(request_seq=3, outcome="ok", cost_pico=1_000_000_000))
    told = told_of(one.events)
    assert told.numbers["agent_pico"] == 1_000_000_000
    assert audit(told, one.events) == []


def test_nothing_at_all_is_a_brief_too() -> None:
    one = session()
    told = told_of(one.events)
    assert "interrupted after 0 s" in markdown(told)
    assert "`holdfast wake mend`" in markdown(told)
    assert audit(told, one.events) == []
