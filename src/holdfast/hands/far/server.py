"""The far end: creates hands for a brain on another machine, and serves requests over standard input and output.

It holds no credential and no log. All its state is on disk, so any process of it can answer: the journals of the hands,
the request that created each of them, and the hands that own each session's workspace. A workspace stays until the
other end confirms that it has brought it back; until then later hands continue with it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from holdfast.clock import Clock
from holdfast.errors import HandsError, HoldfastError, UsageError, WorkspaceGone
from holdfast.facts import bounded_json
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import Workspace
from holdfast.hands.base import Capabilities, Hands, HandsSpec, Provider
from holdfast.hands.box.processes import is_locked
from holdfast.hands.far.protocol import (
    CHUNK,
    LINE_MAX,
    LOOK_S,
    PROTOCOL,
    Answer,
    Ask,
    Begin,
    Hello,
    Piece,
    Size,
    Trouble,
    trouble_of,
)
from holdfast.hands.far.workspace import fill_folder, pack_folder
from holdfast.hands.host import host_id
from holdfast.hands.launch import remove_folder
from holdfast.hands.user import choose_user, make_ready
from holdfast.privileges import folder_mode

SPOOL_S = 24 * 3600.0
"""Seconds that an abandoned transfer is kept."""

READ_MAX = 1 << 20
"""Maximum bytes of output in one answer."""

OPEN_MAX = 256
"""Maximum number of requests waiting for an answer; more are read later."""

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_encode = msgspec.json.encode


class _Mark(msgspec.Struct, frozen=True):
    """The hands that own a session's workspace."""

    hands_id: str


class _Numbered(msgspec.Struct):
    id: int = 0


class _Made(msgspec.Struct, frozen=True):
    nonce: str
    session_id: str
    identity: HandsProvisioned


class FarServer:
    """Answers requests. `folder` is its own; `provider` creates hands under `folder/hands`."""

    def __init__(self, provider: Provider, folder: Path, *, program: str) -> None:
        self._provider = provider
        self._folder = folder
        self._program = program
        self._hands: dict[str, Hands] = {}
        self._beginning = anyio.Lock()

    def open(self, clock: Clock) -> None:
        """Make the folders, and remove abandoned transfers."""
        for path in (self._folder, self._folder / "work", self._folder / "spool", self._folder / "made"):
            path.mkdir(mode=folder_mode(), parents=True, exist_ok=True)
        (self._folder / "spool").chmod(0o700)
        (self._folder / "made").chmod(0o700)
        for entry in (self._folder / "spool").iterdir():
            if entry.stat().st_mtime < clock.now_us() / 1e6 - SPOOL_S:
                entry.unlink(missing_ok=True)

    async def answer(self, ask: Ask) -> Answer:
        """Handle a request; an error is an answer too."""
        verb = self._verbs.get(ask.verb)
        try:
            if verb is None:
                raise UsageError(f"there is no verb {ask.verb!r} here; both ends need the same Holdfast")
            return Answer(ask.id, ok=msgspec.Raw(_encode(await verb(self, ask))))
        except HoldfastError as error:
            return Answer(ask.id, error=trouble_of(error))
        except OSError as error:
            text = f"{error.strerror or error} where the hands are; nothing was started"
            return Answer(ask.id, error=trouble_of(HandsError(text)))

    # --- transfers ---

    def _spooled(self, ask: Ask) -> Path:
        return self._folder / "spool" / _named(ask.transfer)

    async def _put(self, ask: Ask) -> Size:
        """Write bytes of a transfer from a position on; returns how many there are now."""
        with os.fdopen(os.open(self._spooled(ask), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if ask.offset > size:
                raise HandsError(f"the transfer has {size} bytes, {ask.offset} were expected; it is begun again")
            file.seek(ask.offset)
            file.write(ask.data)
            file.truncate()
            return Size(file.tell())

    async def _get(self, ask: Ask) -> Piece:
        with self._spooled(ask).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(ask.offset)
            return Piece(file.read(CHUNK), size)

    async def _drop(self, ask: Ask) -> Size:
        self._spooled(ask).unlink(missing_ok=True)
        return Size(0)

    # --- creation and release ---

    async def _hello(self, ask: Ask) -> Hello:
        return Hello(PROTOCOL, self._program, host_id())

    async def _probe(self, ask: Ask) -> Capabilities:
        return await self._provider.probe()

    async def _begin(self, ask: Ask) -> HandsProvisioned:
        begin = ask.begin
        if begin is None:
            raise UsageError("an ask for hands that does not say which")
        async with self._beginning:
            made = self._made(begin.hands_id)
            if made is not None and made.nonce == begin.nonce:
                return made.identity
            if made is not None:
                raise HandsError(f"{begin.hands_id} is there already: an id of hands is used once")
            workspace = await self._workspace(begin)
            spec = HandsSpec(begin.session_id, begin.hands_id, workspace, env=begin.env, policy=begin.policy)
            hands = await self._provider.provision(spec, ask.epoch)
            identity = hands.identity
            _store(self._made_path(begin.hands_id), _Made(begin.nonce, begin.session_id, identity))
            _store(self._mark_path(begin.session_id), _Mark(begin.hands_id))
            self._hands[begin.hands_id] = hands
            return identity

    async def _workspace(self, begin: Begin) -> Workspace:
        """Return the session's folder: as the continued hands left it, else as it was sent."""
        folder = self._work(begin.session_id)
        workspace = Workspace(str(folder), disposable=True)
        mark = self._mark(begin.session_id)
        there = mark is not None and folder.is_dir()
        if there and mark is not None and (begin.continues == mark.hands_id or self._lives(mark.hands_id)):
            return workspace
        if not begin.transfer:
            raise WorkspaceGone(f"the workspace of {begin.session_id} is not here any more")
        await anyio.to_thread.run_sync(remove_folder, folder)
        folder.mkdir(mode=0o700)
        make_ready(workspace, choose_user(workspace))
        await fill_folder(str(folder), self._folder / "spool" / _named(begin.transfer))
        return workspace

    def _lives(self, hands_id: str) -> bool:
        return is_locked(str(self._folder / "hands" / hands_id / "lock"))

    async def _release(self, ask: Ask) -> None:
        hands = await self._of(ask)
        await hands.release(ask.epoch)
        self._hands.pop(hands.identity.hands_id, None)

    async def _take(self, ask: Ask) -> Size:
        """Put a tar of the workspace into a transfer."""
        return Size(await pack_folder(str(self._work(self._owned(ask))), self._spooled(ask), git=False))

    async def _forget(self, ask: Ask) -> None:
        """Delete the workspace of released hands: the other end has brought it back."""
        session_id = self._owned(ask)
        await anyio.to_thread.run_sync(remove_folder, self._work(session_id))
        self._mark_path(session_id).unlink(missing_ok=True)
        self._made_path(_identity(ask).hands_id).unlink(missing_ok=True)

    def _owned(self, ask: Ask) -> str:
        """Return the session whose workspace those hands own. Raises `WorkspaceGone`."""
        identity = _identity(ask)
        made = self._made(identity.hands_id)
        if made is None or not same_incarnation(made.identity, identity) or not self._work(made.session_id).is_dir():
            raise WorkspaceGone(f"the workspace of the hands {identity.hands_id} is not here any more")
        mark = self._mark(made.session_id)
        if mark is None or mark.hands_id != identity.hands_id:
            raise WorkspaceGone(f"the workspace of the hands {identity.hands_id} belongs to other hands now")
        return made.session_id

    # --- the verbs of one incarnation ---

    async def _of(self, ask: Ask) -> Hands:
        identity = _identity(ask)
        kept = self._hands.get(identity.hands_id)
        if kept is None or kept.identity != identity:
            kept = self._hands[identity.hands_id] = await self._provider.attach(identity)
        return kept

    async def _fence(self, ask: Ask) -> None:
        await (await self._of(ask)).fence(ask.epoch)

    async def _start(self, ask: Ask) -> None:
        hands = await self._of(ask)
        if ask.request is None:
            raise UsageError("a call without a request")
        await hands.start(ask.epoch, ask.call, ask.request)

    async def _wait(self, ask: Ask) -> object:
        """Return the result, unless there is none within `wait_s`."""
        hands = await self._of(ask)
        with anyio.move_on_after(min(ask.wait_s, LOOK_S)):
            return {"result": await hands.wait(ask.epoch, ask.call)}
        return {}

    async def _kill(self, ask: Ask) -> None:
        await (await self._of(ask)).kill(ask.epoch, ask.call)

    async def _status(self, ask: Ask) -> object:
        return await (await self._of(ask)).status(ask.epoch, ask.call, wait_s=min(ask.wait_s, LOOK_S))

    async def _read(self, ask: Ask) -> object:
        hands = await self._of(ask)
        size = min(ask.max_bytes, READ_MAX)
        return await hands.read(ask.epoch, ask.call, ask.after, wait_s=min(ask.wait_s, LOOK_S), max_bytes=size)

    async def _write(self, ask: Ask) -> None:
        await (await self._of(ask)).write(ask.epoch, ask.call, ask.data, offset=ask.offset, close=ask.close)

    async def _pause(self, ask: Ask) -> None:
        await (await self._of(ask)).pause(ask.epoch)

    async def _resume(self, ask: Ask) -> None:
        await (await self._of(ask)).resume(ask.epoch)

    async def _pack(self, ask: Ask) -> Size:
        hands = await self._of(ask)
        with self._spooled(ask).open("wb") as file:
            return Size(await hands.pack(ask.epoch, ask.path, file))

    async def _unpack(self, ask: Ask) -> Size:
        hands = await self._of(ask)
        with self._spooled(ask).open("rb") as file:
            return Size(await hands.unpack(ask.epoch, ask.path, file))

    _verbs: dict[str, Callable[[FarServer, Ask], Awaitable[object]]] = {
        "hello": _hello,
        "probe": _probe,
        "put": _put,
        "get": _get,
        "drop": _drop,
        "begin": _begin,
        "release": _release,
        "take": _take,
        "forget": _forget,
        "fence": _fence,
        "start": _start,
        "wait": _wait,
        "kill": _kill,
        "status": _status,
        "read": _read,
        "write": _write,
        "pause": _pause,
        "resume": _resume,
        "pack": _pack,
        "unpack": _unpack,
    }

    # --- state on disk ---

    def _work(self, session_id: str) -> Path:
        return self._folder / "work" / _named(session_id)

    def _mark_path(self, session_id: str) -> Path:
        return self._folder / "made" / f"{_named(session_id)}.work"

    def _made_path(self, hands_id: str) -> Path:
        return self._folder / "made" / f"{_named(hands_id)}.hands"

    def _mark(self, session_id: str) -> _Mark | None:
        return _load(self._mark_path(session_id), _Mark)

    def _made(self, hands_id: str) -> _Made | None:
        return _load(self._made_path(hands_id), _Made)


def same_incarnation(one: HandsProvisioned, two: HandsProvisioned) -> bool:
    """True if both name the same hands, of the same boot of the same host."""
    return all(getattr(one, name) == getattr(two, name) for name in ("hands_id", "host_id", "boot_id", "address"))


def _identity(ask: Ask) -> HandsProvisioned:
    if ask.identity is None:
        raise UsageError(f"the verb {ask.verb} needs hands")
    return ask.identity


def _named(name: str) -> str:
    if not _ID.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a name here")
    return name


def _store(path: Path, value: object) -> None:
    """Write a file atomically."""
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_bytes(_encode(value))
    fresh.replace(path)


def _load(path: Path, kind: type[T]) -> T | None:
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None


async def serve_stdio(server: FarServer, source: int, target: int) -> None:
    """Answer until `source` ends. Both descriptors become non-blocking; hands outlive it (see `launch.Lives`)."""
    for fd in (source, target):
        os.set_blocking(fd, False)
    await _Conversation(server, source, target).run()


class _Conversation:
    def __init__(self, server: FarServer, source: int, target: int) -> None:
        self._server = server
        self._source = source
        self._target = target
        self._writing = anyio.Lock()
        self._room = anyio.Semaphore(OPEN_MAX)

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            kept = bytearray()
            while chunk := await self._chunk():
                kept += chunk
                if len(kept) > LINE_MAX:
                    break
                *lines, rest = bytes(kept).split(b"\n") if b"\n" in chunk else [bytes(kept)]
                kept = bytearray(rest)
                for line in lines:
                    await self._room.acquire()
                    group.start_soon(self._one, line)
            group.cancel_scope.cancel()

    async def _chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._source, 1 << 18)
            except BlockingIOError:
                await anyio.wait_readable(self._source)
            except OSError:
                return b""

    async def _one(self, line: bytes) -> None:
        try:
            try:
                answer = await self._server.answer(bounded_json.decode_as(line, Ask))
            except msgspec.MsgspecError as error:
                answer = Answer(_id_of(line), error=Trouble("usage", f"an ask that makes no sense here ({error})"))
            await self._say(_encode(answer) + b"\n")
        finally:
            self._room.release()

    async def _say(self, line: bytes) -> None:
        left = memoryview(line)
        async with self._writing:
            while left:
                try:
                    left = left[os.write(self._target, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._target)
                except OSError:
                    return  # the reader is gone: the end of the source shows it too


def _id_of(line: bytes) -> int:
    try:
        return bounded_json.decode_as(line, _Numbered).id
    except msgspec.MsgspecError:
        return 0
