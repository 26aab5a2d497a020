"""Rows to structs and back: the view that transactions read, and the writing of what they did."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from holdfast.facts.codec import SCHEMA
from holdfast.log.sqlite.connect import SQL
from holdfast.log.stored import BLOB_OVER, StoredBlob, damaged
from holdfast.log.transaction import Sealed, Transaction
from holdfast.session.rows import AccountRow, SessionRow

_FIELDS = SessionRow.__struct_fields__
_INSERT_EVENT, _INSERT_BLOB, _MOVE_SESSION = SQL["insert_event"], SQL["insert_blob"], SQL["move_session"]


def session_row(values: tuple[Any, ...]) -> SessionRow:
    """A row of `session` or `sessions`. Raises `LogDamaged` for values of another kind."""
    fields = dict(zip(_FIELDS, values, strict=True))
    try:
        fields["accounts"] = tuple(msgspec.json.decode(fields["accounts"]))
        return msgspec.convert(fields, SessionRow)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise damaged(str(fields["session_id"]), 0, f"its row cannot be read: {error}") from error


def account_row(values: tuple[Any, ...]) -> AccountRow:
    """A row of `account` or `accounts`. Raises `LogDamaged` for values of another kind."""
    try:
        return msgspec.convert(dict(zip(AccountRow.__struct_fields__, values, strict=True)), AccountRow)
    except msgspec.MsgspecError as error:
        raise damaged(str(values[0]), 0, f"its account cannot be read: {error}") from error


def number(value: object, session_id: str) -> int:
    """A whole number as stored. Raises `LogDamaged` for anything else."""
    if not isinstance(value, int):
        raise damaged(session_id, 0, "a row holds something else where a number belongs")
    return value


class SqliteView:
    """The stored state as a transaction reads it. `known` holds rows that are known to be as stored."""

    __slots__ = ("_connection", "_known")

    def __init__(self, connection: sqlite3.Connection, known: Mapping[str, SessionRow]) -> None:
        self._connection = connection
        self._known = known

    def row(self, session_id: str) -> SessionRow | None:
        known = self._known.get(session_id)
        if known is not None:
            return known
        found = self._one("session", {"session_id": session_id})
        return session_row(found) if found else None

    def keyed(self, key: str) -> str | None:
        found = self._one("session_by_key", {"key": key})
        return str(found[0]) if found else None

    def posted(self, session_id: str, key: str) -> int | None:
        found = self._one("post", {"session_id": session_id, "key": key})
        return number(found[0], session_id) if found else None

    def account(self, account_id: str) -> AccountRow | None:
        found = self._one("account", {"account_id": account_id})
        return account_row(found) if found else None

    def reservation(self, session_id: str, request_seq: int) -> int | None:
        found = self._one("reservation", {"session_id": session_id, "request_seq": request_seq})
        return number(found[0], session_id) if found else None

    def blob(self, digest: bytes) -> StoredBlob:
        found = self._one("blob", {"digest": digest})
        return StoredBlob(found is not None, found[0] if found else None)

    def _one(self, name: str, values: dict[str, object]) -> Any:
        return self._connection.execute(SQL[name], values).fetchone()


def write(connection: sqlite3.Connection, done: Transaction) -> None:
    """Write what a transaction did, inside the database's transaction that it read from."""
    execute = connection.execute
    for sealed in done.sealed:
        _write_event(connection, sealed)
    for session_id, row in done.rows.items():
        _write_row(connection, done.before.get(session_id), row)
    for (session_id, key), seq in done.posts.items():
        execute(SQL["insert_post"], {"session_id": session_id, "key": key, "seq": seq})
    for account in done.ledger.accounts.values():
        execute(SQL["save_account"], asdict(account))
    for (session_id, request_seq), amount in done.ledger.reservations.items():
        values = {"session_id": session_id, "request_seq": request_seq}
        if amount is None:
            execute(SQL["delete_reservation"], values)
        else:
            execute(SQL["insert_reservation"], {**values, "amount_pico": amount})


def _write_event(connection: sqlite3.Connection, sealed: Sealed) -> None:
    event = sealed.event
    body: bytes | None = sealed.body
    digest: bytes | None = None
    if len(sealed.body) > BLOB_OVER:
        connection.execute(_INSERT_BLOB, {"digest": sealed.digest, "bytes": body})
        body, digest = None, sealed.digest
    place = (event.session_id, event.seq, event.epoch, event.at_us, event.type, event.hash)
    connection.execute(_INSERT_EVENT, (*place, body, digest))


def _write_row(connection: sqlite3.Connection, before: SessionRow | None, row: SessionRow) -> None:
    if before is None:
        done = connection.execute(SQL["insert_session"], _row_values(row))
    elif row == replace(before, head=row.head, head_hash=row.head_hash, epoch=row.epoch, updated_us=row.updated_us):
        moved = (row.head, row.head_hash, row.epoch, row.updated_us, SCHEMA, SCHEMA)
        done = connection.execute(_MOVE_SESSION, (*moved, row.session_id, before.head))
    else:
        done = connection.execute(SQL["update_session"], {**_row_values(row), "was": before.head})
    if done.rowcount != 1:
        raise damaged(row.session_id, row.head, "its row moved inside a transaction of another writer")


def _row_values(row: SessionRow) -> dict[str, Any]:
    return {**asdict(row), "accounts": msgspec.json.encode(row.accounts).decode(), "vocabulary": SCHEMA}
