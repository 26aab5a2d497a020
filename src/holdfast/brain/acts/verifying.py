"""Verification: what the harness itself finds out about a tree, on clean checkouts, in hands (S25).

`verification.started` comes before the first run and names the hands that it goes to. A verdict is recorded as soon as
it is known, and never asked for again under the same key. Whoever takes over after a crash waits for the first run
where it goes on; any other run that had no verdict yet is run again, since a checkout is thrown away anyway.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import NamedTuple

from holdfast.brain.acts.checks import Ground, Places, give_back
from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift
from holdfast.errors import EnvironmentFailed, HandsError, HandsLost, HeadMoved
from holdfast.facts.mission import CriterionChecked, FlakeNoted, VerificationEnded, VerificationStarted
from holdfast.hands.base import ExecRequest, ExecResult, Hands
from holdfast.mission import checking, flakes
from holdfast.mission.actions import Verify
from holdfast.mission.checking import Group, Read
from holdfast.session.render import action_digest
from holdfast.session.state_mission import MissionState, OpenVerification

LOST_MAX = 3
"""A run whose hands are lost is run anew so often."""

RED_ENOUGH = 3
"""With so many failed criteria a merge is looked at no further."""

OUTPUT_CAP = 30_000


class Run(NamedTuple):
    """One run, of which criteria, and what it says."""

    group: Group
    read: Read
    result: ExecResult

    @property
    def passed(self) -> bool:
        return self.read.outcome == "pass"


async def verify(shift: Shift, action: Verify) -> None:
    """Have a verdict for each of the criteria that a command checks, or an end that says why there is none."""
    job = _Verification(shift, action)
    error = ""
    try:
        await job.run()
    except HeadMoved:
        return  # a person stopped it: whoever goes on begins with what is recorded
    except (HandsError, EnvironmentFailed) as problem:
        error = str(problem)
    ended = VerificationEnded(verification_id=job.verification_id, effect=action.effect, tree=action.tree, error=error)
    await shift.fact(ended)
    await _propose(shift)


async def give_up(shift: Shift) -> None:
    """Before a mission ends: nothing is left of verifications that have no end."""
    mission = shift.state.mission
    assert mission is not None
    for each in list(mission.verifications.values()):
        if each.hands is not None:
            hands = await shift.doors.hands.attach(each.hands)
            with contextlib.suppress(HandsError):
                await hands.fence(shift.epoch)
            await give_back(shift, hands)
            repository = shift.doors.repository(_repo(shift))
            await Places(shift, repository, each.verification_id).sweep(Path(each.hands.workspace).parent)
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
    """One verification in one shift."""

    def __init__(self, shift: Shift, action: Verify) -> None:
        mission = shift.state.mission
        assert mission is not None
        known = mission.verifications.get(action.effect)
        self.open: OpenVerification | None = known if known is not None and known.tree == action.tree else None
        self.shift = shift
        self.action = action
        self.verification_id = self.open.verification_id if self.open is not None else _new_id(shift, action)
        self.places = Places(shift, shift.doors.repository(_repo(shift)), self.verification_id)
        self.ground = Ground(action.commit, action.tree, people_of(mission, action.tree))
        self.started = False
        self.key = ""

    @property
    def mission(self) -> MissionState:
        """As it is now: verdicts come in while this runs."""
        assert self.shift.state.mission is not None
        return self.shift.state.mission

    async def run(self) -> None:
        """Run what has no verdict."""
        checks = {
            name: criterion.check
            for name in self.action.criteria
            if (criterion := self.mission.contract.criteria().get(name)) is not None and criterion.check is not None
        }
        flaky = [name for name in checks if flakes.known(self.mission, name)]
        waiting = checking.groups(checks, flaky)
        resumed = await self._resumed(waiting)
        if resumed is not None:
            waiting.remove(resumed.group)
            await self._settled(resumed)
        for group in waiting:
            await self._group(group)

    # --- one run ---------------------------------------------------------------------------------

    async def _run(self, group: Group, ground: Ground) -> Run | None:
        """One run on a clean checkout; None when all its verdicts are recorded already."""
        for left in reversed(range(LOST_MAX)):
            try:
                return await self._try(group, ground)
            except HandsLost:
                if not left:
                    raise
        raise AssertionError("a run ends or is lost")

    async def _try(self, group: Group, ground: Ground) -> Run | None:
        mine = ground is self.ground
        async with self.places.place(ground) as (place, laid):
            if mine:
                self.key = self.key or checking.key(ground.tree, self.mission.digest, place.spec.environment, laid)
                group = group.part([name for name in group.names if not self._recorded(name)])
                if not group.names:
                    return None
            hands = await self.places.hands(place)
            try:
                if mine:
                    await self._begin(hands)
                result = await self._exec(hands, group)
            finally:
                await give_back(self.shift, hands)
        return _run_of(group, result)

    def _recorded(self, name: str) -> bool:
        verdict = self.mission.verdict(self.action.tree, name)
        return verdict is not None and verdict.key == self.key

    async def _begin(self, hands: Hands) -> None:
        """Record that it begins, once."""
        if self.started:
            return
        self.started = True
        started = VerificationStarted(
            verification_id=self.verification_id,
            effect=self.action.effect,
            tree=self.action.tree,
            criteria=tuple(name for name in self.action.criteria if not self._recorded(name)),
            commit=self.action.commit,
            key=self.key,
            hands=hands.identity,
        )
        await self.shift.fact(started)

    async def _exec(self, hands: Hands, group: Group) -> ExecResult:
        request = ExecRequest("bash", {"command": checking.script(group)}, group.timeout_s, output_cap=OUTPUT_CAP)
        call_id = _call_id(self.verification_id, group)
        await hands.start(self.shift.epoch, call_id, request)
        return await hands.wait(self.shift.epoch, call_id)

    async def _resumed(self, waiting: list[Group]) -> Run | None:
        """The first run of an earlier shift, if it goes on or its end is known."""
        if self.open is None or self.open.hands is None:
            return None
        hands = await self.shift.doors.hands.attach(self.open.hands)
        found: Run | None = None
        try:
            await hands.fence(self.shift.epoch)
        except HandsError:
            pass  # its journal may know the end all the same
        try:
            for group in waiting:
                call_id = _call_id(self.verification_id, group)
                status = await hands.status(self.shift.epoch, call_id)
                if status.state in ("running", "finished") and not found:
                    result = status.result or await hands.wait(self.shift.epoch, call_id)
                    found = _run_of(group, result)
        except HandsError:
            found = None
        await give_back(self.shift, hands)
        await self.places.sweep(Path(self.open.hands.workspace).parent)
        if found is not None:
            self.key, self.started = self.open.key, True
        return found

    # --- verdicts --------------------------------------------------------------------------------

    async def _group(self, group: Group) -> None:
        """Verdicts for a group: from one run, or from runs of its parts."""
        if self._enough():
            return
        run = await self._run(group, self.ground)
        if run is not None:
            await self._settled(run)

    def _enough(self) -> bool:
        """Whether a merge is refused anyway: where else it fails is not looked for then."""
        merge, verdicts = self.mission.merge, self.mission.verdicts.get(self.action.tree, {})
        if merge is None or merge.tree != self.action.tree:
            return False
        return sum(verdicts[name].outcome != "pass" for name in self.action.criteria if name in verdicts) >= RED_ENOUGH

    async def _settled(self, run: Run) -> None:
        """What follows from a run: the verdicts of its criteria, or runs of its parts."""
        if run.passed:
            await self._verdict(run, 1, 0)
        elif not run.group.divisible:
            await self._red(run)
        else:
            for part in checking.divided(run.group, run.result.output):
                await self._group(part)
            await self._suspected(run)

    async def _suspected(self, run: Run) -> None:
        """A run that failed, and all its parts passed: one of them is flaky. Which one, its output may have said."""
        named = checking.named(run.group, run.result.output)
        verdicts = self.mission.verdicts.get(self.action.tree, {})
        passed = all(name in verdicts and verdicts[name].outcome == "pass" for name in run.group.names)
        unknown = tuple(name for name in named if not flakes.known(self.mission, name))
        if passed and unknown and len(named) == len(unknown):
            await self.shift.fact(*self._noted(unknown, 2, 1, self.action.tree))

    async def _verdict(self, run: Run, runs: int, failures: int) -> None:
        names = run.group.names
        checked = CriterionChecked(
            verification_id=self.verification_id,
            tree=self.action.tree,
            criteria=names,
            outcome=run.read.outcome,
            runs=runs,
            key=self.key,
            command=run.group.command,
            exit_code=run.result.exit_code,
            value=run.read.value,
            output=checking.tail(run.result.output),
            duration_ms=run.result.duration_ms,
            flaky=failures if failures < runs else 0,
        )
        noted = self._noted(names, runs, failures, self.action.tree) if 0 < failures < runs else ()
        await self.shift.fact(checked, *noted)

    def _noted(self, names: tuple[str, ...], runs: int, failures: int, tree: str) -> tuple[FlakeNoted, ...]:
        return tuple(FlakeNoted(criterion=name, tree=tree, runs=runs, failures=failures) for name in names)

    async def _red(self, run: Run) -> None:
        """A check that failed alone is run again before it counts; see `mission.flakes` for the rules."""
        group, tally = run.group, _Tally([run])
        reruns = 0 if run.result.exit_code in checking.NOT_RUN else self.mission.policy.flake_reruns
        reruns = min(reruns, 1) if run.read.outcome == "timeout" else reruns
        await self._again(group, tally, 1 + reruns, until_passed=True)
        known = any(flakes.known(self.mission, name) for name in group.names)
        if reruns and run.read.outcome != "timeout":
            if tally.passes and not known:
                await self._end(tally, green=await self._weighed(group, tally, reruns))
                return
            if not tally.passes and (known or await self._fails_on_main(group, 1 + reruns)):
                await self._again(group, tally, flakes.patience(reruns), until_passed=True)
        await self._end(tally, green=tally.passes > 0)

    async def _weighed(self, group: Group, tally: _Tally, reruns: int) -> bool:
        """Whether a check that passed and failed counts as passed: by more runs, there and on the main line."""
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

    async def _again(self, group: Group, tally: _Tally, most: int, *, until_passed: bool = False) -> None:
        while len(tally.runs) < most and not (until_passed and tally.passes):
            run = await self._run(group, self.ground)
            if run is None:
                return
            tally.runs.append(run)

    def _passed_before(self, group: Group) -> bool:
        mission = self.mission
        return mission.main_tree != self.action.tree and any(name in mission.passed for name in group.names)

    async def _fails_on_main(self, group: Group, most: int) -> bool:
        """Whether a check that passed on the main line before fails there now and then, in so many runs."""
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

    async def _end(self, tally: _Tally, *, green: bool) -> None:
        run = next(run for run in tally.runs if run.passed == green)
        await self._verdict(run, len(tally.runs), tally.failures)


class _Tally:
    """Runs of one check on one tree."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    @property
    def passes(self) -> int:
        return sum(run.passed for run in self.runs)

    @property
    def failures(self) -> int:
        return len(self.runs) - self.passes


def people_of(mission: MissionState, tree: str) -> str:
    """The commit whose protected files a tree is checked with: the newest one of people that the tree has in it."""
    merge = mission.merge
    if merge is not None and merge.tree == tree:
        return merge.base or mission.followed
    for task in mission.tasks.values():
        if task.tree == tree and task.pristine:
            return task.pristine
    return mission.followed


def _run_of(group: Group, result: ExecResult) -> Run:
    cut = bool(result.limit) or result.cancelled
    said = checking.read(group.checks[0], result.exit_code, result.output, timed_out=result.timed_out, cut=cut)
    return Run(group, said, result)


def _new_id(shift: Shift, action: Verify) -> str:
    drawn = f"{shift.state.session_id} {action.effect} {action.tree} {shift.state.seq}"
    return f"vrf_{hashlib.sha256(drawn.encode()).hexdigest()[:20]}"


def _call_id(verification_id: str, group: Group) -> str:
    return f"{verification_id}.{hashlib.sha256(group.command.encode()).hexdigest()[:12]}"


async def _propose(shift: Shift) -> None:
    """Ask a person about criteria that were flaky often: only they can take one out of the contract."""
    mission = shift.state.mission
    assert mission is not None
    for name in flakes.to_propose(shift.state):
        times = mission.flakes[name]
        text = mission.contract.criteria()[name].text
        item = new_item(
            shift,
            kind=flakes.KIND,
            title=f"is {name} to count any longer?",
            action=(
                f"The check of {name} ({text}) failed now and then on trees where it passed as well, {times} times.\n\n"
                "Approve: it is taken out of the contract. Deny: it stays, and is run again when it fails."
            ),
            call_id=flakes.item_of(name),
            action_digest=action_digest(flakes.KIND, {"criterion": name}),
            why=f"{times} verifications found it flaky",
            default=None,
        )
        await shift.fact(item)
