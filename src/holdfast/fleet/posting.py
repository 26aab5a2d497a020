"""How something from outside gets into a log: posted by an actor, once per key (S3)."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.facts.codec import Draft
from holdfast.facts.union import AnyFact
from holdfast.ids import Entropy, new_event_id
from holdfast.log.base import Index, Log, Post, PostReceipt


class Poster:
    """Posts on behalf of one actor, such as `user:anna`. `boot_id` is that of the machine, empty when not known."""

    def __init__(self, log: Log, index: Index, clock: Clock, entropy: Entropy, actor: str, boot_id: str = "") -> None:
        self.log = log
        self.index = index
        self.clock = clock
        self.entropy = entropy
        self.actor = actor
        self.boot_id = boot_id

    @property
    def person(self) -> str:
        """Who it is, as sessions name people."""
        return person(self.actor)

    async def post(self, session_id: str, fact: AnyFact, key: str = "") -> PostReceipt:
        """Post a fact. With a `key`, a second one of that key is dropped."""
        return await self.log.post(self.drafted(session_id, fact, key))

    def drafted(self, session_id: str, fact: AnyFact, key: str = "") -> Post:
        """The post of a fact; without a `key` it has one that nothing else has."""
        event_id = new_event_id(self.clock.now_us(), self.entropy)
        return Post(session_id, key or event_id, Draft(event_id, self.actor, fact))


def person(actor: str) -> str:
    """The name of the person behind an actor."""
    return actor.removeprefix("user:")
