"""Ids: typed strings and numbers, and functions that make new ones.

An id is a prefix, a millisecond time and 80 random bits in Crockford base 32, so that ids of one
kind sort by age. Randomness and time are arguments, so that the simulator controls both.
"""

from __future__ import annotations

import os
from typing import NewType, Protocol

SessionId = NewType("SessionId", str)
EventId = NewType("EventId", str)
HandsId = NewType("HandsId", str)
WorkerId = NewType("WorkerId", str)
AccountId = NewType("AccountId", str)
CallId = NewType("CallId", str)
"""`<seq of the model request>.<index of the call in its response>`: ours, never the provider's."""

Seq = NewType("Seq", int)
"""Position of an event in its session, from 1 without gaps; 0 means before the first."""

Epoch = NewType("Epoch", int)
"""Number of the shift that holds a session, from 1; 0 means no shift has held it."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Entropy(Protocol):
    """A source of random bytes: `os.urandom`, or a seeded one."""

    def __call__(self, size: int, /) -> bytes: ...


system_entropy: Entropy = os.urandom


def _base32(value: int, length: int) -> str:
    out = []
    for _ in range(length):
        out.append(_ALPHABET[value & 31])
        value >>= 5
    return "".join(reversed(out))


def _new(prefix: str, at_us: int, entropy: Entropy) -> str:
    return f"{prefix}_{_base32(at_us // 1000, 10)}{_base32(int.from_bytes(entropy(10)), 16)}"


def new_session_id(at_us: int, entropy: Entropy) -> SessionId:
    """A new session id, `ses_` and 26 characters."""
    return SessionId(_new("ses", at_us, entropy))


def new_event_id(at_us: int, entropy: Entropy) -> EventId:
    """A new event id, `evt_` and 26 characters."""
    return EventId(_new("evt", at_us, entropy))


def new_hands_id(at_us: int, entropy: Entropy) -> HandsId:
    """A new hands id, `hnd_` and 26 characters: one per incarnation."""
    return HandsId(_new("hnd", at_us, entropy))


def new_worker_id(at_us: int, entropy: Entropy) -> WorkerId:
    """A new worker id, `wrk_` and 26 characters: one per process."""
    return WorkerId(_new("wrk", at_us, entropy))


def new_item_id(entropy: Entropy) -> str:
    """A new id of an inbox item, `itm_` and 8 characters: short enough to type."""
    return f"itm_{_base32(int.from_bytes(entropy(5)), 8)}"


def call_id(request_seq: int, index: int) -> CallId:
    """The id of the `index`-th tool call in the response to the request at `request_seq`."""
    return CallId(f"{request_seq}.{index}")
