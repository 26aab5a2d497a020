"""Answers that come back through a reply channel: checked like any other, and posted once (S21)."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.errors import ItemClosed, UnknownItem, UsageError
from holdfast.fleet.answers import Answer
from holdfast.fleet.intake import Intake
from holdfast.log.base import Index
from holdfast.notify.base import Reply


class Taken(msgspec.Struct, frozen=True):
    """What became of a reply.

    `late`: the item has an answer, has expired, or counts no more. `refused`: there is no such item, or the
    reply is not about what waits there, or not this person's to say. `detail` is a sentence for people.
    """

    outcome: Literal["posted", "late", "refused"]
    session_id: str
    detail: str


async def take(reply: Reply, intake: Intake, index: Index, *, via: str = "ntfy") -> Taken:
    """Post an authentic reply as its person's answer. A reply that comes twice changes nothing."""
    try:
        item = await index.item(reply.item_id)
    except UnknownItem as error:
        return Taken("refused", reply.session_id, str(error))
    if item.item_id != reply.item_id or item.session_id != reply.session_id:
        return Taken("refused", reply.session_id, f"{reply.item_id} is not a question of session {reply.session_id}")
    if not reply.digest:
        return Taken("refused", item.session_id, f"the reply to {item.item_id} does not say what it is about")
    given = Answer(verdict=reply.verdict, note=reply.note, via=via, proof="reply_code", digest=reply.digest)
    try:
        await intake.acting_as(reply.who).answer(item, given)
    except ItemClosed as error:
        return Taken("late", item.session_id, str(error))
    except UsageError as error:
        return Taken("refused", item.session_id, str(error))
    done = "approved" if reply.verdict == "approve" else "denied"
    return Taken("posted", item.session_id, f"{item.item_id} was {done} by {reply.who.removeprefix('user:')}")
