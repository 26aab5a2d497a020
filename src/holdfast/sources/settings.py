"""Settings of the kinds of sources: what a trigger of a duty may say, and what is wrong with it."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import UsageError

TAIL_BYTES = 32_768
"""Most bytes of a file's end in its event."""


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Meaning of the fields of a record.

    `key` is the field that identifies an event; without it, its content does. `cursor_field` is the field to continue
    after. `items` is the field of the response with the array of records. Dots lead into objects.
    """

    key: str = ""
    cursor_field: str = ""
    items: str = ""


class DirectorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the kind `directory`: new and changed files.

    `glob` limits the files, relative to the directory; hidden files, links, and special files never count. A file that
    was changed within `settle_s`, or that a process has open for writing, is not taken yet; with 0, each change counts
    at once, as for a log that a process keeps open. `tail_bytes` of the end of a file are in its event, as text.
    """

    path: str
    glob: str = "**"
    settle_s: float = 1.0
    tail_bytes: int = 0

    def check(self) -> None:
        """Raise `UsageError` for settings that cannot work."""
        if not os.path.isabs(self.path):
            raise UsageError(f"the path {self.path!r} of a source is not absolute")
        if not 0 <= self.tail_bytes <= TAIL_BYTES:
            raise UsageError(f"tail_bytes of a source must be between 0 and {TAIL_BYTES}")
        if self.settle_s < 0:
            raise UsageError("settle_s of a source must not be negative")


class CommandSettings(Shape, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the kind `command`: a shell command that prints one JSON value a line."""

    command: str
    timeout_s: float = 60.0

    def check(self) -> None:
        """Raise `UsageError` for settings that cannot work."""
        if not self.command.strip():
            raise UsageError("the command of a source is empty")
        _check_time(self.timeout_s)


class HttpSettings(Shape, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the kind `http`: a web address with a JSON array or JSON lines.

    `headers` are sent with each request; `secret_headers` map a header to the name of a secret. `cursor_param` is the
    query parameter that gets the cursor, once there is one.
    """

    url: str
    headers: dict[str, str] = {}
    secret_headers: dict[str, str] = {}
    cursor_param: str = ""
    timeout_s: float = 30.0

    def check(self) -> None:
        """Raise `UsageError` unless the address is https, or http to this machine, and without a password."""
        parts = urlsplit("" if re.search(r"[\s\x00-\x1f]", self.url) else self.url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise UsageError(
                f"the url {self.url!r} of a source is not a web address, such as https://example.com/events"
            )
        if "@" in parts.netloc:
            raise UsageError("the url of a source contains a user name or password; use secret_headers")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise UsageError(
                "the url of a source begins with http, which is allowed only to this machine; write https://"
            )
        if self.cursor_param and not self.cursor_field:
            raise UsageError("a source with cursor_param needs cursor_field, the field of an event to continue after")
        _check_time(self.timeout_s)


class SqlSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the kind `sql`: rows of SQLite or PostgreSQL, in the order of the query's first column.

    `database` is the absolute path of a SQLite file, or `postgresql://USER@HOST/NAME` without a password: `secret`
    names the secret with it. `start` is the value of `:cursor` at the first poll. `key` is the column that identifies a
    row; empty for the first one.
    """

    database: str
    query: str
    start: int | float | str = 0
    key: str = ""
    secret: str = ""
    timeout_s: float = 30.0

    @property
    def is_postgres(self) -> bool:
        """True if the database is PostgreSQL."""
        return self.database.startswith(("postgresql://", "postgres://"))

    def check(self) -> None:
        """Raise `UsageError` for a query without a cursor, or a database that is not named well."""
        if not re.search(r"(?<!:):cursor\b", self.query) or not re.search(r"(?i)\border\s+by\b", self.query):
            raise UsageError(
                "the query of a source must select the rows after :cursor, in order: SELECT id, body FROM events WHERE "
                "id > :cursor ORDER BY id"
            )
        if self.is_postgres:
            if re.search(r"://[^/@]*:[^/@]*@", self.database) or "password=" in self.database:
                raise UsageError("the database of a source contains a password; name it in `secret`")
        elif not os.path.isabs(self.database):
            raise UsageError(
                f"the database {self.database!r} of a source is neither postgresql://USER@HOST/NAME nor the absolute "
                "path of a SQLite file"
            )
        _check_time(self.timeout_s)


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the kind `redis`: entries of a stream.

    `url` is `redis://` or `rediss://`, without a password: `secret` names the secret with it. `start` says whether
    entries count that were there before the first poll.
    """

    url: str
    stream: str
    secret: str = ""
    start: Literal["beginning", "now"] = "now"
    timeout_s: float = 10.0

    def check(self) -> None:
        """Raise `UsageError` for an address that is not Redis's, or contains a password."""
        if not re.fullmatch(r"rediss?://[^\s@/]+(/\d+)?", self.url):
            raise UsageError(
                "the url of a Redis source must be like redis://127.0.0.1:6379/0; name its password in `secret`"
            )
        _check_time(self.timeout_s)


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the kind `webhook`: events that others send to the server.

    `secret` names the secret that proves a sender. With `signature` "standard" it signs each delivery (Standard
    Webhooks); with "shared" the sender sends it in the header `secret_header`. `id_header` names an additional header
    with the id of an event.
    """

    secret: str
    signature: Literal["standard", "shared"] = "standard"
    secret_header: str = "x-webhook-secret"
    id_header: str = ""
    tolerance_s: float = 300.0

    def check(self) -> None:
        """Raise `UsageError` for settings that cannot work."""
        if not self.secret:
            raise UsageError("a webhook needs the name of a secret that proves its sender")
        if not 0 < self.tolerance_s <= 86_400:
            raise UsageError("tolerance_s of a webhook must be between 0 and 86400")


Settings = DirectorySettings | CommandSettings | HttpSettings | SqlSettings | RedisSettings | WebhookSettings

KINDS: dict[str, type[Settings]] = {
    "command": CommandSettings,
    "directory": DirectorySettings,
    "http": HttpSettings,
    "redis": RedisSettings,
    "sql": SqlSettings,
    "webhook": WebhookSettings,
}
"""Kind of a trigger → its settings."""


def parse_settings(kind: str, settings: dict[str, Any]) -> Settings:
    """Return the checked settings of a trigger. Raises `UsageError`."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r} of a source; the kinds are {', '.join(KINDS)}")
    try:
        parsed = msgspec.convert(settings, KINDS[kind])
    except msgspec.ValidationError as error:
        raise UsageError(f"the settings of a source of kind {kind!r} are wrong: {error}") from error
    parsed.check()
    return parsed


def is_loopback(host: str) -> bool:
    """True if a host name or address is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_time(timeout_s: float) -> None:
    if not 0 < timeout_s <= 3_600:
        raise UsageError("timeout_s of a source must be between 0 and 3600")
