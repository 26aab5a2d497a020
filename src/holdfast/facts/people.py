"""Messages and commands of users, and questions to approvers (S3, S21)."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Content, Fact

ItemKind = Literal["tool", "question", "escalation", "budget", "unknown", "egress", "change", "flake", "lesson"]
"""Kind of an inbox item: a tool call under an `ask` rule, the agent's own question, work that does not progress, a
budget, a call whose outcome is unknown, the use of a secret after untrusted reading, a change of protected files, a
criterion with a flaky check, a line for AGENTS.md."""

Verdict = Literal["approve", "deny"]


class Grant(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Approval for more than one call: of `tool`, with a main argument like `match`, for `for_s` seconds or `uses`
    calls.
    """

    tool: str
    match: str = ""
    for_s: float | None = None
    uses: int | None = None


class ApprovalRequested(Fact, frozen=True, tag="approval.requested"):
    """An inbox item was opened. The session waits without a process.

    `item_id` identifies the item everywhere. `action` is the exact action, rendered; `action_digest` and `guards` (name
    to digest, of the policy and of what the action touches) bind the answer to it. `why` is the reason given by the
    agent or the harness, `touches` the reach of the action, `evidence` sequence numbers of this session. `options` are
    proposed answers to a question. `default` is applied at `expires_us`, once an approver has seen the item.
    `approvers` may answer; any user when empty. `account_id` and `proposed_pico` belong to a budget: approving sets
    that cap. `replaces` is an earlier item for the same call, superseded because a guard changed. `uncounted` are files
    that running jobs write: the answer stays valid when they change. `notify` are the targets of its notices, None for
    those of the session.
    """

    item_id: str
    kind: ItemKind
    title: str
    action: str
    call_id: str = ""
    action_digest: str = ""
    guards: dict[str, str] = {}
    why: str = ""
    touches: str = ""
    cost_pico: int | None = None
    evidence: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    default: Verdict | None = None
    expires_us: int | None = None
    remind_us: int | None = None
    escalate_us: int | None = None
    approvers: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    account_id: str = ""
    proposed_pico: int | None = None
    replaces: str = ""
    uncounted: tuple[str, ...] = ()
    notify: tuple[str, ...] | None = None

    @property
    def needs_words(self) -> bool:
        """True for a question, unless it proposes a single answer, which approval alone gives."""
        return self.kind == "question" and len(self.options) != 1


class ApprovalDecided(Fact, frozen=True, tag="approval.decided"):
    """An approver answered. Posted under the item's own key: the first answer, or the expiry, wins.

    `digest` is that of the action as shown. `via` is the channel: `cli`, `api`, `ntfy`, `web`, `http`. `proof` is the
    evidence of who answered: `process_uid:N` is the user of the writing process, `login_link:N` that of the process
    that logged the browser in, `api_key:ID` the key that the request carried; `reply_code` shows that the answer came
    from a reader of the notice; `none`, or empty in older logs, means that only a name was given.
    """

    wakes = True

    item_id: str
    verdict: Verdict
    note: str = ""
    digest: str = ""
    via: str = ""
    grant: Grant | None = None
    account_id: str = ""
    budget_pico: int | None = None
    proof: str = ""


class ApprovalExpired(Fact, frozen=True, tag="approval.expired"):
    """Nobody answered in time and the default was applied. Posted under the item's own key."""

    wakes = True

    item_id: str
    verdict: Verdict


class ApprovalSuperseded(Fact, frozen=True, tag="approval.superseded"):
    """An item is void: its subject changed, or the session ended."""

    item_id: str
    reason: str


class ApprovalSeen(Fact, frozen=True, tag="approval.seen"):
    """An approver was shown the item. Posted once per item and user.

    From now on its default may be applied: at `expires_us`, which is the item's own expiry, or somewhat later when that
    is past or near, so that the last viewer can still answer. The session is due then. `boot_id`, `booted_us`, and
    `up_us` describe the wall clock, as in `shift.started`.
    """

    item_id: str
    by: str
    expires_us: int | None = None
    boot_id: str = ""
    booted_us: int = 0
    up_us: int = 0


class NoticeSent(Fact, frozen=True, tag="notice.sent"):
    """A notification about an item, or about the session, was sent to a target or failed.

    `notice_id` stays the same over all attempts, so that the receiver can drop repeats. `round` is "first", "reminder",
    or "second". `target` is its configured name, never its address, which may hold a secret. `again_us` is when the
    next attempt is due, None once it arrived or was given up. `held` means that it was not attempted: the target has
    quiet hours until then.
    """

    notice_id: str
    target: str
    item_id: str = ""
    round: str = ""
    ok: bool = False
    detail: str = ""
    again_us: int | None = None
    held: bool = False


class UserMessage(Fact, frozen=True, tag="user.message"):
    """A message from a user. It enters the context at the next model request."""

    wakes = True
    reopens = True

    content: Content


class UserInterrupt(Fact, frozen=True, tag="user.interrupt"):
    """A user asked the agent to stop and wait (S14)."""

    wakes = True
    reopens = True

    reason: str = ""


class UserCancel(Fact, frozen=True, tag="user.cancel"):
    """A user ended the session for good."""

    wakes = True
    reopens = True

    reason: str = ""


class UserPause(Fact, frozen=True, tag="user.pause"):
    """A user paused the session at its next safe boundary, until `user.resume`.

    `stop_seq` is not 0 for an emergency stop: its position in the home's log.
    """

    wakes = True

    reason: str = ""
    stop_seq: int = 0


class UserResume(Fact, frozen=True, tag="user.resume"):
    """A user lifted a pause."""

    wakes = True

    reason: str = ""
