"""The door to people: a notice goes out through a target, an answer comes back through a reply channel.

A notice holds no secret: it is made of what the log holds, and no event holds one. It still shows what an
agent wants to do, so whoever can read a target can read that.
"""

from __future__ import annotations

import hashlib
from typing import Literal, Protocol

import msgspec

from holdfast.facts.people import Verdict

NoticeKind = Literal["approval", "reminder", "escalation", "finished", "failed", "test"]
"""Why a person hears of it: an item is new, still waits, goes to a second person; a session ended; a try."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message to people; `words.py` makes those of items and of ended sessions.

    `notice_id` stays the same over all tries to send it, for the receiver to tell repeats. `body` is plain
    text: the exact action rendered, why, cost so far, expiry, and what happens by default. `action_digest`
    binds an answer to that action (S21); without one the notice cannot be answered from a button. `at_us` is
    when the cause arose, not when it is sent. `commands` are what a person may type to answer.
    """

    notice_id: str
    kind: NoticeKind
    session_id: str
    title: str
    body: str
    at_us: int
    session_name: str = ""
    item_id: str = ""
    action_digest: str = ""
    expires_us: int | None = None
    commands: tuple[str, ...] = ()


def notice_id(session_id: str, target: str, *occasion: str) -> str:
    """The id of the notice of `occasion` (an item and its round, or the end of a session) to `target`.

    It follows from what it is about, so a process that starts again after a crash sends the same id.
    """
    named = msgspec.json.encode([session_id, target, *occasion])
    return f"ntc_{hashlib.sha256(named).hexdigest()[:32]}"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is authentic. Whether the item still waits for one is the caller's to find out.

    `digest` is of the action that the person was shown. `who` is the person the channel belongs to, as events
    name actors. `id` is the carrier's name of the message; the same id may come again. `cursor` continues
    right after this reply.
    """

    session_id: str
    item_id: str
    verdict: Verdict
    digest: str
    who: str
    id: str
    cursor: str
    note: str = ""


class Replies(msgspec.Struct, frozen=True):
    """What one look at a channel found, oldest first.

    `cursor` continues after everything that was read, refused messages too, so that junk is read once.
    `refused` counts messages that were forged, damaged, too late, or repeats within this look.
    """

    found: tuple[Reply, ...]
    cursor: str
    refused: int = 0


class Target(Protocol):
    """A place where notices go."""

    @property
    def name(self) -> str:
        """Its configured name. The address is never told: it may hold a secret."""
        ...

    async def send(self, notice: Notice) -> None:
        """Hand the notice over. Raises `NotifyError`; the receiver may have taken it all the same."""
        ...


class ReplyChannel(Protocol):
    """A place where answers come from. Reading takes nothing away: the caller keeps the cursor."""

    @property
    def name(self) -> str:
        """Its configured name."""
        ...

    async def replies(self, since: str) -> Replies:
        """What came after the cursor `since`; the empty text is the beginning. Raises `NotifyError`.

        A cursor that the carrier has forgotten begins anew. So an answer can come twice: it is posted
        under its item's own key, where the first one wins (S21).
        """
        ...
