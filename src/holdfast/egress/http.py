"""Strict parser of HTTP/1.1 request heads, and bounds on headers where a policy names methods or paths.

A head is read up to its empty line and must mean the same to every parser: no bare line ends, no folded lines,
one Host, one length. Only then does h11 frame the body. A bad request raises `Refusal`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from holdfast.egress.rules import is_override
from holdfast.egress.streams import CHUNK, Ended, Stream
from holdfast.patterns import lazy

HEAD_MAX = 32 << 10
"""Longest head of a request, in bytes."""

HEADERS_MAX = 128
"""Largest number of header lines of a request."""

HEAD_S = 30.0
"""Time limit for the first head of a connection, in seconds."""

IDLE_S = 600.0
"""Time limit of an idle connection, in seconds."""

_LINE = lazy(rb"([A-Z][A-Z-]{0,30}) ([!-~]+) HTTP/(1\.[01])")
_HEADER = lazy(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*")
_LENGTH = lazy(rb"[0-9]{1,15}")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"


class Refusal(Exception):
    """A refused request: the HTTP status, and the reason shown to its sender.

    `held` is True if an approval would allow it, and `secret` names the secret concerned. `told` is the text for the
    sender if only users of Holdfast should read the reason.
    """

    def __init__(self, status: int, reason: str, *, secret: str = "", held: bool = False, told: str = "") -> None:
        super().__init__(reason)
        self.told = told or reason
        self.status = status
        self.reason = reason
        self.secret = secret
        self.held = held


Header = tuple[bytes, bytes]


class Head(NamedTuple):
    """The head of a request. Header names are lower-case; `raw` are its original bytes."""

    method: str
    target: bytes
    version: bytes
    headers: tuple[Header, ...]
    raw: bytes

    def all(self, name: bytes) -> list[bytes]:
        """Return all values of that header, in order."""
        return [value for each, value in self.headers if each == name]


class Inbox:
    """Buffered reader of a stream: request heads, and the bytes after them."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._left = bytearray()

    @property
    def empty(self) -> bool:
        """True if no unread bytes are buffered."""
        return not self._left

    async def head(self, *, wait_s: float) -> bytes:
        """Return the next head with its empty line; empty at the end of the stream."""
        scanned = 0
        while True:
            end = self._left.find(b"\r\n\r\n", scanned)
            if end >= 0 and end + 4 <= HEAD_MAX:
                head = bytes(self._left[: end + 4])
                del self._left[: end + 4]
                return head
            if end >= 0 or len(self._left) > HEAD_MAX:
                raise Refusal(431, f"the request's head is longer than {HEAD_MAX} bytes")
            scanned = max(0, len(self._left) - 3)
            data = await self.stream.recv(HEAD_MAX, wait_s=wait_s)
            if not data:
                if self._left:
                    raise Ended("the connection ended inside a head")
                return b""
            self._left += data
            if not self._left[:1].isupper():
                raise Refusal(400, "this proxy speaks HTTP only")

    async def more(self) -> bytes:
        """Return bytes after the head; empty at the end of the stream."""
        if self._left:
            data = bytes(self._left)
            self._left.clear()
            return data
        return await self.stream.recv(CHUNK, wait_s=IDLE_S)

    def put_back(self, data: bytes) -> None:
        """Put bytes of the next request back into the buffer."""
        self._left[:0] = data


def read_head(raw: bytes) -> Head:
    """Parse a head. Raises `Refusal`."""
    if raw == _PREFACE:
        raise Refusal(505, "HTTP/2 is not supported; use HTTP/1.1")
    lines = raw[:-4].split(b"\r\n")
    if b"\0" in raw or any(b"\n" in line or b"\r" in line for line in lines):
        raise Refusal(400, "the head has a zero byte or a bare line end")
    match = _LINE.fullmatch(lines[0])
    if match is None:
        raise Refusal(400, "the request line is malformed")
    if len(lines) > HEADERS_MAX:
        raise Refusal(431, f"the request has more than {HEADERS_MAX} header lines")
    headers = []
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t"):
            raise Refusal(400, "a header is folded over two lines")
        found = _HEADER.fullmatch(line)
        if found is None:
            raise Refusal(400, "a header line is malformed")
        headers.append((found[1].lower(), found[2]))
    head = Head(match[1].decode(), match[2], match[3], tuple(headers), raw)
    _check(head)
    return head


def _check(head: Head) -> None:
    """Refuse ambiguous heads and unsupported features."""
    if len(head.all(b"host")) != 1 and (head.version != b"1.0" or head.all(b"host")):
        raise Refusal(400, "a request needs exactly one Host header")
    lengths, codings = head.all(b"content-length"), head.all(b"transfer-encoding")
    if lengths and codings:
        raise Refusal(400, "a request has a length or a transfer coding, not both")
    if len(lengths) > 1 or any(not _LENGTH.fullmatch(value) for value in lengths):
        raise Refusal(400, "the length of the request is malformed")
    if codings and (head.version == b"1.0" or [value.lower() for value in codings] != [b"chunked"]):
        raise Refusal(400, "the transfer coding of the request is not supported")
    if head.method == "TRACE":
        raise Refusal(405, "TRACE is refused, since its answer repeats the request")
    options = [word.strip().lower() for value in head.all(b"connection") for word in value.split(b",")]
    if head.all(b"upgrade") or b"upgrade" in options:
        raise Refusal(400, "changing to another protocol (websocket, h2c) is refused; use plain HTTP/1.1")
    if any(word not in (b"close", b"keep-alive", b"te", b"") for word in options):
        raise Refusal(400, "the Connection header names headers to be dropped on the way")
    if any(value.lower() != b"100-continue" for value in head.all(b"expect")):
        raise Refusal(417, "only 100-continue can be expected")


def stays_open(head: Head) -> bool:
    """Return True if another request may follow on the same connection."""
    options = [word.strip().lower() for value in head.all(b"connection") for word in value.split(b",")]
    return head.version == b"1.1" and b"close" not in options


_PHRASES = {
    400: "Bad Request", 403: "Forbidden", 405: "Method Not Allowed", 417: "Expectation Failed",
    421: "Misdirected Request", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    502: "Bad Gateway", 503: "Service Unavailable", 505: "HTTP Version Not Supported",
}  # fmt: skip


def answer_to(refusal: Refusal) -> bytes:
    """Return the HTTP response to a refused request: a short text, and the end of the connection."""
    body = f"Holdfast did not let this through: {refusal.told}\n".encode()
    phrase = _PHRASES.get(refusal.status, "Refused")
    return (
        f"HTTP/1.1 {refusal.status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nX-Holdfast: refused\r\nConnection: close\r\n\r\n"
    ).encode() + body


HEADERS = frozenset(
    b"accept accept-charset accept-datetime accept-encoding accept-language access-control-request-headers "
    b"access-control-request-method anthropic-beta anthropic-version api-key api-version authorization baggage "
    b"cache-control connection content-disposition content-encoding content-language content-length content-location "
    b"content-md5 content-range content-type cookie date dnt expect from git-protocol host idempotency-key if-match "
    b"if-modified-since if-none-match if-range if-unmodified-since keep-alive last-event-id notion-version "
    b"openai-beta openai-organization openai-project origin pragma prefer priority proxy-authorization "
    b"proxy-connection range referer save-data stripe-account stripe-version te traceparent tracestate trailer "
    b"transfer-encoding upgrade-insecure-requests user-agent want-digest x-amz-date x-api-key x-auth-token "
    b"x-client-version x-correlation-id x-csrf-token x-github-api-version x-goog-api-client x-goog-api-key "
    b"x-request-id x-requested-with".split()
)
"""Headers allowed in requests to destinations with bounds. A policy may name more."""

_PREFIXES = (b"sec-ch-", b"sec-fetch-", b"x-stainless-")
_WORDS = frozenset(
    b"_method __method _http_method _httpmethod $httpmethod $http_method httpmethod http_method_override "
    b"method_override x_http_method x_http_method_override x_method_override".split()
)
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data")
_IN_FORM = lazy(rb"(?:\A|[&;\"'=\s])[_.\[ ]_?(?:http_?)?method(?![a-z0-9_])", re.IGNORECASE)
_KEPT = 64
_ROUNDS = 4


def check_bounded(head: Head, named: Iterable[str]) -> None:
    """Raise `Refusal` for a request that a server could read as a different one. `named` are headers of the policy."""
    allowed = HEADERS.union(name.lower().encode() for name in named)
    for name, _ in head.headers:
        if is_override(name):
            raise Refusal(403, "a header would change the method or path that the policy allowed")
        if name not in allowed and not name.startswith(_PREFIXES):
            raise Refusal(
                403,
                f"the header {name.decode()[:64]} is not among those of requests with bounds; if the host needs it, "
                "name it in `headers` beside `methods` or `paths`",
            )
    for part in re.split(b"[&;]", _decoded(head.target.partition(b"?")[2])):
        if _word(part) in _WORDS:
            raise Refusal(403, "a query parameter would change the method that the policy allowed")


def _decoded(data: bytes) -> bytes:
    for _ in range(_ROUNDS):
        data, before = unquote_to_bytes(data), data
        if data == before:
            break
    return data


def _word(part: bytes) -> bytes:
    """Return the name of a query parameter as read by servers that turn other characters into underscores."""
    name = part.partition(b"=")[0].partition(b"\0")[0].strip(b" +").lower()
    return re.sub(rb"[ .+-]|\A\[", b"_", name).partition(b"[")[0]


def form_watch(head: Head) -> FormWatch | None:
    """Return a watch over the body of the request; None if it is not a form."""
    kinds = [value.strip().lower() for value in head.all(b"content-type")]
    return FormWatch() if any(kind.startswith(_FORMS) for kind in kinds) else None


class FormWatch:
    """Search of a form body for fields from which some servers take the method."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Search the next piece. Raises `Refusal` if a field would change the method."""
        if _IN_FORM.search(_decoded(self._tail + data)):
            raise Refusal(403, "a form field would change the method that the policy allowed")
        self._tail = (b"." if self._tail or len(data) > _KEPT else b"") + (self._tail + data)[-_KEPT:]
