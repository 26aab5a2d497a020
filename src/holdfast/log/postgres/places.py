"""Places: the homes that share a log, and the one that has the workspaces of each tree of sessions (S5, S11).

The workers of other homes leave a tree to its place while a worker of that lives. Afterwards they run it only if its
workspaces are Holdfast's own and their snapshots are in an object store; other trees wait for their place.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from holdfast.clock import boot_id
from holdfast.errors import LeaseHeld
from holdfast.facts.codec import SCHEMA
from holdfast.facts.session import SessionCreated, travels
from holdfast.facts.shift import ShiftStarted
from holdfast.ids import Entropy
from holdfast.log.postgres.connect import PostgresDatabase
from holdfast.log.transaction import Transaction
from holdfast.session.rows import FIRST, SessionRow


class Place(msgspec.Struct, frozen=True):
    """A home that shares a log.

    `seat` names the folder of its lock files on this boot of this kernel: only workers of one seat see each other's
    locks. `keeps` means that snapshots of its workspaces go to an object store. `program` is shown in lists.
    `settings` are digests of its settings by name, in JSON: sessions of a home whose settings differ are left to it.
    """

    place_id: str
    seat: str
    keeps: bool = False
    host: str = ""
    program: str = ""
    settings: str = "{}"

    @classmethod
    def of(
        cls,
        workers: Path,
        entropy: Entropy,
        *,
        keeps: bool = False,
        program: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the place of the home with this folder of lock files. Its id is random, and kept in that folder."""
        path = workers / "place"
        workers.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            new = f"plc_{entropy(16).hex()}"
            draft = path.with_name(f".{new}")
            draft.write_text(new, encoding="utf-8")
            with suppress(FileExistsError):  # another process was faster
                os.link(draft, path)
            draft.unlink()
        found = os.stat(workers)
        seat = f"{boot_id()} {found.st_dev}:{found.st_ino}"
        told = msgspec.json.encode(settings or {}, order="sorted").decode()
        return cls(path.read_text(encoding="utf-8"), seat, keeps, platform.node(), program, told)

    def beat(self, names: list[str], limits: list[int], ttl_s: float) -> dict[str, object]:
        """Return the values of the statement `beat`."""
        return {
            "names": names,
            "limits": limits,
            "place": self.place_id,
            "seat": self.seat,
            "host": self.host,
            "program": self.program,
            "vocabulary": SCHEMA,
            "ttl_s": ttl_s,
        }

    def standing(self, db: PostgresDatabase, sessions: list[str], *, wary: bool) -> tuple[set[str], frozenset[str]]:
        """Return the sessions that no worker of this place can run now, and those that any place can begin."""
        values = {
            "names": sessions,
            "place": self.place_id,
            "vocabulary": SCHEMA,
            "wary": wary,
            "settings": self.settings,
        }
        found = db.run("standing", values).fetchall()
        away = {name for name, elsewhere in found if elsewhere}
        return away, frozenset(name for name, _ in found if name not in away)

    def write(self, db: PostgresDatabase, done: Transaction, *, wary: bool) -> None:
        """Write the places of trees that a transaction opened, took, or removed.

        Raises `LeaseHeld` if it took a session of a tree that this place cannot have.
        """
        for sealed in done.sealed:
            fact, row = sealed.event.fact, done.rows[sealed.event.session_id]
            if isinstance(fact, FIRST):
                goes = travels(fact) if isinstance(fact, SessionCreated) else fact.workspace.disposable
                at = "" if goes and isinstance(fact, SessionCreated) else self.place_id
                db.run("open_tree", {"root": row.root, "place": at, "travels": goes})
            elif isinstance(fact, ShiftStarted):
                values = {
                    "root": row.root,
                    "place": self.place_id,
                    "keeps": self.keeps,
                    "wary": wary,
                    "settings": self.settings,
                }
                if db.run("take_tree", values).fetchone() is None:
                    raise self._away(db, row)
        for session_id in done.removed:
            db.run("remove_tree", {"root": session_id})

    def _away(self, db: PostgresDatabase, row: SessionRow) -> LeaseHeld:
        found = db.run("tree", {"root": row.root}).fetchone()
        place, host, worker_id = found or ("another home", "", "")
        if worker_id:
            return LeaseHeld(
                f"{row.session_id} is at another home ({place} on {host}), whose worker {worker_id} runs it when it is "
                "due; nothing was started",
                worker_id=worker_id,
            )
        if names := self.differences(db).get(place):
            return LeaseHeld(
                f"{row.session_id} is at another home ({place}), where no worker runs, and some settings differ here "
                f"({', '.join(names)}); nothing was started: start a worker there with these settings, or if "
                "its machine is lost: holdfast migrate --take-over",
                worker_id="",
            )
        return LeaseHeld(
            f"{row.session_id} has its workspace at another home ({place}), and no worker runs there; nothing was "
            "started: start one there, or if its machine is lost: holdfast migrate --take-over",
            worker_id="",
        )

    def differences(self, db: PostgresDatabase) -> dict[str, list[str]]:
        """Return the names of the settings that differ, by home, for the other homes that have sessions."""
        mine = msgspec.json.decode(self.settings, type=dict[str, str])
        found = dict[str, list[str]]()
        for place, text in db.run("settings", {"place": self.place_id}):
            others = msgspec.json.decode(text, type=dict[str, str])
            names = sorted(name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name))
            found |= {place: names} if names else {}
        return found
