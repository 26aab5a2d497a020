"""Incarnations of hands: their folder, launch, and identity, and the cleanup after killed ones."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from holdfast.clock import Clock, boot_id
from holdfast.errors import CannotRunSafely, HandsError, UsageError
from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import HandsPolicy
from holdfast.hands.base import HandsSpec
from holdfast.hands.box import processes
from holdfast.hands.box.processes import is_locked
from holdfast.hands.box.supervisor import mounts
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.host import host_id, run_directory
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
    remove_folder,
    start_supervisor,
    way_of,
)
from holdfast.hands.limits import mechanisms
from holdfast.hands.limits.mechanisms import Rung
from holdfast.hands.limits.plan import OURS, demand, held, holding_of, remove_all_groups, start_command
from holdfast.hands.supervised import SupervisedHands
from holdfast.hands.talk import ANSWER_S
from holdfast.hands.user import HandsUser, veil_of, writable
from holdfast.privileges import folder_mode
from holdfast.seccomp import assemble_here
from holdfast.uids import set_apart

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""Search path for commands."""


class Plan(NamedTuple):
    """Launch plan of one provider. Paths in `root` and `output` are those inside the sandbox.

    `folders` are created in the folder of the incarnation for the hands' user, `laying` are overlays over them. `weak`
    says what the hands lack compared with a sandbox. `starter` is the user that runs `argv`, if not the hands' user.
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
    """Creates incarnations under one folder and finds them again.

    `folder` (`<home>/hands`) holds their journals. `sockets` is our folder with a short path; None selects the usual
    one. `answer_s` is the seconds that a living supervisor may take to answer.
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
        """Return the folder of an incarnation, with its journal."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", hands_id) or hands_id.startswith("."):
            raise UsageError(f"{hands_id!r} cannot be the id of hands")
        return self.folder / hands_id

    def separate(self, workspace: str) -> str:
        """Return the real path of a workspace. Refuses one that holds Holdfast's own records."""
        real = Path(os.path.realpath(workspace))
        home = Path(os.path.realpath(self.folder)).parent
        if home.is_relative_to(real):
            raise CannotRunSafely(
                f"the workspace {real} contains {home}, where Holdfast keeps its own records, and tool calls could "
                "change them; nothing was started: choose a folder of the project's own, or another --home"
            )
        return str(real)

    def attach(self, identity: HandsProvisioned) -> SupervisedHands:
        """Return the incarnation of that event, dead or alive."""
        return SupervisedHands(identity, self.place(identity.hands_id), answer_s=self._answer_s)

    async def make(
        self, spec: HandsSpec, epoch: int, user: HandsUser, plan: Plan, refuse: Callable[[str], Exception]
    ) -> SupervisedHands:
        """Start a supervisor with that plan. `refuse` turns its last output into an error."""
        folder = self.place(spec.hands_id)
        rung = await anyio.to_thread.run_sync(mechanisms.find)
        isolation = held(plan.isolation, rung, spec.policy)
        demand(spec.policy, isolation, rung)
        await anyio.to_thread.run_sync(remove_all_groups, self.folder)
        limits = self.limits or command_limits(spec.policy, rung)
        before, before_env = start_command(rung, spec.hands_id)
        identity = self._identity(spec, user, plan, isolation)
        starter = plan.starter or user
        await anyio.to_thread.run_sync(make_folder, folder, user, plan.folders)
        await anyio.to_thread.run_sync(note_maker, folder, spec.session_id)
        variables = {**spec.env, **(spec.network.env if spec.network is not None else {})}  # no variable replaces these
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
                setup=Setup(plan.root, plan.output, limits_of(limits), variables, way_of(spec)),
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

    def _identity(
        self, spec: HandsSpec, user: HandsUser, plan: Plan, isolation: dict[str, Isolation]
    ) -> HandsProvisioned:
        """Return the record of new hands. Raises `CannotRunSafely`."""
        sockets = self._sockets or run_directory(os.getuid())
        address = str(sockets / f"{spec.hands_id}.sock")
        if len(address) > 100:
            raise CannotRunSafely(f"{address} is too long for a socket; choose a shorter folder for sockets")
        return HandsProvisioned(
            hands_id=spec.hands_id,
            provider=plan.provider,
            host_id=host_id(),
            boot_id=boot_id(),
            address=address,
            workspace=spec.workspace.path,
            root=plan.root,
            uid=user.uid,
            isolation=isolation,
            weak=plan.weak,
            environment=spec.environment,
        )


def command_limits(policy: HandsPolicy, rung: Rung) -> Limits:
    """Return the limits of each command. If a group counts the processes, it is reached before the user's limit."""
    most = policy.processes
    return Limits(processes=most if most is None or not rung.hard else most + 2 * OURS)


def make_folder(folder: Path, user: HandsUser, more: tuple[str, ...] = ()) -> None:
    """Create the folder of an incarnation: ours, with parts for output and for `more` that the hands' user owns."""
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
            output.chmod(0o750)  # the supervisor runs as another user and needs group access
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


MAKER = "maker"
"""The file of an incarnation's folder that names its maker process and its session."""

YOUNG_S = 60.0
"""Minimum age in seconds of a leftover socket or of a folder without a maker: new hands have both for a moment."""


class MakerProcess(msgspec.Struct, frozen=True):
    """A process that made hands. `start` tells it from a later one with its pid."""

    session_id: str
    pid: int
    start: int


_decode = msgspec.json.Decoder(MakerProcess).decode


def note_maker(folder: Path, session_id: str) -> None:
    """Record this process in the folder of new hands. Raises `OSError`."""
    mine = processes.entry_of(os.getpid())
    said = MakerProcess(session_id, os.getpid(), mine.start if mine is not None else 0)
    (folder / MAKER).write_bytes(msgspec.json.encode(said))


def _maker_of(folder: Path) -> MakerProcess | None:
    try:
        return _decode((folder / MAKER).read_bytes())
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _folders(hands: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in hands.iterdir() if path.is_dir() and not path.is_symlink())


def forsaken(hands: Path) -> list[tuple[str, Path]]:
    """Return session and folder of incarnations with dead maker and supervisor, recorded in a log or not."""
    out = []
    for folder in _folders(hands):
        maker = _maker_of(folder)
        if maker is None or _lives(folder):
            continue
        process = processes.entry_of(maker.pid)
        if process is None or process.start != maker.start:
            out.append((maker.session_id, folder))
    return out


def remnants(hands: Path, clock: Clock) -> list[Path]:
    """Return folders whose removal was interrupted: nothing in them names a session or holds a journal."""
    return [
        folder
        for folder in _folders(hands)
        if not any((folder / name).exists() for name in (MAKER, "journal", "lock")) and _age_s(folder, clock) > YOUNG_S
    ]


def _age_s(path: Path, clock: Clock) -> float:
    try:
        return clock.now_us() / 1e6 - path.lstat().st_mtime
    except OSError:
        return 0.0


def by_session(hands: Path) -> dict[str, list[Path]]:
    """Return the folders of incarnations, dead or alive, by the session that they were made for."""
    found: dict[str, list[Path]] = {}
    for folder in _folders(hands):
        maker = _maker_of(folder)
        if maker is not None:
            found.setdefault(maker.session_id, []).append(folder)
    return found


def at_work(hands: Path) -> set[str] | None:
    """Return the sessions that have living hands; None if some do not name their session."""
    makers = [_maker_of(folder) for folder in _folders(hands) if _lives(folder)]
    known = {maker.session_id for maker in makers if maker is not None}
    return known if None not in makers else None


def _lives(folder: Path) -> bool:
    try:
        return is_locked(str(folder / "lock"))
    except OSError:
        return True


def remove(folder: Path) -> None:
    """Remove the folder of dead hands, and their files in the workspace. Never fails."""
    with contextlib.suppress(OSError):
        for place in replay(str(folder / "journal")).opened.get("places", ()):
            mounts.remove_mount_point(place)
        remove_folder(folder)


def sweep_sockets(clock: Clock, folder: Path | None = None) -> int:
    """Remove sockets without a listener, of any home of this user. Returns their number."""
    removed = 0
    with contextlib.suppress(OSError, CannotRunSafely):
        for path in (folder or run_directory(os.getuid())).glob("*.sock"):
            with contextlib.suppress(OSError):
                if _age_s(path, clock) > YOUNG_S and is_deserted(path):
                    path.unlink()
                    removed += 1
    return removed


def is_deserted(path: Path) -> bool:
    """Return True if no process listens at that socket. A supervisor ignores the connection."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)) as sock:
        try:
            sock.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
