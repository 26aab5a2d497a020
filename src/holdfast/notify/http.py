"""HTTP to a target: one bounded request, a bounded number of them, and what went wrong in safe words.

No message here tells a URL, a header or what a receiver answered: any of them may hold a secret.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from functools import cache
from typing import NamedTuple, TypeVar

import anyio
import httpx
import stamina

from holdfast import __version__
from holdfast.clock import Clock
from holdfast.errors import NotifyError, UsageError

T = TypeVar("T")


class Patience(NamedTuple):
    """How long a target is tried: seconds for one request, tries, and the waits between them.

    The wait doubles from `first_wait_s` to `longest_wait_s`, with chance added. A receiver that asks for a
    longer one (Retry-After) is left alone; the error says for how long.
    """

    request_s: float = 10.0
    tries: int = 4
    first_wait_s: float = 1.0
    longest_wait_s: float = 20.0
    whole_s: float = 60.0


class Answer(NamedTuple):
    """What came back: the status, the wait that was asked for, and at most so many bytes as wanted."""

    status: int
    retry_after_s: float | None
    body: bytes
    cut: bool


class Request(NamedTuple):
    """One HTTP request. `keep_bytes` of the answer's body are read, none of it by default."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes = b""
    keep_bytes: int = 0


def checked_url(name: str, url: str) -> httpx.URL:
    """`url` if a notice may go there: https, or http to this machine. Raises `UsageError` without showing it."""
    try:
        parsed = httpx.URL("" if re.search(r"[\s\x00-\x1f]", url) else url)
    except (httpx.InvalidURL, UnicodeError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("https", "http") or not parsed.host:
        raise UsageError(
            f'the url of [notify.{name}] is not a web address; an example is: url = "https://example.com/hook"'
        )
    if parsed.userinfo:
        raise UsageError(f"the url of [notify.{name}] has a user name or password in it; leave that out")
    if parsed.scheme == "http" and not _is_loopback(parsed.host):
        raise UsageError(
            f"the url of [notify.{name}] begins with http: only https may leave this machine; write https://"
        )
    return parsed


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def ask(name: str, request: Request, patience: Patience, clock: Clock) -> Answer:
    """Send `request` once. Redirects are not followed. Raises `NotifyError` when nothing whole came back."""
    failure = ""
    try:
        with anyio.fail_after(patience.request_s):
            async with _response(request) as response:
                body, cut = await _head(response, request.keep_bytes)
                after = retry_after_s(response.headers.get("retry-after", ""), clock)
                return Answer(response.status_code, after, body, cut)
    except (ImportError, ValueError) as error:
        failure = f"cannot be reached through the proxy that the environment names ({type(error).__name__})"
    except (TimeoutError, httpx.TimeoutException):
        failure = f"did not answer within {patience.request_s:g} s"
    except httpx.ConnectError as error:
        failure = _why_no_connection(error)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ssl.SSLError) as error:
        failure = f"broke off ({type(error).__name__})"
    # Raised out here, so that no chain leads to an error of the client: that one knows the URL.
    raise NotifyError(f"the notification target {name!r} {failure}", retryable=True)


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust: read once, since that takes longer than a request."""
    return httpx.create_ssl_context()


@asynccontextmanager
async def _response(request: Request) -> AsyncIterator[httpx.Response]:
    url = httpx.URL(request.url)
    headers = {"user-agent": f"holdfast/{__version__}", **request.headers}
    with _unlogged():
        # A proxy of the environment is for other machines.
        client = httpx.AsyncClient(
            verify=_certificates(), trust_env=not _is_loopback(url.host), follow_redirects=False, timeout=None
        )
        async with client, client.stream(request.method, url, headers=headers, content=request.content) as response:
            yield response


async def _head(response: httpx.Response, keep_bytes: int) -> tuple[bytes, bool]:
    if not keep_bytes:
        return b"", False
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > keep_bytes:
            return bytes(body[:keep_bytes]), True
    return bytes(body), False


def _why_no_connection(error: httpx.ConnectError) -> str:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 10:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "speaks no TLS, or has no valid certificate; see to the certificate, or to the clock of this machine"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "is down: the connection was refused"
    return "cannot be reached: no connection; see whether its name and this machine's network are right"


def retry_after_s(value: str, clock: Clock) -> float | None:
    """Seconds from now of a Retry-After header, a number or a date; None for anything else."""
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - clock.now_us() / 1_000_000)
    except (ValueError, TypeError, OverflowError):
        return None


def settle(name: str, answer: Answer) -> None:
    """Return when `answer` is a success; otherwise raise what it means as a `NotifyError`."""
    if 200 <= answer.status < 300:
        return
    again = answer.status in (408, 425, 429) or answer.status >= 500
    raise NotifyError(
        f"the notification target {name!r} {_meaning(answer.status)}",
        retryable=again,
        retry_after_s=answer.retry_after_s if again else None,
    )


def _meaning(status: int) -> str:
    if status == 410:
        return "is gone for good (410); take it out of your holdfast.toml"
    if 300 <= status < 400:
        return f"answered with a redirect ({status}), which is not followed; write the new address as its url"
    if status in (401, 403):
        return f"refused the credentials ({status}); see to its secret or token"
    if status == 413:
        return "found the message too long (413)"
    if status == 429:
        return "wants fewer messages (429)"
    return f"answered with status {status}"


async def persist(patience: Patience, attempt: Callable[[], Awaitable[T]]) -> T:
    """Do `attempt` until it succeeds, cannot, or patience ends. Raises the last `NotifyError`, with the tries."""
    tried = 0
    last: NotifyError | None = None

    def again(error: Exception) -> bool | float:
        if not isinstance(error, NotifyError) or not error.retryable:
            return False
        if error.retry_after_s is None:
            return True
        return error.retry_after_s if error.retry_after_s <= patience.longest_wait_s else False

    try:
        async for turn in stamina.retry_context(
            on=again,
            attempts=patience.tries,
            timeout=patience.whole_s,
            wait_initial=patience.first_wait_s,
            wait_max=patience.longest_wait_s,
            wait_jitter=patience.first_wait_s,
        ):
            with turn:
                tried += 1
                return await attempt()
    except NotifyError as error:
        last = error
    if last is None:
        raise NotifyError("the message was not tried", retryable=True)
    times = "once" if tried == 1 else f"{tried} times"
    raise NotifyError(
        f"{last} (tried {times}). The session is not changed by this; `holdfast inbox` shows what waits",
        retryable=last.retryable,
        retry_after_s=last.retry_after_s,
    )


# --- what the libraries log -------------------------------------------------------------------------

_silent: ContextVar[bool] = ContextVar("_silent", default=False)


def _may_be_logged(record: logging.LogRecord) -> bool:
    return not _silent.get()


# The client logs each URL, and a webhook's URL is often its password.
logging.getLogger("httpx").addFilter(_may_be_logged)
# Without a handler of its own, a retry would be printed in the middle of a terminal.
logging.getLogger("stamina").addHandler(logging.NullHandler())


@contextmanager
def _unlogged() -> Iterator[None]:
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)
