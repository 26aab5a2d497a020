"""Inbox items and their answers: posted once per item, bound to the action that the approver saw (S21)."""

from __future__ import annotations

import shlex

import msgspec

from holdfast.brain.doors import uptime
from holdfast.clock import local_time
from holdfast.errors import ItemClosed, UsageError
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    Grant,
    UserResume,
    Verdict,
)
from holdfast.facts.session import Agent, People, SessionCreated
from holdfast.log.base import Log, PostReceipt, Which
from holdfast.service.posting import Poster, person
from holdfast.session.decide.waits import may_answer, proof_text, seen_until_us
from holdfast.session.money import AccountRow, usd
from holdfast.session.rows import ItemRow, SessionRow, item_key
from holdfast.session.tools import find_tool, main_argument

GRANT_EXAMPLE = "for example: holdfast approve ITEM --for 2h"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An approver's answer to an item.

    `digest` is that of the action shown to the approver; empty means the item's own. `grant` also allows further calls,
    and `budget_pico` replaces the proposed cap.
    """

    verdict: Verdict
    note: str = ""
    digest: str = ""
    grant: Grant | None = None
    budget_pico: int | None = None


async def asked(log: Log, item: ItemRow) -> ApprovalRequested:
    """Return the full request of an item."""
    (event,) = await log.read(item.session_id, after=item.seq - 1, limit=1)
    assert isinstance(event.fact, ApprovalRequested)
    return event.fact


async def who(log: Log, row: SessionRow, request: ApprovalRequested, now_us: int) -> tuple[str, ...]:
    """Return the names of the users who may answer an item of a session now; empty means everyone."""
    (first,) = await log.read(row.session_id, limit=1)
    return names_of(first, row, request, now_us)


def names_of(first: Event, row: SessionRow, request: ApprovalRequested, now_us: int) -> tuple[str, ...]:
    """Return what `who` does, with the first event of the session."""
    people = first.fact.people if isinstance(first.fact, SessionCreated) else People()
    return may_answer(people, row.owner, request, now_us)


async def closed(log: Log, item: ItemRow) -> ItemClosed:
    """Return the error for an answer to a closed item, with the decision, its author, and its time."""
    (event,) = await log.read(item.session_id, after=(item.closed_seq or item.seq) - 1, limit=1)
    when = local_time(event.at_us)
    match event.fact:
        case ApprovalDecided(verdict=verdict, note=note):
            said = f" with the note: {note}" if note else ""
            done = "approved" if verdict == "approve" else "denied"
            how = f"was already {done} by {person(event.actor)} ({proof_text(event.fact.proof)}) at {when}{said}"
        case ApprovalExpired(verdict=verdict):
            how = f"expired without an answer; its default, {verdict}, was applied at {when}"
        case ApprovalSuperseded(reason=reason):
            how = f"was superseded at {when}: {reason}"
        case _:
            how = "is closed"
    return ItemClosed(f"{item.item_id} {how}; nothing was changed. `holdfast inbox` lists what is open")


def check_cap(account: AccountRow, cap_pico: int, spent_pico: int, within: str = "") -> None:
    """Raise `UsageError` for a cap below the spend: it could not be kept."""
    if cap_pico < spent_pico:
        raise UsageError(
            f"{account.account_id} has spent {usd(spent_pico)}{within} already, so a cap of {usd(cap_pico)} cannot be "
            f"kept; nothing was changed: set {usd(spent_pico)} or more, or stop the work with holdfast pause"
        )


def _literally(text: str) -> str:
    """Return a glob that matches exactly this text."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


class Answers(Poster):
    """The use cases about inbox items."""

    async def seen(self, item: ItemRow) -> PostReceipt | None:
        """Record that an approver was shown an open item: its default may apply from now on.

        Posts nothing for an item that was seen before, and for a caller who may not answer it.
        """
        if item.status != "open" or item.seen_us is not None:
            return None
        request = await asked(self.log, item)
        names = await who(self.log, await self.index.find(item.session_id), request, self.clock.now_us())
        if names and self.person not in names:
            return None
        expires_us = seen_until_us(request.expires_us, self.clock.now_us())
        up = uptime(self.clock, self.boot_id)
        fact = ApprovalSeen(
            item_id=item.item_id,
            by=self.person,
            expires_us=expires_us,
            boot_id=up.boot_id,
            booted_us=self.clock.now_us() - up.us,
            up_us=up.us,
        )
        return await self.post(item.session_id, fact, f"seen:{item.item_id}:{self.person}")

    async def answer(self, item: ItemRow, given: Answer) -> PostReceipt:
        """Answer an item on behalf of the caller.

        An approved budget wakes the sessions that wait for it. Raises `ItemClosed` when the item is already closed, and
        `UsageError` for an invalid answer or a caller who may not answer; nothing changes in these cases.
        """
        if item.status != "open":
            raise await closed(self.log, item)
        request = await asked(self.log, item)
        await self._check(item, request, given)
        only = request.options[0] if given.verdict == "approve" and len(request.options) == 1 else ""
        fact = ApprovalDecided(
            item_id=item.item_id,
            verdict=given.verdict,
            note=given.note or only,
            digest=given.digest or request.action_digest,
            via=self.caller.via,
            proof=self.caller.proof,
            grant=given.grant,
        )
        if request.kind == "budget" and given.verdict == "approve":
            cap = given.budget_pico if given.budget_pico is not None else request.proposed_pico
            fact = msgspec.structs.replace(fact, account_id=request.account_id, budget_pico=cap)
        receipt = await self.post(item.session_id, fact, item_key(item.item_id))
        latest = await self.index.item(item.item_id)
        if receipt.duplicate or (latest.status == "superseded" and (latest.closed_seq or 0) < receipt.seq):
            raise await closed(self.log, latest)
        if request.kind == "budget" and given.verdict == "approve":
            await self.wake_for_money(request.account_id, f"{item.item_id} was approved")
        return receipt

    async def approve(
        self, item: ItemRow, note: str = "", grant: Grant | None = None, *, digest: str = ""
    ) -> PostReceipt:
        """Approve an item; see `answer`."""
        return await self.answer(item, Answer(verdict="approve", note=note, grant=grant, digest=digest))

    async def deny(self, item: ItemRow, note: str = "", *, digest: str = "") -> PostReceipt:
        """Deny an item; the note reaches the model. See `answer`."""
        return await self.answer(item, Answer(verdict="deny", note=note, digest=digest))

    async def wake_for_money(self, account_id: str, reason: str) -> None:
        """Wake the sessions that wait for budget of an account."""
        for row in await self.index.sessions(Which(reason="budget")):
            if account_id in row.accounts:
                await self.post(row.session_id, UserResume(reason=reason))

    async def _check(self, item: ItemRow, request: ApprovalRequested, given: Answer) -> None:
        names = await who(self.log, await self.index.find(item.session_id), request, self.clock.now_us())
        if names and self.person not in names:
            raise UsageError(
                f"{item.item_id} may be answered by {' or '.join(names)} and you are {self.person}; nothing was "
                f"changed: ask them, or have the session handed over: holdfast handover {item.session_id} {self.person}"
            )
        if given.digest and given.digest != request.action_digest:
            raise UsageError(
                f"the digest is not that of {item.item_id}: the answer is about another action than the one that "
                f"waits; nothing was changed. Look at it again: holdfast inbox {item.item_id}"
            )
        if request.needs_words and given.verdict == "approve" and not given.note.strip():
            proposed = f"; these answers are proposed: {'; '.join(request.options)}" if request.options else ""
            words = request.options[0] if request.options else "your words"
            raise UsageError(
                f"{item.item_id} is a question, and needs an answer in words{proposed}; nothing was changed: "
                f"{shlex.join(('holdfast', 'answer', item.item_id, words))}"
            )
        if given.budget_pico is None:
            return
        if request.kind != "budget":
            raise UsageError(
                f"{item.item_id} is not about money; leave --budget out, or set a cap with: "
                f"holdfast budget {item.session_id} --set USD"
            )
        account = await self.index.account(request.account_id)
        if account is not None:
            check_cap(account, given.budget_pico, account.spent_pico)

    async def grant_for(
        self, item: ItemRow, *, for_s: float | None = None, uses: int | None = None, match: str | None = None
    ) -> Grant:
        """Return a grant for further calls like the one that an item asks for.

        Without `match` it covers exactly the same main argument. It must be bounded by time, by count, or by both.
        """
        if for_s is None and uses is None:
            raise UsageError(f"a grant needs a bound; set one with --for or --uses: {GRANT_EXAMPLE}")
        request = await asked(self.log, item)
        if request.kind == "egress":
            if match is not None:
                raise UsageError(f"{item.item_id} is about one secret, which --match cannot widen; leave --match out")
            return Grant(tool="egress", match=_literally(request.action), for_s=for_s, uses=uses)
        if request.kind != "tool":
            raise UsageError(f"{item.item_id} asks for no tool call, so there are no more like it; leave the grant out")
        first, event = await self.log.at([(item.session_id, 1), (item.session_id, request.evidence[0])])
        use = event.fact
        assert isinstance(use, AgentToolUse)
        agent = first.fact.agent if isinstance(first.fact, SessionCreated) else Agent(model="")
        tool = find_tool(agent, use.name)
        if tool is None or tool.where == "harness":
            raise UsageError(f"calls of {use.name} are allowed one by one; leave the grant out")
        same = _literally(main_argument(tool, use.input))
        return Grant(tool=_literally(use.name), match=same if match is None else match, for_s=for_s, uses=uses)
