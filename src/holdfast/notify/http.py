"""HTTP to notification targets: bounded requests and retries, with errors that reveal no secret.

No message contains a URL, a header, or a response, since any of them may contain a secret.
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
    """Retry policy of a target: time limits, number of tries, and waits between them.

    The wait doubles from `first_wait_s` to `longest_wait_s`, with jitter. If the receiver asks for a longer one
    (Retry-After), there is no retry, and the error carries that time.
    """

    request_s: float = 10.0
    tries: int = 4
    first_wait_s: float = 1.0
    longest_wait_s: float = 20.0
    whole_s: float = 60.0


class Answer(NamedTuple):
    """An HTTP response: the status, the requested wait, and the body up to the limit of the request."""

    status: int
    retry_after_s: float | None
    body: bytes
    cut: bool


class Request(NamedTuple):
    """One HTTP request. At most `keep_bytes` of the response body are read."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes = b""
    keep_bytes: int = 0


def checked_url(name: str, url: str) -> httpx.URL:
    """Validate a URL: https, or http to this machine. Raises `UsageError`, whose message does not contain it."""
    try:
        parsed = httpx.URL("" if re.search(r"[\s\x00-\x1f]", url) else url)
    except (httpx.InvalidURL, UnicodeError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("https", "http") or not parsed.host:
        raise UsageError(f'the url of [notify.{name}] is not a web address; example: url = "https://example.com/hook"')
    if parsed.userinfo:
        raise UsageError(f"the url of [notify.{name}] contains a user name or password; remove it")
    if parsed.scheme == "http" and not _is_loopback(parsed.host):
        raise UsageError(
            f"the url of [notify.{name}] begins with http, which is allowed only to this machine; write https://"
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
    """Send a request once, without redirects. Raises `NotifyError` if there is no complete response."""
    failure = ""
    try:
        with anyio.fail_after(patience.request_s):
            async with _response(request) as response:
                body, cut = await _head(response, request.keep_bytes)
                after = retry_after_s(response.headers.get("retry-after", ""), clock)
                return Answer(response.status_code, after, body, cut)
    except (ImportError, ValueError) as error:
        failure = f"cannot be reached through the proxy of the environment ({type(error).__name__})"
    except (TimeoutError, httpx.TimeoutException):
        failure = f"did not answer within {patience.request_s:g} s"
    except httpx.ConnectError as error:
        failure = _why_no_connection(error)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ssl.SSLError) as error:
        failure = f"closed the connection ({type(error).__name__})"
    # Raise outside the handlers: the client's error contains the URL and must not be in the chain.
    raise NotifyError(f"the notification target {name!r} {failure}", retryable=True)


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, read once, since reading takes longer than a request."""
    return httpx.create_ssl_context()


@asynccontextmanager
async def _response(request: Request) -> AsyncIterator[httpx.Response]:
    url = httpx.URL(request.url)
    headers = {"user-agent": f"holdfast/{__version__}", **request.headers}
    with _unlogged():
        # Requests to this machine do not use the proxy of the environment.
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
        return "does not support TLS or has no valid certificate; check the certificate and the clock of this machine"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "is down: the connection was refused"
    return "cannot be reached: no connection; check its host name and the network of this machine"


def retry_after_s(value: str, clock: Clock) -> float | None:
    """Convert a Retry-After header, a number or a date, to seconds from now; None for anything else."""
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - clock.now_us() / 1_000_000)
    except (ValueError, TypeError, OverflowError):
        return None


def settle(name: str, answer: Answer) -> None:
    """Raise `NotifyError` unless the response is a success."""
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
        return "is gone for good (410); remove it from your holdfast.toml"
    if 300 <= status < 400:
        return f"answered with a redirect ({status}), which is not followed; set its url to the new address"
    if status in (401, 403):
        return f"refused the credentials ({status}); check its secret or token"
    if status == 413:
        return "refused the message as too long (413)"
    if status == 429:
        return "refused the message: too many requests (429)"
    return f"answered with status {status}"


async def persist(patience: Patience, attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry `attempt` within the retry policy. Raises the last `NotifyError`, with the number of tries."""
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
        raise NotifyError("the message was not sent", retryable=True)
    times = "once" if tried == 1 else f"{tried} times"
    raise NotifyError(
        f"{last} (tried {times}). The session is not affected; see `holdfast inbox`",
        retryable=last.retryable,
        retry_after_s=last.retry_after_s,
    )


# --- logging of the libraries -----------------------------------------------------------------------

_silent: ContextVar[bool] = ContextVar("_silent", default=False)


def _may_be_logged(record: logging.LogRecord) -> bool:
    return not _silent.get()


# The client logs each URL, and the URL of a webhook often serves as its password.
logging.getLogger("httpx").addFilter(_may_be_logged)
# Without a separate handler, a retry would be printed into the terminal.
logging.getLogger("stamina").addHandler(logging.NullHandler())


@contextmanager
def _unlogged() -> Iterator[None]:
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)
