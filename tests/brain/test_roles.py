"""Roles of a mission: opened with what they need, finished by handing in alone, committed whenever they rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HeadMoved, RepositoryUnfit
from holdfast.facts.mission import MissionPolicy, WorkSubmitted
from holdfast.facts.session import Limits, SessionCreated, SessionError, SessionUpdated
from holdfast.facts.shift import BudgetReached, ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.task import RepoCommitted, TaskRefused, TaskStarted
from holdfast.facts.tool import HookRan, ToolResult
from holdfast.hands.base import Hands, HandsSpec
from holdfast.kinds.mission.acts.open_roles import open_role, raise_children, tell_role
from holdfast.kinds.mission.conductor.actions import OpenRole, RaiseChildren, TellRole
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.log.verify import verify
from holdfast.repo.base import Owner
from holdfast.repo.repository import Commit, Kept
from holdfast.session.money import pico_from_usd
from tests.brain.mission_stage import FILES, MissionStage
from tests.brain.stage import turn

pytestmark = pytest.mark.anyio

REF = "refs/heads/holdfast/demo/core"
DONE = b"def add(a, b):\n    return a + b\n"
WRITE = ("write", {"file_path": "src/app/core.py", "content": DONE.decode()})
READ = ("read", {"file_path": "src/app/core.py"})
HAND_IN = ("hand_in", {"status": "done", "notes": "add returns the sum", "findings": ["text.py needs it too"]})
WORK = [turn("", READ), turn("", WRITE), turn("", HAND_IN)]


def worker(stage: MissionStage, **more: Any) -> OpenRole:
    """The action that opens the first worker of the task `core`."""
    base = stage.base.commit
    given = {"attempt": 1, "commit": base, "base": base, "ref": REF, "criteria": ("add",), **more}
    return OpenRole("worker", task_id="core", **given)


async def opened(scripts: dict[str, list[dict[str, Any]]], action: OpenRole | None = None, **more: Any) -> MissionStage:
    """A mission that has opened a role, its lease given back."""
    stage = MissionStage(scripts, **more)
    shift = await stage.open()
    await open_role(shift, action or worker(stage))
    await stage.store.release(shift.lease)
    return stage


async def created(stage: MissionStage, name: str) -> SessionCreated:
    """The first event of the role of that name."""
    (fact,) = await stage.facts(SessionCreated, await stage.named(name))
    assert isinstance(fact, SessionCreated)
    return fact


async def results(stage: MissionStage, name: str) -> list[ToolResult]:
    """What the calls of the role of that name returned."""
    return await stage.facts(ToolResult, await stage.named(name))


# --- opening -------------------------------------------------------------------------------------


async def test_a_worker_is_opened_in_one_transaction_with_its_task_and_the_files_of_its_base() -> None:
    stage = await opened({})
    child_id = await stage.named("worker core")
    (started,) = await stage.facts(TaskStarted)
    (told,) = await stage.facts(ChildOpened)
    types = [event.type for event in await stage.events()]
    assert types[-3:] == ["child.opened", "task.started", "shift.ended"]
    assert (started.child_id, told.child_id, started.ref, started.attempt) == (child_id, child_id, REF, 1)
    child = await created(stage, "worker core")
    assert dict(stage.folders[Path(child.workspace.path)]) == FILES
    assert child.role is not None
    assert (child.role.kind, child.role.task_id, child.role.base) == ("worker", "core", stage.base.commit)
    assert child.role.protected == ("tests/**", "feature_list.json")
    assert child.role.scope == ("src/app/core.py",)
    assert child.accounts == (child_id, stage.mission_id)
    assert child.parent is not None
    assert (child.parent.session_id, child.parent.depth) == (stage.mission_id, 1)


async def test_a_worker_has_its_own_criteria_word_for_word_and_the_nearest_rules_last() -> None:
    stage = await opened({})
    child = await created(stage, "worker core")
    assert child.criteria == (
        "[add] add gives the sum (checked by the harness: `pytest -q tests/test_core.py` passes)",
    )
    assert child.rules.startswith("Write short functions.")
    assert child.rules.endswith("No globals here.")
    assert "hand_in" in child.agent.tools
    assert not {"spawn", "submit_plan", "submit_verdict"} & set(child.agent.tools)


async def test_the_policy_gives_a_role_its_model_its_turns_its_context_and_its_money() -> None:
    models, turns = {"worker": "cheap"}, {"worker": 7}
    policy = MissionPolicy(hooks=False, models=models, turns=turns, context="reset", task_budget_pico=5)
    stage = MissionStage(policy=policy)
    shift = await stage.open()
    await open_role(shift, worker(stage))
    child = await created(stage, "worker core")
    assert child.agent.model == "cheap"
    assert (child.limits.max_turns, child.limits.context.strategy, child.limits.budget_pico) == (7, "reset", 5)


async def test_a_folder_that_was_left_half_made_is_cleared_away_before_it_is_used() -> None:
    stage = MissionStage()
    await _interrupted(stage)
    shift = await stage.hold()  # the next brain: it knows of nothing
    await open_role(shift, worker(stage))
    child = await created(stage, "worker core")
    assert dict(stage.folders[Path(child.workspace.path)]) == FILES


async def _interrupted(stage: MissionStage) -> None:
    """A brain that stops after a part of the checkout, and leaves more behind."""
    shift = await stage.open()

    class Stops:
        async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
            stage.folders[folder] = {"src/app/core.py": b"half", "left.txt": b"behind"}
            raise RepositoryUnfit("stopped here")

    whole, stage.repository = stage.repository, Stops()  # type: ignore[assignment]
    with pytest.raises(RepositoryUnfit, match="stopped here"):
        await open_role(shift, worker(stage))
    stage.repository = whole
    assert [row.name for row in await stage.store.sessions()] == ["mission"]


async def test_a_folder_is_filled_once_while_the_mission_decides_again_and_cleared_when_it_decides_otherwise() -> None:
    stage = MissionStage()
    shift = await stage.open()
    checkout, filled = stage.repository.checkout, []

    async def counted(commit: str, folder: Path, *, user: Owner | None = None) -> None:
        filled.append(folder)
        await checkout(commit, folder, user=user)

    stage.repository.checkout = counted  # type: ignore[method-assign]
    head, shift.decided_at = shift.decided_at, 1
    for action in (worker(stage), worker(stage), worker(stage, attempt=2)):
        with pytest.raises(HeadMoved):
            await open_role(shift, action)
    shift.decided_at = head
    await open_role(shift, worker(stage))
    first, second = filled
    child = await created(stage, "worker core")
    assert first == Path(child.workspace.path)
    assert dict(stage.folders[first]) == FILES
    assert not stage.folders.get(second)


# --- handing in ----------------------------------------------------------------------------------


async def test_a_worker_that_hands_in_is_done_at_once_and_its_work_is_on_its_branch() -> None:
    stage = await opened({"worker core": WORK})
    child_id = await stage.named("worker core")
    outcome = await stage.wake("worker core")
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert len(stage.models["worker core"].requests) == len(WORK)
    (made,) = await stage.facts(RepoCommitted, child_id)
    assert (made.ref, made.parent, made.wip, made.task_id) == (REF, stage.base.commit, False, "core")
    assert stage.repository.refs[REF] == made.commit
    assert (await stage.repository.files(made.commit))["src/app/core.py"] == DONE
    (report,) = await stage.facts(ChildFinished)
    assert (report.status, report.commit, report.tree) == ("done", made.commit, made.tree)
    assert report.submitted == HAND_IN[1]
    assert stage.models["worker core"].requests[0].system.startswith("a worker")
    await verify(stage.store, child_id)


async def test_work_that_changed_nothing_is_handed_in_as_its_base() -> None:
    stage = await opened({"worker core": [turn("", HAND_IN)]})
    await stage.wake("worker core")
    (report,) = await stage.facts(ChildFinished)
    assert (report.commit, report.tree) == (stage.base.commit, stage.base.tree)


@pytest.mark.parametrize("said", ["All done.", "<promise>COMPLETE</promise>"])
async def test_words_end_nothing_a_role_is_told_to_hand_in_and_fails_in_the_end(said: str) -> None:
    stage = await opened({"worker core": [turn(said)] * 9})
    child_id = await stage.named("worker core")
    outcome = await stage.wake("worker core")
    assert outcome.ended is not None
    assert outcome.ended.status == "failed"
    assert "3 times in a row without handing in" in outcome.ended.detail
    told = await stage.facts(HookRan, child_id)
    assert [fact.event for fact in told] == ["HandIn", "HandIn"]
    assert len(stage.models["worker core"].requests) == 3
    assert "nothing is handed in" in str(stage.models["worker core"].requests[1].messages[-1])
    (report,) = await stage.facts(ChildFinished)
    assert (report.status, report.submitted) == ("failed", {})


async def test_whoever_stops_once_and_then_hands_in_is_done() -> None:
    stage = await opened({"worker core": [turn("done!"), turn("", READ), turn("", WRITE), turn("", HAND_IN)]})
    outcome = await stage.wake("worker core")
    assert outcome.ended is not None
    assert outcome.ended.status == "done"


async def test_blocked_is_handed_in_without_a_change() -> None:
    blocked = {"status": "blocked", "notes": "the service it needs is not there"}
    stage = await opened({"worker core": [turn("", ("hand_in", blocked))]})
    await stage.wake("worker core")
    (report,) = await stage.facts(ChildFinished)
    assert report.submitted == blocked


async def test_input_that_cannot_count_comes_back_as_an_error_and_is_not_handed_in() -> None:
    empty = ("hand_in", {"status": "done", "notes": "  "})
    stage = await opened({"worker core": [turn("", ("hand_in", {"status": "great"})), turn("", empty), *WORK]})
    child_id = await stage.named("worker core")
    await stage.wake("worker core")
    first, second, *_ = await results(stage, "worker core")
    assert (first.outcome, second.outcome) == ("error", "error")
    assert "not valid" in first.content
    assert "`notes` are empty" in second.content
    assert len(await stage.facts(WorkSubmitted, child_id)) == 1


# --- commits -------------------------------------------------------------------------------------


async def test_work_in_progress_is_committed_whenever_a_worker_rests_and_once_for_each_state() -> None:
    ask = ("ask_person", {"question": "which way round?"})
    stage = await opened({"worker core": [turn("", READ), turn("", WRITE), turn("", ask), turn("", HAND_IN)]})
    child_id = await stage.named("worker core")
    outcome = await stage.wake("worker core")
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "person")
    (made,) = await stage.facts(RepoCommitted, child_id)
    assert made.wip
    assert stage.repository.refs[REF] == made.commit
    assert await stage.facts(ChildFinished) == []  # the mission waits: a person answers the worker
    row = await stage.store.find(child_id)
    await stage.stage.intake.send(row, "as you like")
    await stage.wake("worker core")
    assert len(await stage.facts(RepoCommitted, child_id)) == 1
    (report,) = await stage.facts(ChildFinished)
    assert report.commit == made.commit


async def test_a_worker_that_is_told_goes_on_and_its_next_commit_follows_the_last() -> None:
    again = ("edit", {"file_path": "src/app/core.py", "old_string": "a + b", "new_string": "b + a"})
    stage = await opened({"worker core": [*WORK, turn("", READ), turn("", again), turn("", HAND_IN)]})
    child_id = await stage.named("worker core")
    await stage.wake("worker core")
    (first,) = await stage.facts(RepoCommitted, child_id)
    shift = await stage.hold()
    refused = TaskRefused(task_id="core", child_id=child_id, kind="checks", issues=("it is not met",))
    await tell_role(shift, TellRole(child_id, "set it right", (refused,)))
    assert [event.type for event in await stage.events()][-2:] == ["task.refused", "child.messaged"]
    assert shift.state.children[child_id].status is None
    await stage.store.release(shift.lease)
    await stage.wake("worker core")
    _, second = await stage.facts(RepoCommitted, child_id)
    assert second.parent == first.commit
    assert stage.repository.refs[REF] == second.commit
    assert [report.commit for report in await stage.facts(ChildFinished)] == [first.commit, second.commit]


async def test_what_an_earlier_worker_left_stays_reachable_when_a_fresh_one_begins() -> None:
    stage = await opened({"worker core": WORK})
    old = stage.repository.seed({**FILES, "old.txt": b"left\n"}, ref=REF)
    await stage.wake("worker core")
    (made,) = await stage.facts(RepoCommitted, await stage.named("worker core"))
    assert made.parent == stage.base.commit
    assert stage.repository.refs[f"refs/holdfast/demo/core/{old.commit[:12]}"] == old.commit
    assert "old.txt" not in await stage.repository.files(made.commit)


async def test_work_that_cannot_be_committed_is_said_once_and_the_session_rests_all_the_same() -> None:
    stage = await opened({"worker core": WORK})
    child_id = await stage.named("worker core")

    async def fails(
        folder: Path,
        parents: Sequence[str],
        message: str,
        at_us: int,
        *,
        user: Owner | None = None,
        kept: Sequence[Kept] = (),
    ) -> Commit:
        raise RepositoryUnfit("the disk of the repository is read-only")

    stage.repository.commit = fails  # type: ignore[method-assign]
    outcome = await stage.wake("worker core")
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    (error,) = await stage.facts(SessionError, child_id)
    assert "read-only" in error.message
    (report,) = await stage.facts(ChildFinished)
    assert (report.submitted["status"], report.commit) == ("done", "")


# --- money and caps ------------------------------------------------------------------------------


async def test_a_worker_that_stopped_for_turns_goes_on_when_it_is_raised() -> None:
    stage = await opened({"worker core": WORK}, limits=Limits(max_turns=2))
    child_id = await stage.named("worker core")
    await stage.wake("worker core")
    (report,) = await stage.facts(ChildFinished)
    assert (report.status, report.reason) == ("parked", "cap")
    await _raised(stage, child_id)
    outcome = await stage.wake("worker core")
    assert outcome.ended is not None
    assert outcome.ended.status == "done"


async def test_a_worker_that_stopped_for_money_goes_on_when_there_is_more() -> None:
    usage = {"usage": {"input_tokens": 100_000, "output_tokens": 0}}
    turns = [{**each, **usage} for each in WORK]
    stage = await opened(
        {"worker core": turns},
        limits=Limits(budget_pico=pico_from_usd("2")),
        price={"input_per_mtok": 10.0, "output_per_mtok": 0.0},
    )
    child_id = await stage.named("worker core")
    await stage.wake("worker core")
    (report,) = await stage.facts(ChildFinished)
    assert (report.status, report.reason) == ("parked", "budget")
    assert len(await stage.facts(BudgetReached, child_id)) == 1
    (made,) = await stage.facts(RepoCommitted, child_id)
    assert made.wip
    row = await stage.store.find(stage.mission_id)
    await stage.stage.intake.update(row, SessionUpdated(budget_pico=pico_from_usd("10")))
    await _raised(stage, child_id)
    outcome = await stage.wake("worker core")
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert len(stage.models["worker core"].requests) == len(WORK)


async def _raised(stage: MissionStage, child_id: str) -> None:
    shift = await stage.hold()
    await raise_children(shift, RaiseChildren((child_id,)))
    assert shift.state.children[child_id].status is None
    assert child_id not in of_mission(shift.state).reports
    assert len(await stage.facts(ChildMessaged)) == 1
    await stage.store.release(shift.lease)


async def test_the_hands_of_a_worker_guard_the_protected_files_it_began_with() -> None:
    stage = await opened({"worker core": [turn("", READ), turn("", HAND_IN)]})
    specs = []
    provide = stage.stage.hands.provision

    async def watched(spec: HandsSpec, epoch: int) -> Hands:
        specs.append(spec.guarded)
        return await provide(spec, epoch)

    stage.stage.hands.provision = watched  # type: ignore[method-assign]
    await stage.wake("worker core")
    assert specs == [("tests/test_core.py",)]
