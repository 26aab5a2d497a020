"""A world for the conductor alone: what its actions lead to is drawn from a seed, and what is true is known.

A tree is named by what it satisfies. Workers, judges, merges, checks, and people do all that can go wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import (
    Check,
    Contract,
    ContractSealed,
    Criterion,
    CriterionChecked,
    Item,
    Mission,
    MissionEscalated,
    MissionOpened,
    MissionPolicy,
    PlannerOpened,
    VerificationEnded,
    VerificationStarted,
)
from holdfast.facts.people import ApprovalDecided, ApprovalRequested
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ChildFinished, ChildMessaged, ChildOpened, ShiftEnded, ShiftStarted
from holdfast.facts.task import (
    CheckProbed,
    CheckProved,
    JudgeOpened,
    MergeStarted,
    RatchetViolated,
    RepoConflicted,
    RepoMerged,
    RepoMoved,
    TaskInspected,
    TaskStarted,
    Violation,
)
from holdfast.facts.union import type_of
from holdfast.kinds import KINDS
from holdfast.kinds.mission.check import proofs
from holdfast.kinds.mission.conductor.actions import (
    Advance,
    Assemble,
    AwaitEffects,
    EscalateMission,
    Inspect,
    Look,
    Open,
    OpenRole,
    Project,
    RaiseChildren,
    TellRole,
    Verify,
)
from holdfast.kinds.mission.conductor.decide import decide
from holdfast.kinds.mission.fold.state import BASE, LAST, of_mission
from holdfast.session.actions import CancelChildren, End, Record
from holdfast.session.fold import empty, fold

Tree = frozenset[str]


class World:
    """One mission. `faults` is how often anything goes wrong; `truth` maps names of trees to what they satisfy."""

    def __init__(self, seed: int, *, faults: float = 0.25, policy: MissionPolicy | None = None, items: int = 5) -> None:
        self.draw = random.Random(seed)
        self.faults = faults
        self.state = empty("ses_1", KINDS)
        self.truth: dict[str, Tree] = {"t0": frozenset(f"i{number}.g" for number in range(0, items, 3))}
        self.parents: dict[str, str] = {}
        self.commits = 0
        self.children: dict[str, OpenRole] = {}
        self.at_work: list[str] = []
        self.main_line: list[str] = ["t0"]
        self.withdrawn: set[str] = set()
        self.asked = 0
        contract = Contract("everything works", tuple(self._item(number) for number in range(items)), ("tests/**",))
        mission = Mission("m", "/repo", "c0", contract, "refs/heads/main", policy or self._policy())
        self.tell(
            SessionCreated(goal="g", agent=Agent("m", tools=()), workspace=Workspace("/w"), mission=mission),
            ShiftStarted(worker_id="w", host_id="h", boot_id="b", pid=1, program="p"),
        )

    def _item(self, number: int) -> Item:
        criteria = [Criterion(f"i{number}.c", "works", Check(f"check {number}"))]
        if number % 2:
            criteria.append(Criterion(f"i{number}.r", "reads well"))
        if number % 3 == 0:
            criteria.append(Criterion(f"i{number}.g", "still works", Check(f"guard {number}"), guard=True))
        depends = (f"i{number - 1}",) if number and self.draw.random() < 0.3 else ()
        return Item(f"i{number}", "an item", criteria=tuple(criteria), depends=depends)

    def _policy(self) -> MissionPolicy:
        return MissionPolicy(
            planner=self.draw.choice(["model", "items"]),
            judge=self.draw.choice(["per_task", "at_end"]),
            gate=self.draw.choice(["each", "batch"]),
            workers=self.draw.randint(1, 4),
            max_iterations=self.draw.randint(1, 3),
            max_attempts=self.draw.randint(1, 3),
            max_replans=self.draw.randint(0, 2),
        )

    def tell(self, *facts: Fact) -> None:
        """Append and fold."""
        for fact in facts:
            seq = self.state.seq + 1
            event = Event("ses_1", seq, 1, seq * 1_000_000, bytes(32), f"evt_{seq}", "brain", type_of(fact), fact)
            self.state = fold(self.state, [event])

    mission: Any = property(lambda self: of_mission(self.state))

    def wrong(self) -> bool:
        """Whether something goes wrong now."""
        return self.draw.random() < self.faults

    def run(self, most: int = 4_000) -> str:
        """Go on until the mission is over or waits for a person for good. Returns how it stands."""
        ran: frozenset[str] = frozenset()
        for _ in range(most):
            action = decide(self.state, self.state.at_us, frozenset(), ran)
            assert not isinstance(action, AwaitEffects), "nothing runs, and it waits for effects"
            if isinstance(action, End):
                self.tell(action.fact)
                if action.fact.status != "parked":
                    return str(action.fact.status)
                if not self._something_happens(action.fact):
                    return f"parked {action.fact.reason}"
                self.tell(ShiftStarted(worker_id="w", host_id="h", boot_id="b", pid=1, program="p"))
                ran = frozenset()
                continue
            if isinstance(action, Look | Project):
                ran |= {action.effect}
            self._do(action)
            self.check()
        raise AssertionError("it never comes to an end")

    def check(self) -> None:
        """What has to hold at every moment."""
        mission = self.mission
        if not mission.opened_seq:
            return
        known = mission.contract.criteria()
        here = self.truth[mission.main_tree]
        lies = [name for name in mission.passed if known[name].check is not None and name not in here]
        assert not lies, f"{lies} count as passed on {mission.main_tree}, and do not pass there"

    def _do(self, action: Any) -> None:
        match action:
            case Record(facts=facts):
                self.tell(*facts)
            case Open():
                contract = self.mission.contract
                sealed = ContractSealed(digest="d", items=len(contract.items), criteria=len(contract.criteria()))
                self.tell(sealed, MissionOpened(name="m", ref="refs/heads/holdfast/m/main", base="c0", tree="t0"))
            case OpenRole():
                self._open(action)
            case TellRole(child_id=child_id, text=text, facts=facts):
                self.tell(*facts, ChildMessaged(child_id=child_id, call_id="", text=text))
                self.at_work.append(child_id)
            case CancelChildren(child_ids=child_ids):
                for child_id in child_ids:
                    self._finish(child_id, "cancelled")
            case RaiseChildren(child_ids=child_ids):
                for child_id in child_ids:
                    self.tell(ChildMessaged(child_id=child_id, call_id="", text="go on"))
                    self.at_work.append(child_id)
            case _:
                self._do_effect(action)

    def _do_effect(self, action: Any) -> None:
        match action:
            case Inspect(task_id=task_id):
                self._inspect(task_id)
            case Verify():
                self._verify(action)
            case Assemble():
                self._assemble(action)
            case Advance(passed=passed):
                self._advance(passed)
            case Look() | Project():
                pass
            case EscalateMission(why=why, tried=tried):
                self.asked += 1
                item = f"itm_{self.asked}"
                request = ApprovalRequested(item_id=item, kind="escalation", title="t", action="a", action_digest="d")
                self.tell(request, MissionEscalated(why=why, tried=tried, item_id=item))
            case _:
                raise AssertionError(f"nobody does {action}")

    def _open(self, action: OpenRole) -> None:
        child_id = f"{action.kind}-{action.task_id}-{action.attempt}-{action.round}-{action.tree}"
        child_id += f"-{self.asked}" if action.kind == "judge" and not action.task_id else ""
        assert child_id not in self.children, f"{child_id} was opened before"
        self.children[child_id] = action
        opened = ChildOpened(child_id=child_id, call_id="", goal="g", name=action.kind)
        fact: Fact
        if action.kind == "worker":
            fact = TaskStarted(
                task_id=action.task_id, child_id=child_id, attempt=action.attempt, base=action.base, ref=action.ref
            )
        elif action.kind == "judge":
            fact = JudgeOpened(
                child_id=child_id,
                tree=action.tree,
                criteria=action.criteria,
                task_id=action.task_id,
                attempt=action.attempt,
            )
        else:
            fact = PlannerOpened(child_id=child_id, round=action.round, attempt=action.attempt, task_id=action.task_id)
        self.tell(*action.facts, opened, fact)
        self.at_work.append(child_id)

    def _something_happens(self, ended: ShiftEnded) -> bool:
        """While the mission rests, a child comes to its end, or a person answers. False when nothing ever will."""
        if self.at_work:
            child_id = self.at_work.pop(self.draw.randrange(len(self.at_work)))
            self._reports(child_id)
            return True
        open_items = [ask for ask in self.state.asks.values() if ask.verdict is None]
        if ended.reason == "person" and open_items and self.asked < 4:
            verdict = self.draw.choice(["approve", "deny"])
            self.tell(ApprovalDecided(item_id=open_items[0].item_id, verdict=verdict))  # type: ignore[arg-type]
            return True
        return False

    def _finish(self, child_id: str, status: str, **more: Any) -> None:
        if child_id in self.at_work:
            self.at_work.remove(child_id)
        self.tell(ChildFinished(child_id=child_id, status=status, **more))  # type: ignore[arg-type]

    def _reports(self, child_id: str) -> None:
        action = self.children[child_id]
        if self.draw.random() < self.faults / 3:
            reason = self.draw.choice([("failed", None), ("parked", "cap"), ("done", None)])
            self._finish(child_id, reason[0], reason=reason[1])
            return
        match action.kind:
            case "planner":
                self._finish(child_id, "done", submitted=self._plan(action))
            case "worker":
                self._hands_in(child_id, action)
            case _:
                self._judges(child_id, action)

    def _plan(self, action: OpenRole) -> dict[str, Any]:
        mission = self.mission
        held = {name for task in mission.live() for name in task.task.criteria if task.task.id != action.task_id}
        names = action.criteria or [
            name for name in mission.contract.criteria() if name not in mission.passed and name not in held
        ]
        tasks = []
        number = len(mission.tasks)
        for name in names:
            if self.wrong() and self.wrong():
                continue
            tasks.append({"id": f"p{number}", "title": "t", "criteria": [name], "scope": [], "depends": []})
            number += 1
        return {"tasks": tasks, "note": ""}

    def _hands_in(self, child_id: str, action: OpenRole) -> None:
        if self.draw.random() < self.faults / 5:
            status = self.draw.choice(["blocked", "infeasible"])
            self._finish(child_id, "done", submitted={"status": status, "notes": "no"})
            return
        wanted = set(self.mission.tasks[action.task_id].task.criteria)
        satisfied = set(self.truth[self._tree_of(action.commit)]) | wanted
        if self.wrong():
            satisfied -= {self.draw.choice(sorted(wanted))}
        if self.wrong():
            satisfied -= set(self.draw.sample(sorted(satisfied), k=min(1, len(satisfied))))
        commit, tree = self._commit(satisfied)
        self._finish(child_id, "done", submitted={"status": "done", "findings": ["one"]}, commit=commit, tree=tree)

    def _judges(self, child_id: str, action: OpenRole) -> None:
        said: list[dict[str, Any]] = []
        for name in action.criteria:
            good = name in self.truth[action.tree]
            passes = good if not self.wrong() else not good
            said.append(
                {"criterion": name, "passes": passes, "evidence": ["a.py:1"], "issue": "" if passes else "it does not"}
            )
        decision = "pass" if all(each["passes"] for each in said) else "fail"
        if self.wrong() and self.wrong():
            decision = self.draw.choice(["restart", "escalate", "pass", "nonsense"])
        self._finish(child_id, "done", submitted={"decision": decision, "criteria": said, "reason": "so"})

    def _tree_of(self, commit: str) -> str:
        return "t" + commit[1:]

    def _commit(self, satisfied: Iterable[str]) -> tuple[str, str]:
        self.commits += 1
        self.truth[f"t{self.commits}"] = frozenset(satisfied)
        return f"c{self.commits}", f"t{self.commits}"

    def _inspect(self, task_id: str) -> None:
        task = self.mission.tasks[task_id]
        found = (Violation("test_deleted", "tests/a.py"),) if self.wrong() and self.wrong() else ()
        facts: list[Fact] = [TaskInspected(task_id=task_id, tree=task.tree, files=("src/a.py",), violations=found)]
        if found:
            facts.append(RatchetViolated(task_id=task_id, tree=task.tree, violations=found))
        self.tell(*facts)

    def _verify(self, action: Verify) -> None:
        number, criteria = f"ver_{self.state.seq}", action.criteria
        self.tell(
            VerificationStarted(verification_id=number, effect=action.effect, tree=action.tree, criteria=criteria)
        )
        broken = self.draw.random() < self.faults / 5
        if action.effect == BASE and not broken:
            new = proofs.unmeasured(self.mission)
            self.tell(*(CheckProbed(name, "t0", "d", "yes", "no", "no", "base") for name in new))
        for name in criteria if not broken else criteria[:1]:
            last = action.effect.startswith(LAST)
            assert last or self.mission.verdict(action.tree, name) is None, "a recorded verdict is never made again"
            outcome = "pass" if name in self.truth[action.tree] else self.draw.choice(["fail", "error", "timeout"])
            if last:
                fooled = self.wrong() and self.wrong()
                outcome = "fail" if fooled else outcome
                self.withdrawn |= {name} if fooled else set()
                self.tell(CheckProved(name, action.tree, shown=("canary",), lost=("canary",) if fooled else ()))
            self.tell(CriterionChecked(number, action.tree, (name,), outcome, 1))  # type: ignore[arg-type]
        error = "no hands" if broken else ""
        self.tell(VerificationEnded(verification_id=number, effect=action.effect, tree=action.tree, error=error))

    def _assemble(self, action: Assemble) -> None:
        taken: list[str] = []
        satisfied = set(self.truth[self._tree_of(action.onto)])
        for name in action.tasks:
            task = self.mission.tasks[name]
            if self.draw.random() < self.faults / 2:
                self.tell(RepoConflicted(task_id=name, onto=action.onto, commit=task.commit, paths=("a.py",)))
                continue
            theirs, base = self.truth[task.tree], self.truth[self._tree_of(task.base)]
            satisfied = (satisfied | theirs) - (base - theirs)
            taken.append(name)
        if action.base or taken:
            if len(taken) > 1 and self.draw.random() < self.faults / 3:
                satisfied.discard(self.draw.choice(sorted(satisfied)))
            commit, tree = self._commit(satisfied)
            self.tell(
                MergeStarted(
                    batch=action.batch,
                    ref="r",
                    onto=action.onto,
                    tasks=tuple(taken),
                    commit=commit,
                    tree=tree,
                    base=action.base,
                )
            )

    def _advance(self, passed: tuple[str, ...]) -> None:
        merge = self.mission.merge
        known, here = self.mission.contract.criteria(), self.truth[merge.tree]
        lost = [name for name in self.mission.passed if known[name].check is not None and name not in here]
        assert not lost, f"{lost} passed on the main line and would not any more (S26)"
        self.tell(
            RepoMerged(
                batch=merge.batch,
                ref=merge.ref,
                commit=merge.commit,
                tree=merge.tree,
                onto=merge.onto,
                tasks=merge.tasks,
                passed=passed,
                base=merge.base,
                touched=self._touched(merge),
            )
        )
        self.main_line.append(merge.tree)
        if self.draw.random() < self.faults / 4:
            self._commit_to_followed(set(self.truth[merge.tree]))

    def _touched(self, merge: Any) -> dict[str, tuple[str, ...]]:
        """Rubric lines that were accepted and do not hold in the merge, and now and then one that still does."""
        names = set(self.mission.passed).union(*(self.mission.tasks[task].task.criteria for task in merge.tasks))
        accepted = [name for name in self.mission.rubric if name.endswith(".r") and name in names]
        alike = self.faults / 8  # what a judge looked at may change, and be as good as before
        lost = [each for each in accepted if each not in self.truth[merge.tree] or self.draw.random() < alike]
        return {name: ("src/a.py",) for name in lost}

    def _commit_to_followed(self, satisfied: set[str]) -> None:
        """A person commits to the followed branch, for better or worse."""
        if self.wrong() and satisfied:
            satisfied.discard(self.draw.choice(sorted(satisfied)))
        commit, _ = self._commit(satisfied)
        self.tell(RepoMoved(ref="refs/heads/main", expected="x", found=commit, followed=True))
