"""What a conductor can do next. `conductor.decide` names one; `holdfast.brain.acts` does it.

Beside these it uses actions of a session: `Record`, `End`, `CancelChildren`, `Expire`, `Notify`. An action with an
`effect` runs beside the others; the conductor is told the effects that run and names none of them twice. Whatever an
effect finds out, it appends as facts; one that died with its process is named again by the next conductor.
"""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.mission import RoleKind


class OpenRole(msgspec.Struct, frozen=True):
    """Open a child for a role: its first event, `child.opened` and the fact that says what for commit together.

    `commit` is what its workspace begins as; `ref` where the harness commits its work. A `judge` sees the difference
    from `base`. `attempt` counts children for the same thing, and is in the child's id. `facts` come first in the same
    transaction.
    """

    kind: RoleKind
    attempt: int
    commit: str
    task_id: str = ""
    base: str = ""
    ref: str = ""
    tree: str = ""
    criteria: tuple[str, ...] = ()
    round: int = 0
    facts: tuple[Fact, ...] = ()


class TellRole(msgspec.Struct, frozen=True):
    """Append facts and, in the same transaction, say something to a child, which is then at work again.

    The output of the checks at the events `evidence` is added to the text.
    """

    child_id: str
    text: str
    facts: tuple[Fact, ...]
    evidence: tuple[int, ...] = ()


class RaiseChildren(msgspec.Struct, frozen=True):
    """Have children go on that parked for money or a cap, now that there is more."""

    child_ids: tuple[str, ...]


class Open(msgspec.Struct, frozen=True):
    """Seal the contract, set the main line to the base, keep it: the mission begins."""

    effect: str = "open"


class Inspect(msgspec.Struct, frozen=True):
    """Hold a task's tree against its base: ratchet, scope, dependencies."""

    effect: str
    task_id: str


class Verify(msgspec.Struct, frozen=True):
    """Run these criteria's checks on a clean checkout of a commit, with the protected files as they were (S25)."""

    effect: str
    commit: str
    tree: str
    criteria: tuple[str, ...]


class Assemble(msgspec.Struct, frozen=True):
    """Build the merge of these tasks' branches onto the main line, and take in the followed branch when it moved."""

    effect: str
    batch: int
    onto: str
    tasks: tuple[str, ...]
    base: str = ""


class Advance(msgspec.Struct, frozen=True):
    """Move the main line to a merge that is green: a compare-and-swap that can be probed (S23)."""

    effect: str
    passed: tuple[str, ...]


class Look(msgspec.Struct, frozen=True):
    """See whether the followed branch or the main line was moved by somebody."""

    effect: str


class Project(msgspec.Struct, frozen=True):
    """Bring the mission's documents up to date, and propose lines for AGENTS.md that were earned."""

    effect: str


class EscalateMission(msgspec.Struct, frozen=True):
    """Ask a person how to go on: replans are used up, or a judge wants one."""

    why: str
    tried: tuple[str, ...]


class AwaitEffects(msgspec.Struct, frozen=True):
    """Nothing to decide until an effect that runs has come to its end, or something is posted."""


Effect = Open | Inspect | Verify | Assemble | Advance | Look | Project

MissionAction = Effect | OpenRole | TellRole | RaiseChildren | EscalateMission | AwaitEffects
