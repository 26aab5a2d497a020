"""Knowledge of an oracle, kept in a file so that any process can wake a session that uses it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.proof.oracle.faults import Fault
from holdfast.proof.rebuild.contract import Criteria
from holdfast.proof.rebuild.items import WorkItem
from holdfast.proof.rebuild.strip import Block, Manifest

BETTER = 0.5
"""Factor on a fault's rate each time the work is sent back."""


class Answers(msgspec.Struct, frozen=True, tag="library", tag_field="kind"):
    """Answers for one session: the true bodies, the test commands, and the pause between streamed pieces."""

    manifest: Manifest
    suite_command: str
    quick_command: str
    delta_s: float = 0.0


class MissionAnswers(msgspec.Struct, frozen=True, tag="mission", tag_field="kind"):
    """Answers for a mission. `files` are the repository's at the start, `commands` the final test command by item."""

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
        """Return the item of that name."""
        return next((item for item in self.items if item.name == name), None)

    def fault(self, role: Literal["worker", "judge"], what: str, times: int) -> Fault | None:
        """Return the fault of one attempt: `what` names the work, `times` counts how often it was sent back.

        It depends on the seed alone. If several apply, the first in the list is taken.
        """
        for fault in self.faults:
            if fault.role == role:
                drawn = random.Random(f"{self.seed}|{fault.kind}|{fault.name}|{what}|{times}").random()
                if drawn < fault.rate * BETTER**times:
                    return fault
        return None

    def chooser(self, *words: object) -> random.Random:
        """Return a generator that depends on the seed and these words alone."""
        return random.Random("|".join(map(str, (self.seed, *words))))


def save_answers(path: Path, answers: Answers | MissionAnswers) -> None:
    """Write the answers to a file that agents cannot read."""
    path.write_bytes(msgspec.json.encode(answers))
