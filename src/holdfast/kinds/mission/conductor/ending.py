"""End of a mission: all criteria met, another plan, or a question to the user. Pure."""

from __future__ import annotations

from holdfast.facts.mission import MissionFinished, ReplanAsked
from holdfast.kinds.mission.check import metrics
from holdfast.kinds.mission.conductor import merges, plans
from holdfast.kinds.mission.conductor.actions import EscalateMission, Look, MissionAction, OpenRole
from holdfast.kinds.mission.conductor.merges import BROKEN_MAX
from holdfast.kinds.mission.conductor.tasks import by_rubric
from holdfast.kinds.mission.fold.state import MissionState
from holdfast.kinds.mission.role.submissions import read_verdict
from holdfast.session.actions import Action, Record
from holdfast.session.decide import waits
from holdfast.session.decide.waits import standing, wait
from holdfast.session.state import Ask, State

TRIED_KEPT = 12


def step(state: State, mission: MissionState, now_us: int, ran: frozenset[str]) -> Action | MissionAction:
    """Finish, plan again, or ask the user: no child is running and nothing waits to be merged."""
    report = mission.reports.get(mission.final_judge) if mission.final_judge else None
    if report is not None:
        return Record((read_verdict(mission, report, None),))
    asked = next((ask for ask in state.asks.values() if ask.kind == "escalation"), None)
    if asked is not None:
        return _answered(state, mission, asked, now_us)
    if mission.stale:  # later merges made criteria unknown: one judge looks at all of them first (S26)
        verdict = mission.final_verdict
        if verdict is not None and verdict.tree == mission.main_tree and verdict.decision == "escalate":
            return EscalateMission(f"a judge escalated to a person: {verdict.reason}", tried(mission))
        return _judge(mission, tuple(name for name in mission.contract.criteria() if name in mission.stale))
    unmet = unmet_now(mission)
    if unmet:
        return _unmet(mission, unmet)
    last = merges.last_proof(mission)
    if last is not None:
        if mission.broken.get(last.effect, 0) >= BROKEN_MAX:
            return EscalateMission("the checks could not be proven on the last tree", tried(mission))
        return last
    final = _final(mission)
    if final is not None:
        return final
    look = f"look:{mission.main}:{mission.batches}"
    if look not in ran:
        return Look(look)
    return Record((_finished(mission, "done"),))


def _unmet(mission: MissionState, unmet: tuple[str, ...]) -> Action | MissionAction:
    """Improve a metric if only metrics are left; else try the criteria once on the main branch, then plan again."""
    if all(metrics.still_open(mission, name) and mission.curves.get(name) for name in unmet):
        reasons = {name: metrics.halted(mission, name) for name in unmet}
        improvable = next((name for name, why in reasons.items() if not why), None)
        if improvable is None:
            return EscalateMission("; ".join(reasons.values()), tried(mission))
        return Record((metrics.next_task(mission, improvable),))
    unknown = merges.at_the_end(mission)
    if unknown is not None:
        return unknown
    return _again(mission, f"{_counted(len(unmet), 'criterion', 'criteria')} not met: {', '.join(unmet[:8])}")


def unmet_now(mission: MissionState) -> tuple[str, ...]:
    """Return criteria not shown to hold on the main branch, except those left to the judge at the end."""
    later = mission.policy.judge == "at_end"
    names = tuple(mission.contract.criteria())
    rubric = set(by_rubric(mission, names))
    return tuple(name for name in names if name not in mission.passed and not (later and name in rubric))


def words(mission: MissionState) -> str:
    """Short description of how a mission ended."""
    total = len(mission.contract.criteria())
    unmet = unmet_at_end(mission)
    return f"{total - len(unmet)} of {total} criteria are met on {mission.ref}"


def unmet_at_end(mission: MissionState) -> tuple[str, ...]:
    """Return unmet criteria, with the verdict of the judge at the end."""
    met = set(mission.passed)
    if mission.policy.judge == "at_end" and mission.final_tree == mission.main_tree:
        met |= set(mission.final_passed)
    return tuple(name for name in mission.contract.criteria() if name not in met)


def _finished(mission: MissionState, status: str) -> MissionFinished:
    unmet = unmet_at_end(mission)
    met = tuple(name for name in mission.contract.criteria() if name not in unmet)
    done = "done" if status == "done" and not unmet else "failed"
    return MissionFinished(status=done, head=mission.main, met=met, unmet=unmet)  # type: ignore[arg-type]


def _final(mission: MissionState) -> Action | MissionAction | None:
    """Run the judge at the end; None if the policy has none, or it passed this very tree."""
    if mission.policy.judge != "at_end":
        return None
    verdict = mission.final_verdict
    here = mission.final_tree == mission.main_tree and verdict is not None and verdict.tree == mission.main_tree
    if here and verdict is not None and not verdict.refused:
        if verdict.decision == "pass":
            return None
        issues = "; ".join(f"{each.criterion}: {each.issue}" for each in verdict.criteria if not each.passes)
        return _again(mission, f"the judge at the end does not accept it: {issues or verdict.reason}")
    rubric = by_rubric(mission, tuple(mission.contract.criteria()))
    if rubric and not mission.moved_seq and not any(task.changed for task in mission.tasks.values()):
        return _again(mission, f"nothing was changed, so nothing has shown that {', '.join(rubric)} holds")
    return _judge(mission, tuple(mission.contract.criteria()))


def _judge(mission: MissionState, criteria: tuple[str, ...]) -> Action | MissionAction:
    """Open a judge for the main branch itself; ask the user after too many without a valid verdict."""
    verdict = mission.final_verdict
    tries = mission.final_tries if mission.final_tree == mission.main_tree else 0
    if tries >= mission.policy.judge_tries:
        said = verdict.refused if verdict is not None else "nothing"
        return EscalateMission(f"{tries} judges gave no valid verdict; the last: {said}", tried(mission))
    return OpenRole(
        kind="judge",
        attempt=tries + 1,
        commit=mission.main,
        base=mission.followed,
        tree=mission.main_tree,
        criteria=criteria,
    )


def tried(mission: MissionState) -> tuple[str, ...]:
    """Describe the latest failures for the user who is asked."""
    return tuple(mission.failures[-TRIED_KEPT:])


def _again(mission: MissionState, why: str) -> Action | MissionAction:
    """Plan again while the cap allows it, then ask the user."""
    if mission.round < mission.policy.max_replans:
        found = plans.open_planner(mission, mission.round + 1)
        if found is not None:
            return found
    return EscalateMission(f"{why}; {_counted(mission.round + 1, 'plan', 'plans')} tried", tried(mission))


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def _answered(state: State, mission: MissionState, ask: Ask, now_us: int) -> Action:
    """Follow the answer to the escalation: approval allows one more plan, denial ends the mission."""
    over = standing(state, "escalation", "it was answered")
    if ask.verdict is None:
        return wait(state, now_us, "the plans are used up: a person is asked how to go on")
    if ask.verdict == "approve":
        return Record((ReplanAsked(reason=ask.note or "a person said to go on"), *over))
    return Record((*over, *waits.close_all(state, "the mission is over"), _finished(mission, "failed")))
