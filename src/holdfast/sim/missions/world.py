"""Simulated world of one mission: a repository in memory, and the history that the rules judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import (
    Criterion,
    CriterionChecked,
    Mission,
    MissionFinished,
    MissionPlanned,
    MissionReplanned,
    VerificationStarted,
    WorkSubmitted,
)
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.facts.task import RepoMerged, TaskJudged
from holdfast.hands.fake.calls import ROOT, Files
from holdfast.ids import new_session_id
from holdfast.kinds.mission.fold.state import LAST
from holdfast.repo.fake import Folder
from holdfast.repo.fake_repository import FakeRepository
from holdfast.session.tools import DEFAULT_TOOLS
from holdfast.sim.missions.scene import Scene, checked, put
from holdfast.sim.script import Script
from holdfast.sim.world import CALM, Session, Weather, World


class View(MutableMapping[str, bytes]):
    """Files of a workspace by relative path."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __getitem__(self, path: str) -> bytes:
        return self._files[f"{ROOT}/{path}"]

    def __setitem__(self, path: str, data: bytes) -> None:
        self._files[f"{ROOT}/{path}"] = data

    def __delitem__(self, path: str) -> None:
        del self._files[f"{ROOT}/{path}"]

    def __iter__(self) -> Iterator[str]:
        return (path.removeprefix(f"{ROOT}/") for path in list(self._files))

    def __len__(self) -> int:
        return len(self._files)


class Folders(MutableMapping[Path, Folder]):
    """Workspaces of hands in memory, as the folders of a repository in memory."""

    def __init__(self, workspaces: dict[str, Files]) -> None:
        self._workspaces = workspaces

    def __getitem__(self, path: Path) -> Folder:
        return View(self._workspaces[str(path)])

    def __setitem__(self, path: Path, files: Folder) -> None:
        self._workspaces[str(path)] = Files()
        self[path].update(files)

    def __delitem__(self, path: Path) -> None:
        del self._workspaces[str(path)]

    def __iter__(self) -> Iterator[Path]:
        return (Path(each) for each in self._workspaces)

    def __len__(self) -> int:
        return len(self._workspaces)

    def setdefault(self, path: Path, default: Folder | None = None) -> Folder:
        """Return a view of the folder, never `default`."""
        self._workspaces.setdefault(str(path), Files())
        return self[path]


FOLLOWED = "refs/heads/main"
MAIN = "refs/heads/holdfast/sim/main"
WIDTH = 4

ROUNDS = 60_000
"""Largest number of loop rounds: ten times those of the longest mission."""


@dataclass(frozen=True)
class Move:
    """Move of a ref by a process of the mission, and the head of its log then."""

    head: int
    ref: str
    new: str


class MissionWorld(World):
    """Mission and its surroundings. `cap_pico` is its budget; `calm` weather has no faults."""

    def __init__(self, seed: int, *, calm: bool, cap_pico: int | None = None) -> None:
        super().__init__(seed, family=False)
        self.scene = Scene(seed)
        self.weather = CALM if calm else _weather(self.chance)
        self.calm = calm
        self.cap_pico = cap_pico
        self.width = WIDTH
        self.eager = False
        self.loop.allow(ROUNDS)
        self.folders = Folders(self.hands.workspaces)
        self.repository = FakeRepository(self.folders)
        self.base = self.repository.seed(self.scene.files())
        self.mission_id = new_session_id(self.clock.now_us(), self.entropy)
        self.moves: list[Move] = []
        self.human: list[str] = []
        self.human_heads: list[int] = []
        self.requests = 0
        self.tempted: dict[str, bool] = {}
        self.faulty: set[str] = set()

    def created(self) -> SessionCreated:
        """Return the event that opens the mission."""
        scene = self.scene
        mission = Mission(
            "sim", "/repo", self.base.commit, scene.contract, FOLLOWED if scene.follows else "", scene.policy
        )
        return SessionCreated(
            goal=scene.contract.goal,
            agent=Agent(model="sim:first", name="mission", tools=DEFAULT_TOOLS),
            workspace=Workspace("/made/mission", True),
            limits=Limits(budget_pico=self.cap_pico, max_output_tokens=1024, max_attempts=40),
            mission=mission,
        )

    def script(self, name: str) -> Script:
        """Return an empty script with a name, for sessions with a price."""
        return Script(name, 0, 0, 0.0, priced=True)

    def _born(self, event: Event) -> Session:
        created = event.fact
        assert isinstance(created, SessionCreated)
        assert created.role is not None
        name = " ".join(each for each in (created.role.kind, created.role.task_id, event.session_id[-4:]) if each)
        born = Session(event.session_id, created, self.script(name))
        self.add(born)
        return born

    def roles_before(self, session_id: str, kind: str, item: str) -> int:
        """Count the earlier sessions with that role for a task of that item."""
        count = 0
        for session in self.sessions.values():
            if session.session_id == session_id:
                break
            role = session.created.role
            count += role is not None and role.kind == kind and role.task_id.partition("-")[0] == item
        return count

    def folder(self, path: str) -> dict[str, bytes]:
        """Return the files of a workspace by relative path."""
        return dict(self.folders[Path(path)])

    def tree(self, commit: str) -> dict[str, bytes]:
        """Return the files of a commit or tree, read without a door call."""
        repository = self.repository
        return {path.decode(): repository._blobs[entry.id] for path, entry in repository._entries(commit).items()}

    def line(self, commit: str) -> list[str]:
        """Return the commits of a first-parent line, the latest first."""
        out = [commit]
        while parents := self.repository._commits[out[-1]].parents:
            out.append(parents[0])
        return out

    def has(self, commit: str, inside: str) -> bool:
        """Return True if `commit` is an ancestor of `inside`."""
        return commit in self.repository._line(inside)

    def workspace(self, session_id: str) -> str:
        """Create a workspace if needed, and return its path."""
        path = f"/made/{session_id}"
        self.hands.files(path)
        return path

    def discard(self, workspace: Workspace) -> None:
        """Remove a workspace."""
        self.hands.workspaces.pop(workspace.path, None)

    def _command(self, command: str, files: Files) -> tuple[int, str]:
        inside = View(files)
        if command.startswith("put "):
            return put(command, inside)
        return checked(command, inside)

    def person_commits(self, files: Mapping[str, bytes]) -> None:
        """Commit changes to the followed branch, as a user does."""
        present = self.tree(self.repository.refs[FOLLOWED])
        made = self.repository.seed({**present, **files}, "by hand", ref=FOLLOWED, at_us=self.clock.now_us())
        self.human.append(made.commit)
        self.human_heads.append(self.sessions[self.mission_id].head)
        self.note("people", f"commit {made.commit[:7]} {' '.join(files)}")

    def moved(self, who: str, ref: str, new: str) -> None:
        """Record the move of a ref."""
        self.moves.append(Move(self.sessions[self.mission_id].head, ref, new))
        self.note(who, f"{ref} at {new[:7]}")


def _weather(chance: Random) -> Weather:
    """Draw the weather of a seed; each fault is absent in some seeds."""

    def rate(share: float, most: float) -> float:
        return chance.uniform(most / 8, most) if chance.random() < share else 0.0

    return replace(
        CALM,
        kill=rate(0.8, 0.01),
        freeze=rate(0.3, 0.002),
        stop=rate(0.3, 0.003),
        delay=chance.uniform(0.0, 0.2),
        hands_die=rate(0.6, 0.15),
        echo=rate(0.3, 0.1),
    )


F = TypeVar("F", bound=Fact)


class MissionHistory:
    """Log of a mission with the truth about its trees. `approvals` counts approvals to continue."""

    def __init__(self, world: MissionWorld, approvals: int) -> None:
        self.world = world
        self.scene = world.scene
        self.policy = world.scene.policy
        self.approvals = approvals
        self.events = world.events[world.mission_id]
        self.criteria: dict[str, Criterion] = world.scene.contract.criteria()
        self.executable = frozenset(name for name, each in self.criteria.items() if each.check is not None)
        self._true: dict[str, frozenset[str]] = {}

    def of(self, kind: type[F], before: int = 2**62) -> Iterator[tuple[Event, F]]:
        """Return the facts of a type before a position, each with its event."""
        for event in self.events:
            if event.seq < before and isinstance(event.fact, kind):
                yield event, event.fact

    def true(self, tree: str) -> frozenset[str]:
        """Return the criteria that the files of a commit or tree meet."""
        if tree not in self._true:
            self._true[tree] = self.scene.true_of(self.world.tree(tree))
        return self._true[tree]

    def passing(self, tree: str, before: int) -> set[str]:
        """Return the criteria with a recorded pass on a tree before a position."""
        checked = self.of(CriterionChecked, before)
        return {name for _, fact in checked if fact.tree == tree and fact.outcome == "pass" for name in fact.criteria}

    def withdrawn(self, before: int) -> set[str]:
        """Return the criteria whose pass the last proofs withdrew, before a position."""
        last = {fact.verification_id for _, fact in self.of(VerificationStarted) if fact.effect.startswith(LAST)}
        checked = [fact for _, fact in self.of(CriterionChecked, before) if fact.verification_id in last]
        return {name for fact in checked if fact.outcome != "pass" for name in fact.criteria}

    @property
    def finished(self) -> tuple[Event, MissionFinished] | None:
        """Return the end of the mission."""
        return next(self.of(MissionFinished), None)

    @property
    def main(self) -> str:
        """Return the commit of the main branch."""
        return self.world.repository.refs.get(MAIN, "")

    def merged(self) -> list[tuple[Event, RepoMerged]]:
        """Return the merges into the main branch."""
        return list(self.of(RepoMerged))

    def tasks_for(self, criterion: str) -> set[str]:
        """Return the ids of the tasks that had a criterion."""
        tasks = [task for _, fact in self.of(MissionPlanned) for task in fact.tasks]
        tasks += [task for _, fact in self.of(MissionReplanned) for task in fact.tasks]
        return {task.id for task in tasks if criterion in task.criteria}

    def words_of(self, child_id: str) -> dict[str, object]:
        """Return the last submission of a role, from its own log."""
        facts = [event.fact for event in self.world.events.get(child_id, [])]
        said = [fact.body for fact in facts if isinstance(fact, WorkSubmitted)]
        return said[-1] if said else {}

    def accepted_wrongly(self, rubric: str) -> list[str]:
        """Return the judges whose verdict accepted a rubric line that their tree does not meet."""
        return [
            fact.child_id
            for _, fact in self.of(TaskJudged)
            if not fact.refused
            and any(each.criterion == rubric and each.passes for each in fact.criteria)
            and rubric not in self.true(fact.tree)
        ]
