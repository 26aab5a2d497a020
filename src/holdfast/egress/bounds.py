"""What a request may have beside its method and path where a policy bounds those, so that no server reads others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from holdfast.egress.http import Head, Refusal

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
"""The headers of requests to places with bounds. A policy may name more."""

_PREFIXES = (b"sec-ch-", b"sec-fetch-", b"x-stainless-")
_OVERRIDE = re.compile(
    rb"x-(?:http-)?method(?:-override)?|x-http-method.*|x-(?:original|rewrite|rewritten|forwarded|override|proxy|real"
    rb"|envoy|accel|waws|sendfile).*|forwarded.*|x-host|x-http-host.*|x-(?:url|uri|path|scheme)|request-uri|destination"
)
_WORDS = frozenset(
    b"_method __method _http_method _httpmethod $httpmethod $http_method httpmethod http_method_override "
    b"method_override x_http_method x_http_method_override x_method_override".split()
)
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data")
_IN_FORM = re.compile(rb"(?:\A|[&;\"'=\s])[_.\[ ]_?(?:http_?)?method(?![a-z0-9_])", re.IGNORECASE)
_KEPT = 64
_ROUNDS = 4


def is_override(name: bytes) -> bool:
    """Whether some server takes the method, the path, or the host of a request from that header."""
    return _OVERRIDE.fullmatch(name.lower().replace(b"_", b"-")) is not None


def check_bounded(head: Head, named: Iterable[str]) -> None:
    """Raise `Refusal` for a request that could be read as another one. `named` are headers that the policy allows."""
    allowed = HEADERS.union(name.lower().encode() for name in named)
    for name, _ in head.headers:
        if is_override(name):
            raise Refusal(403, "a header would change the method or the path that was judged")
        if name not in allowed and not name.startswith(_PREFIXES):
            raise Refusal(
                403,
                f"the header {name.decode()[:64]} is not among those of requests with bounds; if the host needs it, "
                "name it in `headers` beside `methods` or `paths`",
            )
    for part in re.split(b"[&;]", _decoded(head.target.partition(b"?")[2])):
        if _word(part) in _WORDS:
            raise Refusal(403, "a word of the query would change the method that was judged")


def _decoded(data: bytes) -> bytes:
    for _ in range(_ROUNDS):
        data, before = unquote_to_bytes(data), data
        if data == before:
            break
    return data


def _word(part: bytes) -> bytes:
    """The name of a word of a query, as servers read it that turn what is no letter into an underscore."""
    name = part.partition(b"=")[0].partition(b"\0")[0].strip(b" +").lower()
    return re.sub(rb"[ .+-]|\A\[", b"_", name).partition(b"[")[0]


def form_watch(head: Head) -> FormWatch | None:
    """The watch over the body of this request; None when that is no form."""
    kinds = [value.strip().lower() for value in head.all(b"content-type")]
    return FormWatch() if any(kind.startswith(_FORMS) for kind in kinds) else None


class FormWatch:
    """Looks into forms, where some servers take the method from a field."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Raise `Refusal` when a field would change the method."""
        if _IN_FORM.search(_decoded(self._tail + data)):
            raise Refusal(403, "a field of the form would change the method that was judged")
        self._tail = (b"." if self._tail or len(data) > _KEPT else b"") + (self._tail + data)[-_KEPT:]
