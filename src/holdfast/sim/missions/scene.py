"""Scene of a simulated mission: its contract, files, checks, and fault rates.

Every item is a module with values. A criterion is met if the module has the value that its test expects, so it is known
without running anything whether a tree meets it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, MutableMapping
from random import Random

from holdfast.facts.mission import Check, Contract, Criterion, Item, Metric, MissionPolicy

GUARD = "guard"
"""Guard criterion, met from the start."""

SPEED = "m.speed"
"""Criterion with a metric, in some scenes: a number in a file that can be raised in steps."""

BASE = "src/base.py"
SHARED = "src/shared.py"

WORKER_FAULTS = ("early_done", "wrong_body", "regress", "conflict", "tamper", "wander", "stuck")
JUDGE_FAULTS = ("lenient", "silent", "contradicts", "crash", "empty", "invents")

BETTER = 0.5
"""Factor by which a worker's fault rate drops each time its work is sent back. Judges do not learn."""

RUBRIC_SHARE = 0.3
METRIC_SHARE = 0.3

_ASSERTED = re.compile(r"def test_(\w+)\(\):\n    assert \w+ == (\d+)")


class Scene:
    """Mission of a seed. With `plain`, tasks do not interfere, so the met criteria do not depend on order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = self.chance("scene")
        self.plain = chance.random() < 0.4
        self.loose = not self.plain and chance.random() < 0.5
        self.wants: dict[str, tuple[str, str, int]] = {GUARD: (BASE, "base", 1)}
        self.items = [self._item(number, chance) for number in range(chance.randint(2, 5))]
        self.metric = Metric(self.chance("target").randint(3, 6), self.chance("tolerance").choice((0, 1)))
        if self.chance("metric").random() < METRIC_SHARE:
            self.items.append(self._measured())
        self.rubric = {each.id for item in self.items for each in item.criteria if each.check is None}
        self.rates = self._rates(chance)
        self.policy = self._policy(chance)
        check = Check("check", ("tests/test_base.py::test_base",))
        guard = Item("base", "what there is goes on", criteria=(Criterion(GUARD, "base is 1", check, guard=True),))
        self.contract = Contract("all values are right", (*self.items, guard), ("tests/**",), "feature_list.json")
        self.follows = not self.plain and chance.random() < 0.5
        self.half = chance.random() < 0.2

    def chance(self, *words: object) -> Random:
        """Return randomness that depends only on the seed and these words."""
        return Random("|".join(map(str, ("mission", self.seed, *words))))

    def _item(self, number: int, chance: Random) -> Item:
        path = f"src/m{number}.py"
        criteria = []
        for name in "ab"[: chance.randint(1, 2)]:
            key = f"i{number}.{name}"
            self.wants[key] = (path, name, chance.randint(2, 9))
            check = Check("check", (f"tests/test_m{number}.py::test_{name}",))
            by_rubric = chance.random() < RUBRIC_SHARE
            criteria.append(Criterion(key, f"{name} is as it should be", None if by_rubric else check))
        depends = (f"i{number - 1}",) if number and chance.random() < 0.25 else ()
        return Item(
            f"i{number}",
            f"i{number}: the values of {path}",
            criteria=tuple(criteria),
            paths=() if self.loose else (path,),
            depends=depends,
        )

    def _measured(self) -> Item:
        path = "src/speed.py"
        self.wants[SPEED] = (path, "speed", int(self.metric.target))
        criterion = Criterion(SPEED, "it is fast", Check("measure", metric=self.metric))
        return Item("m", "m: the speed", criteria=(criterion,), paths=() if self.loose else (path,))

    def _rates(self, chance: Random) -> dict[str, float]:
        rates = dict.fromkeys(("early_done", "wrong_body"), 0.3)
        for kind in ("regress", "conflict"):
            rates[kind] = 0.0 if self.plain else chance.choice((0.0, 0.2, 0.5))
        for kind in ("tamper", "wander", "stuck"):
            rates[kind] = chance.choice((0.0, 0.1, 0.3))
        for kind in JUDGE_FAULTS:
            rates[kind] = chance.choice((0.0, 0.15, 0.4)) if kind not in ("empty", "invents") else 0.05
        return rates

    def _policy(self, chance: Random) -> MissionPolicy:
        return MissionPolicy(
            planner=chance.choice(("model", "items")),
            judge=chance.choice(("per_task", "per_task", "per_task", "at_end")),
            gate=chance.choice(("each", "batch", "green_branch")),
            context="off",
            workers=chance.randint(1, 3),
            max_iterations=chance.randint(1, 3),
            max_attempts=chance.randint(1, 3),
            max_replans=chance.randint(0, 2),
            judge_tries=chance.randint(2, 3),
            flake_reruns=chance.randint(0, 2),
            confirm_runs=self.chance("runs").randint(1, 3),
            plateau=self.chance("plateau").randint(1, 3),
            scope="list" if self.loose else "refuse",
            lessons="off",
            hooks=False,
            documents=chance.random() < 0.2,
        )

    # --- files and the criteria that they meet ---

    def files(self) -> dict[str, bytes]:
        """Return the repository before the work."""
        out = {BASE: b"base = 1\n", SHARED: b"head = 0\n", "README.md": b"Values.\n"}
        tests: dict[str, list[str]] = {}
        for key, (path, name, value) in self.wants.items():
            if key == SPEED:
                out[path] = b"speed = 1\n"
                continue
            test = f"tests/test_{path.removeprefix('src/')}"
            tests.setdefault(test, []).append(f"def test_{name}():\n    assert {name} == {value}\n")
            out.setdefault(path, b"")
            if path != BASE:
                out[path] += f"{name} = 0\n".encode()
        return out | {path: "\n\n".join(each).encode() for path, each in tests.items()}

    def holds(self, files: Mapping[str, bytes], criterion: str) -> bool:
        """Return True if these files, by path, meet a criterion."""
        path, name, value = self.wants[criterion]
        if criterion == SPEED:
            return speed_of(files) >= self.metric.target - self.metric.tolerance
        return f"{name} = {value}" in files.get(path, b"").decode().splitlines()

    def true_of(self, files: Mapping[str, bytes]) -> frozenset[str]:
        """Return all criteria that these files meet."""
        return frozenset(name for name in self.wants if self.holds(files, name))

    def module(self, item_id: str, fault: str, chance: Random) -> str:
        """Return the module of an item as written by a worker with that fault."""
        own = [each for each in self.wants.items() if each[0].startswith(f"{item_id}.")]
        wrong = {"wrong_body": {chance.choice(own)[0]}, "early_done": {own[-1][0]}, "tamper": {own[0][0]}}.get(
            fault, set()
        )
        lines = [f"{name} = {value + 1 if key in wrong else value}" for key, (_, name, value) in own]
        return "\n".join(lines) + "\n"

    def fault(self, role: str, kinds: tuple[str, ...], what: str, times: int) -> str:
        """Return the fault of one attempt at `what`, after `times` failed ones; empty for none."""
        for kind in kinds:
            better = BETTER**times if role == "worker" else 1.0
            if self.chance(role, kind, what, times).random() < self.rates[kind] * better:
                return kind
        return ""


def speed_of(files: Mapping[str, bytes]) -> int:
    """Return the number that `measure` prints for these files, 0 without one."""
    found = re.search(r"speed = (-?\d+)", files.get("src/speed.py", b"").decode())
    return int(found[1]) if found else 0


def checked(command: str, files: Mapping[str, bytes]) -> tuple[int, str]:
    """Run `check TEST…` or `measure` on the files of a workspace, which they trust."""
    if "measure" in command:
        return 0, f"{speed_of(files)}\n"
    lines = []
    for word in shlex.split(command)[1:]:
        path, _, test = word.partition("::")
        wanted = dict(_ASSERTED.findall(files.get(path, b"").decode()))
        name = test.removeprefix("test_")
        module = files.get(f"src/{path.removeprefix('tests/test_')}", b"").decode()
        good = name in wanted and f"{name} = {wanted[name]}" in module.splitlines()
        lines.append(f"{word} {'PASSED' if good else 'FAILED'}")
    return int(any(line.endswith("FAILED") for line in lines)), "\n".join(lines)


def put(command: str, files: MutableMapping[str, bytes]) -> tuple[int, str]:
    """Run `put {PATH: TEXT}` on the files of a workspace."""
    given = json.loads(command.removeprefix("put "))
    for path, text in given.items():
        files[path] = text.encode()
    return 0, f"{len(given)} files written"
