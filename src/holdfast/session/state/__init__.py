"""State of a session: folded from its events, never the source of truth (S19).

It holds positions and small facts, not bodies: the content of the context is named by position and read from the log
when a request is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from holdfast.facts.base import OnUnknown, Usage
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import Purpose, StopReason
from holdfast.facts.people import Grant, ItemKind, Verdict
from holdfast.facts.session import Limits, SessionCreated
from holdfast.facts.shift import ShiftEnded
from holdfast.session.egress import Outside
from holdfast.session.signs.trace import Step
from holdfast.session.state.parts import ContextState, Failing, Job, ServiceRun
from holdfast.session.tenant import Kind, Tenant
from holdfast.session.tools import Tool, Where, find_tool
from holdfast.session.tools.effects import Part

CallEnd = Literal["ok", "error", "denied", "skipped", "cancelled", "unknown"]


class PostedItem(msgspec.Struct, array_like=True, tag="u"):
    """A message at its place in the context (user, child, or harness). The fact at `seq` has the content."""

    seq: int
    tokens: int


class ResponseItem(msgspec.Struct, array_like=True, tag="r"):
    """A response at its place: its parts, and for each of its calls the result's position, 0 if none.

    `tool_tokens` is the share of results in its tokens.
    """

    request_seq: int
    tokens: int
    parts: list[int] = []
    results: list[int] = []
    stop_reason: StopReason | None = None
    output_tokens: int = 0
    tool_tokens: int = 0


class SummaryItem(msgspec.Struct, array_like=True, tag="s"):
    """Summary of older turns after a compaction: the `context.compacted` at `seq`, through `through_seq`.

    Older summaries, which reached through `dropped_seq`, were dropped for lack of room; 0 for none.
    """

    seq: int
    tokens: int
    through_seq: int = 0
    dropped_seq: int = 0


class HandoffItem(msgspec.Struct, array_like=True, tag="h"):
    """Beginning of a context after a reset: the `context.reset` at `seq`."""

    seq: int
    tokens: int


Item = PostedItem | ResponseItem | SummaryItem | HandoffItem


class Call(msgspec.Struct):
    """A tool call of the latest response.

    `problem` says why it cannot run at all (a malformed or invalid input), empty when it can. `hands_id`, `attempt`,
    and `dispatch_seq` are of the latest dispatch; attempt 0 means never dispatched. `argument` is the main one (the
    command, the path) and `parts` the effects of the call, for rules. It was requested at `at_us`; `until_us` is when a
    `sleep` or a wait is over, `waits_for` the children or jobs that it waits for. `replaces` is a superseded item about
    it; `approval_seq` is the item that allowed it, 0 for none. A `lost` call may have run: its end was in lost events.
    `end` is its outcome, None while it is open (S7).
    """

    call_id: str
    seq: int
    name: str
    problem: str = ""
    read_only: bool = False
    on_unknown: OnUnknown = "tell"
    where: Where = ""
    argument: str = ""
    parts: tuple[Part, ...] = ()
    price_pico: int = 0
    at_us: int = 0
    until_us: int | None = None
    waits_for: tuple[str, ...] = ()
    attempt: int = 0
    hands_id: str = ""
    dispatch_seq: int = 0
    reserved_pico: int | None = None
    replaces: str = ""
    approval_seq: int = 0
    lost: bool = False
    end: CallEnd | None = None


class OpenRequest(msgspec.Struct):
    """A model request without an end."""

    seq: int
    epoch: int
    attempt: int
    model: str
    reserved_pico: int | None
    purpose: Purpose = "turn"
    estimate: int = 0
    through_seq: int = 0


class Failure(msgspec.Struct):
    """Failure of the latest attempt, until a response arrives."""

    at_us: int
    attempt: int
    kind: str
    message: str
    retry_after_s: float | None
    model: str = ""
    purpose: Purpose = "turn"
    seq: int = 0


class Provider(msgspec.Struct):
    """Health of a model of the chain: failures in a row, and until when its breaker is open, 0 when closed."""

    failures: int = 0
    rest_until_us: int = 0


class Ask(msgspec.Struct):
    """An inbox item that still counts (S21).

    `verdict` is the answer, None while there is none; `note` is at `decided_seq`, and `expired` means that it is the
    default. `seen_us` is when an approver first saw it, 0 for never. `expires_seq` is the event that moved
    `expires_us`, 0 for none.
    """

    item_id: str
    seq: int
    kind: ItemKind
    call_id: str
    action_digest: str
    guards: dict[str, str]
    asked_us: int
    default: Verdict | None
    expires_us: int | None
    remind_us: int | None
    escalate_us: int | None
    account_id: str = ""
    uncounted: tuple[str, ...] = ()
    seen_us: int = 0
    verdict: Verdict | None = None
    decided_seq: int = 0
    note: str = ""
    expired: bool = False
    expires_seq: int = 0
    notify: tuple[str, ...] | None = None


class GrantHeld(msgspec.Struct):
    """A user's grant, and how often it was used; last by the dispatch at `ran_seq`.

    It is bound to `guards`, not to `uncounted` files. An `outdated` one waits until a call that it covers is approved.
    """

    seq: int
    at_us: int
    grant: Grant
    used: int = 0
    guards: dict[str, str] = {}
    uncounted: tuple[str, ...] = ()
    ran_seq: int = 0
    outdated: bool = False


class Notice(msgspec.Struct):
    """Delivery of a notification to a target: the attempts, and when the next one is due, None when it is over."""

    tries: int
    again_us: int | None


def notice_key(item_id: str, round_: str, target: str) -> str:
    """Return the key of a notification in the state."""
    return f"{item_id}:{round_}:{target}"


class Child(msgspec.Struct):
    """A child session. `status` is None while it works; `finished_seq` is its latest report."""

    child_id: str
    call_id: str
    seq: int
    name: str
    status: Literal["done", "failed", "cancelled", "parked"] | None = None
    finished_seq: int = 0
    cancelled: bool = False


CLOCK_STEP_US = 1_000_000
"""Smaller steps back of the clock are ignored: they make a wait longer by no more than this."""


class SetBack(msgspec.Struct, array_like=True):
    """The wall clock went back by `back_us` before the event at `seq`, whose time is `at_us`.

    `back_us` is 0 where setting the clock forward before made up for it.
    """

    seq: int
    back_us: int
    at_us: int


class State(msgspec.Struct):
    """Input of `decide`.

    `fence` is the number by which hands know the latest shift (S9). `pending` are messages that no request has shown
    yet; `unseen` is set while the latest results have not been shown to the model. `failure` is of the latest attempt
    until a response arrives; `tries` counts the failed attempts of this shift. `interrupted`, `cancelled`, and `paused`
    are positions, 0 if not requested; `stop_seq` is not 0 during an emergency stop. An interrupt holds until the next
    request, which only a later message brings about (S14). `hands_known` are the incarnations that were not released,
    including lost ones: recovery may need their journals, and they may leave something behind. The end of a shift
    clears them. `host_files` are files of the workspace that make programs of the host run code: True for those that
    appeared in hands. `environment` is the digest of the environment in use, `environment_failed` of one that failed
    and is left out, `environment_error` the reason why work must not begin; a message from a user retries it. `seen`
    maps a path to the digest under which the model knows its content (S18). `ended` is the latest end of a shift, until
    something new arrives. `set_back` are the steps back of the clock; `boot_id` and `booted_us` describe it at
    `clock_seq`. `responses` counts responses to turns, `summaries` those to compactions, `handoffs` those to handoffs;
    `attempts` the failed attempts at each since its last response. `trace` is the input of the signs. `asks` are inbox
    items by id; `rule_uses` counts calls under bounded rules, by the rule's place. `message_seq` is the latest message
    of a user. `failed_calls` counts failed calls in a row; `breaker` is one that waits for a user. `spend` is the spend
    of each five minutes of the last hour. `mutated_seq` is the latest dispatch that may have changed the workspace,
    `snapshot_seq` the position of its last snapshot, `snapshot` its name, `snapshot_error` why there is no later one.
    `workspace_with` are lost hands that hold the workspace. `home_id` is the home of the latest shift, `work_home`
    that of the latest hands, where the workspace is. `outside` is the egress state. `tenant` is the session's
    kind and its own state.
    """

    session_id: str
    seq: int = 0
    at_us: int = 0
    hash: bytes = b""
    epoch: int = 0
    fence: int = 0
    created: SessionCreated | None = None
    created_us: int = 0
    limits: Limits = Limits()
    owner: str = ""
    window: list[Item] = []
    window_tokens: int = 0
    pending: list[PostedItem] = []
    unseen: bool = True
    request: OpenRequest | None = None
    failure: Failure | None = None
    tries: int = 0
    responses: int = 0
    summaries: int = 0
    handoffs: int = 0
    attempts: dict[str, int] = {}
    trace: list[Step] = []
    calls: list[Call] = []
    hands: HandsProvisioned | None = None
    hands_known: dict[str, HandsProvisioned] = {}
    had_hands: bool = False
    host_files: dict[str, bool] = {}
    environment: str = ""
    environment_failed: str = ""
    environment_error: str = ""
    seen: dict[str, str] = {}
    interrupted: int = 0
    cancelled: int = 0
    paused: int = 0
    stop_seq: int = 0
    message_seq: int = 0
    in_shift: bool = False
    ended: ShiftEnded | None = None
    set_back: list[SetBack] = []
    boot_id: str = ""
    booted_us: int = 0
    clock_seq: int = 0
    usage: Usage = Usage()
    uncounted: bool = False
    cost_pico: int = 0
    unpriced: bool = False
    asks: dict[str, Ask] = {}
    grants: list[GrantHeld] = []
    rule_uses: dict[int, int] = {}
    notices: dict[str, Notice] = {}
    children: dict[str, Child] = {}
    jobs: dict[str, Job] = {}
    services: dict[str, ServiceRun] = {}
    providers: dict[str, Provider] = {}
    context: ContextState = msgspec.field(default_factory=ContextState)
    failed_calls: int = 0
    breaker: str = ""
    spend: dict[int, int] = {}
    mutated_seq: int = 0
    snapshot_seq: int = 0
    snapshot_error: str = ""
    snapshot: str = ""
    workspace_with: str = ""
    home_id: str = ""
    work_home: str = ""
    failing: Failing = msgspec.field(default_factory=Failing)
    outside: Outside = msgspec.field(default_factory=Outside)
    tenant: Tenant[State] = msgspec.field(default_factory=Tenant)

    def open_calls(self) -> list[Call]:
        """Return the calls of the latest response that have not ended, in order."""
        return [call for call in self.calls if call.end is None]

    def call(self, call_id: str) -> Call:
        """Return the call with that id in the latest response. Raises `KeyError`."""
        for call in self.calls:
            if call.call_id == call_id:
                return call
        raise KeyError(call_id)

    def tool(self, name: str) -> Tool | None:
        """Return the agent's tool of that name, None if it is not offered."""
        return find_tool(self.created.agent, name, self.tenant.kind.tools) if self.created is not None else None

    @property
    def stopping(self) -> bool:
        """True while a user wants running work to end now (S14)."""
        return bool(self.interrupted or self.cancelled or self.stop_seq)

    def place(self, item: Item) -> None:
        """Add an item at the end of the window."""
        self.window.append(item)
        self.window_tokens += item.tokens

    def clear_signs(self) -> None:
        """Forget earlier signs after a user wrote or chose to go on."""
        context = self.context
        context.sign_seq = context.signs_reset_seq = context.sign_resets = context.idle_resets = 0
        context.sign_kind, context.sign_detail, context.sign_evidence = None, "", ()

    def posted(self, seq: int, tokens: int) -> None:
        """Add a message for the next request to show."""
        self.pending.append(PostedItem(seq, tokens))

    def stirred(self) -> None:
        """Let a parked session go on. A session that is over stays over."""
        if self.ended is not None and self.ended.status == "parked":
            self.ended = None

    def reopened(self) -> None:
        """Let a session go on that is parked, done, or failed. A cancelled one stays over."""
        if self.ended is None or self.ended.status != "cancelled":
            self.ended = None

    def live_children(self) -> list[Child]:
        """Return the children that have neither parked nor ended, oldest first."""
        return [child for child in self.children.values() if child.status is None]

    def live_jobs(self) -> list[Job]:
        """Return the jobs that have not ended, oldest first."""
        return [job for job in self.jobs.values() if job.outcome is None]

    def hands_at_work(self) -> set[str]:
        """Return the incarnations in which jobs or services run without a brain."""
        return {job.hands_id for job in self.live_jobs()} | {
            each.hands_id for each in self.services.values() if not each.standing
        }


Apply = Callable[[State, Any, Event], None]
"""Effect of a fact on a state."""

Kinds = Callable[[str], Kind[State]]
"""Lookup of a kind by name. Raises `LookupError` for an unknown name."""
