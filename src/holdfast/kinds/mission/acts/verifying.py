"""Verification of a tree by the harness's own runs of checks, on clean checkouts, in hands (S25).

`verification.started` precedes each run and names its hands. A verdict is recorded as soon as it is known, and reused
under the same key. After a crash, the next brain waits for a check's own run that is still in progress; any other run
without a verdict is repeated, since its checkout is discarded.

A passing check counts after a proof that it could have failed (`acts.proving`), and, if it never passed before, after
several passes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from holdfast.brain.acts import egress as egress_act
from holdfast.brain.shift import Shift, both
from holdfast.errors import EnvironmentFailed, HandsError, HeadMoved
from holdfast.facts.base import Fact
from holdfast.facts.mission import CriterionChecked, FlakeNoted, Metric, VerificationEnded, VerificationStarted
from holdfast.facts.task import RatchetViolated, Violation
from holdfast.hands.base import Hands
from holdfast.kinds.mission.acts.checkouts import Ground, Place, Places, give_back, people_of
from holdfast.kinds.mission.acts.proving import Proved, Prover
from holdfast.kinds.mission.acts.runs import (
    Ran,
    Run,
    Runner,
    Tally,
    Typed,
    call_id_of,
    confirm,
    propose,
    report_of,
    sometimes,
)
from holdfast.kinds.mission.check import checking, flakes, metrics, proofs
from holdfast.kinds.mission.check.checking import Group
from holdfast.kinds.mission.conductor.actions import Verify
from holdfast.kinds.mission.conductor.merges import stands
from holdfast.kinds.mission.contract import protected
from holdfast.kinds.mission.fold.state import BASE, BEFORE, LAST, MissionState, OpenVerification, of_mission, only_looks
from holdfast.session.egress import outside_digest

RED_ENOUGH = 3
"""Failed criteria after which the rest of a merge is not checked."""


async def verify(shift: Shift, action: Verify) -> None:
    """Record a verdict for each criterion with a check, or an end with the error that prevented it."""
    job = _Verification(shift, action)
    error = ""
    try:
        await job.run()
    except HeadMoved:
        return  # a user stopped it: the next shift starts from the recorded verdicts
    except (HandsError, EnvironmentFailed) as problem:
        error = str(problem)
    ended = VerificationEnded(verification_id=job.verification_id, effect=action.effect, tree=action.tree, error=error)
    await shift.fact(ended)
    await propose(shift)


async def give_up(shift: Shift) -> None:
    """Release the hands and checkouts of unfinished verifications before a mission ends."""
    mission = of_mission(shift.state)
    for each in list(mission.verifications.values()):
        for identity in each.hands:
            hands = await shift.doors.hands.attach(identity)
            with contextlib.suppress(HandsError):
                await hands.fence(shift.fence)
            await give_back(shift, hands)
            repository = shift.doors.repository(_repo(shift))
            await Places(shift, repository, each.verification_id).sweep(Path(identity.workspace).parent)
        await shift.fact(
            VerificationEnded(
                verification_id=each.verification_id, effect=each.effect, tree=each.tree, error="it was given up"
            )
        )


def _repo(shift: Shift) -> str:
    created = shift.state.created
    assert created is not None
    assert created.mission is not None
    return created.mission.repo


class _Verification:
    """Verification in one shift."""

    def __init__(self, shift: Shift, action: Verify) -> None:
        mission = of_mission(shift.state)
        known = mission.verifications.get(action.effect)
        self.open: OpenVerification | None = known if known is not None and known.tree == action.tree else None
        self.shift = shift
        self.action = action
        self._last = action.effect.startswith(LAST)
        drawn = f"{shift.state.session_id} {action.effect} {action.tree} {shift.state.seq}"
        new_id = f"vrf_{hashlib.sha256(drawn.encode()).hexdigest()[:20]}"
        self.verification_id = self.open.verification_id if self.open is not None else new_id
        self.places = Places(shift, shift.doors.repository(_repo(shift)), self.verification_id)
        self.ground = Ground(action.commit, action.tree, people_of(mission, action.tree))
        self.key = ""
        self.runner = Runner(shift, self.places, self._begin)
        self.prover = Prover(self.runner, lambda: self.mission)

    @property
    def mission(self) -> MissionState:
        """Present state: verdicts arrive while this runs."""
        return of_mission(self.shift.state)

    async def run(self) -> None:
        """Run the checks that have no verdict."""
        known = self.mission.contract.criteria()
        all_checks = {name: each.check for name, each in known.items() if each.check is not None}
        checks = {name: all_checks[name] for name in self.action.criteria if name in all_checks}
        flaky = [name for name in checks if flakes.known(self.mission, name)]
        unseen = {name: each for name, each in checks.items() if protected.names_hidden(each, self.mission.contract)}
        seen = {name: each for name, each in checks.items() if name not in unseen}
        waiting = [*checking.groups(seen, flaky), *checking.groups(unseen, flaky)]
        resumed = await self._resumed(waiting)
        await self.prover.measure(all_checks if self.action.effect == BASE else checks, self.ground.people)
        if resumed is not None:
            waiting.remove(resumed.group)
            await self._settled(resumed)
        for group in waiting:
            await self._group(group)

    # --- one run ---------------------------------------------------------------------------------

    async def _run(self, group: Group, ground: Ground) -> Run | None:
        """Run once on a clean checkout; None if all its verdicts are recorded."""
        mine, part = ground is self.ground, group

        async def wanted(place: Place, laid: str) -> Typed | None:
            nonlocal part
            if mine:
                surroundings = place.spec.environment + outside_digest(self.shift.state.outside.policy)
                surroundings += self.action.effect if self._last else ""
                self.key = self.key or checking.key(ground.tree, self.mission.digest, surroundings, laid)
                part = group.part([name for name in group.names if not self._recorded(name)])
            return await self._typed(part, ground, laid) if part.names else None

        ran = await self.runner.run(ground, wanted, unseen=self._is_hidden(group))
        await egress_act.record(self.shift)
        return None if ran is None else await self._run_of(part, ran, ground)

    async def _typed(self, group: Group, ground: Ground, laid: str) -> Typed:
        nonce = hashlib.sha256(self.verification_id.encode()).hexdigest()[:12]  # the same after a crash
        return self.prover.typed(group, await self.runner.files(laid), _label(group, ground), nonce)

    async def _run_of(self, group: Group, ran: Ran, ground: Ground) -> Run:
        """Read the result of a run: with exit status 0, a check must also have run the tests of the base."""
        result, files = ran.result, await self.runner.files(await self.places.laid(ground))
        cut = bool(result.limit) or result.cancelled
        said = checking.read(group.checks[0], result.exit_code, result.output, timed_out=result.timed_out, cut=cut)
        tests = self.prover.tests(group, files, ran)
        notes = await self.prover.counted(group, tests) if said.outcome == "pass" else {}
        return Run(group, said, result, tests, notes)

    def _recorded(self, name: str) -> bool:
        if self._last and proofs.is_of(self.mission, name, self.action.tree):
            return True
        verdict = self.mission.verdict(self.action.tree, name)
        return verdict is not None and verdict.key == self.key

    async def _begin(self, hands: Hands) -> None:
        """Record the start of a run and its hands."""
        started = VerificationStarted(
            verification_id=self.verification_id,
            effect=self.action.effect,
            tree=self.action.tree,
            criteria=tuple(name for name in self.action.criteria if not self._recorded(name)),
            commit=self.action.commit,
            key=self.key,
            hands=hands.identity,
            run=self.places.count - 1,
        )
        await self.shift.fact(started)

    async def _resumed(self, waiting: list[Group]) -> Run | None:
        """Return a check's own run from an earlier shift that still runs or whose result is known, or None."""
        found: tuple[Group, Ran] | None = None
        for identity in self.open.hands if self.open is not None else ():
            hands = await self.shift.doors.hands.attach(identity)
            with contextlib.suppress(HandsError):
                await hands.fence(self.shift.fence)  # its journal may still have the result
            with contextlib.suppress(HandsError):
                found = found or await self._left(waiting, hands)
            await give_back(self.shift, hands)
        for identity in self.open.hands if self.open is not None else ():
            await self.places.sweep(Path(identity.workspace).parent)
        if found is None or self.open is None:
            return None
        self.key = self.open.key
        return await self._run_of(*found, self.ground)

    async def _left(self, waiting: list[Group], hands: Hands) -> tuple[Group, Ran] | None:
        """Return the result of a check's own run in these hands, or None."""
        for group in waiting:
            call_id = call_id_of(self.verification_id, _label(group, self.ground))
            status = await hands.status(self.shift.fence, call_id)
            if status.state in ("running", "finished"):
                result = status.result or await hands.wait(self.shift.fence, call_id)
                typed = await self._typed(group, self.ground, await self.places.laid(self.ground))
                return group, Ran(result, await report_of(hands.identity.workspace, typed.report))
        return None

    # --- verdicts --------------------------------------------------------------------------------

    async def _group(self, group: Group) -> None:
        """Record verdicts for a group, from one run or from runs of its parts."""
        merge, verdicts = self.mission.merge, self.mission.verdicts.get(self.action.tree, {})
        if merge is not None and merge.tree == self.action.tree:
            known = [name for name in self.action.criteria if name in verdicts]
            if sum(not stands(self.mission, merge.tree, name, merge.tasks) for name in known) >= RED_ENOUGH:
                return
        own = partial(self._run, group, self.ground)
        soon = self._last and group.checks[0].metric is None  # on the last tree, all of it has just passed
        run = await (self.prover.ahead(own, group, self.ground) if soon else own())
        if run is not None:
            await self._settled(run)

    async def _settled(self, run: Run) -> None:
        """Record the verdicts of a run, or run the parts of its group."""
        metric = run.group.checks[0].metric
        if metric is not None:
            await self._measured(run, metric)
        elif run.passed:
            await self._green(run, 1, 0)
        elif not run.group.divisible:
            await self._red(run)
        else:
            for part in checking.divided(run.group, run.result.output):
                await self._group(part)
            await self._suspected(run)

    async def _measured(self, first: Run, metric: Metric) -> None:
        """Record the verdict of a metric: that of the run with the median value. A value that may move the main branch
        must be proven like a pass.
        """
        tally = Tally([first])
        await self._again(first.group, tally, self.mission.policy.confirm_runs)
        run = tally.runs[metrics.median(metric, [each.read.value for each in tally.runs])]
        if run.passed or metrics.counts(self.mission, run.group.names[0], run.read.value):
            await self._green(run, len(tally.runs), 0)
        else:
            await self._verdict(run, len(tally.runs), 0)

    async def _suspected(self, run: Run) -> None:
        """Handle a failed run whose parts all passed: one of them is flaky. The output may name it."""
        named = checking.named(run.group, run.result.output)
        verdicts = self.mission.verdicts.get(self.action.tree, {})
        passed = all(name in verdicts and verdicts[name].outcome == "pass" for name in run.group.names)
        unknown = tuple(name for name in named if not flakes.known(self.mission, name))
        if passed and unknown and len(named) == len(unknown):
            await self.shift.fact(*self._noted(unknown, 2, 1))

    async def _green(self, run: Run, runs: int, failures: int) -> None:
        """Count a passing check once it could have failed and has passed as often as required."""
        names, most = run.group.names, self.mission.policy.confirm_runs
        settled = only_looks(self.action.effect) or run.group.checks[0].metric is not None  # they had enough runs
        new = proofs.never_green(self.mission, names) if most > 1 and not settled else ()
        red = dict.fromkeys(new, sometimes(runs, failures)) if failures else {}
        sure = [name for name in names if name not in red]
        unsure = sure if self._last else await self.prover.unsure(sure, self.ground)
        passes = {name: runs + (name in unsure) for name in new if name in sure}  # one with a proof passes in it
        again = partial(self._run, ground=self.ground)
        proved, unsteady = await both(
            partial(self.prover.prove, run, unsure, self.ground, self.key),
            partial(confirm, again, run.group.part(passes), passes, most),
        )
        left = {name: most - 1 for name in passes if name in unsure and name not in (*proved.confirmed, *proved.lost)}
        red |= unsteady | await confirm(again, run.group.part(set(left) - unsteady.keys()), left, most)
        await self._record(run, runs, failures, {**red, **proved.lost}, proved)

    async def _record(self, run: Run, runs: int, failures: int, red: Mapping[str, str], proved: Proved) -> None:
        """Record the criteria of a passing run; `red` are those that do not count, with reasons."""
        good = tuple(name for name in run.group.names if name not in red)
        facts: list[Fact] = [*proved.facts]
        if proved.lost:
            task = next((each.task.id for each in self.mission.tasks.values() if each.tree == self.action.tree), "")
            violations = tuple(Violation("check_fooled", name, why) for name, why in proved.lost.items())
            facts.append(RatchetViolated(task_id=task, tree=self.action.tree, violations=violations))
        told = {each.criterion: each.probe_output for each in proved.facts}
        for name, why in red.items():
            if name in proved.lost:
                more = f"\n\n{why[:1].upper()}{why[1:]}. There it printed:\n{told[name]}"
                facts.append(await self._checked(run, (name,), runs, failures, why, more))
            else:
                facts.append(await self._checked(run, (name,), runs, failures, why))
                facts += self._noted((name,), max(runs, 2), max(failures, 1))
        if good:
            facts.append(await self._checked(run, good, runs, failures))
            facts += self._noted(good, runs, failures) if 0 < failures < runs else ()
        await self.shift.fact(*facts)

    def _is_hidden(self, group: Group) -> bool:
        return protected.names_hidden(group.checks[0], self.mission.contract)

    async def _verdict(self, run: Run, runs: int, failures: int) -> None:
        names, note = run.group.names, "; ".join(dict.fromkeys(run.notes.values()))
        noted = self._noted(names, runs, failures) if 0 < failures < runs else ()
        await self.shift.fact(await self._checked(run, names, runs, failures, note), *noted)

    async def _checked(
        self, run: Run, names: tuple[str, ...], runs: int, failures: int, note: str = "", more: str = ""
    ) -> CriterionChecked:
        unseen, output = self._is_hidden(run.group), checking.tail(run.result.output) + more
        if unseen:
            output = await self.places.told(self.action.tree, run.result.output, passed=run.passed)
        return CriterionChecked(
            verification_id=self.verification_id,
            tree=self.action.tree,
            criteria=names,
            outcome="fail" if note else run.read.outcome,
            runs=runs,
            key=self.key,
            command=run.group.command,
            exit_code=run.result.exit_code,
            value=None if unseen or note else run.read.value,
            output=output,
            duration_ms=run.result.duration_ms,
            flaky=failures if failures < runs else 0,
            note=note,
        )

    def _noted(self, names: tuple[str, ...], runs: int, failures: int) -> tuple[FlakeNoted, ...]:
        tree = self.action.tree
        return tuple(FlakeNoted(criterion=name, tree=tree, runs=runs, failures=failures) for name in names)

    async def _red(self, run: Run) -> None:
        """Run a check that failed alone again before the failure counts; see `check.flakes` for the rules."""
        group, tally = run.group, Tally([run])
        reruns = 0 if run.result.exit_code in checking.NOT_RUN else self.mission.policy.flake_reruns
        reruns = min(reruns, 1) if run.read.outcome == "timeout" else reruns
        reruns = 0 if self.action.effect.startswith(BEFORE) else reruns  # failure is expected there
        await self._again(group, tally, 1 + reruns, until_passed=True)
        known = any(flakes.known(self.mission, name) for name in group.names)
        if reruns and run.read.outcome != "timeout":
            if tally.passes and not known:
                await self._end(tally, green=await self._weighed(group, tally, reruns))
                return
            if not tally.passes and (known or await self._fails_on_main(group, 1 + reruns)):
                await self._again(group, tally, flakes.patience(reruns), until_passed=True)
        await self._end(tally, green=tally.passes > 0)

    async def _weighed(self, group: Group, tally: Tally, reruns: int) -> bool:
        """Decide by more runs, also on the main branch, whether a check that passed and failed counts as passed."""
        await self._again(group, tally, 1 + reruns)
        if tally.failures == 1:
            return True
        most = flakes.most_runs(reruns)
        before = self._passed_before(group)
        if before and await self._fails_on_main(group, most):
            return True
        await self._again(group, tally, most)
        if before:
            return not flakes.introduced(tally.failures, len(tally.runs), most)
        return tally.failures * 2 <= len(tally.runs)

    async def _again(self, group: Group, tally: Tally, most: int, *, until_passed: bool = False) -> None:
        while len(tally.runs) < most and not (until_passed and tally.passes):
            run = await self._run(group, self.ground)
            if run is None:
                return
            tally.runs.append(run)

    def _passed_before(self, group: Group) -> bool:
        mission = self.mission
        return mission.main_tree != self.action.tree and any(name in mission.passed for name in group.names)

    async def _fails_on_main(self, group: Group, most: int) -> bool:
        """Run a check that passed on the main branch there again; return True if it fails in one of `most` runs."""
        if not self._passed_before(group):
            return False
        mission = self.mission
        main = Ground(mission.main, mission.main_tree, mission.followed)
        for count in range(1, most + 1):
            run = await self._run(group, main)
            if run is not None and not run.passed:
                noted = [FlakeNoted(criterion=name, tree=main.tree, runs=count, failures=1) for name in group.names]
                await self.shift.fact(*noted)
                return True
        return False

    async def _end(self, tally: Tally, *, green: bool) -> None:
        run = next(run for run in tally.runs if run.passed == green)
        await (self._green if green else self._verdict)(run, len(tally.runs), tally.failures)


def _label(group: Group, ground: Ground) -> str:
    return f"{ground.tree} {group.command}"
