"""What a brain can do next. `decide` names one; `holdfast.brain.acts` does it."""

from __future__ import annotations

import msgspec

from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolResult


class AskModel(msgspec.Struct, frozen=True):
    """Start a model request that shows everything up to `inputs_through`."""

    inputs_through: int
    attempt: int


class PresumeRequest(msgspec.Struct, frozen=True):
    """Settle a request that died with its brain at what it had reserved (S13)."""

    request_seq: int
    reserved_pico: int | None


class Provision(msgspec.Struct, frozen=True):
    """Make hands: a call is waiting for them."""


class Dispatch(msgspec.Struct, frozen=True):
    """Run these calls: one, or several that are all read-only (S7)."""

    call_ids: tuple[str, ...]


class Reconcile(msgspec.Struct, frozen=True):
    """Find out what became of a dispatched call without an end (S8, S12)."""

    call_id: str


class EndCalls(msgspec.Struct, frozen=True):
    """Record ends of calls that never went through a door."""

    results: tuple[ToolResult, ...]


class WaitUntil(msgspec.Struct, frozen=True):
    """Nothing to do before then, unless something is posted."""

    at_us: int


class End(msgspec.Struct, frozen=True):
    """End the shift: park, or finish."""

    fact: ShiftEnded


Action = AskModel | PresumeRequest | Provision | Dispatch | Reconcile | EndCalls | WaitUntil | End
