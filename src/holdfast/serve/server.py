"""The server: routes, the gate around them, and uvicorn in the event loop of the caller."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import anyio
import h11
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.serve import api, health, hooks, pages
from holdfast.serve.access import BROWSER_S
from holdfast.serve.gate import HEADERS_MAX, Gate, Refusal, cookie_name, visitor_of
from holdfast.serve.pages.render import render
from holdfast.serve.site import Site

CONNECTIONS_MAX = 512
"""Number of open connections; another one is closed at once."""

HEADERS_S = 10.0
"""Time for the headers of a request to arrive, in seconds."""

END_S = 2.0
"""Time for open responses to end when the server stops, in seconds."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `UsageError` for an invalid address, `CannotRunSafely` for one in use."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError as error:
        raise UsageError(f"--host {host!r} is not an IP address, such as 127.0.0.1; nothing was started") from error
    # asyncio sends small writes at once (TCP_NODELAY) only where the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        raise CannotRunSafely(
            f"the address {host} port {port} cannot be used ({why}); nothing was started. Choose another port with "
            "--port N"
        ) from error
    return listening


def is_loopback(host: str) -> bool:
    """True if only processes of this machine can connect to that IP address."""
    return ipaddress.ip_address(host).is_loopback


def hosts(host: str, port: int, url: str) -> set[str]:
    """Values of the Host header that name this server: its own address, and that of its public URL."""
    address = f"[{host}]" if ":" in host else host
    names = {address, "127.0.0.1", "localhost", "[::1]"} if is_loopback(host) else {address}
    return {f"{name}:{port}" for name in names} | {urlsplit(url).netloc.lower()}


def application(site: Site, *, host: str, port: int, tell: Callable[[str], None]) -> Gate:
    """Build the ASGI application. `tell` receives the tracebacks of unexpected errors."""

    async def login(request: Request) -> Response:
        """Turn a one-time link into a login of this browser."""
        secret = site.access.redeem(request.query_params.get("link", ""))
        if secret is None:
            raise Refusal(401, "link_invalid", "this link was used or has expired; `holdfast open` prints a new one")
        # The browser sends a strict cookie only with requests that a page of this server begins, so no redirect.
        response = render(request, "login.html")
        response.set_cookie(
            *(cookie_name(port), secret),
            max_age=BROWSER_S,
            httponly=True,
            samesite="strict",
            secure=site.url.startswith("https://"),
        )
        return response

    async def logout(request: Request) -> Response:
        """End the login of this browser."""
        credential = visitor_of(request).credential
        if credential.kind == "browser":
            site.access.revoke(credential.id)
        response = RedirectResponse("/", 303)
        response.delete_cookie(cookie_name(port), httponly=True, samesite="strict")
        return response

    def failed(request: Request, status: int, kind: str, message: str) -> Response:
        """Report an error: as a page to a browser, as JSON to anything else."""
        if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/holdfast/"):
            return render(request, "error.html", status=status, message=message)
        return JSONResponse({"error": {"type": kind, "message": message}}, status)

    router = Router(
        [
            Route("/login", login, methods=["GET"]),
            Route("/logout", logout, methods=["POST"]),
            *api.routes(site),
            *health.routes(site),
            *hooks.routes(site),
            *pages.routes(site),
        ],
        redirect_slashes=False,
    )
    return Gate(router, site, hosts=hosts(host, port, site.url), port=port, failed=failed, tell=tell)


class _Connection(H11Protocol):
    """A connection that counts against the limit and must send the headers of a request in time."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self._due = self.loop.call_later(HEADERS_S, self._late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._time()

    def _time(self) -> None:
        """Time the headers while a part of them is here, or the rest of a body whose response was sent."""
        state = self.conn.our_state
        waits = state is h11.DONE or (state is h11.IDLE and bool(self.conn.trailing_data[0]))
        if waits and self._due is None:
            self._due = self.loop.call_later(HEADERS_S, self._late)
        elif not waits and self._due is not None:
            self._due.cancel()
            self._due = None

    def _late(self) -> None:
        self._due = None
        self.transport.close()


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run(site: Site, app: Gate, listening: socket.socket) -> None:
    """Serve until cancelled; open responses then have a moment to end."""
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=round(END_S),
        h11_max_incomplete_event_size=HEADERS_MAX,
    )
    server = _Server(config)
    async with anyio.create_task_group() as group:
        # uvicorn cannot be cancelled without losing responses, so it runs shielded and is asked to end.
        async def serve() -> None:
            with anyio.CancelScope(shield=True):
                await server.serve(sockets=[listening])

        group.start_soon(serve)
        try:
            await anyio.sleep_forever()
        finally:
            site.closing.set()
            server.should_exit = True
