"""Operations of the API: typed query, body, and result; checked here, called by their routes, described by OpenAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.serve.access import Role, Visitor
from holdfast.serve.gate import Refusal, require
from holdfast.serve.site import Site
from holdfast.service.intake import Intake
from holdfast.session.rows import SessionRow

PREFIX = "/holdfast/v1"

Endpoint = Callable[[Request], Awaitable[Response]]

POSITION_DIGITS, KEY_MAX = 16, 200
"""Characters of the id of an event, and of an idempotency key."""


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query or body without fields."""


Q_co = TypeVar("Q_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)


@dataclass(frozen=True)
class Asked(Generic[Q_co, B_co]):
    """One request: its caller, the parts of its path, and its checked query and body.

    `key` is the idempotency key, empty without one; it belongs to its caller alone. `last_event_id` is that of an event
    stream that goes on, None for one that begins.
    """

    site: Site
    visitor: Visitor
    path: dict[str, str]
    query: Q_co
    body: B_co
    key: str
    last_event_id: int | None

    async def session(self) -> SessionRow:
        """Return the session in the path. Raises `UnknownSession`."""
        return await self.site.find(self.visitor, self.path["session"])

    @property
    def intake(self) -> Intake:
        """The use cases that change sessions, for this caller."""
        return self.site.acting_as(self.visitor)

    def whole_home(self) -> None:
        """Raise `Refusal` for a caller that is limited to a project."""
        if self.visitor.credential.project:
            raise Refusal(403, "forbidden", "this concerns the whole home; your key is limited to a project")


@dataclass(frozen=True)
class Operation:
    """One operation. A handler returns a value of the type `result`, or a response if that is None."""

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[Asked[Any, Any]], Awaitable[Any]]
    result: Any
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] = Nothing
    role: Role = "viewer"
    takes_key: bool = False
    media_type: str = "application/json"

    def endpoint(self, site: Site) -> Endpoint:
        """Return the function that answers requests."""

        async def endpoint(request: Request) -> Response:
            visitor = require(request, self.role)
            key = request.headers.get("idempotency-key", "") if self.takes_key else ""
            if len(key) > KEY_MAX or not key.isprintable():
                raise Refusal(400, "invalid_request", f"an idempotency key has at most {KEY_MAX} printable characters")
            last = request.headers.get("last-event-id", "") if self.media_type == "text/event-stream" else ""
            if last and (not (last.isascii() and last.isdecimal()) or len(last) > POSITION_DIGITS):
                raise Refusal(400, "invalid_request", f"Last-Event-ID {last[:40]!r} is not the id of an event")
            asked = Asked(
                site,
                visitor,
                request.path_params,
                self._query(request),
                await self._body(request),
                f"http:{visitor.credential.name}:{key}" if key else "",
                int(last) if last else None,
            )
            result = await self.handler(asked)
            if self.result is None:
                assert isinstance(result, Response)
                return result
            return Response(msgspec.json.encode(result), media_type="application/json")

        return endpoint

    def _query(self, request: Request) -> msgspec.Struct:
        given = request.query_params
        if len(given.multi_items()) != len(given):
            raise Refusal(400, "invalid_request", "a parameter of the query is given twice")
        try:
            return msgspec.convert(dict(given), self.query, strict=False)
        except msgspec.ValidationError as error:
            raise Refusal(400, "invalid_request", f"the query is invalid: {error}") from error

    async def _body(self, request: Request) -> msgspec.Struct:
        data = await request.body() if self.method == "POST" else b""
        if not data:
            data = b"{}"  # fails below if the body has required fields
        elif request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "invalid_request", "send the body as JSON, with content-type: application/json")
        try:
            return msgspec.json.decode(data, type=self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal(400, "invalid_request", f"the body is invalid: {error}") from error
