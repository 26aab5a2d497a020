"""What it costs to prove that checks can fail: canary, flips, hollow trees and confirming runs of a whole mission.

    python bench/proofs.py [--items N] [--seconds S] [--turn S]

A mission of N items, each a module with a test file of its own that takes S seconds, in real hands with pytest. Each
task's tree is verified, merged, and verified again as a part of the main branch; at the end all checks are proven on
the last tree. Once with proofs, once without, on the same machine one after the other. Targets: at most 1.5 times the
check time, and at most 15 % of the wall time of the mission when each model turn takes 5 s (a worker has four turns for
an item, two work at a time).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.facts.mission import Contract, CriterionChecked, Item, MissionPolicy
from holdfast.facts.task import Ability, CheckProbed, CheckProved, TaskHandedIn, TaskInspected, TaskQueued, TaskStarted
from holdfast.kinds.mission.acts import merging, verifying
from holdfast.kinds.mission.conductor import merges
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, Verify
from holdfast.kinds.mission.fold.state import BASE
from holdfast.session.actions import Record
from tests.brain.merge_stage import state_of
from tests.brain.proving_stage import PYTEST, ProvingStage, criterion, proving

RATIO, SHARE = 1.5, 0.15
TURNS, WORKERS = 4, 2


class Cost(NamedTuple):
    """Seconds of one mission: in verifications, and the runs and proofs that they had."""

    checks_s: float
    before_s: float
    verdicts: int
    proofs: int
    merged: int


def library(items: int, seconds: float) -> dict[str, bytes]:
    """Modules without bodies, and a test file for each."""
    files = {}
    for number in range(items):
        files[f"m{number}.py"] = f"def f{number}(n):\n    raise NotImplementedError\n".encode()
        files[f"tests/test_m{number}.py"] = (
            f"import time\nfrom m{number} import f{number}\n\n\ndef test_f{number}():\n    time.sleep({seconds})\n"
            f"    assert f{number}(1) == {number + 1}\n"
        ).encode()
    return files


def contract(items: int) -> Contract:
    """One criterion for each module."""
    return Contract(
        "a library",
        tuple(
            Item(f"i{n}", f"m{n}", criteria=(criterion(f"i{n}", PYTEST, f"tests/test_m{n}.py"),), paths=(f"m{n}.py",))
            for n in range(items)
        ),
        ("tests/**",),
    )


async def cost(base: Path, items: int, seconds: float, *, proofs: bool) -> Cost:
    """One mission, from its base to the last proof on its last tree."""
    policy = MissionPolicy(judge="off", hooks=False, confirm_runs=3 if proofs else 1)
    async with proving(base, contract(items), library(items, seconds), policy) as stage:
        began = time.perf_counter()
        mission = state_of(stage.shift)
        if proofs:
            await verifying.verify(stage.shift, Verify(BASE, mission.main, mission.main_tree, ()))
        else:
            names = mission.contract.criteria()
            none: Ability = "impossible"
            await stage.shift.fact(
                *(CheckProbed(name, mission.main_tree, "", none, none, none, "no") for name in names)
            )
        before = time.perf_counter() - began
        checks = 0.0
        for number in range(items):
            checks += await _task(stage, f"i{number}", number)
        last = merges.last_proof(state_of(stage.shift))
        if proofs and last is not None:
            checks += await _verify(stage, last)
        merged = sum(each.status == "merged" for each in state_of(stage.shift).tasks.values())
        verdicts, proved = len(await stage.facts(CriterionChecked)), len(await stage.facts(CheckProved))
        return Cost(checks, before, verdicts, proved, merged)


async def _task(stage: ProvingStage, name: str, number: int) -> float:
    """Verify what a worker hands in, merge it, and verify the merge: the seconds of both verifications."""
    body = f"def f{number}(n):\n    return n + {number}\n".encode()
    commit, tree = stage.commit({f"m{number}.py": body}, name)
    shift, spent = stage.shift, 0.0
    await shift.fact(
        TaskStarted(task_id=name, child_id=f"ses_{name}", attempt=1, base=state_of(shift).main, ref=f"refs/x/{name}"),
        TaskHandedIn(task_id=name, child_id=f"ses_{name}", status="done", commit=commit, tree=tree),
        TaskInspected(task_id=name, tree=tree, files=(f"m{number}.py",)),
    )
    spent += await _verify(stage, Verify(f"task:{name}", commit, tree, (name,)))
    await shift.fact(TaskQueued(task_id=name, commit=commit, tree=tree))
    while (action := merges.step(shift.state, state_of(shift), frozenset())) is not None:
        match action:
            case Assemble():
                await merging.assemble(shift, action)
            case Verify():
                spent += await _verify(stage, action)
            case Advance():
                await merging.advance(shift, action)
            case Record(facts=facts):
                await shift.fact(*facts)
    return spent


async def _verify(stage: ProvingStage, action: Verify) -> float:
    began = time.perf_counter()
    await verifying.verify(stage.shift, action)
    return time.perf_counter() - began


async def compared(base: Path, items: int, seconds: float, turn: float) -> tuple[float, float]:
    """The ratio of check times, and the share of the wall time that proofs have; what they are made of is printed."""
    plain = await cost(base / "plain", items, seconds, proofs=False)
    proven = await cost(base / "proven", items, seconds, proofs=True)
    model = TURNS * turn * items / WORKERS
    ratio = (proven.checks_s + proven.before_s) / plain.checks_s
    added = proven.checks_s + proven.before_s - plain.checks_s
    share = added / (model + proven.checks_s + proven.before_s)
    print(f"{items} items, tests of {seconds:g} s, {platform.machine()} with {os.cpu_count()} processors")
    print(f"without proofs: {plain.checks_s:.1f} s of checks, {plain.verdicts} verdicts, {plain.merged} merged")
    print(f"with proofs:    {proven.checks_s:.1f} s of checks and {proven.before_s:.1f} s before the work, ", end="")
    print(f"{proven.proofs} proofs, {proven.verdicts} verdicts, {proven.merged} merged")
    print(f"check time: {ratio:.2f} times (target {RATIO}); wall: {share:.1%} of it (target {SHARE:.0%})")
    return ratio, share


def main() -> int:
    """Measure, print, and compare with the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--turn", type=float, default=5.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        ratio, share = anyio.run(compared, Path(folder), given.items, given.seconds, given.turn)
    return 0 if ratio <= RATIO and share <= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
