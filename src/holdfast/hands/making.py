"""What the real providers share: the folder of an incarnation, its launch, its identity."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import anyio

from holdfast.errors import CannotRunSafely, HandsError, UsageError
from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import HandsPolicy
from holdfast.hands import outside
from holdfast.hands.base import HandsSpec
from holdfast.hands.host import boot_id, host_id, run_directory
from holdfast.hands.launch import (
    Launch,
    Laying,
    Limits,
    Lives,
    Opening,
    Place,
    Setup,
    blob,
    limits_of,
    start_supervisor,
)
from holdfast.hands.limits import ladder
from holdfast.hands.limits.ladder import Rung
from holdfast.hands.limits.orphans import clear_all
from holdfast.hands.limits.plan import OURS, demand, held, holding_of, start_command
from holdfast.hands.supervised import SupervisedHands
from holdfast.hands.sweep import note_maker
from holdfast.hands.talk import ANSWER_S
from holdfast.hands.user import HandsUser, writable
from holdfast.hands.veil import veil_of
from holdfast.privileges import folder_mode
from holdfast.seccomp import assemble_here
from holdfast.uids import set_apart

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""Where commands are looked for."""


class Plan(NamedTuple):
    """How one provider starts its hands. Paths in `root` and `output` are as they are inside.

    `folders` are made in the folder of the incarnation for the hands' user, `laying` are overlays over them. `weak`
    says what is missing of a sandbox. `starter` is who runs `argv`, when that is not the hands' user.
    """

    provider: str
    argv: list[str]
    env: dict[str, str]
    blobs: dict[str, str]
    root: str
    output: str
    isolation: dict[str, Isolation]
    places: tuple[Place, ...] = ()
    laying: Laying | None = None
    folders: tuple[str, ...] = ()
    weak: str = ""
    starter: HandsUser | None = None


class Maker:
    """Makes incarnations under one folder and finds them again.

    `folder` (`<home>/hands`) holds their journals. `sockets` is a folder of our own with a short
    path, the usual one when None. `answer_s` is how long a living supervisor may take to answer.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sockets: Path | None = None,
        limits: Limits | None = None,
        lives: Lives | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.folder = folder
        self.limits = limits
        self._sockets = sockets
        self._lives = lives or Lives()
        self._answer_s = answer_s

    def place(self, hands_id: str) -> Path:
        """Where an incarnation keeps its journal."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", hands_id) or hands_id.startswith("."):
            raise UsageError(f"{hands_id!r} cannot be the id of hands")
        return self.folder / hands_id

    def separate(self, workspace: str) -> str:
        """The real path of a workspace. Refuses one that holds Holdfast's own records."""
        real = Path(os.path.realpath(workspace))
        home = Path(os.path.realpath(self.folder)).parent
        if home.is_relative_to(real):
            raise CannotRunSafely(
                f"the workspace {real} contains {home}, where Holdfast keeps its own records, and tool calls could "
                "change them; nothing was started: choose a folder of the project's own, or another --home"
            )
        return str(real)

    def attach(self, identity: HandsProvisioned) -> SupervisedHands:
        """The incarnation of that event, dead or alive."""
        return SupervisedHands(identity, self.place(identity.hands_id), answer_s=self._answer_s)

    async def make(
        self, spec: HandsSpec, epoch: int, user: HandsUser, plan: Plan, refuse: Callable[[str], Exception]
    ) -> SupervisedHands:
        """Start a supervisor with that plan. `refuse` makes an error of its last words."""
        folder = self.place(spec.hands_id)
        rung = await anyio.to_thread.run_sync(ladder.find)
        isolation = held(plan.isolation, rung, spec.policy)
        demand(spec.policy, isolation, rung)
        await anyio.to_thread.run_sync(clear_all, self.folder)
        limits = self.limits or command_limits(spec.policy, rung)
        before, before_env = start_command(rung, spec.hands_id)
        sockets = self._sockets or run_directory(os.getuid())
        identity = HandsProvisioned(
            hands_id=spec.hands_id,
            provider=plan.provider,
            host_id=host_id(),
            boot_id=boot_id(),
            address=str(sockets / f"{spec.hands_id}.sock"),
            workspace=spec.workspace.path,
            root=plan.root,
            uid=user.uid,
            isolation=isolation,
            weak=plan.weak,
            environment=spec.environment,
        )
        starter = plan.starter or user
        if len(identity.address) > 100:
            raise CannotRunSafely(f"{identity.address} is too long for a socket; choose a shorter folder for sockets")
        await anyio.to_thread.run_sync(make_folder, folder, user, plan.folders)
        await anyio.to_thread.run_sync(note_maker, folder, spec.session_id)
        opening = Opening(spec.hands_id, identity.host_id, identity.boot_id, plan.places)
        problem = await start_supervisor(
            Launch(
                epoch=epoch,
                folder=str(folder),
                socket=identity.address,
                opening=opening,
                argv=plan.argv,
                env=plan.env,
                blobs=plan.blobs,
                uid=starter.uid,
                gid=starter.gid,
                setup=Setup(plan.root, plan.output, limits_of(limits), outside.environment(spec), outside.way(spec)),
                laying=plan.laying,
                on_news=spec.on_news,
                filter=blob(assemble_here(programs=False) or b""),
                own_gid=user.gid,
                own_uid=set_apart(f"supervisor {spec.hands_id}", "process") if os.getuid() == 0 else 0,
                veil=veil_of(spec, folder, starter),
                grace_s=spec.policy.idle_s if spec.policy.warm else self._lives.grace_s,
                life_s=self._lives.longest_s,
                hello_s=self._lives.hello_s,
                claim_s=self._lives.claim_s,
                holding=holding_of(spec, rung, folder),
                before=tuple(before),
                before_env=before_env,
            )
        )
        if problem:
            raise refuse(problem)
        hands = self.attach(identity)
        try:
            await hands.claim(epoch)
        except BaseException:
            with anyio.CancelScope(shield=True), contextlib.suppress(HandsError):
                await hands.release(epoch)
            raise
        return hands


def command_limits(policy: HandsPolicy, rung: Rung) -> Limits:
    """The limits of each command. Where a group counts the processes, it is met before that of the user is."""
    most = policy.processes
    return Limits(processes=most if most is None or not rung.hard else most + 2 * OURS)


def make_folder(folder: Path, user: HandsUser, more: tuple[str, ...] = ()) -> None:
    """The folder of an incarnation: ours, with parts for output and for `more` that the hands' user owns."""
    others = user.uid != os.getuid()
    try:
        for path in (folder.parent.parent, folder.parent):
            path.mkdir(mode=folder_mode(), parents=True, exist_ok=True)
        folder.mkdir(mode=0o711 if others else 0o700)
        output = folder / "output"
        parts = [output, *(folder / name for name in more)]
        for part in parts:
            part.mkdir(mode=0o700)
        if os.getuid() == 0:
            os.chown(output, user.uid, user.gid)
            output.chmod(0o750)  # the supervisor, who is another user, has the group
    except FileExistsError:
        raise HandsError(f"{folder} is there already: an id of hands is used once") from None
    except OSError as error:
        raise CannotRunSafely(f"{folder} for the journal of the hands cannot be made: {error.strerror}") from None
    if others:
        folder.chmod(0o711)
        for part in parts:
            os.chown(part, user.uid, user.gid)
        if not writable(output, user, veiled=folder_mode() == 0o700):
            raise CannotRunSafely(f"{user.name} cannot write in {output}, which was made for them")
