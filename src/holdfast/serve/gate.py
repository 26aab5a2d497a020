"""The gate before every route: host, origin, size, identity, role, and form token; and the headers of every response.

A refused request reaches no route. Refusals of a caller's identity or rights are appended to `logs/access.log`.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Callable, Collection
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.clock import Clock, rfc3339
from holdfast.errors import (
    CannotRunSafely,
    EmergencyStop,
    HoldfastError,
    ItemClosed,
    LogDamaged,
    LogUnavailable,
    Refused,
    StorageFull,
    UnknownItem,
    UnknownSession,
    UsageError,
)
from holdfast.serve.access import Role, Visitor
from holdfast.serve.site import Site

BODY_MAX = 1_000_000
"""Bytes of a request's body."""

HEADERS_MAX = 16_384
"""Bytes of the headers of a request."""

DRAINED_MAX = 32_000_000
"""Bytes of a body over the limit that are read and dropped, so that its sender reads the refusal."""

BODY_S = 30.0
"""Time for a body to arrive, in seconds."""

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types worker"
)

_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

OPEN = ("/login", "/healthz", "/readyz", "/static/", "/hooks/")
"""Paths, or beginnings of paths, that need no identity."""

SAFE = ("GET", "HEAD")

INTERNAL = "internal_error"
"""Type of an error that is a bug."""

Failed = Callable[[Request, int, str, str], Response]
"""Make the response of a failed request: status, type, and message."""


class Refusal(Exception):
    """A request that is refused: the status, the type of the error, and a message for the caller."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


def visitor_of(request: Request) -> Visitor:
    """Return the caller of a request. Only the paths in `OPEN` have none."""
    visitor: Visitor = request.state.visitor
    return visitor


def require(request: Request, role: Role) -> Visitor:
    """Return the caller if it has this role, for a route that needs more than its method does. Raises `Refusal`."""
    visitor = visitor_of(request)
    if not visitor.may(role):
        raise Refusal(403, "forbidden", f"this needs the role {role}; yours is {visitor.credential.role}")
    return visitor


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a posted form."""
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text)))
    except ValueError as error:
        raise Refusal(400, "invalid_request", f"the form cannot be read: {error}") from error


def cookie_name(port: int) -> str:
    """The name of the login cookie. Browsers share cookies between the ports of a host, so it has the port."""
    return f"holdfast_{port}"


_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownSession, 404, "not_found"),
    (UnknownItem, 404, "not_found"),
    (ItemClosed, 409, "item_closed"),
    (UsageError, 400, "invalid_request"),
    (EmergencyStop, 409, "emergency_stop"),
    (Refused, 409, "conflict"),
    (StorageFull, 503, "unavailable"),
    (LogUnavailable, 503, "unavailable"),
    (CannotRunSafely, 409, "cannot_run"),
    (LogDamaged, 500, "log_damaged"),
    (HoldfastError, 500, "error"),
)
"""Error → status and type; the first line that matches counts. A missing key or sandbox stays missing until it is
set up: that is a conflict with the state of the server, and no reason to try again."""


def explain(error: Exception) -> tuple[int, str, str]:
    """Return the status, type, and message of an error."""
    if isinstance(error, Refusal):
        return error.status, error.kind, str(error)
    for cls, status, kind in _ERRORS:
        if isinstance(error, cls):
            return status, kind, str(error)
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return 404, "not_found", "there is nothing at this address"
        return error.status_code, "invalid_request", error.detail
    return 500, INTERNAL, "something that should not happen; the output of the server has the details"


class Gate:
    """The middleware around all routes. `failed` makes the response of a refused or failed request."""

    def __init__(
        self,
        app: ASGIApp,
        site: Site,
        *,
        hosts: Collection[str],
        port: int,
        failed: Failed,
        tell: Callable[[str], None],
    ) -> None:
        self._app = app
        self._site = site
        self._hosts = frozenset(hosts)
        self._cookie = cookie_name(port)
        self._failed = failed
        self._tell = tell
        self._failures = Rate(site.clock)
        self._refusals = Refusals(site.home / "logs" / "access.log", site.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            scope["app"] = self  # so that the router raises an error for an unknown path
            await self._app(scope, await self._admit(scope, receive), sending)
        except Exception as error:
            status, kind, text = explain(error)
            if kind == INTERNAL:
                self._tell("".join(traceback.format_exception(error)))
            if status in (401, 403, 413, 421, 429, 431):
                self._refusals.add(scope, status, text)
            if not started:
                response = self._failed(Request(scope), status, kind, text)
                if isinstance(error, HTTPException):
                    response.headers.update(error.headers or {})  # the methods that a path allows
                if status in (408, 413):
                    response.headers["connection"] = "close"
                if status == 429:
                    response.headers["retry-after"] = str(round(FAILURES_S))
                await response(scope, receive, sending)

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check a request, note its caller, and return its body. Raises `Refusal`."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        if sum(len(name) + len(value) for name, value in headers.raw) > HEADERS_MAX:
            raise Refusal(431, "too_large", f"the headers are larger than {HEADERS_MAX} bytes")
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise Refusal(421, "wrong_host", f"this server is not {host!r}; open {self._site.url}")
        unsafe = method not in SAFE
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] not in self._hosts:
            raise Refusal(403, "cross_site", "the request comes from another site")
        if unsafe and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refusal(403, "cross_site", "the request comes from another site")
        body = await _body(headers, receive) if unsafe else b""
        scope.setdefault("state", {})["visitor"] = None
        if not any(path == each or (each.endswith("/") and path.startswith(each)) for each in OPEN):
            visitor = self._identify(scope, headers)
            scope["state"]["visitor"] = visitor
            if unsafe and not visitor.may("operator"):
                raise Refusal(403, "forbidden", f"this needs the role operator; yours is {visitor.credential.role}")
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            form = parse_qsl(body.decode(errors="replace")) if kind == "application/x-www-form-urlencoded" else []
            token = headers.get("x-csrf-token") or dict(form).get("csrf", "")
            if unsafe and visitor.csrf and visitor.csrf != token:
                raise Refusal(403, "forged", "the form lacks the token of this page; load the page again")
        sent = False

        async def again() -> Message:
            nonlocal sent
            if sent or not unsafe:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return again

    def _identify(self, scope: Scope, headers: Headers) -> Visitor:
        """Return the caller: by an API key, or by the cookie of a browser login. Raises `Refusal`."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme:
            found = self._site.access.check("key", secret.strip()) if scheme.lower() == "bearer" else None
            wrong = "the API key is unknown, revoked, or malformed; send it as: Authorization: Bearer KEY"
        else:
            cookies: SimpleCookie = SimpleCookie()
            with contextlib.suppress(CookieError):
                cookies.load(headers.get("cookie", ""))
            secret = cookies[self._cookie].value if self._cookie in cookies else ""
            found = self._site.access.check("browser", secret) if secret else None
            wrong = "you are not logged in; `holdfast open` prints a link that logs this browser in"
        if found is not None:
            return found
        if secret and self._failures.hit(_address(scope)) > FAILURES_MAX:
            raise Refusal(429, "too_many_failures", "too many failed logins from this address; try again in a minute")
        raise Refusal(401, "not_logged_in", wrong)


async def _body(headers: Headers, receive: Receive) -> bytes:
    """Read a request's body. Raises `Refusal` if it is too large or too slow."""
    parts, size = [], 0
    with anyio.move_on_after(BODY_S):
        while size <= DRAINED_MAX:
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            if size <= BODY_MAX:
                parts.append(part)
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                break
        if size > BODY_MAX:
            raise Refusal(413, "too_large", f"the body is larger than {BODY_MAX} bytes")
        return b"".join(parts)
    raise Refusal(408, "too_slow", f"the body did not arrive within {BODY_S:.0f} seconds")


FAILURES_MAX, FAILURES_S = 20, 60.0
"""Failed logins of one address in this time, in seconds, after which it is told to wait. A valid secret still works."""

LINES_MAX = 60
"""Refusals of one address in the same time that are recorded."""

LOG_MAX = 1_000_000
"""Bytes of the file of refusals, after which it is renamed and replaces the one before."""

CALLERS_MAX = 1_000
"""Number of addresses that are counted."""


class Rate:
    """Number of hits by address in the current period."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}
        """Address → begin of its period, and its hits since."""

    def hit(self, address: str) -> int:
        """Count one more; return the number in the period."""
        now_s = self._clock.monotonic_s()
        since_s, count = self._counts.pop(address, (now_s, 0))
        if now_s - since_s >= FAILURES_S:
            since_s, count = now_s, 0
        while len(self._counts) >= CALLERS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[address] = (since_s, count + 1)
        return count + 1


class Refusals:
    """Record of refused requests: a file of JSON lines, bounded in size and per caller."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._rate = Rate(clock)

    def add(self, scope: Scope, status: int, why: str) -> None:
        """Record a refusal."""
        address = _address(scope)
        if self._rate.hit(address) > LINES_MAX:
            return
        visitor = scope.get("state", {}).get("visitor")
        line = {
            "at": rfc3339(self._clock.now_us()),
            "status": status,
            "method": scope["method"],
            "path": scope["path"][:200],
            "from": address,
            "credential": visitor.credential.id if visitor is not None else "",
            "why": why[:300],
        }
        with contextlib.suppress(OSError):  # a full disk must not turn a refusal into an error
            if self._path.exists() and self._path.stat().st_size > LOG_MAX:
                self._path.replace(self._path.with_suffix(".log.1"))
            with open(self._path, "a", encoding="ascii") as file:
                file.write(json.dumps(line) + "\n")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
