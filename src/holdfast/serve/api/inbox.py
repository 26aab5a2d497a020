"""The inbox over the API: list, get, and answer items."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.errors import ItemClosed, UsageError
from holdfast.facts.people import ApprovalDecided, Verdict
from holdfast.serve.api.operations import Asked, Nothing, Operation
from holdfast.serve.bodies import AnswerInfo, ItemInfo, ItemPage, item_info
from holdfast.service.answers import Answer
from holdfast.service.inbox import items, shown
from holdfast.session.money import PICO
from holdfast.session.rows import ItemRow

ITEMS_MAX = 500

TEN_YEARS_S = 315_360_000


class InboxQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`limit` bounds the number of items."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=ITEMS_MAX)] = 100


async def listed(asked: Asked[InboxQuery, Nothing]) -> ItemPage:
    """List the open inbox items, oldest first."""
    site, now_us, limit = asked.site, asked.site.clock.now_us(), asked.query.limit
    if not asked.visitor.credential.project:
        return ItemPage([item_info(each) for each in await items(site.store, now_us, limit=limit)])
    found = []
    for each in await items(site.store, now_us):
        if await site.sees(asked.visitor, await site.store.find(each.item.session_id)):
            found.append(item_info(each))
        if len(found) == limit:
            break
    return ItemPage(found)


async def got(asked: Asked[Nothing, Nothing]) -> ItemInfo:
    """Get an inbox item, open or closed. An open one counts as seen from now on."""
    item, _ = await asked.site.find_item(asked.visitor, asked.path["item"])
    if asked.visitor.may("operator"):
        await asked.intake.seen(item)
        item = await asked.site.store.item(item.item_id)
    return item_info(await shown(asked.site.store, item, asked.site.clock.now_us()))


class ItemAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An answer. `digest` is that of the item as you saw it.

    `for_s` and `uses` also allow further calls with the same argument, or with one that matches `match`. `budget_usd`
    replaces the proposed cap of a budget item.
    """

    verdict: Verdict
    digest: str
    note: str = ""
    for_s: Annotated[float, msgspec.Meta(gt=0, le=TEN_YEARS_S)] | None = None
    uses: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    match: str | None = None
    budget_usd: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None


async def answered(asked: Asked[Nothing, ItemAnswer]) -> AnswerInfo:
    """Answer an inbox item. The first answer counts; a later one fails and names who decided.

    An answer with the digest of another action fails. The same answer by the same user again is a duplicate.
    """
    item, _ = await asked.site.find_item(asked.visitor, asked.path["item"])
    body, intake = asked.body, asked.intake
    if body.digest != (await shown(asked.site.store, item, 0)).request.action_digest:
        raise UsageError(f"the digest is not that of {item.item_id}; nothing was changed: look at the item again")
    grant = None
    if body.for_s is not None or body.uses is not None or body.match is not None:
        grant = await intake.grant_for(item, for_s=body.for_s, uses=body.uses, match=body.match)
    cap = None if body.budget_usd is None else round(body.budget_usd * PICO)
    given = Answer(verdict=body.verdict, note=body.note, digest=body.digest, grant=grant, budget_pico=cap)
    by = intake.person
    try:
        done = await intake.answer(item, given)
    except ItemClosed:
        seq = await _same(asked, await asked.site.store.item(item.item_id))
        if seq is None:
            raise
        return AnswerInfo(item.item_id, item.session_id, seq, body.verdict, by, duplicate=True)
    return AnswerInfo(item.item_id, item.session_id, done.seq, body.verdict, by)


async def _same(asked: Asked[Nothing, ItemAnswer], item: ItemRow) -> int | None:
    """The position of the caller's own earlier answer, if it is the same; None otherwise."""
    if item.closed_seq is None:
        return None
    (event,) = await asked.site.store.read(item.session_id, after=item.closed_seq - 1, limit=1)
    fact = event.fact
    mine = isinstance(fact, ApprovalDecided) and event.actor == asked.intake.actor
    if not mine or not isinstance(fact, ApprovalDecided):
        return None
    return event.seq if (fact.verdict, fact.digest) == (asked.body.verdict, asked.body.digest) else None


OPERATIONS = (
    Operation("GET", "/inbox", listed, ItemPage, query=InboxQuery),
    Operation("GET", "/inbox/{item}", got, ItemInfo),
    Operation("POST", "/inbox/{item}/answer", answered, AnswerInfo, body=ItemAnswer, role="operator"),
)
