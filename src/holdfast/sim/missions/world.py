"""The simulated world of one mission: sessions, hands and log as in any other, and a repository in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from holdfast.facts.codec import Event
from holdfast.facts.mission import Mission
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.hands.fake.calls import Files
from holdfast.ids import new_session_id
from holdfast.repo.fake_repository import FakeRepository
from holdfast.session.tools import DEFAULT_TOOLS
from holdfast.sim.folders import Folders, View
from holdfast.sim.missions.scene import Scene, checked, put
from holdfast.sim.world import CALM, Session, Weather, World
from holdfast.sim.world_model import Script

FOLLOWED = "refs/heads/main"
MAIN = "refs/heads/holdfast/sim/main"
WIDTH = 4

ROUNDS = 60_000
"""Of the loop, at most: ten times what the longest mission takes."""


@dataclass(frozen=True)
class Move:
    """A ref was moved by somebody of the mission, when its log had that head."""

    head: int
    ref: str
    new: str


class MissionWorld(World):
    """One mission and all around it. `cap_pico` is its budget; in `calm` weather nothing goes wrong by itself."""

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
        """How the mission is opened."""
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
        """A script that says nothing: it has the name, and that its sessions have a price."""
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
        """How many sessions had that role for a task of that item before this one."""
        count = 0
        for session in self.sessions.values():
            if session.session_id == session_id:
                break
            role = session.created.role
            count += role is not None and role.kind == kind and role.task_id.partition("-")[0] == item
        return count

    def folder(self, path: str) -> dict[str, bytes]:
        """The files of a workspace, by their path in it."""
        return dict(self.folders[Path(path)])

    def tree(self, commit: str) -> dict[str, bytes]:
        """The files of a commit or tree, looked at behind everybody's back."""
        repository = self.repository
        return {path.decode(): repository._blobs[entry.id] for path, entry in repository._entries(commit).items()}

    def line(self, commit: str) -> list[str]:
        """The commits of a first-parent line, the latest first."""
        out = [commit]
        while parents := self.repository._commits[out[-1]].parents:
            out.append(parents[0])
        return out

    def has(self, commit: str, inside: str) -> bool:
        """Whether a commit is among those that led to another."""
        return commit in self.repository._line(inside)

    def workspace(self, session_id: str) -> str:
        """The path of a folder, empty when it is new."""
        path = f"/made/{session_id}"
        self.hands.files(path)
        return path

    def discard(self, workspace: Workspace) -> None:
        """A folder goes."""
        self.hands.workspaces.pop(workspace.path, None)

    def _command(self, command: str, files: Files) -> tuple[int, str]:
        inside = View(files)
        if command.startswith("put "):
            return put(command, inside)
        return checked(command, inside)

    def person_commits(self, files: Mapping[str, bytes]) -> None:
        """Somebody commits these changes to the followed branch."""
        present = self.tree(self.repository.refs[FOLLOWED])
        made = self.repository.seed({**present, **files}, "by hand", ref=FOLLOWED, at_us=self.clock.now_us())
        self.human.append(made.commit)
        self.human_heads.append(self.sessions[self.mission_id].head)
        self.note("people", f"commit {made.commit[:7]} {' '.join(files)}")

    def moved(self, who: str, ref: str, new: str) -> None:
        """Observe that a ref was moved."""
        self.moves.append(Move(self.sessions[self.mission_id].head, ref, new))
        self.note(who, f"{ref} at {new[:7]}")


def _weather(chance: Random) -> Weather:
    """What goes wrong in a seed; each kind in some of them only."""

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
