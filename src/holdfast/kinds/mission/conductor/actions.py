"""Actions of the conductor: `decide` names one, `acts.conducting` carries it out.

Besides these, it uses the actions of any session: `Record`, `End`, `CancelChildren`, `Expire`, `Notify`. An action with
an `effect` runs concurrently; `decide` gets the running effects and names none of them twice. An effect appends its
findings as events. If it ended with its process, the next conductor names it again.
"""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.mission import RoleKind
from holdfast.session.actions import Action


class OpenRole(msgspec.Struct, frozen=True):
    """Open a child for a role: its first event, `child.opened`, and the event with its purpose form one transaction.

    The workspace starts at `commit`; the harness commits the work to `ref`. A `judge` sees the difference from `base`.
    `attempt` counts children for the same purpose and is part of the child's id. `facts` come first in the transaction.
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
    """Append facts and, in the same transaction, send a message to a child, which then continues.

    The output of the checks at the positions `evidence` is added to the text.
    """

    child_id: str
    text: str
    facts: tuple[Fact, ...]
    evidence: tuple[int, ...] = ()


class RaiseChildren(msgspec.Struct, frozen=True):
    """Continue children that parked for the budget or a cap, after it was raised."""

    child_ids: tuple[str, ...]


class Open(msgspec.Struct, frozen=True):
    """Begin the mission: seal the contract and set the main branch to the base."""

    effect: str = "open"


class Inspect(msgspec.Struct, frozen=True):
    """Compare a task's tree with its base: ratchet, scope, dependencies."""

    effect: str
    task_id: str


class Verify(msgspec.Struct, frozen=True):
    """Run the checks of criteria on a clean checkout of a commit, with the protected files of the base (S25)."""

    effect: str
    commit: str
    tree: str
    criteria: tuple[str, ...]


class Assemble(msgspec.Struct, frozen=True):
    """Merge branches of tasks onto the main branch, without moving it, and new commits of the followed branch."""

    effect: str
    batch: int
    onto: str
    tasks: tuple[str, ...]
    base: str = ""


class Advance(msgspec.Struct, frozen=True):
    """Move the main branch to a green merge: a compare-and-swap that can be probed (S23)."""

    effect: str
    passed: tuple[str, ...]


class Look(msgspec.Struct, frozen=True):
    """Look for new commits on the followed branch, and for a main branch that another process moved."""

    effect: str


class Project(msgspec.Struct, frozen=True):
    """Update the mission's documents, and propose lessons for AGENTS.md."""

    effect: str


class EscalateMission(msgspec.Struct, frozen=True):
    """Ask the user how to continue, because replans are used up or a judge escalated."""

    why: str
    tried: tuple[str, ...]


class AwaitEffects(msgspec.Struct, frozen=True):
    """Wait until an effect ends or an event is posted."""


Effect = Open | Inspect | Verify | Assemble | Advance | Look | Project

MissionAction = Effect | OpenRole | TellRole | RaiseChildren | EscalateMission | AwaitEffects

Found = Action | MissionAction | None
"""Next action for one part of a mission; None if that part has nothing to do now."""
