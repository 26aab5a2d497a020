"""A mission of ten thousand events, made of facts, with problems planted in it, each with words of its own."""

from __future__ import annotations

from typing import Any

from holdfast.facts.base import Fact, Text, Usage
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsLost
from holdfast.facts.mission import (
    Check,
    Contract,
    ContractAmended,
    ContractSealed,
    Criterion,
    CriterionChecked,
    FlakeNoted,
    Item,
    LessonProposed,
    Mission,
    MissionOpened,
    MissionPlanned,
    MissionPolicy,
    Role,
    RoleKind,
    Task,
    VerificationEnded,
    VerificationStarted,
)
from holdfast.facts.model import AgentMessage, AgentToolUse, ContextReset, Handoff, ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.session import Agent, Parent, SessionCreated, Workspace
from holdfast.facts.shift import BudgetReached, ChildFinished, ChildOpened, ShiftEnded, ShiftStarted
from holdfast.facts.task import (
    BatchRefused,
    FindingNoted,
    Judged,
    JudgeOpened,
    MergeStarted,
    RatchetViolated,
    RepoCommitted,
    RepoConflicted,
    RepoMerged,
    RepoMoved,
    TaskEnded,
    TaskHandedIn,
    TaskInspected,
    TaskJudged,
    TaskRefused,
    TaskStarted,
    Violation,
)
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.facts.union import type_of
from holdfast.kinds import KINDS
from holdfast.kinds.mission.brief.brief import Brief, brief
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.session.fold import empty, fold
from holdfast.session.state import State

MAIN = "refs/heads/holdfast/big/main"


def sha(word: str) -> str:
    """A name of forty digits, another for each word."""
    return word.encode().hex()[:40].ljust(40, "0")


class Told:
    """A session whose events are appended one by one, by one clock for all."""

    now_us = 1_700_000_000_000_000

    def __init__(self, session_id: str, created: SessionCreated) -> None:
        self.session_id = session_id
        self.events: list[Event] = []
        self.tell(created)

    def tell(self, *facts: Fact, actor: str = "brain") -> int:
        """Append. Returns the last position."""
        for fact in facts:
            Told.now_us += 1_000_000
            seq = len(self.events) + 1
            self.events.append(
                Event(self.session_id, seq, 1, Told.now_us, bytes(32), f"evt_{seq}", actor, type_of(fact), fact)
            )
        return len(self.events)


class World:
    """A mission and the sessions below it."""

    def __init__(self, contract: Contract, tasks: tuple[Task, ...], policy: MissionPolicy | None = None) -> None:
        mission = Mission("big", "/repo", sha("base"), contract, policy=policy or MissionPolicy())
        agent = Agent("m", name="mission", tools=())
        self.top = Told(
            "ses_top", SessionCreated(goal=contract.goal, agent=agent, workspace=Workspace("/w"), mission=mission)
        )
        self.below: list[Told] = []
        self.main = sha("base")
        self.passed: tuple[str, ...] = ()
        digest = contract_digest(contract)
        self.top.tell(
            ContractSealed(digest=digest, items=len(contract.items), criteria=len(contract.criteria())),
            ShiftStarted(worker_id="w", host_id="h", boot_id="b", pid=1, program="p"),
            MissionOpened(name="big", ref=MAIN, base=sha("base"), tree=sha("tree")),
            MissionPlanned(tasks=tasks),
        )

    def child(self, kind: RoleKind, task_id: str = "") -> Told:
        """A session of that role."""
        session_id = f"ses_{kind}{len(self.below) + 1:04}"
        role = Role(kind, "ses_top", task_id)
        agent = Agent("m", name=f"{kind} {task_id}".strip(), tools=())
        parent = Parent("ses_top", "", 1, "ses_top")
        goal = f"{kind} {task_id}"
        self.top.tell(ChildOpened(child_id=session_id, call_id="", goal=goal, name=agent.name))
        child = Told(
            session_id,
            SessionCreated(goal=goal, agent=agent, workspace=Workspace("/w"), parent=parent, role=role),
        )
        self.below.append(child)
        return child

    def asks(self, child: Told, cost_pico: int | None = 1_000_000_000) -> None:
        """One request to a model, answered."""
        seq = child.tell(ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=1, max_output_tokens=9))
        child.tell(
            AgentMessage(request_seq=seq, content=(Text("working"),)),
            ModelRequestEnd(request_seq=seq, outcome="ok", usage=Usage(10, 10), cost_pico=cost_pico),
        )

    def checks(self, tree: str, names: tuple[str, ...], outcome: str = "pass", effect: str = "task") -> int:
        """A verification with its verdicts."""
        self.top.tell(VerificationStarted(verification_id=f"ver_{tree}", effect=effect, tree=tree, criteria=names))
        for name in names:
            fields: dict[str, Any] = {"outcome": outcome}
            self.top.tell(
                CriterionChecked(verification_id=f"ver_{tree}", tree=tree, criteria=(name,), runs=1, **fields)
            )
        return self.top.tell(VerificationEnded(verification_id=f"ver_{tree}", effect=effect, tree=tree))

    def works(self, task: Task, *, files: tuple[str, ...] = ()) -> Told:
        """A worker that does its task and hands in, and what the harness finds in it."""
        child = self.child("worker", task.id)
        self.top.tell(
            TaskStarted(
                task_id=task.id, child_id=child.session_id, attempt=1, base=self.main, ref=f"{MAIN[:-4]}{task.id}"
            )
        )
        for _ in range(3):
            self.asks(child)
        self.hands_in(task, child, files=files)
        return child

    def hands_in(self, task: Task, child: Told, *, files: tuple[str, ...] = (), unasked: tuple[str, ...] = ()) -> None:
        """Work is handed in and inspected."""
        tree = sha(f"t-{task.id}")
        self.top.tell(
            ChildFinished(child_id=child.session_id, status="done", commit=sha(task.id), tree=tree),
            TaskHandedIn(task_id=task.id, child_id=child.session_id, status="done", commit=sha(task.id), tree=tree),
            TaskInspected(task_id=task.id, tree=tree, files=files or task.scope, lines=3, unasked=unasked),
        )

    def merges(self, task: Task, batch: int) -> None:
        """Its tree passes, is merged, and passes there."""
        tree, commit = sha(f"m-{task.id}"), sha(f"c-{task.id}")
        self.checks(sha(f"t-{task.id}"), task.criteria)
        self.top.tell(
            MergeStarted(batch=batch, ref=MAIN, onto=self.main, tasks=(task.id,), commit=commit, tree=tree),
        )
        self.checks(tree, task.criteria, effect=f"merged:{batch}")
        self.passed += task.criteria
        self.top.tell(
            RepoMerged(
                batch=batch, ref=MAIN, commit=commit, tree=tree, onto=self.main, tasks=(task.id,), passed=self.passed
            )
        )
        self.main = commit

    @property
    def logs(self) -> list[list[Event]]:
        """The logs of all below."""
        return [child.events for child in self.below]

    def state(self) -> State:
        """The mission's state, folded."""
        return fold(empty("ses_top", KINDS), self.top.events)

    def brief(self, since_us: int | None = None) -> Brief:
        """The brief of it."""
        return brief(self.top.events, self.state(), self.logs, since_us=since_us)


def contract_of(tasks: int) -> tuple[Contract, tuple[Task, ...]]:
    """An item of four criteria for each task, and one item that no task is for."""
    items = [
        Item(
            f"item{n:03}",
            f"part {n}",
            criteria=tuple(Criterion(f"c{n:03}.{k}", f"{n}.{k} holds", Check("true")) for k in range(4)),
            paths=(f"src/p{n:03}.py",),
        )
        for n in range(tasks)
    ]
    items.append(Item("nobody", "left out", criteria=(Criterion("PLANT-orphan", "nobody does it", Check("true")),),
                      paths=("src/nobody.py",)))  # fmt: skip
    graph = tuple(
        Task(f"T{n:03}", f"part {n}", tuple(f"c{n:03}.{k}" for k in range(4)), (f"src/p{n:03}.py",))
        for n in range(tasks)
    )
    return Contract(goal="make all parts hold", items=tuple(items)), graph


def noise(world: World, task: Task, child: Told, number: int) -> None:
    """What goes wrong every day: it is no news, and hides what is."""
    if number % 3 == 0:
        world.top.tell(
            TaskRefused(
                task_id=task.id, child_id=child.session_id, kind="checks", issues=(f"{task.criteria[0]} is red",)
            )
        )
        world.hands_in(task, child)
    if number % 4 == 0:
        world.top.tell(FlakeNoted(criterion=task.criteria[0], tree=sha(f"t-{task.id}"), runs=4, failures=1))
    if number % 5 == 0:
        world.top.tell(RepoConflicted(task_id=task.id, onto=world.main, commit=sha(task.id), paths=("src/shared.py",)))
        child.tell(
            ModelRequestEnd(request_seq=1, outcome="error", error_kind="overloaded", cost_pico=0, message="busy")
        )
    world.top.tell(FindingNoted(task_id=task.id, child_id=child.session_id, text=f"finding {number}"))


PLANTED = (
    "orphan", "failed-task", "waits-top", "waits-child", "ratchet", "unknown", "unasked", "flake", "conflict", "batch",
    "unverified", "base", "astray", "verdict", "verdict-log", "judge", "retry", "reset", "weakened", "outside",
    "lesson", "lost", "child-failed", "cap", "unpriced",
)  # fmt: skip
"""The problems, by the word that stands in each, `PLANT-` before it; `unpriced` is said in words of its own."""


def _in_a_session(world: World, task: Task, child: Told) -> None:
    """Problems that are in the log of a session below alone."""
    call = AgentToolUse(request_seq=1, call_id="x1", name="bash", input={"command": "curl PLANT-unknown"})
    child.tell(
        call,
        ToolDispatched(call_id="x1", attempt=1, hands_id="h", action_digest="d", on_unknown="tell", timeout_s=1.0),
        ToolOutcomeUnknown(call_id="x1", reason="the hands are gone", content="nobody knows"),
        HandsLost(hands_id="h", reason="PLANT-lost"),
        ShiftStarted(worker_id="w1", host_id="h", boot_id="b", pid=7, program="p"),
        ShiftStarted(worker_id="w2", host_id="h", boot_id="b", pid=70_707, program="p"),
        ModelRequestEnd(request_seq=1, outcome="error", error_kind="bad_stream", cost_pico=0, message="PLANT-retry"),
        ContextReset(cause="loop", through_seq=1, handoff=Handoff(), detail="PLANT-reset"),
        RepoCommitted(ref=f"{MAIN[:-4]}PLANT-wip", commit=sha("w"), tree=sha("wt"), task_id=task.id, wip=True),
        ApprovalRequested(item_id="itm_child", kind="tool", title="PLANT-waits-child", action="rm"),
        ShiftEnded(status="parked", reason="person"),
    )  # fmt: skip
    judge = world.child("judge", task.id)
    judge.tell(
        AgentToolUse(request_seq=1, call_id="v1", name="submit_verdict", input={}),
        ToolResult(call_id="v1", outcome="error", content="Not handed in: PLANT-verdict-log"),
    )
    world.asks(judge, cost_pico=None)


def _in_the_mission(world: World, task: Task, child: Told, contract: Contract) -> None:
    """Problems that the mission's own log has."""
    top, tree = world.top, sha(f"t-{task.id}")
    top.tell(
        RatchetViolated(task_id=task.id, tree=tree, violations=(Violation("test_deleted", "tests/PLANT-ratchet.py"),)),
        TaskRefused(task_id=task.id, child_id=child.session_id, kind="ratchet", issues=("leave the tests",), tree=tree),
    )
    world.hands_in(task, child, unasked=("PLANT-unasked",))
    top.tell(
        FlakeNoted(criterion="PLANT-flake", tree=tree, runs=4, failures=2),
        BatchRefused(batch=900, onto=world.main, tree=sha("red"), tasks=(task.id,), failed=("PLANT-batch",)),
        VerificationEnded(verification_id="ver_x", effect="merged:901", tree=tree, error="PLANT-unverified"),
        RepoConflicted(task_id="", onto=world.main, commit=sha("people"), paths=("PLANT-base",)),
        RepoMoved(ref="refs/heads/PLANT-astray", expected=world.main, found=sha("people")),
        JudgeOpened(child_id="ses_judge0", tree=tree, criteria=task.criteria, attempt=1, task_id=task.id),
        TaskJudged(child_id="ses_judge0", tree=tree, decision="pass", task_id=task.id, refused="PLANT-verdict"),
        TaskJudged(
            child_id="ses_judge0", tree=tree, decision="fail", task_id=task.id,
            criteria=(Judged(task.criteria[0], False, ("a:1",), "PLANT-judge"),),
        ),
        LessonProposed(line="PLANT-lesson", evidence=(5,), key="k"),
        RepoConflicted(task_id=task.id, onto=world.main, commit=sha(task.id), paths=("PLANT-conflict",)),
        BudgetReached(account_id="PLANT-cap", period="total", cap_pico=1, left_pico=0, wanted_pico=1),
        ChildFinished(child_id=child.session_id, status="failed", detail="PLANT-child-failed"),
        TaskEnded(task_id=task.id, status="failed", why="PLANT-failed-task", best=sha("best")),
        ContractAmended(
            contract=contract, digest=contract_digest(contract), author="anna", reason="for now",
            weakened=("PLANT-weakened",),
        ),
        ApprovalRequested(item_id="itm_top", kind="escalation", title="PLANT-waits-top", action="go on?"),
    )  # fmt: skip


def big_mission(events: int = 10_000, tasks_in_all: int = 220) -> World:
    """So many events in all, at least, and every planted problem once among what happens every day."""
    contract, tasks = contract_of(tasks_in_all)
    world = World(contract, tasks)
    odd = tasks[tasks_in_all // 2 + 1]
    for number, task in enumerate(tasks):
        if task is odd:
            worker = world.works(odd)
            _in_a_session(world, odd, worker)
            _in_the_mission(world, odd, worker, contract)
            continue
        outside = ("src/PLANT-outside.py",) if number == tasks_in_all // 4 + 3 else ()
        child = world.works(task, files=(*task.scope, *outside))
        noise(world, task, child, number)
        if not outside:
            world.hands_in(task, child)
        world.merges(task, number + 1)
        world.asks(world.child("judge", task.id))
    world.top.tell(ShiftEnded(status="parked", reason="person", detail="a person is asked"))
    fill = 0
    while sum(len(log) for log in (world.top.events, *world.logs)) < events:
        world.asks(world.below[fill % 100])
        fill += 1
    return world
