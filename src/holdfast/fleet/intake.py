"""What comes from outside a session: opening one, messages, interrupts, cancels (S3).

Everything here is a post: ordered, unfenced, and once per key.
"""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.errors import UsageError
from holdfast.facts.base import Text
from holdfast.facts.codec import Draft
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.facts.union import AnyFact
from holdfast.facts.user import UserCancel, UserInterrupt, UserMessage
from holdfast.ids import Entropy, new_event_id, new_session_id
from holdfast.log.base import Index, Log, Post, PostReceipt
from holdfast.session.rows import SessionRow


class Intake:
    """Posts on behalf of one actor, such as `user:anna`."""

    def __init__(self, log: Log, index: Index, clock: Clock, entropy: Entropy, actor: str) -> None:
        self._log = log
        self._index = index
        self._clock = clock
        self._entropy = entropy
        self._actor = actor

    def new_session_id(self) -> str:
        """An id for a session that is about to be opened: its workspace may need it first."""
        return new_session_id(self._clock.now_us(), self._entropy)

    async def open(self, session_id: str, created: SessionCreated) -> PostReceipt:
        """Open a session. With a `key` that is taken, the receipt is a duplicate naming its session."""
        if not created.goal.strip():
            raise UsageError('the goal is empty; say what is wanted, for example: holdfast run "fix the failing test"')
        return await self._log.post(self._post(session_id, created, key="created"), create=True)

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

    async def _say(self, session: SessionRow, fact: AnyFact, key: str = "") -> PostReceipt:
        if session.status == "cancelled":
            raise UsageError(
                f"session {session.session_id} was cancelled and takes nothing more; "
                f"`holdfast run` with the same workspace starts a new one"
            )
        return await self._log.post(self._post(session.session_id, fact, key))

    def _post(self, session_id: str, fact: AnyFact, key: str = "") -> Post:
        event_id = new_event_id(self._clock.now_us(), self._entropy)
        return Post(session_id, key or event_id, Draft(event_id, self._actor, fact))
