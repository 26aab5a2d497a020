"""A worker: polls for work, creates hands on its machine, answers their requests. It needs no open port and no log.

It holds the key that permits polling, and for each session a token of that session alone. The journals of its hands
record each start and end and outlive it: a restarted worker continues with them, and reports an unknown outcome where
they have none; nothing runs twice. A worker that lost its lease drops its work silently.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import httpx
import msgspec

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.hands.far.protocol import Ask
from holdfast.hands.far.server import FarServer

BLOCK_MS = 999
ASKS_MS = 10_000
AGAIN_S = 1.0
"""Seconds to wait after a server that does not answer, or an invalid answer."""

MAX_IDLE_S = 60.0
"""Seconds without a request after which a session is released; it is handed out again with its next request."""

TTL_S = 30

_encode = msgspec.json.encode


class Lost(Exception):
    """The lease is lost; another worker may hold it."""


def check_url(url: str) -> str:
    """Return the address of a queue. Raises `UsageError` for one that would send the key and the work unencrypted."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    loopback = host in ("localhost", "::1") or host.startswith("127.")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is no address of a queue, such as https://brains.example")
    if parts.scheme == "http" and not loopback:
        raise UsageError(
            f"{url} would send the key and the work in the clear; use https://, or a tunnel that ends on this machine"
        )
    return url.rstrip("/")


class Worker:
    """Works for one queue, up to `most` sessions at a time. `say` receives progress messages."""

    def __init__(
        self,
        url: str,
        key: str,
        server: FarServer,
        *,
        name: str,
        environment: str,
        say: Callable[[str], None],
        most: int = 8,
        idle_s: float = MAX_IDLE_S,
        ttl_s: int = TTL_S,
    ) -> None:
        self._work = f"/v1/environments/{environment}/work"
        self._key, self._server, self._say, self._idle_s, self._ttl_s = key, server, say, idle_s, ttl_s
        self._room = anyio.Semaphore(most)
        timeout = httpx.Timeout(30.0)
        self._http = httpx.AsyncClient(
            base_url=check_url(url), timeout=timeout, headers={"anthropic-worker-id": name}, trust_env=False
        )

    async def run(self) -> None:
        """Run until cancelled. Raises `CannotRunSafely` if the key is refused."""
        async with self._http, anyio.create_task_group() as group:
            while True:
                await self._room.acquire()
                item = await self._poll()
                if item is None:
                    self._room.release()
                    continue
                group.start_soon(self._item, item)

    async def _ask(self, method: str, path: str, secret: str, **more: Any) -> httpx.Response:
        return await self._http.request(method, path, headers={"authorization": f"Bearer {secret}"}, **more)

    async def _poll(self) -> dict[str, Any] | None:
        try:
            said = await self._ask("GET", f"{self._work}/poll?block_ms={BLOCK_MS}", self._key)
            if said.status_code in (401, 403):
                raise CannotRunSafely("the queue does not know this key; make one there with `holdfast hands key NAME`")
            item = said.json() if said.status_code == 200 else None
            if item is None:
                await anyio.sleep(0 if said.status_code == 200 else AGAIN_S)
                return None
            acknowledged = await self._ask("POST", f"{self._work}/{item['id']}/ack", self._key)
            return item if acknowledged.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            await anyio.sleep(AGAIN_S)
            return None

    async def _item(self, item: dict[str, Any]) -> None:
        """Serve one session, until it is idle, ended, or another worker's."""
        try:
            session_id, work_id = str(item["data"]["id"]), str(item["id"])
            secret = str(item["secret"])
            told = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
            token = str(json.loads(told)["sessions_token"])
            self._say(f"{session_id}: taken")
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._beat, work_id, token, group.cancel_scope)
                    await self._serve(session_id, token)
                    group.cancel_scope.cancel()
                await self._stop(work_id, token)
                self._say(f"{session_id}: let go; what runs in its hands goes on")
            except* Lost:
                self._say(f"{session_id}: another worker has it now, or it is over")
        finally:
            self._room.release()

    async def _beat(self, work_id: str, token: str, scope: anyio.CancelScope) -> None:
        """Extend the lease; raise `Lost` if another worker holds it; end the work if the queue requests that."""
        last, pause_s = "NO_HEARTBEAT", 1.0
        while True:
            try:
                path = f"{self._work}/{work_id}/heartbeat"
                params = {"expected_last_heartbeat": last, "desired_ttl_seconds": self._ttl_s}
                said = await self._ask("POST", path, token, params=params)
                if said.status_code == 200:
                    told = said.json()
                    last, pause_s = told["last_heartbeat"], max(1.0, min(told["ttl_seconds"] / 2, 30.0))
                    if not told["lease_extended"]:
                        scope.cancel()
                elif 400 <= said.status_code < 500:
                    raise Lost
            except (httpx.HTTPError, ValueError, KeyError):
                pause_s = AGAIN_S  # the queue may be starting again; the lease limits the time for that
            await anyio.sleep(pause_s)

    async def _serve(self, session_id: str, token: str) -> None:
        """Handle requests until there are none for a while. Each is answered as it is ready."""
        after, busy, quiet_since = 0, 0, anyio.current_time()

        async def one(seq: int, ask: Ask) -> None:
            nonlocal busy, quiet_since
            try:
                await self._answer(session_id, token, seq, ask)
            finally:
                busy, quiet_since = busy - 1, anyio.current_time()

        async with anyio.create_task_group() as group:
            while busy or anyio.current_time() - quiet_since < self._idle_s:
                hold_ms = max(1, min(ASKS_MS, int(self._idle_s * 1000)))
                for seq, ask in await self._asks(session_id, token, after, hold_ms):
                    after, busy = seq, busy + 1
                    group.start_soon(one, seq, ask)

    async def _asks(self, session_id: str, token: str, after: int, hold_ms: int) -> list[tuple[int, Ask]]:
        path = f"/v1/sessions/{session_id}/asks?after={after}&block_ms={hold_ms}"
        try:
            said = await self._ask("GET", path, token)
            if 400 <= said.status_code < 500:
                raise Lost
            return [(int(each["seq"]), msgspec.convert(each["ask"], Ask)) for each in said.json()["asks"]]
        except (httpx.HTTPError, ValueError, KeyError, msgspec.MsgspecError):
            await anyio.sleep(AGAIN_S)
            return []

    async def _answer(self, session_id: str, token: str, seq: int, ask: Ask) -> None:
        """Handle the request, and send its answer until the queue has it. If refused, another worker has the item."""
        body = _encode(await self._server.answer(ask))
        while True:
            try:
                said = await self._ask("POST", f"/v1/sessions/{session_id}/answers/{seq}", token, content=body)
                if said.status_code < 500:
                    return
            except httpx.HTTPError:
                pass
            await anyio.sleep(AGAIN_S)

    async def _stop(self, work_id: str, token: str) -> None:
        with anyio.move_on_after(10):
            try:
                await self._ask("POST", f"{self._work}/{work_id}/stop", token, json={"force": False})
            except httpx.HTTPError:
                return  # its lease expires by itself
