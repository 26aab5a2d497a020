"""What the oracle of a mission knows: items, true bodies, criteria, and which faults it is to have."""

from __future__ import annotations

import difflib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.proof.rebuild.contract import Criteria
from holdfast.proof.rebuild.items import WorkItem
from holdfast.proof.rebuild.strip import Block
from holdfast.proof.tampers import TAMPERS

WORKER_FAULTS = ("early_done", "tamper", "stuck", "wrong_body", "regress", "conflict", "wander", "anxious")
JUDGE_FAULTS = ("lenient", "silent", "contradicts", "crash")

EXAMPLE = "--fault early_done:0.3"

BETTER = 0.5
"""Each time that work was sent back, a fault is so much rarer: the same worker on the same thing does better, not well.
"""


class Fault(msgspec.Struct, frozen=True):
    """A fault and how often a first attempt has it. `name` is that of a tamper, empty for any."""

    kind: str
    rate: float
    name: str = ""

    @property
    def role(self) -> Literal["worker", "judge"]:
        """Whose it is."""
        return "judge" if self.kind in JUDGE_FAULTS else "worker"


class MissionAnswers(msgspec.Struct, frozen=True, tag="mission", tag_field="kind"):
    """Everything. `files` are the repository's at the beginning, `commands` what each item's worker runs at the end."""

    library: str
    items: tuple[WorkItem, ...]
    bodies: tuple[Block, ...]
    criteria: tuple[Criteria, ...]
    commands: dict[str, str]
    files: dict[str, bytes]
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    delta_s: float = 0.0

    def item(self, name: str) -> WorkItem | None:
        """The item of that name."""
        return next((item for item in self.items if item.name == name), None)

    def owner(self, body: int) -> str:
        """The item that writes a body."""
        return next((item.name for item in self.items if body in item.bodies), "")

    def fault(self, role: Literal["worker", "judge"], what: str, times: int) -> Fault | None:
        """The fault of one attempt: `what` names the work, `times` counts how often it was sent back.

        The same for the same seed. When several would come, the first that was asked for does.
        """
        for fault in self.faults:
            if fault.role == role:
                drawn = random.Random(f"{self.seed}|{fault.kind}|{fault.name}|{what}|{times}").random()
                if drawn < fault.rate * BETTER**times:
                    return fault
        return None

    def chooser(self, *words: object) -> random.Random:
        """Chance that depends on the seed and these words alone."""
        return random.Random("|".join(map(str, (self.seed, *words))))


def parse_faults(words: Sequence[str]) -> tuple[Fault, ...]:
    """The faults of `CLASS[:RATE]`, `tamper.NAME[:RATE]`. Raises `UsageError` with a right example."""
    return tuple(_fault(word) for word in words)


def _fault(word: str) -> Fault:
    kind, colon, rate_text = word.partition(":")
    kind, dot, name = kind.partition(".")
    known = (*WORKER_FAULTS, *JUDGE_FAULTS)
    if kind not in known or (dot and kind != "tamper"):
        near = difflib.get_close_matches(kind, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"--fault {word}: {hint}there are {', '.join(known)}; a right example is {EXAMPLE}")
    if dot and name not in TAMPERS:
        near = difflib.get_close_matches(name, TAMPERS, 3)
        raise UsageError(
            f"--fault {word}: there is no tamper {name!r}; {'near are ' + ', '.join(near) if near else 'one is'} "
            "--fault tamper.delete_test"
        )
    try:
        rate = float(rate_text) if colon else 1.0
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"--fault {word}: the rate is a number from 0 to 1; a right example is {EXAMPLE}")
    return Fault(kind, rate, name)


def save_mission_answers(path: Path, answers: MissionAnswers) -> None:
    """Write them to a file that no agent can reach."""
    path.write_bytes(msgspec.json.encode(answers))
