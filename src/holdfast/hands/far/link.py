"""The link to a far end: one Protocol, and an implementation over a program's standard streams (ssh, or any other)."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from typing import Any, Protocol

import anyio
import msgspec

from holdfast.errors import HandsUnreachable
from holdfast.facts import bounded_json
from holdfast.hands.far.protocol import LINE_MAX, PROTOCOL, Answer, Ask, Hello

PATIENCE_S = 30.0
"""Seconds that a far end may be out of reach before it is reported as unreachable."""

FIRST_S = 5.0
"""The same for one that has never answered: more likely it is not set up."""

PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reach it; the last one repeats."""

_encode = msgspec.json.Encoder().encode


class Link(Protocol):
    """Carries requests to one far end and returns the answers. It reconnects by itself."""

    async def ask(self, ask: Ask, *, answer_s: float) -> Answer:
        """Return the answer to `ask`, whose id is chosen here. Repeats the request after a lost connection.

        Raises `HandsUnreachable` without an answer within its patience, or within `answer_s` of a connection.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class _Gone(Exception):
    """The connection ended."""


class _Waiting:
    def __init__(self) -> None:
        self.moved = anyio.Event()
        self.answer: Answer | None = None


class _Pipe:
    """One run of the program. Any waiting caller reads, for all; ids match answers to requests."""

    def __init__(self, argv: Sequence[str], env: dict[str, str]) -> None:
        self._child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        self.pid = self._child.pid
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._in, self._out = self._child.stdin.fileno(), self._child.stdout.fileno()
        self._err = self._child.stderr.fileno()
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)
        self._kept = bytearray()
        self._complaints = b""
        self._waiting: dict[int, _Waiting] = {}
        self._reading = False
        self._writing = anyio.Lock()
        self.broken = False

    async def ask(self, ask: Ask) -> Answer:
        """Send a request and return its answer. Raises `_Gone`."""
        waiting = self._waiting[ask.id] = _Waiting()
        try:
            await self._send(_encode(ask) + b"\n")
            while waiting.answer is None:
                if self.broken:
                    raise _Gone(self.complaint())
                if self._reading:
                    waiting.moved = anyio.Event()
                    await waiting.moved.wait()
                    continue
                self._reading = True
                try:
                    await self._read()
                finally:
                    self._reading = False
                    self._stir()
            return waiting.answer
        finally:
            del self._waiting[ask.id]
            self._stir()

    def _stir(self) -> None:
        for waiting in self._waiting.values():
            waiting.moved.set()

    async def _send(self, line: bytes) -> None:
        left = memoryview(line)
        async with self._writing:
            try:
                while left:
                    try:
                        left = left[os.write(self._in, left) :]
                    except BlockingIOError:
                        await anyio.wait_writable(self._in)
            except OSError as error:
                self.broken = True
                raise _Gone(self.complaint() or str(error)) from None
            finally:
                if left and len(left) < len(line):
                    self.broken = True  # half a line was sent: the far end could not parse anything after it

    async def _read(self) -> None:
        """Wait for input, read all of it, and distribute the answers."""
        while True:
            try:
                chunk = os.read(self._out, 1 << 18)
            except BlockingIOError:
                await anyio.wait_readable(self._out)
                continue
            except OSError:
                chunk = b""
            break
        self._kept += chunk
        if not chunk or len(self._kept) > LINE_MAX:
            self.broken = True
            raise _Gone(self.complaint())
        if b"\n" not in chunk:
            return
        *lines, rest = bytes(self._kept).split(b"\n")
        self._kept = bytearray(rest)
        for line in lines:
            try:
                answer = bounded_json.decode_as(line, Answer)
            except msgspec.MsgspecError:
                continue  # a banner or a greeting of the shell on the way
            if (waiting := self._waiting.get(answer.id)) is not None:
                waiting.answer = answer

    def complaint(self) -> str:
        """Return the last lines of its standard error."""
        with contextlib.suppress(OSError):
            while data := os.read(self._err, 65536):
                self._complaints = (self._complaints + data)[-4096:]
        lines = self._complaints.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    def close(self) -> None:
        """End the program: the far end sees its input end, and its processes continue."""
        self.broken = True
        for file in (self._child.stdin, self._child.stdout, self._child.stderr):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        with contextlib.suppress(OSError):
            self._child.kill()
        self._child.wait()
        self._stir()


class PipeLink:
    """Asks through a program that is started again whenever it ends. `name` identifies the far end in messages."""

    def __init__(self, argv: Sequence[str], *, name: str, env: dict[str, str], patience_s: float = PATIENCE_S) -> None:
        self._argv = tuple(argv)
        self._name = name
        self._env = env
        self._patience_s = patience_s
        self._pipe: _Pipe | None = None
        self._opening = anyio.Lock()
        self._asked = 0
        self._known = False

    async def ask(self, ask: Ask, *, answer_s: float) -> Answer:
        """See `Link.ask`."""
        patience_s = self._patience_s if self._known else min(FIRST_S, self._patience_s)
        why = "it did not answer in time"
        with anyio.move_on_after(patience_s + answer_s):
            for pause_s in _pauses(patience_s):
                try:
                    pipe = await self._open(answer_s)
                    with anyio.fail_after(answer_s):
                        return await pipe.ask(self._numbered(ask))
                except _Gone as gone:
                    why = str(gone)
                except TimeoutError:
                    why = f"no answer within {answer_s:.0f} s"
                    self._drop()
                except OSError as error:
                    raise self._unreachable(f"{self._argv[0]}: {error.strerror}") from None
                await anyio.sleep(pause_s)
        raise self._unreachable(why)

    @property
    def pid(self) -> int:
        """The process that carries the connection now, 0 if there is none."""
        return self._pipe.pid if self._pipe is not None else 0

    async def _open(self, answer_s: float) -> _Pipe:
        async with self._opening:
            if self._pipe is None or self._pipe.broken:
                self._drop()
                pipe = self._pipe = _Pipe(self._argv, self._env)
                with anyio.fail_after(answer_s):
                    said = await pipe.ask(self._numbered(Ask(0, "hello")))
                self._check(said)
                self._known = True
            return self._pipe

    def _check(self, said: Answer) -> None:
        try:
            hello = msgspec.json.decode(said.ok, type=Hello)
        except msgspec.MsgspecError:
            raise self._unreachable("what answers there is no `holdfast hands serve`") from None
        if hello.protocol != PROTOCOL:
            raise self._unreachable(f"{hello.program} speaks another version of the protocol; install the same there")

    def _numbered(self, ask: Ask) -> Ask:
        self._asked += 1
        return msgspec.structs.replace(ask, id=self._asked)

    def _unreachable(self, why: str) -> HandsUnreachable:
        return HandsUnreachable(
            f"the hands at {self._name} cannot be reached ({why}); nothing was repeated, and what runs there goes on: "
            f"see that `holdfast hands serve` starts there, and wake the session again"
        )

    def _drop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def close(self) -> None:
        """End the program."""
        self._drop()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._drop()


def _pauses(patience_s: float) -> list[float]:
    out: list[Any] = []
    while sum(out) < patience_s:
        out.append(PAUSES_S[min(len(out), len(PAUSES_S) - 1)])
    return out or [0.0]
