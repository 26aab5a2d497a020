"""What a person is asked, and what they answered (S21)."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact

ItemKind = Literal["tool", "question", "escalation", "budget", "unknown", "egress", "change", "flake", "lesson"]
"""Why a person is asked: a tool call under an `ask` rule, the agent's own question, work that does not get
on, a money line, an effect whose outcome nobody knows, the use of a secret after untrusted reading, a change of
protected files, a criterion whose check is flaky, a line for AGENTS.md."""

Verdict = Literal["approve", "deny"]


class Grant(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An approval for more than one call: of `tool`, with the main argument like `match`, for so long or so often."""

    tool: str
    match: str = ""
    for_s: float | None = None
    uses: int | None = None


class ApprovalRequested(Fact, frozen=True, tag="approval.requested"):
    """A person is asked. The session waits without a process.

    `item_id` names the question everywhere. `action` is the exact action, rendered; `action_digest` and
    `guards` (name to digest, of the policy and of what the action touches) bind the answer to it. `why`
    are the agent's or the harness's words, `touches` says how far the action reaches, `evidence` are
    sequence numbers of this session. `options` are proposed answers to a question. `default` is applied
    at `expires_us`, once somebody has seen the item. `approvers` may answer, all when empty.
    `account_id` and `proposed_pico` are of a money line: approving sets that cap. `replaces` is an earlier item
    for the same call, which counts no more because what it was bound to has changed. `uncounted` are files that running
    jobs write: the answer holds although they change.
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


class ApprovalDecided(Fact, frozen=True, tag="approval.decided"):
    """Somebody answered. Posted under the item's own key: the first answer, or the expiry, wins.

    `digest` is what they saw of the action. `via` is the way it came: `cli`, `api`, `ntfy`. `proof` is what is proven
    about who answered: `process_uid:N` is the user of the process that wrote it, `reply_code` that it came from a
    reader of the notice; `none`, or empty in logs written before, that only the name was given.
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
    """Nobody answered in time; the default was applied. Posted under the item's own key."""

    wakes = True

    item_id: str
    verdict: Verdict


class ApprovalSuperseded(Fact, frozen=True, tag="approval.superseded"):
    """An item counts no more: what it was for has changed, or the session ended."""

    item_id: str
    reason: str


class ApprovalSeen(Fact, frozen=True, tag="approval.seen"):
    """A person was shown the item. Posted once per item and person.

    From now on its default may be applied: at `expires_us`, which is the item's own, or somewhat later when
    that is past or near, so that whoever sees it last of all can still answer. The session is due then.
    `boot_id`, `booted_us`, and `up_us` say how the wall clock stood, as in `shift.started`.
    """

    item_id: str
    by: str
    expires_us: int | None = None
    boot_id: str = ""
    booted_us: int = 0
    up_us: int = 0


class NoticeSent(Fact, frozen=True, tag="notice.sent"):
    """A message about an item, or about the session, went out to a target or could not.

    `notice_id` stays the same over all tries, for the receiver to tell repeats. `round` is "first",
    "reminder" or "second". `target` is its configured name, never its address: that may hold a secret.
    `again_us` is when the next try is due, None when it arrived or was given up. `held` says that it was not
    tried yet: it is quiet there until then.
    """

    notice_id: str
    target: str
    item_id: str = ""
    round: str = ""
    ok: bool = False
    detail: str = ""
    again_us: int | None = None
    held: bool = False
