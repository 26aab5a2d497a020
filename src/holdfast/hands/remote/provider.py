"""The brain's side of the queue: hands of one session behind it, as behind any other link."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec

from holdfast.clock import Clock
from holdfast.errors import HandsError, HandsUnreachable
from holdfast.facts import bounded_json
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Capabilities, Finding, HandsSpec
from holdfast.hands.far.protocol import Answer, Ask
from holdfast.hands.far.provider import FarEnd, FarHands, FarProvider
from holdfast.hands.remote.queue import Queue

NAME = "remote"

PATIENCE_S = 90.0
"""Seconds that a worker may take to fetch a request; longer than a lease, so that another one can."""

LOOKS_S = (0.005, 0.02, 0.05, 0.1)
"""Seconds between checks for an answer; the last one repeats."""


class QueueLink:
    """Requests to one session's hands, through the queue."""

    def __init__(self, queue: Queue, session_id: str, clock: Clock, patience_s: float) -> None:
        self._queue, self._session_id, self._clock, self._patience_s = queue, session_id, clock, patience_s

    async def ask(self, ask: Ask, *, answer_s: float) -> Answer:
        """See `Link.ask`. A cancelled request is removed from the queue."""
        seq = self._queue.ask(self._session_id, msgspec.json.encode(ask))
        try:
            until = self._clock.monotonic_s() + answer_s + self._patience_s
            looks = 0
            while self._clock.monotonic_s() < until:
                said = self._queue.answer(seq)
                if said is not None:
                    return bounded_json.decode_as(said, Answer)
                await anyio.sleep(LOOKS_S[min(looks // 20, len(LOOKS_S) - 1)])
                looks += 1
        except msgspec.MsgspecError:
            raise HandsError("a worker's answer makes no sense; install the same Holdfast there") from None
        finally:
            self._queue.drop(seq)
        raise HandsUnreachable(
            "no worker came for the hands of this session, or it does not answer; nothing was repeated: start one "
            "where the data is (holdfast hands work --url …), and wake the session again"
        )

    def close(self) -> None:
        """Do nothing: the link holds no resources."""


class RemoteHands(FarHands):
    """Hands of a worker. Their release also releases the worker."""

    def __init__(self, identity: HandsProvisioned, end: FarEnd, queue: Queue, session_id: str) -> None:
        super().__init__(identity, end)
        self._queue, self._session_id = queue, session_id

    async def release(self, epoch: int) -> None:
        """End the hands, bring the workspace back, and tell the worker to stop. Safe to repeat."""
        await super().release(epoch)
        self._queue.end_session(self._session_id)


class RemoteProvider:
    """Hands created by the first worker that takes the request."""

    def __init__(self, queue: Queue, spool: Path, clock: Clock, *, patience_s: float = PATIENCE_S) -> None:
        self._queue, self._spool, self._clock, self._patience_s = queue, spool, clock, patience_s

    def _link(self, session_id: str) -> QueueLink:
        return QueueLink(self._queue, session_id, self._clock, self._patience_s)

    async def probe(self) -> Capabilities:
        """Report the polling workers. Without one the provider is still usable: a request waits for a worker."""
        polling = self._queue.stats()["workers_polling"]
        if polling:
            finding = Finding("workers", "ok", f"{polling} ask for work; how they isolate is in hands.provisioned")
        else:
            fix = "start one where the data is: holdfast hands work --url URL --key-file FILE"
            finding = Finding("workers", "soft", "no worker asks for work now", fix)
        return Capabilities(NAME, True, {}, (finding,))

    async def provision(self, spec: HandsSpec, epoch: int) -> RemoteHands:
        """Request hands from a worker; the workspace goes there with the request."""
        self._queue.belongs(spec.hands_id, spec.session_id)
        far = FarProvider(self._link(spec.session_id), self._spool, name=NAME)
        made = await far.provision(spec, epoch)
        return self._hands(made.identity, spec.session_id)

    async def attach(self, identity: HandsProvisioned) -> RemoteHands:
        """Return the incarnation of that event, dead or alive."""
        return self._hands(identity, self._queue.session_of(identity.hands_id) or f"of_{identity.hands_id}")

    def _hands(self, identity: HandsProvisioned, session_id: str) -> RemoteHands:
        return RemoteHands(identity, FarEnd(self._link(session_id), self._spool), self._queue, session_id)
