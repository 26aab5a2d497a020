"""Proofs that checks can fail: measured before the work, and again before a check counts as passed (`check.proofs`).

Each probe runs like the check itself: on a clean checkout of the same tree, in hands with the same policy. Only the
files of the probe differ.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.brain.shift import both, together
from holdfast.facts.mission import Check
from holdfast.facts.task import TESTS_MAX, CheckProbed, CheckProved
from holdfast.globs import matches
from holdfast.kinds.mission.acts.checkouts import Ground, Place
from holdfast.kinds.mission.acts.runs import (
    ROUGHLY,
    Ran,
    Run,
    Runner,
    Seen,
    Tests,
    Typed,
    ability_of,
    floor_of,
    left,
    name_of,
    read_run,
)
from holdfast.kinds.mission.check import ability, checking, flakes, metrics, proofs
from holdfast.kinds.mission.check.ability import Probe
from holdfast.kinds.mission.check.checking import Group
from holdfast.kinds.mission.contract.protected import names_hidden
from holdfast.kinds.mission.fold.state import CheckAbility, MissionState

TRIES = 2
"""Attempts at an inconclusive probe before it counts as lost."""

KINDS = frozenset({"canary", "flip", "data", "hollow"})


class Proved(NamedTuple):
    """Result of proving criteria. `confirmed` ran once more in a probe and passed all their tests."""

    facts: tuple[CheckProved, ...]
    lost: Mapping[str, str]
    confirmed: frozenset[str]


class Prover:
    """Probes the checks of one verification."""

    def __init__(self, runner: Runner, mission: Callable[[], MissionState]) -> None:
        self.runner = runner
        self._mission = mission
        self._entropy = runner.shift.doors.entropy
        self._made: dict[tuple[str, ...], tuple[Probe, ...]] = {}  # by the criteria of their group
        self._early: dict[int, tuple[Probe, Ran]] = {}  # by the identity of the probe, which lives as long

    # --- before the work ---------------------------------------------------------------------------

    async def measure(self, checks: Mapping[str, Check], people: str) -> None:
        """Measure how these checks can fail on the commit `people`, unless already recorded."""
        at = await self.runner.places.repository.resolve(people)
        assert at is not None
        known = self._mission().abilities
        if all(name in known and known[name].tree == at.tree for name in checks):
            return
        files = await self.runner.files(at.tree)
        digests = {name: ability.digest(check, files) for name, check in checks.items()}
        stale = {
            name: check for name, check in checks.items() if name not in known or known[name].digest != digests[name]
        }
        for group in checking.groups(stale):
            await self._measure(group, Ground(at.commit, at.tree, at.commit), files, digests)

    async def _measure(
        self, group: Group, ground: Ground, files: Mapping[str, bytes], digests: Mapping[str, str]
    ) -> None:
        typed = self.typed(group, files, f"base {group.command}", self._nonce())
        run = partial(self._run, group, ground, typed, None)
        seen, probes, looked = Seen(group.names), self._probes(group, files), frozenset[str]()
        if group.checks[0].metric is None:  # a canary is wanted whatever the base does
            looked = frozenset({"canary"})
            about = dict.fromkeys(group.names, looked)
            ran, _ = await both(run, partial(self._probed, probes, group, ground, files, about, seen))
        else:
            ran = await run()
            seen.floor = floor_of(group, ran, ROUGHLY)
        tests = self.tests(group, files, ran)
        holds = frozenset(group.names)
        if self._exit(group, ran) != 0:  # a failing group is divided by the tests that it reports
            passing = (name for name, each in tests.items() if each and "failed" not in each.values())
            holds = frozenset(passing if group.divisible else ())
        able = holds if seen.floor is None else frozenset(group.names)
        about = {name: (KINDS if name in able else frozenset({"canary"})) - looked for name in group.names}
        await self._probed(probes, group, ground, files, about, seen)
        runs = holds != set(group.names) and await self._runs(probes, group, ground, files)
        for name, each in seen.beside.items():  # there, an uncollectable file does not stop the others
            passed = {test: outcome for test, outcome in each.items() if outcome == "passed"}
            tests[name] = {**passed, **tests.get(name, {})}
        facts = [
            CheckProbed(
                criterion=name,
                tree=ground.tree,
                digest=digests[name],
                canary=ability_of("canary", name, group, probes, seen),
                flip="yes" if runs else ability_of("flip", name, group, probes, seen, base=name not in holds),
                data=ability_of("data", name, group, probes, seen, base=name not in holds),
                hollow=ability_of("hollow", name, group, probes, seen, base=name not in holds),
                reports=name in tests,
                collected=len(tests.get(name, {})),
                passed=sum(each == "passed" for each in tests.get(name, {}).values()),
                tests=dict(found) if len(found := tests.get(name, {})) <= TESTS_MAX else {},
                duration_ms=seen.duration_ms + ran.result.duration_ms,
            )
            for name in group.names
        ]
        await self.runner.shift.fact(*facts)

    async def _runs(self, probes: Sequence[Probe], group: Group, ground: Ground, files: Mapping[str, bytes]) -> bool:
        """Return True if only the judging programs decide the result of a check that fails at the base.

        In that case, altered comparison data must make a difference once the check passes.
        """
        for pair in filter(None, (ability.ends(probe, files) for probe in probes)):
            exits = []
            for changed in pair:
                ran = await self._run(group, ground, self.typed(group, files, f"ends {self._nonce()}", ""), changed)
                exits.append(self._exit(group, ran))
            return bool(exits[0]) and exits[1] == 0
        return False

    # --- before it counts --------------------------------------------------------------------------

    async def unsure(self, names: Sequence[str], ground: Ground) -> list[str]:
        """Return the criteria whose checks need a proof on this tree.

        A tree whose files all come from proven trees needs none, except for checks that were never proven.
        """
        mission, places = self._mission(), self.runner.places
        merge, sound = mission.merge, {mission.main_tree, ground.people}
        if merge is not None and merge.tree == ground.tree:
            sound |= {mission.tasks[name].tree for name in merge.tasks} & set(mission.proven_trees)
        laid = await places.laid(ground)
        differing = [[each.path for each in await places.repository.changes(tree, laid)] for tree in sorted(sound)]
        product = [path for path in proofs.fresh(differing) if not matches(path, mission.contract.protected)]
        return [name for name in names if product or name not in mission.proofs]

    async def prove(self, run: Run, names: Sequence[str], ground: Ground, key: str) -> Proved:
        """Prove that the checks of these criteria can fail on the tree on which they passed."""
        if not names:
            return Proved((), {}, frozenset())
        known = self._mission().abilities
        files, absent = await self.runner.present(run.group, ground)
        seen = Seen(names, absent, floor_of(run.group, run))
        laid = await self.runner.places.laid(ground)
        for name in names:
            if known[name].tree == laid:  # unchanged since it was measured
                seen.shown[name] = {kind for kind in proofs.wanted(known[name]) if getattr(known[name], kind) == "yes"}
        for attempt in range(TRIES):
            about = {
                name: (proofs.wanted(known[name]) if not attempt else proofs.lost(known[name], seen.shown[name]))
                - seen.shown[name]
                for name in names
            }
            group = run.group.part([name for name in names if about[name]])
            if group.names:
                probes = self._made.pop(group.names, ()) or self._probes(group, files)
                await self._probed(probes, group, ground, files, about, seen, run.tests)
        facts, lost = [], {}
        alone = not absent or bool(run.tests) or seen.alone or await self._alone(run.group, ground, files, seen)
        for name in names:
            gone = tuple(sorted(proofs.lost(known[name], seen.shown[name]) | (frozenset() if alone else {"apart"})))
            if gone:
                lost[name] = proofs.in_words(gone)
            facts.append(
                CheckProved(
                    criterion=name,
                    tree=ground.tree,
                    key=key,
                    shown=tuple(sorted(seen.shown[name])),
                    lost=gone,
                    output=checking.tail(run.result.output) if gone else "",
                    probe_output=seen.unseen.get(name, "") if gone else "",
                    runs=seen.runs,
                    duration_ms=seen.duration_ms,
                )
            )
        return Proved(tuple(facts), lost, frozenset(name for name in names if seen.confirms(name, run.tests)))

    async def ahead(self, run: Callable[[], Awaitable[Run | None]], group: Group, ground: Ground) -> Run | None:
        """Run a group that is expected to pass, and at the same time the probes that prove it if it does."""
        files, absent = await self.runner.present(group, ground)
        known, seen = self._mission().abilities, Seen(group.names, absent)
        about = {name: proofs.wanted(known[name]) for name in group.names}
        self._made[group.names] = probes = self._probes(group, files)

        async def early(probe: Probe) -> None:
            self._early[id(probe)] = probe, await self._probe_run(probe, group, ground, files, absent)

        wanted = [each for each in probes if each.kind != "empty" and left(each, group, about, seen)]
        found, _ = await both(run, partial(together, [partial(early, each) for each in wanted]))
        return found

    async def _alone(self, group: Group, ground: Ground, files: Mapping[str, bytes], seen: Seen) -> bool:
        """Return True if a check that reports no tests passes without the added test files."""
        typed = self.typed(group, files, f"alone {self._nonce()}", self._nonce())
        ran = await self._run(group, ground, typed, dict.fromkeys(seen.absent))
        seen.runs += 1
        seen.duration_ms += ran.result.duration_ms
        if self._exit(group, ran) == 0:
            return True
        for name in group.names:
            seen.unseen.setdefault(name, checking.tail(ran.result.output))
        return False

    async def _probed(
        self,
        probes: Sequence[Probe],
        group: Group,
        ground: Ground,
        files: Mapping[str, bytes],
        about: Mapping[str, frozenset[str]],
        seen: Seen,
        passed: Mapping[str, Tests] | None = None,
    ) -> None:
        """Run the probes that each criterion needs concurrently; the tree without the product comes last."""
        for last in (False, True):
            jobs = [
                partial(self._probe, probe, group, ground, files, names, seen, passed or {})
                for probe in probes
                if (probe.kind == "empty") is last and (names := left(probe, group, about, seen))
            ]
            await together(jobs)

    # --- counting ----------------------------------------------------------------------------------

    async def counted(self, group: Group, tests: Mapping[str, Tests]) -> dict[str, str]:
        """Find problems in the test report of a check with exit status 0, by criterion (S25)."""
        found: dict[str, str] = {}
        known = self._mission().abilities
        for name in group.names:
            if name not in known or not known[name].reports:
                continue
            if name not in tests:
                found[name] = "its runner reported its tests before the work, and reports none now"
                continue
            gone = ability.missing(await self._at_base(known[name], name), tests[name])
            if gone:
                more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
                found[name] = f"protected tests failed or did not run: {', '.join(gone[:3])}{more}"
        return found

    async def _at_base(self, known: CheckAbility, name: str) -> Tests:
        """Return the protected tests that were reported at the base."""
        shift, protected = self.runner.shift, self._mission().contract.protected
        event, *_ = await shift.doors.log.read(shift.state.session_id, after=known.seq - 1, limit=1)
        fact = event.fact
        assert isinstance(fact, CheckProbed)
        files = [path for path in await self.runner.files(known.tree) if matches(path, protected)]
        places = {*files, *(posixpath.dirname(path) or "." for path in files)}  # a runner may name only the folder
        return {each: outcome for each, outcome in fact.tests.items() if each.partition("::")[0] in places}

    # --- one run -----------------------------------------------------------------------------------

    def typed(self, group: Group, files: Mapping[str, bytes], label: str, nonce: str) -> Typed:
        """Return the command of a group, with a report if its runner can write one."""
        if group.checks[0].metric is not None:
            return Typed(label, checking.script(group), group.timeout_s)
        plan = ability.reporting(group.checks, files, nonce)
        return Typed(label, plan.command, group.timeout_s, plan.report)

    def tests(self, group: Group, files: Mapping[str, bytes], ran: Ran) -> dict[str, Tests]:
        """Return outcomes of tests by criterion, if the runner reported any."""
        if ran.report is None:
            return {}
        found = {
            name: ability.outcomes((check,), files, ran.report)
            for name, check in zip(group.names, group.checks, strict=True)
        }
        return {name: each for name, each in found.items() if each is not None}

    def _probes(self, group: Group, files: Mapping[str, bytes]) -> tuple[Probe, ...]:
        mission = self._mission()
        paths = proofs.paths_of(mission)
        about = [paths[name] for name in group.names]
        return ability.probes(
            group.checks, files, paths=about, protected=mission.contract.protected, nonce=self._nonce()
        )

    async def _probe(
        self,
        probe: Probe,
        group: Group,
        ground: Ground,
        files: Mapping[str, bytes],
        names: Collection[str],
        seen: Seen,
        passed: Mapping[str, Tests],
    ) -> None:
        """Run a probe, and note its result for these criteria.

        Tests that `passed` without it must pass beside it, which exposes a product that fools its checks only where
        there is no probe.
        """
        _, ran = self._early.pop(id(probe), (probe, None))
        ran = ran or await self._probe_run(probe, group, ground, files, seen.absent)
        there = _with(probe, files)
        laid = Group(group.names, probe.checks)
        seen.runs += 1
        seen.duration_ms += ran.result.duration_ms
        outcomes = ability.outcomes(laid.checks, there, ran.report) if ran.report is not None else None
        restate = (
            probe.same and self._exit(laid, ran) and not any(flakes.known(self._mission(), name) for name in names)
        )
        unlike = await self._unlike(probe, group, ground, seen) if restate else ""
        for index, name in enumerate(group.names):
            if name not in names:
                continue
            fallen = self._fallen(probe, index, name, outcomes, seen.present(passed.get(name, {})))
            if ability.shown(probe, index, self._exit(laid, ran, seen.floor), outcomes) and not fallen and not unlike:
                seen.shown[name].add(proofs.kind_of(probe.kind))
            else:
                said = f"passed as written, failed in a probe: {', '.join(fallen[:3])}\n" if fallen else ""
                seen.unseen.setdefault(name, unlike or said + checking.tail(ran.result.output))
        if probe.kind == "canary":
            planted = tuple(each for names in probe.ids.values() for each in names)
            for name, tests in self.tests(group, there, ran).items():
                seen.beside[name] = {each: end for each, end in tests.items() if not each.startswith(planted)}

    async def _probe_run(
        self, probe: Probe, group: Group, ground: Ground, files: Mapping[str, bytes], absent: Collection[str]
    ) -> Ran:
        nonce = self._nonce()
        typed = self.typed(Group(group.names, probe.checks), _with(probe, files), f"probe {nonce}", nonce)
        return await self._run(group, ground, typed, {**dict.fromkeys(absent), **probe.files})

    async def _unlike(self, probe: Probe, group: Group, ground: Ground, seen: Seen) -> str:
        """Return the output of a check that fails when its programs are restated; empty if it passes.

        A metric's value may be a little worse, since values vary.
        """
        typed = Typed(f"same {self._nonce()}", checking.script(group), group.timeout_s)
        ran = await self._run(group, ground, typed, {**dict.fromkeys(seen.absent), **probe.same})
        seen.runs += 1
        seen.duration_ms += ran.result.duration_ms
        metric, floor = group.checks[0].metric, seen.floor
        if metric is not None and floor is not None:
            floor -= max(metric.tolerance, abs(floor) * ROUGHLY)
        if self._exit(group, ran) == 0 or self._exit(group, ran, floor) == 0:
            seen.alone = True
            return ""
        return f"passed as written, failed when restated (other text, same meaning)\n{checking.tail(ran.result.output)}"

    def _fallen(self, probe: Probe, index: int, name: str, outcomes: Tests | None, passed: Tests) -> tuple[str, ...]:
        """Return the tests that passed without a probe and fail beside it, except those that it changed."""
        if probe.kind not in ("canary", "flip") or outcomes is None or flakes.known(self._mission(), name):
            return ()
        own = probe.ids.get(index, ())
        turned = {name_of(each) for each in own}  # another file may inherit it
        return tuple(
            each
            for each in ability.missing(passed, outcomes)
            if name_of(each) not in turned and not any(one in each for one in own)
        )

    async def _run(self, group: Group, ground: Ground, typed: Typed, changed: Mapping[str, bytes | None] | None) -> Ran:
        async def wanted(place: Place, laid: str) -> Typed:
            return typed

        unseen = names_hidden(group.checks[0], self._mission().contract)
        ran = await self.runner.run(ground, wanted, changed, unseen=unseen)
        assert ran is not None
        return ran

    def _exit(self, group: Group, ran: Ran, floor: float | None = None) -> int | None:
        """Return the exit status of a run; nonzero for a metric below its target or below the gain `floor`."""
        result = ran.result
        said = read_run(group, ran)
        metric = group.checks[0].metric
        if floor is not None and metric is not None and result.exit_code == 0:
            return int(metrics.gain(metric, said.value) < floor)
        return result.exit_code if said.outcome == "pass" or result.exit_code else 1 if said.outcome == "fail" else None

    def _nonce(self) -> str:
        return self._entropy(6).hex()


def _with(probe: Probe, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a tree with those of a probe."""
    return {path: data for path, data in {**files, **probe.files}.items() if data is not None}
