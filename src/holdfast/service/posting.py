"""Posts from outside a session, on behalf of a caller, once per key (S3)."""

from __future__ import annotations

import msgspec

from holdfast.clock import Clock
from holdfast.facts.codec import Draft
from holdfast.facts.union import AnyFact
from holdfast.ids import Entropy, new_event_id
from holdfast.log.base import Index, Log, Post, PostReceipt


class Caller(msgspec.Struct, frozen=True):
    """The identity of a caller, established by the face that received the call.

    `actor` names the caller in events, such as `user:anna`. `via` is the face (`cli`, `api`, `ntfy`, `web`, `http`),
    and `proof` is the face's evidence of the identity: `process_uid:1000`, `login_link:1000`, `api_key:key_1f`,
    `reply_code`, or `none`.
    """

    actor: str
    via: str = ""
    proof: str = "none"


class Poster:
    """Posts facts on behalf of one caller. `boot_id` is that of the machine, empty if unknown."""

    def __init__(
        self, log: Log, index: Index, clock: Clock, entropy: Entropy, caller: Caller, boot_id: str = ""
    ) -> None:
        self.log = log
        self.index = index
        self.clock = clock
        self.entropy = entropy
        self.caller = caller
        self.boot_id = boot_id

    @property
    def actor(self) -> str:
        """The caller's name in events."""
        return self.caller.actor

    @property
    def person(self) -> str:
        """The caller's user name, as it appears in a session's owner and approvers."""
        return person(self.actor)

    async def post(self, session_id: str, fact: AnyFact, key: str = "") -> PostReceipt:
        """Post a fact. With a `key`, a second one of that key is dropped."""
        return await self.log.post(self.drafted(session_id, fact, key))

    def drafted(self, session_id: str, fact: AnyFact, key: str = "") -> Post:
        """Draft the post of a fact. Without a `key` it gets a unique one."""
        event_id = new_event_id(self.clock.now_us(), self.entropy)
        return Post(session_id, key or event_id, Draft(event_id, self.actor, fact))


def person(actor: str) -> str:
    """Return the user name of an actor: `anna` for `user:anna`."""
    return actor.removeprefix("user:")
