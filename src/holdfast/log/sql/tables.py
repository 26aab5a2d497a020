"""Conversion of rows and structs: the view that transactions read, and the writing of their changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from holdfast.facts.codec import SCHEMA
from holdfast.log.base import Snapshot
from holdfast.log.chain import BLOB_OVER, StoredBlob, damaged
from holdfast.log.limiter import Held
from holdfast.log.sql.statements import Database
from holdfast.log.transaction import Sealed, Transaction
from holdfast.session.home import HOME, stop_in
from holdfast.session.limits import covering
from holdfast.session.money import AccountRow, Spend
from holdfast.session.rows import ItemRow, SessionRow

_FIELDS = SessionRow.__struct_fields__
_REMOVALS = tuple(f"remove_{rows}" for rows in ("events", "posts", "items", "reservations", "snapshots", "session"))
_encode_spend = msgspec.msgpack.Encoder().encode
_decode_spend = msgspec.msgpack.Decoder(Spend).decode


def session_row(values: tuple[Any, ...]) -> SessionRow:
    """Decode a row of `session` or `sessions`. Raises `LogDamaged`."""
    fields = dict(zip(_FIELDS, values, strict=True))
    try:
        fields["accounts"] = tuple(msgspec.json.decode(fields["accounts"]))
        row = msgspec.convert(fields, SessionRow)
        if row.session_id == HOME:
            stop_in(row.detail)
        return row
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise damaged(str(fields["session_id"]), 0, f"its row cannot be read: {error}") from error


def account_row(values: tuple[Any, ...]) -> AccountRow:
    """Decode a row of `account` or `accounts`. Raises `LogDamaged`."""
    fields = dict(zip(AccountRow.__struct_fields__, values, strict=True))
    try:
        fields["spend"] = _decode_spend(fields["spend"])
        return msgspec.convert(fields, AccountRow)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise damaged(str(values[0]), 0, f"its account cannot be read: {error}") from error


def item_row(values: tuple[Any, ...]) -> ItemRow:
    """Decode a row of `item` or `items`. Raises `LogDamaged`."""
    fields = dict(zip(ItemRow.__struct_fields__, values, strict=True))
    try:
        return msgspec.convert(fields, ItemRow)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise damaged(str(fields["session_id"]), 0, f"one of its items cannot be read: {error}") from error


def held_rows(found: Iterable[Any]) -> list[Held]:
    """Decode the rows of `held`, and those of due sessions with the same columns."""
    return [
        Held(session_id, holder, tuple(covering(msgspec.json.decode(accounts), model)))
        for session_id, holder, accounts, model in found
    ]


def _used(limit: str) -> str:
    """Return the name of the row in `meta` for the use of a limit."""
    return f"used {limit}"


def number(value: object, session_id: str) -> int:
    """Return a stored integer. Raises `LogDamaged` for anything else."""
    if not isinstance(value, int):
        raise damaged(session_id, 0, "a row holds another value in place of a number")
    return value


class SqlView:
    """The stored data as a transaction reads it. `known` caches rows that are as stored."""

    __slots__ = ("_db", "_known")

    def __init__(self, db: Database, known: Mapping[str, SessionRow]) -> None:
        self._db = db
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

    def link_at(self, session_id: str, seq: int) -> tuple[bytes, int] | None:
        found = self._one("event_link", {"session_id": session_id, "seq": seq})
        return (bytes(found[0]), number(found[1], session_id)) if found else None

    def account(self, account_id: str) -> AccountRow | None:
        found = self._one("account", {"account_id": account_id})
        return account_row(found) if found else None

    def reservation(self, session_id: str, seq: int) -> int | None:
        found = self._one("reservation", {"session_id": session_id, "seq": seq})
        return number(found[0], session_id) if found else None

    def vocabulary(self, session_id: str) -> int | None:
        found = self._one("vocabulary", {"session_id": session_id})
        return number(found[0], session_id) if found else None

    def hold(self, limits: Sequence[str]) -> None:
        """No other transaction runs meanwhile."""

    def held(self) -> list[Held]:
        return held_rows(self._db.run("held", {}))

    def used_us(self, limit: str) -> int:
        found = self._one("used_us", {"name": _used(limit)})
        return int(found[0]) if found else 0

    def item(self, item_id: str) -> ItemRow | None:
        found = self._one("item", {"item_id": item_id})
        return item_row(found) if found else None

    def blob(self, digest: bytes) -> StoredBlob:
        found = self._one("blob", {"digest": digest})
        return StoredBlob(found is not None, found[0] if found else None)

    def _one(self, name: str, values: dict[str, object]) -> Any:
        return self._db.run(name, values).fetchone()


def write(db: Database, done: Transaction) -> None:
    """Write a transaction's changes, inside the database transaction that it read from."""
    for session_id, row in done.rows.items():  # before their events: who moves a head has its place in the order
        _write_row(db, done.before.get(session_id), row)
    for sealed in done.sealed:
        _write_event(db, sealed)
    for (session_id, key), seq in done.posts.items():
        db.run("insert_post", {"session_id": session_id, "key": key, "seq": seq})
    for item in done.items.values():
        save_item(db, item)
    for account in done.ledger.accounts.values():
        save_account(db, account)
    for limit, used_us in done.used_us.items():
        db.run("save_used_us", {"name": _used(limit), "value": str(used_us)})
    for (session_id, seq), amount in done.ledger.reservations.items():
        values = {"session_id": session_id, "seq": seq}
        if amount is None:
            db.run("delete_reservation", values)
        else:
            db.run("insert_reservation", {**values, "amount_pico": amount})
    for session_id in done.removed:
        for name in _REMOVALS:
            db.run(name, {"session_id": session_id})
    for account_id in done.closed:
        db.run("remove_account", {"account_id": account_id})


def save_item(db: Database, item: ItemRow) -> None:
    """Write an item's row, new or changed."""
    if not db.change("save_item", asdict(item)):
        raise damaged(item.session_id, item.seq, "its item has the id of an item of another session")


def save_account(db: Database, account: AccountRow) -> None:
    """Write an account's row, new or changed."""
    db.run("save_account", {**asdict(account), "spend": _encode_spend(account.spend)})


def _write_event(db: Database, sealed: Sealed) -> None:
    event = sealed.event
    body: bytes | None = sealed.body
    digest: bytes | None = None
    if len(sealed.body) > BLOB_OVER:
        db.run("insert_blob", {"digest": sealed.digest, "bytes": body})
        body, digest = None, sealed.digest
    db.insert_event((event.session_id, event.seq, event.epoch, event.at_us, event.type, event.hash, body, digest))


def _write_row(db: Database, before: SessionRow | None, row: SessionRow) -> None:
    if before is None:
        db.run("insert_session", row_values(row))
        return
    if row == replace(before, head=row.head, head_hash=row.head_hash, epoch=row.epoch, updated_us=row.updated_us):
        values = (row.head, row.head_hash, row.epoch, row.updated_us, SCHEMA, SCHEMA, row.session_id, before.head)
        moved = db.change("move_session", values)
    else:
        moved = db.change("update_session", {**row_values(row), "was": before.head})
    if not moved:
        raise damaged(row.session_id, row.head, "its row moved inside a transaction of another writer")


def row_values(row: SessionRow) -> dict[str, Any]:
    """Encode a row as the values of `insert_session`."""
    return {**asdict(row), "accounts": msgspec.json.encode(row.accounts).decode(), "vocabulary": SCHEMA}


def snapshot_values(snapshot: Snapshot) -> dict[str, Any]:
    """Encode a snapshot as the values of `save_snapshot`."""
    return {**asdict(snapshot), "digest": hashlib.sha256(snapshot.state).digest()}
