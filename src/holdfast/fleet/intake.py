"""What comes from outside a session: opening one, messages, answers, steering (S3).

Everything here is a post: ordered, unfenced, and once per key.
"""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.facts.base import Text
from holdfast.facts.budget import Period
from holdfast.facts.people import ApprovalRequested, Grant
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.facts.union import AnyFact
from holdfast.facts.user import UserCancel, UserInterrupt, UserMessage
from holdfast.fleet import answers, steering
from holdfast.fleet.answers import Answer
from holdfast.fleet.posting import Poster
from holdfast.fleet.steering import Stopping
from holdfast.ids import new_session_id
from holdfast.log.base import PostReceipt
from holdfast.session.home import Stop
from holdfast.session.items import ItemRow
from holdfast.session.rows import SessionRow


class Intake(Poster):
    """Posts on behalf of one actor, such as `user:anna`."""

    def acting_as(self, actor: str) -> Intake:
        """The same for another actor."""
        return Intake(self.log, self.index, self.clock, self.entropy, actor, self.boot_id)

    def new_session_id(self) -> str:
        """An id for a session that is about to be opened: its workspace may need it first."""
        return new_session_id(self.clock.now_us(), self.entropy)

    async def open(self, session_id: str, created: SessionCreated) -> PostReceipt:
        """Open a session. With a `key` that is taken, the receipt is a duplicate naming its session."""
        if not created.goal.strip():
            raise UsageError('the goal is empty; say what is wanted, for example: holdfast run "fix the failing test"')
        return await self.log.post(self.drafted(session_id, created, key="created"), create=True)

    async def send(self, session: SessionRow, text: str, *, key: str = "") -> PostReceipt:
        """Post a person's message. With a `key`, a second one of that key is dropped."""
        if not text.strip():
            raise UsageError("the message is empty; say something, for example: holdfast send ID 'use tabs'")
        return await self._say(session, UserMessage(content=(Text(text),)), key)

    async def interrupt(self, session: SessionRow, reason: str = "") -> PostReceipt:
        """Ask the agent to stop at once and wait for a message."""
        return await self._say(session, UserInterrupt(reason=reason))

    async def cancel(self, session: SessionRow, reason: str = "") -> PostReceipt:
        """End the session for good."""
        return await self._say(session, UserCancel(reason=reason))

    async def update(self, session: SessionRow, change: SessionUpdated) -> PostReceipt:
        """Change a limit."""
        return await self._say(session, change)

    async def check_cap(self, session: SessionRow, cap_pico: int) -> None:
        """Raise `UsageError` for a cap of the session's own account below what is spent."""
        account = await self.index.account(session.accounts[0]) if session.accounts else None
        if account is not None:
            answers.check_cap(account, cap_pico, account.spent_pico)

    # --- answers ------------------------------------------------------------------------------------

    async def asked(self, item: ItemRow) -> ApprovalRequested:
        """The whole of a question."""
        return await answers.asked(self, item)

    async def who(self, item: ItemRow) -> tuple[str, ...]:
        """The names of those who may answer an item now; empty means anybody."""
        return await answers.who(self, item, await self.asked(item))

    async def seen(self, item: ItemRow) -> PostReceipt | None:
        """Record that this person was shown an item; None when it is closed or not theirs to answer."""
        return await answers.seen(self, item, await self.asked(item))

    async def answer(self, item: ItemRow, given: Answer) -> PostReceipt:
        """Answer an item. Raises `ItemClosed` when it is answered, `UsageError` for what cannot be meant."""
        receipt = await answers.answer(self, item, given)
        if item.kind == "budget" and given.verdict == "approve":
            request = await self.asked(item)
            await steering.wake_for_money(self, request.account_id, f"{item.item_id} was approved")
        return receipt

    async def approve(
        self, item: ItemRow, note: str = "", grant: Grant | None = None, *, via: str = "", digest: str = ""
    ) -> PostReceipt:
        """Approve an item; see `answer`."""
        return await self.answer(item, Answer(verdict="approve", note=note, grant=grant, via=via, digest=digest))

    async def deny(self, item: ItemRow, note: str = "", *, via: str = "", digest: str = "") -> PostReceipt:
        """Deny an item; the note reaches the model. See `answer`."""
        return await self.answer(item, Answer(verdict="deny", note=note, via=via, digest=digest))

    async def grant_for(
        self, item: ItemRow, *, for_s: float | None = None, uses: int | None = None, match: str | None = None
    ) -> Grant:
        """A bounded grant for further calls like the one that an item asks for."""
        return await answers.grant_for(self, item, for_s=for_s, uses=uses, match=match)

    # --- steering -----------------------------------------------------------------------------------

    async def pause(self, session: SessionRow, reason: str = "") -> PostReceipt:
        """Have the session rest at its next safe boundary."""
        return await steering.pause(self, session, reason)

    async def resume(self, session: SessionRow, reason: str = "") -> PostReceipt:
        """Lift a pause."""
        return await steering.resume(self, session, reason)

    async def hand_over(self, session: SessionRow, name: str) -> PostReceipt:
        """Make the session another person's."""
        return await steering.hand_over(self, session, name)

    async def set_cap(
        self, session: SessionRow | None, account_id: str, period: Period, cap_pico: int | None
    ) -> PostReceipt:
        """Set or lift a cap of an account. Raises `UsageError` for one below what is spent."""
        return await steering.set_cap(self, session, account_id, period, cap_pico)

    async def stop_all(self, reason: str = "") -> Stopping:
        """The emergency stop. Safe to repeat."""
        return await steering.stop_all(self, reason)

    async def release(self, reason: str = "") -> tuple[Stop | None, list[SessionRow]]:
        """Lift the emergency stop: it, and the sessions that may go on."""
        return await steering.release(self, reason)

    async def _say(self, session: SessionRow, fact: AnyFact, key: str = "") -> PostReceipt:
        if session.status == "cancelled":
            raise UsageError(
                f"session {session.session_id} was cancelled and takes nothing more; "
                f"`holdfast run` with the same workspace starts a new one"
            )
        return await self.post(session.session_id, fact, key)
