"""Use case: a webhook delivers an event to a duty. It is acknowledged only once it is in the log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from holdfast.brain.recall import recall
from holdfast.clock import Clock
from holdfast.errors import UnknownSession
from holdfast.facts.codec import Draft
from holdfast.facts.duty import WEBHOOK, TriggerOffered
from holdfast.ids import Entropy, new_event_id
from holdfast.kinds.duty.acts.watching import offer_key
from holdfast.kinds.duty.fold import DutyState, duty_of
from holdfast.log.base import Index, Log, Post, PostReceipt, Snapshots
from holdfast.session.fold import fold
from holdfast.session.state import Kinds, State
from holdfast.sources.settings import WebhookSettings, parse_settings
from holdfast.sources.webhook import WebhookRefused, accept

DUTIES_MAX = 100
"""Duties whose folded state is kept in memory between deliveries."""


@dataclass
class Deliveries:
    """Deliveries to the duties of a home. `secret` reads a secret by name."""

    log: Log
    index: Index
    snapshots: Snapshots
    kinds: Kinds
    clock: Clock
    entropy: Entropy
    secret: Callable[[str], str]
    _states: OrderedDict[str, State] = field(default_factory=OrderedDict)
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def deliver(self, duty: str, trigger: str, headers: Mapping[str, str], body: bytes) -> PostReceipt | None:
        """Verify a delivery and offer its event to the duty, once per event; None if its queue is full.

        Raises `WebhookRefused`, also for an unknown duty or trigger, so that names cannot be guessed.
        """
        own, session_id = await self._duty(duty)
        found = next((each for each in own.duty.triggers if (each.name, each.kind) == (trigger, WEBHOOK)), None)
        if found is None:
            raise _unknown()
        settings = parse_settings(found.kind, found.settings)
        assert isinstance(settings, WebhookSettings)
        secret = await anyio.to_thread.run_sync(self.secret, settings.secret)
        now_us = self.clock.now_us()
        event = accept(headers, body, settings, secret, now_us)
        if len(own.queue) >= own.duty.queue_max:
            return None
        fact = TriggerOffered(
            trigger=trigger, key=f"{trigger}:{event.key}", time_us=event.at_us or now_us, data=event.data
        )
        draft = Draft(new_event_id(now_us, self.entropy), f"source:{trigger}", fact)
        return await self.log.post(Post(session_id, offer_key(trigger, event.key), draft))

    async def _duty(self, name: str) -> tuple[DutyState, str]:
        """Return the present state of a duty, by its name."""
        try:
            row = await self.index.find(name)
        except UnknownSession:
            raise _unknown() from None
        if row.key != name or row.status in ("cancelled", "done", "failed"):
            raise _unknown()
        async with self._lock:
            state = self._states.pop(row.session_id, None)
            if state is None:
                state, _ = await recall(row.session_id, self.log, self.snapshots, self.kinds)
            elif state.seq < row.head:
                state = fold(state, await self.log.read(row.session_id, after=state.seq, prev=state.hash))
            self._states[row.session_id] = state
            while len(self._states) > DUTIES_MAX:
                self._states.popitem(last=False)
        own = duty_of(state)
        if own is None:
            raise _unknown()
        return own, row.session_id


def _unknown() -> WebhookRefused:
    return WebhookRefused("forged", "the delivery does not belong to a webhook of this server")
