"""Client of the API of `holdfast serve`, for programs on any machine.

    async with Client("http://127.0.0.1:8400", key) as client:
        session = await client.open("Summarize the open issues.", key="nightly-7")
        async for event in client.events(session.session_id):
            ...

Results are the structs that the server answers with. Requests are not repeated, except those of an event stream: give a
command a `key`, and it is safe to send it again after a `RequestFailed` without a status.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import RequestFailed, UsageError
from holdfast.facts.people import Verdict
from holdfast.facts.shift import Period
from holdfast.kinds.mission.brief.document import Brief
from holdfast.serve.bodies import (
    AccountPage,
    AnswerInfo,
    EventInfo,
    EventPage,
    Failed,
    FilePage,
    ForkInfo,
    HitInfo,
    ItemInfo,
    ItemPage,
    Receipt,
    SearchPage,
    SessionInfo,
    SessionPage,
    Stopped,
    Verification,
)
from holdfast.serve.pulse import HomeStatus

try:
    import httpx
    import httpx_sse
except ImportError as error:
    raise ImportError(f"holdfast.client needs {error.name}; type: pip install 'holdfast[client]'") from error

T = TypeVar("T")

PREFIX = "/holdfast/v1"

REQUEST_S = 60.0
"""Time for a response, in seconds."""

SILENCE_S = 45.0
"""Time without a byte after which a stream counts as lost, in seconds. The server sends one every 15 seconds."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
"""Bounds of the wait before a stream is opened again, in seconds; it doubles with each failure."""

PATIENCE_S = 300.0
"""Default time for which a lost stream tries to reach the server, in seconds."""


class Client:
    """A connection to the API of one server, to be used with `async with`. `key` is an API key.

    Methods raise `RequestFailed` for a refused request and for a server that is not reached.
    """

    def __init__(self, url: str, key: str, *, clock: Clock | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is not the address of a server, such as http://127.0.0.1:8400")
        self._clock = clock or SystemClock()
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/") + PREFIX, headers={"authorization": f"Bearer {key}"}, timeout=REQUEST_S
        )

    async def __aenter__(self) -> Client:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    # --- sessions ---

    async def open(
        self,
        goal: str,
        *,
        key: str = "",
        workspace: str = "",
        model: str = "",
        budget_usd: float | None = None,
        max_turns: int | None = None,
    ) -> SessionInfo:
        """Open a session, which the server runs. With a `key` already in use, return its session."""
        body = {"goal": goal, "key": key, "workspace": workspace, "model": model}
        return await self._post("/sessions", SessionInfo, **body, budget_usd=budget_usd, max_turns=max_turns)

    async def sessions(self, filter: str = "") -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions that pass a filter of `holdfast ps`, newest first."""
        after: str | None = ""
        while after is not None:
            page = await self._get("/sessions", SessionPage, filter=filter, after=after)
            for each in page.sessions:
                yield each
            after = page.next

    async def session(self, session: str) -> SessionInfo:
        """Return a session by its id, key, or a unique part of its id."""
        return await self._get(_at(session), SessionInfo)

    async def post(self, session: str, text: str, *, key: str = "") -> Receipt:
        """Send a message to a session."""
        return await self._post(f"{_at(session)}/messages", Receipt, key, text=text)

    async def interrupt(self, session: str, reason: str = "", *, key: str = "") -> Receipt:
        """Interrupt an agent; it waits for a message."""
        return await self._post(f"{_at(session)}/interrupt", Receipt, key, reason=reason)

    async def pause(self, session: str, reason: str = "", *, key: str = "") -> Receipt:
        """Pause a session at its next safe boundary, a mission or a run over a list with all below it."""
        return await self._post(f"{_at(session)}/pause", Receipt, key, reason=reason)

    async def resume(self, session: str, *, key: str = "") -> Receipt:
        """Let a paused session, a new fork, or one that a failed request ended go on."""
        return await self._post(f"{_at(session)}/resume", Receipt, key)

    async def cancel(self, session: str, reason: str = "", *, key: str = "") -> Receipt:
        """Cancel a session for good, with all below it."""
        return await self._post(f"{_at(session)}/cancel", Receipt, key, reason=reason)

    async def fork(self, session: str, at: int, *, key: str = "") -> ForkInfo:
        """Fork a session after an event; `resume` lets the fork go on. With a `key` in use, return its fork."""
        return await self._post(f"{_at(session)}/fork", ForkInfo, at=at, key=key)

    # --- events, and what follows from them ---

    async def events(
        self, session: str, *, after: int = 0, follow: bool = True, patience_s: float = PATIENCE_S
    ) -> AsyncGenerator[EventInfo, None]:
        """Yield the events of a session after a position, each once and in order.

        With `follow`, goes on with events as they come, until the caller leaves: a lost connection is opened again
        after the last event. Raises `RequestFailed` if the server refuses, or is not reached for `patience_s`.
        """
        if not follow:
            at: int | None = after
            while at is not None:
                page = await self._get(f"{_at(session)}/events", EventPage, after=at, limit=500)
                for each in page.events:
                    yield each
                at = page.next
            return
        lost_s: float | None = None
        wait_s = FIRST_WAIT_S
        while True:
            try:
                async with aclosing(self._stream(f"{_at(session)}/events/stream", after)) as frames:
                    async for frame in frames:
                        lost_s, wait_s = None, FIRST_WAIT_S
                        if frame is None or not frame.data:  # open, or a comment that keeps the connection alive
                            continue
                        for event in msgspec.json.decode(frame.data, type=list[EventInfo]):
                            after = event.seq
                            yield event
            except RequestFailed as error:
                now_s = self._clock.monotonic_s()
                lost_s = now_s if lost_s is None else lost_s
                if 0 < error.status < 500 or now_s - lost_s >= patience_s:
                    raise
            await self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _stream(self, path: str, after: int) -> AsyncGenerator[httpx_sse.ServerSentEvent | None, None]:
        """Yield None when a stream is open, and its messages until the server ends it. Raises `RequestFailed`."""
        timeout = httpx.Timeout(REQUEST_S, read=SILENCE_S)
        try:
            headers = {"last-event-id": str(after), "accept": "text/event-stream"}
            async with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _failed(response)
                yield None
                async with aclosing(httpx_sse.EventSource(response).aiter_sse()) as frames:
                    async for frame in frames:
                        yield frame
        except (httpx.HTTPError, httpx_sse.SSEError) as error:
            raise self._unreached(error) from error

    async def brief(self, session: str, *, since: int = 0) -> Brief:
        """Summarize a session or mission, with all below it; `since` is a position."""
        return await self._get(f"{_at(session)}/brief", Brief, since=since)

    async def files(self, session: str, *, at: int = 0, limit: int = 1_000) -> FilePage:
        """List the files of a session's workspace as they were after an event, 0 for the last one."""
        return await self._get(f"{_at(session)}/files", FilePage, at=at, limit=limit)

    async def file(self, session: str, path: str, *, at: int = 0) -> bytes:
        """Return a file of a session's workspace as it was after an event, 0 for the last one."""
        return await self._send("GET", f"{_at(session)}/file", params={"path": path, "at": at})

    async def verify(self, session: str) -> Verification:
        """Check the hash chain of a session, and the data beside it."""
        return await self._get(f"{_at(session)}/verify", Verification)

    async def search(self, words: str) -> AsyncGenerator[HitInfo, None]:
        """Yield the sessions with events that have all the words, best first; filters as for `holdfast search`."""
        after: str | None = ""
        while after is not None:
            page = await self._get("/search", SearchPage, q=words, after=after)
            for each in page.hits:
                yield each
            after = page.next

    # --- inbox ---

    async def inbox(self, *, limit: int = 100) -> list[ItemInfo]:
        """List the open inbox items, oldest first."""
        return (await self._get("/inbox", ItemPage, limit=limit)).items

    async def item(self, item_id: str) -> ItemInfo:
        """Return an inbox item, open or closed. An open one counts as seen from now on."""
        return await self._get(f"/inbox/{quote(item_id, safe='')}", ItemInfo)

    async def answer(
        self,
        item: ItemInfo,
        verdict: Verdict,
        *,
        note: str = "",
        for_s: float | None = None,
        uses: int | None = None,
        match: str | None = None,
        budget_usd: float | None = None,
    ) -> AnswerInfo:
        """Answer an item for the action that it shows. After another user's answer, fails with status 409."""
        grant = {"for_s": for_s, "uses": uses, "match": match, "budget_usd": budget_usd}
        path = f"/inbox/{quote(item.item_id, safe='')}/answer"
        return await self._post(path, AnswerInfo, verdict=verdict, digest=item.digest, note=note, **grant)

    # --- money, and the home ---

    async def budget(self, session: str) -> AccountPage:
        """List the accounts that a session spends from, from its own to that of the home."""
        return await self._get(f"{_at(session)}/budget", AccountPage)

    async def set_budget(self, session: str, cap_usd: float | None, *, period: Period = "total") -> AccountPage:
        """Set a cap of a session's own account; None lifts it."""
        return await self._post(f"{_at(session)}/budget", AccountPage, period=period, cap_usd=cap_usd)

    async def budgets(self) -> AccountPage:
        """List all money accounts of the home."""
        return await self._get("/budgets", AccountPage)

    async def set_account(self, account_id: str, cap_usd: float | None, *, period: Period = "total") -> AccountPage:
        """Set a cap of any account of the home; None lifts it."""
        return await self._post(f"/budgets/{quote(account_id, safe='')}", AccountPage, period=period, cap_usd=cap_usd)

    async def status(self) -> HomeStatus:
        """Return the counts of the home."""
        return await self._get("/status", HomeStatus)

    async def stop(self, reason: str = "") -> Stopped:
        """Stop every session: none starts until the release."""
        return await self._post("/stop", Stopped, reason=reason)

    async def release(self, reason: str = "") -> Stopped:
        """Lift the emergency stop."""
        return await self._post("/release", Stopped, reason=reason)

    # --- requests ---

    async def _get(self, path: str, kind: type[T], **query: str | int) -> T:
        params = {name: value for name, value in query.items() if value != ""}
        return msgspec.json.decode(await self._send("GET", path, params=params), type=kind)

    async def _post(self, path: str, kind: type[T], key: str = "", /, **body: Any) -> T:
        headers = {"idempotency-key": key} if key else {}
        return msgspec.json.decode(await self._send("POST", path, json=body, headers=headers), type=kind)

    async def _send(self, method: str, path: str, **options: Any) -> bytes:
        """Send a request and return the body of its response. Raises `RequestFailed`."""
        try:
            response = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._unreached(error) from error
        if response.status_code != 200:
            raise _failed(response)
        return response.content

    def _unreached(self, error: Exception) -> RequestFailed:
        why = str(error) or type(error).__name__
        return RequestFailed(
            f"no response of {self._http.base_url.host} ({why}); the request may have been carried out. A command with "
            "a key is safe to send again"
        )


def _at(session: str) -> str:
    return f"/sessions/{quote(session, safe='')}"


def _failed(response: httpx.Response) -> RequestFailed:
    """Return the error of a response that reports one."""
    try:
        failure = msgspec.json.decode(response.content, type=Failed).error
    except msgspec.DecodeError:  # not of Holdfast: a proxy before it
        return RequestFailed(f"status {response.status_code}", status=response.status_code, kind="error")
    return RequestFailed(failure.message, status=response.status_code, kind=failure.type)
