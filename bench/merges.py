"""What a merge queue costs: checks for each merge, runs that flaky tests cost, and merges a second beside plain git.

    python bench/merges.py [--seeds N] [--tasks N] [--bad SHARE] [--skip-flaky] [--skip-line]

The line: branches in a real repository, a given share of them bad, merged by the conductor's own steps; checks read the
files of each checkout. Then every first-parent commit is checked again from scratch. Target: at most 0.6 checks
for each merge, and every commit green.

The speed: merges and ref updates alone, against plain `git merge-tree`, `commit-tree`, and `update-ref`. Target: 10
per second.

The flaky suite: 100 branches and 100 tests, of which 2 or 10 fail at random, with bad branches among them. Runs are
counted by test, against those of the same branches with a steady suite. Target: no good branch sent back, no bad one
merged, at most 1.3 times the runs.
"""

from __future__ import annotations

import argparse
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.facts.mission import Check, Contract, Criterion, CriterionChecked, FlakeNoted, Item, MissionPolicy
from holdfast.facts.task import RepoMerged
from holdfast.hands.fake.calls import ROOT, Files
from holdfast.kinds.mission.acts import merging
from holdfast.kinds.mission.acts.replay import replay
from holdfast.kinds.mission.conductor import merges
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, Verify
from holdfast.repo.repository import Commit
from tests.brain.merge_stage import MergeStage, contract_of, criterion, state_of, task
from tests.repo.repositories import git, made

CHECKS, RUNS, SPEED = 0.6, 1.3, 10.0
SUITE = 100


class Line(NamedTuple):
    """What one line cost."""

    merged: int
    checks: int
    left: int
    wrong: int
    commits: int
    red: int


async def line(base: Path, seed: int, tasks: int, bad: float, gate: str) -> Line:
    """Merge branches in a real repository, then replay it."""
    chance = random.Random(seed)
    names = [f"t{number:02}" for number in range(tasks)]
    worse = set(chance.sample(names, round(tasks * bad)))
    files = {f"{name}.txt": b"todo\n" for name in names} | {"shared.txt": b"calm\n"}
    folder = base / f"{gate}-{seed}"
    made(folder / "repo", files)
    criteria = [criterion(name, f"{name}.txt", "done") for name in names]
    guard = criterion("calm", "shared.txt", "calm", guard=True)
    policy = MissionPolicy(hooks=False, judge="off", gate=gate)  # type: ignore[arg-type]
    stage = MergeStage(contract_of([*criteria, guard]), policy=policy, real=folder)
    shift = await stage.begin(*(task(name, name) for name in names))
    for name in names:
        work: dict[str, bytes | None] = {f"{name}.txt": b"done\n"}
        work |= {f"breaks-{name}.txt": b"x\n"} if name in worse else {}
        if name in worse:
            work["shared.txt"] = b"angry\n"
        await stage.queue(shift, name, await stage.branch(work, words=name))
    await stage.drain(shift)
    mission = state_of(shift)
    merged = {name for name, each in mission.tasks.items() if each.status == "merged"}
    again = [each async for each in replay(stage.doors, stage.mission_id)]
    red = sum(bool(each.failed) or not each.known for each in again)
    shutil.rmtree(folder)
    return Line(len(merged), stage.verified, tasks - len(merged), len(merged & worse), len(again), red)


async def lines(base: Path, seeds: int, tasks: int, bad: float) -> bool:
    """The table of lines. True when the targets are met."""
    print(
        f"\n{tasks} branches, {bad:.0%} bad\n{'gate':14}{'seed':>5}{'merged':>8}{'checks':>8}{'per merge':>11}  replay"
    )
    fine = True
    for gate in ("batch", "green_branch", "each"):
        shares = []
        for seed in range(seeds if gate == "batch" else 1):
            found = await line(base, seed, tasks, bad, gate)
            shares.append(found.checks / found.merged)
            print(
                f"{gate:14}{seed:5}{found.merged:8}{found.checks:8}{shares[-1]:11.3f}  "
                f"{found.commits} commits, {found.red} red; bad ones merged: {found.wrong}",
                flush=True,
            )
            fine &= not found.red and not found.wrong and found.left == round(tasks * bad)
            fine &= gate != "batch" or shares[-1] <= CHECKS
        if gate == "batch":
            print(f"{'':14}{'mean':>5}{statistics.mean(shares):27.3f}  target {CHECKS}")
    return fine


async def speed(base: Path, count: int) -> bool:
    """Merges and moves alone, one branch each, beside git's own plumbing by hand."""
    names = [f"t{number:03}" for number in range(count)]
    files = {f"{name}.txt": b"todo\n" for name in names}
    files |= {f"src/d{number % 40}/f{number}.py": b"def f(): ...\n" * 40 for number in range(1_000)}
    folder = base / "speed"
    repo = made(folder / "repo", files)
    policy = MissionPolicy(hooks=False, judge="off", gate="each")
    nothing = Contract("g", tuple(Item(name, "", criteria=(Criterion(name, "a rubric"),)) for name in names))
    stage = MergeStage(nothing, policy=policy, real=folder)
    shift = await stage.begin(*(task(name, name) for name in names))
    made_by: list[Commit] = []
    for name in names:
        made_by.append(await stage.branch({f"{name}.txt": b"done\n"}, words=name))
        await stage.queue(shift, name, made_by[-1])
    begun = time.monotonic()
    while True:
        action = merges.step(shift.state, state_of(shift), frozenset())
        if isinstance(action, Assemble):
            await merging.assemble(shift, action)
        elif isinstance(action, Advance):
            await merging.advance(shift, action)
        else:
            assert not isinstance(action, Verify)
            break
    ours = count / (time.monotonic() - begun)
    assert all(each.status == "merged" for each in state_of(shift).tasks.values())
    begun = time.monotonic()
    head = stage.base.commit
    for each in made_by:
        tree = git(repo, "merge-tree", "--write-tree", head, each.commit)
        new = git(repo, "commit-tree", tree, "-p", head, "-p", each.commit, "-m", "x")
        git(repo, "update-ref", "refs/heads/floor", new, *([head] if head != stage.base.commit else []))
        head = new
    floor = count / (time.monotonic() - begun)
    print(
        f"\n{count} branches, {len(files)} files; merges a second: {ours:.1f}; git by hand {floor:.1f}; target {SPEED}"
    )
    return ours >= SPEED


class Suite:
    """Tests that fail by chance, or because a branch broke them. Counts each test that is run."""

    def __init__(self, moods: dict[str, float], chance: random.Random) -> None:
        self.moods = moods
        self.chance = chance
        self.tests = 0
        self.commands = 0

    def __call__(self, command: str, files: Files) -> tuple[int, str]:
        """`t NAME…`: fails when any of them does."""
        names = command.split()[1:]
        self.commands += 1
        self.tests += len(names)
        bad = [
            name
            for name in names
            if f"{ROOT}/broken/{name}" in files or (name in self.moods and self.chance.random() < self.moods[name])
        ]
        return (1, "".join(f"FAILED {name}\n" for name in bad)) if bad else (0, f"{len(names)} passed\n")


class Moody(NamedTuple):
    """What a suite cost, and what it decided wrongly."""

    tests: int
    commands: int
    sent_back: int
    admitted: int
    merged: int
    flakes: int
    verdicts: int


async def suite(seed: int, share: float, rate: float, gate: str, size: int = SUITE) -> Moody:
    """Merge a hundred branches under a suite of so many tests, of which that share fails at that rate."""
    chance, merges_wanted = random.Random(seed), 100
    tests = [f"n{number}" for number in range(size)]
    unreliable = chance.sample(tests, round(size * share)) if share else []
    names = [f"t{number}" for number in range(merges_wanted)]
    worse = set(chance.sample(names, merges_wanted // 10))
    broken = {
        name: chance.choice(unreliable or tests) if chance.random() < 0.3 else chance.choice(tests) for name in worse
    }
    runs = Suite(dict.fromkeys(unreliable, rate), random.Random(seed + 1))
    contract = Contract(
        "g", tuple(Item(test, "", criteria=(Criterion(test, "", Check("t", (test,))),)) for test in tests)
    )
    policy = MissionPolicy(hooks=False, judge="off", gate=gate)  # type: ignore[arg-type]
    stage = MergeStage(contract, {"a.txt": b"x\n"}, policy=policy, checks=runs)
    shift = await stage.begin(*(task(name) for name in names))
    mission = state_of(shift)
    held = RepoMerged(
        batch=0, ref=mission.ref, commit=mission.main, tree=mission.main_tree, onto=mission.main, passed=tuple(tests)
    )
    await shift.fact(held)
    for name in names:
        work: dict[str, bytes | None] = {f"{name}.txt": b"done\n"}
        if name in worse:
            work[f"broken/{broken[name]}"] = name.encode()
        await stage.queue(shift, name, await stage.branch(work, words=name))
    await stage.drain(shift, most=20_000)
    merged = {name for name, each in state_of(shift).tasks.items() if each.status == "merged"}
    back = {name for name, each in state_of(shift).tasks.items() if each.refusals}
    noted, checked = await stage.facts(FlakeNoted), await stage.facts(CriterionChecked)
    return Moody(
        runs.tests, runs.commands, len(back - worse), len(merged & worse), len(merged), len(noted), len(checked)
    )


async def suites(seeds: int) -> bool:
    """The tables of flaky suites. True when the targets are met."""
    print(
        f"\n100 branches (10 bad), {SUITE} tests, or one that is the whole suite; runs beside those of a steady suite"
    )
    head = f"{'gate':8}{'tests':>7}{'flaky':>7}{'fails':>7}{'seeds':>7}{'runs ×':>9}{'worst':>8}{'commands ×':>12}"
    print(f"{head}  sent back wrongly, admitted")
    fine = True
    for gate in ("each", "batch"):
        for size, shares, rates in ((SUITE, (0.02, 0.1), (0.05, 0.1, 0.3)), (1, (1.0,), (0.02, 0.1))):
            steady = [await suite(seed, 0, 0, gate, size) for seed in range(seeds)]
            for share in shares:
                for rate in rates:
                    found = [await suite(seed, share, rate, gate, size) for seed in range(seeds)]
                    fine &= _row(f"{gate:8}{size:7}{share:7.0%}{rate:7.0%}{seeds:7}", found, steady)
    return fine


def _row(head: str, found: list[Moody], steady: list[Moody]) -> bool:
    times = [one.tests / other.tests for one, other in zip(found, steady, strict=True)]
    typed = statistics.mean(one.commands / other.commands for one, other in zip(found, steady, strict=True))
    back, wrong = sum(each.sent_back for each in found), sum(each.admitted for each in found)
    middle = statistics.mean(times)
    good, bad = 90 * len(found), 10 * len(found)
    print(f"{head}{middle:9.3f}{max(times):8.3f}{typed:12.2f}  {back} of {good}, {wrong} of {bad}", flush=True)
    return not back and not wrong and middle <= RUNS


def main() -> int:
    """All tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--bad", type=float, default=0.1)
    parser.add_argument("--skip-flaky", action="store_true")
    parser.add_argument("--skip-line", action="store_true")
    given = parser.parse_args()
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"Python {platform.python_version()}, {version}, {platform.machine()}")
    fine = True
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        if not given.skip_line:
            fine &= anyio.run(lines, Path(folder), given.seeds, given.tasks, given.bad)
            fine &= anyio.run(speed, Path(folder), 100)
    if not given.skip_flaky:
        fine &= anyio.run(suites, given.seeds)
    print("\nall targets met" if fine else "\nA TARGET WAS MISSED")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
