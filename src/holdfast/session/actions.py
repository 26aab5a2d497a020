"""Actions of a brain. `decide` names one; `brain.acts` carries it out."""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.model import ResetCause
from holdfast.facts.people import Verdict
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolResult


class AskModel(msgspec.Struct, frozen=True):
    """Request a response that shows everything up to `inputs_through`. `model` is a name from the chain."""

    inputs_through: int
    attempt: int
    model: str


class Compact(msgspec.Struct, frozen=True):
    """Summarize the turns up to `through_seq` (S16)."""

    through_seq: int
    attempt: int
    model: str


class Reset(msgspec.Struct, frozen=True):
    """Drop the conversation up to `through_seq` and continue from a handoff; without `model`, code writes it."""

    cause: ResetCause
    through_seq: int
    attempt: int
    model: str
    detail: str = ""


class CheckRules(msgspec.Struct, frozen=True):
    """Check the pinned rules that code can check against the events after `from_seq`."""

    from_seq: int
    through_seq: int


class Record(msgspec.Struct, frozen=True):
    """Append facts that follow from the state alone, as a decision."""

    facts: tuple[Fact, ...]


class PresumeRequest(msgspec.Struct, frozen=True):
    """Settle a request that died with its brain at its reserved amount (S13)."""

    request_seq: int
    reserved_pico: int | None


class Provision(msgspec.Struct, frozen=True):
    """Create a sandbox: a call is waiting for it."""


class Dispatch(msgspec.Struct, frozen=True):
    """Run these calls: one, or several that are all read-only (S7).

    `approval_id` is the approval or grant that allows it (S21).
    """

    call_ids: tuple[str, ...]
    approval_id: str = ""


class Reconcile(msgspec.Struct, frozen=True):
    """Reconcile a dispatched call without an end (S8, S12).

    `verdict` is a user's answer for a call whose outcome is unknown: repeat it, or leave it.
    """

    call_id: str
    verdict: Verdict | None = None


class RunHarness(msgspec.Struct, frozen=True):
    """Run a call that the harness itself answers, in one transaction with its effect on the log."""

    call_id: str


class EndCalls(msgspec.Struct, frozen=True):
    """Record ends of calls that were never dispatched; `before` are facts to append with them."""

    results: tuple[ToolResult, ...]
    before: tuple[Fact, ...] = ()


class AskPerson(msgspec.Struct, frozen=True):
    """Open an inbox item for a call: an approval, the agent's question, or an unknown outcome (S21)."""

    call_id: str


class AskUse(msgspec.Struct, frozen=True):
    """Open an inbox item for the use of a secret that the proxy held (S21)."""

    secret: str


class Escalate(msgspec.Struct, frozen=True):
    """Open a breaker and ask a user how to proceed."""

    breaker: str
    detail: str
    evidence: tuple[int, ...] = ()


class Expire(msgspec.Struct, frozen=True):
    """Apply an item's default: an approver saw it, but no answer arrived in time (S21)."""

    item_id: str
    verdict: Verdict


class Notify(msgspec.Struct, frozen=True):
    """Send one notification about an item to one target; `tries` attempts were made before."""

    item_id: str
    round: str
    target: str
    tries: int


class Verify(msgspec.Struct, frozen=True):
    """Check the finished work before the session may be done (`Acts.verify` of its kind)."""


class CancelChildren(msgspec.Struct, frozen=True):
    """Cancel these children because their parent is cancelled."""

    child_ids: tuple[str, ...]


class WaitUntil(msgspec.Struct, frozen=True):
    """Wait until a time, or until an event is posted."""

    at_us: int


class End(msgspec.Struct, frozen=True):
    """End the shift: park, or finish. `before` are facts to append with it."""

    fact: ShiftEnded
    before: tuple[Fact, ...] = ()


Action = (
    AskModel
    | Compact
    | Reset
    | CheckRules
    | Record
    | PresumeRequest
    | Provision
    | Dispatch
    | Reconcile
    | RunHarness
    | EndCalls
    | AskPerson
    | AskUse
    | Escalate
    | Expire
    | Notify
    | Verify
    | CancelChildren
    | WaitUntil
    | End
)
