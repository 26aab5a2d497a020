"""Credentials of a home's server: one-time login links, browser logins, and API keys.

`access.db` in the home has only SHA-256 hashes of secrets with 256 random bits. Every check reads the file, so a
revoked credential is refused by a running server from then on.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import msgspec

from holdfast.clock import Clock
from holdfast.errors import LogUnavailable, UsageError
from holdfast.ids import Entropy
from holdfast.service.posting import Caller

Role = Literal["viewer", "operator", "admin"]
"""A viewer reads, an operator also answers and commands sessions, an admin also changes what concerns the home."""

ROLES: tuple[Role, ...] = get_args(Role)

Kind = Literal["link", "browser", "key"]

LINK_S = 15 * 60
"""Lifetime of an unused login link, in seconds."""

BROWSER_S = 14 * 86_400
"""Lifetime of a browser login, in seconds."""

_TABLE = """
CREATE TABLE IF NOT EXISTS credentials (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    project TEXT NOT NULL,
    proof TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    expires_us INTEGER
) STRICT
"""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential without its secret. `project` is the folder that it is limited to, empty for the whole home.

    `proof` is the evidence of the identity that events record.
    """

    id: str
    kind: Kind
    name: str
    role: Role
    project: str = ""
    proof: str
    created_us: int
    expires_us: int | None = None


class Visitor(msgspec.Struct, frozen=True):
    """The identity of a request's caller. `csrf` is the token that a form of a browser login carries, else empty."""

    credential: Credential
    csrf: str = ""

    @property
    def caller(self) -> Caller:
        """The caller as events record it."""
        via = "web" if self.credential.kind == "browser" else "http"
        return Caller(f"user:{self.credential.name}", via, self.credential.proof)

    def may(self, role: Role) -> bool:
        """True if the caller has this role or a higher one."""
        return ROLES.index(self.credential.role) >= ROLES.index(role)


def csrf_of(secret: str) -> str:
    """The form token of a browser login: it follows from the cookie, which no other site can read."""
    return hashlib.sha256(b"csrf:" + secret.encode()).hexdigest()[:32]


class Access:
    """The credentials of a home."""

    def __init__(self, home: Path, clock: Clock, entropy: Entropy) -> None:
        self._path = home / "access.db"
        self._clock = clock
        self._entropy = entropy

    def issue(
        self, kind: Kind, name: str, role: Role, *, proof: str = "", project: str = "", lives_s: int | None = None
    ) -> tuple[Credential, str]:
        """Make a credential; return it with its secret, which is stored nowhere. A key proves itself."""
        if not name or not name.isprintable() or any(char.isspace() for char in name):
            raise UsageError(f"{name!r} is not a user name; write one word, for example: holdfast keys create anna")
        now_us = self._clock.now_us()
        credential_id = f"{kind}_{self._entropy(5).hex()}"
        made = Credential(
            id=credential_id,
            kind=kind,
            name=name,
            role=role,
            project=project,
            proof=proof or f"api_key:{credential_id}",
            created_us=now_us,
            expires_us=None if lives_s is None else now_us + lives_s * 1_000_000,
        )
        secret = "hf_" + base64.urlsafe_b64encode(self._entropy(32)).decode().rstrip("=")
        with self._open() as database:
            database.execute("DELETE FROM credentials WHERE expires_us < ?", (now_us,))
            values = (*msgspec.structs.astuple(made)[:2], _hash(secret), *msgspec.structs.astuple(made)[2:])
            database.execute(f"INSERT INTO credentials VALUES ({', '.join('?' * len(values))})", values)
        return made, secret

    def redeem(self, link: str) -> str | None:
        """Turn a login link into a browser login, once; return its secret, None for an invalid or used link."""
        with self._open() as database:
            row = database.execute(
                "DELETE FROM credentials WHERE hash = ? AND kind = 'link' RETURNING name, role, project, proof, "
                "expires_us",
                (_hash(link),),
            ).fetchone()
        if row is None or row[4] < self._clock.now_us():
            return None
        name, role, project, proof, _ = row
        return self.issue("browser", name, role, proof=proof, project=project, lives_s=BROWSER_S)[1]

    def check(self, kind: Kind, secret: str) -> Visitor | None:
        """Return the caller with this secret, None if there is none of this kind or it has expired."""
        with self._open() as database:
            row = database.execute(
                f"SELECT {_COLUMNS} FROM credentials WHERE hash = ? AND kind = ?", (_hash(secret), kind)
            ).fetchone()
        found = _credential(row) if row is not None else None
        if found is None or (found.expires_us is not None and found.expires_us < self._clock.now_us()):
            return None
        return Visitor(found, csrf_of(secret) if kind == "browser" else "")

    def all(self) -> list[Credential]:
        """Return the API keys and browser logins in force, oldest first."""
        with self._open() as database:
            rows = database.execute(
                f"SELECT {_COLUMNS} FROM credentials WHERE kind != 'link' AND (expires_us IS NULL OR expires_us > ?) "
                "ORDER BY created_us, id",
                (self._clock.now_us(),),
            ).fetchall()
        return [_credential(row) for row in rows]

    def revoke(self, credential_id: str) -> Credential:
        """Remove a credential; requests with it are refused from now on. Raises `UsageError` for an unknown one."""
        with self._open() as database:
            row = database.execute(
                f"DELETE FROM credentials WHERE id = ? AND kind != 'link' RETURNING {_COLUMNS}", (credential_id,)
            ).fetchone()
        if row is None:
            raise UsageError(f"there is no key {credential_id!r}; nothing was changed. List them: holdfast keys list")
        return _credential(row)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            database = sqlite3.connect(self._path, timeout=5.0)
            try:
                database.execute(_TABLE)
                with database:
                    yield database
            finally:
                database.close()
        except (sqlite3.Error, OSError) as error:
            raise LogUnavailable(
                f"the credentials in {self._path} cannot be read or written ({error}); sessions are intact. Check the "
                "disk and the owner of the file"
            ) from error


_COLUMNS = ", ".join(Credential.__struct_fields__)


def _credential(row: tuple[object, ...]) -> Credential:
    return msgspec.convert(dict(zip(Credential.__struct_fields__, row, strict=True)), Credential)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
