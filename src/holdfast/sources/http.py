"""A web address as a source: a JSON array or JSON lines, read again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import anyio
import httpx

from holdfast import __version__
from holdfast.errors import SourceError
from holdfast.sources.base import Polled
from holdfast.sources.records import RESPONSE_BYTES, read
from holdfast.sources.settings import HttpSettings, is_loopback

_certificates = cache(httpx.create_ssl_context)
"""The trusted certificates, read once, since reading takes longer than a request."""


class HttpSource:
    """The response of a web server. `secret` reads a secret by name, at each poll."""

    def __init__(self, settings: HttpSettings, secret: Callable[[str], str]) -> None:
        self._settings = settings
        self._secret = secret

    async def poll(self, cursor: str, limit: int) -> Polled:
        """See `Source.poll`. Redirects are not followed, and no message contains a header."""
        settings = self._settings
        named = {name: self._secret(secret) for name, secret in settings.secret_headers.items()}
        headers = {"user-agent": f"holdfast/{__version__}", **settings.headers, **named}
        url = httpx.URL(settings.url)
        if cursor and settings.cursor_param:
            url = url.copy_merge_params({settings.cursor_param: cursor})
        failure, body = "", b""
        try:
            with anyio.fail_after(settings.timeout_s):
                body = await _get(url, headers)
        except TimeoutError:
            failure = f"did not answer within {settings.timeout_s:g} s"
        except httpx.HTTPError as error:
            failure = f"cannot be read ({type(error).__name__})"
        if failure:  # outside the handler: the client's error contains the request
            raise SourceError(f"the source at {url.host} {failure}; nothing was taken", retryable=True)
        return read(body, settings, cursor, limit)


async def _get(url: httpx.URL, headers: Mapping[str, str]) -> bytes:
    """Return the body of a successful response."""
    outside = not is_loopback(url.host)
    verify = _certificates() if url.scheme == "https" else False
    client = httpx.AsyncClient(verify=verify, trust_env=outside, follow_redirects=False, timeout=None)
    async with client, client.stream("GET", url, headers=headers) as response:
        if not 200 <= response.status_code < 300:
            again = response.status_code in (408, 425, 429) or response.status_code >= 500
            raise SourceError(
                f"the source at {url.host} answered with status {response.status_code}; nothing was taken",
                retryable=again,
            )
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > RESPONSE_BYTES:
                break
    return bytes(body)
