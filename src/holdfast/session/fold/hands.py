"""Fold of hands, egress, environments, workspaces, and forks (S11, S21, S22)."""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.hands import (
    EgressFailed,
    EgressRecorded,
    EgressSeen,
    EnvironmentRecorded,
    HandsHostFiles,
    HandsLost,
    HandsProvisioned,
    HandsReleased,
    HandsRestored,
    SessionTainted,
)
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSuperseded,
)
from holdfast.facts.session import EgressPolicy, Environment, SessionCreated, SessionEventsLost, SessionForked
from holdfast.facts.shift import ShiftEnded
from holdfast.session.context.notes import FORKED_CALL, note_of
from holdfast.session.context.text import action_digest, estimate
from holdfast.session.egress import EVIDENCE_MAX, HeldUse, Outside, SecretGrant, egress_digest, opens
from holdfast.session.state import Apply, Ask, ResponseItem, State
from holdfast.session.tenant import Tenant, kind_name

SET_UP_MAX = 100
"""Maximum number of set-up destinations that are counted; the log has all."""

EGRESS_GUARD = "egress"
"""Guard of an item about a secret: the digest of the egress policy."""


def egress_began(state: State, fact: SessionCreated, event: Event) -> None:
    """Begin the egress state of a session; a tainted parent taints its child."""
    state.outside.policy, state.outside.policy_seq = fact.egress, event.seq
    if fact.parent is not None and fact.parent.tainted:
        untrusted_read(state, event.seq, "the session that opened it had read what strangers may have written")


def egress_changed(state: State, policy: EgressPolicy, event: Event) -> None:
    """Change the policy, which voids the answers about secrets under the old one."""
    outside = state.outside
    outside.policy, outside.policy_seq = policy, event.seq
    outside.granted, outside.denied, outside.told = {}, [], False
    outside.held = {name: use for name, use in outside.held.items() if use.item_id}


def egress_forked(state: State) -> None:
    """Begin the egress state of a fork: the same policy and content read, no approvals (S22).

    The taint is recorded again, so that the fork's own row shows it.
    """
    origin = state.outside
    state.outside = Outside(
        policy=origin.policy,
        policy_seq=origin.policy_seq,
        read=origin.read,
        reason=origin.reason,
    )


def untrusted_read(state: State, seq: int, reason: str) -> None:
    """Record the arrival of content that may be untrusted."""
    outside = state.outside
    outside.reason = outside.reason or reason
    if len(outside.read) < EVIDENCE_MAX and seq not in outside.read:
        outside.read.append(seq)


def egress_provisioned(state: State) -> None:
    """Note new hands: they have a network if the policy allows one and the proxy could be opened for them."""
    outside = state.outside
    outside.wired = opens(outside.policy) and not outside.failing
    outside.told = outside.told and not outside.wired
    outside.failing = ""


def use_digest(use: HeldUse) -> str:
    """Return the digest that binds an answer to the use of a secret."""
    value = {"secret": use.secret, "method": use.method, "host": use.host, "port": use.port, "path": use.path}
    return action_digest("use_secret", value)


def use_asked(state: State, fact: ApprovalRequested) -> None:
    """Record that an approver is asked about the use of a secret."""
    for use in state.outside.held.values():
        if not use.item_id and use_digest(use) == fact.action_digest:
            use.item_id = fact.item_id


def use_answered(state: State, ask: Ask, fact: ApprovalDecided | ApprovalExpired, event: Event) -> None:
    """Apply an approver's answer about a secret, valid under the policy that the approver saw, and notify the model."""
    outside = state.outside
    del state.asks[ask.item_id]
    use = next((each for each in outside.held.values() if each.item_id == ask.item_id), None)
    if use is None:
        return
    del outside.held[use.secret]
    if ask.guards.get(EGRESS_GUARD) == egress_digest(outside.policy):
        if fact.verdict == "approve":
            grant = fact.grant if isinstance(fact, ApprovalDecided) else None
            for_s, uses = (grant.for_s, grant.uses) if grant is not None else (None, None)
            outside.granted[use.secret] = SecretGrant(event.seq, event.at_us, for_s, uses)
        elif use.secret not in outside.denied:
            outside.denied.append(use.secret)
    _tell(state, fact, event)


def use_superseded(state: State, ask: Ask, fact: ApprovalSuperseded, event: Event) -> None:
    """Supersede an item about a secret: its next use asks again."""
    held = state.outside.held
    for name in [name for name, use in held.items() if use.item_id == ask.item_id]:
        del held[name]
        _tell(state, fact, event)


def _tell(state: State, fact: Fact, event: Event) -> None:
    state.posted(event.seq, estimate(note_of(fact)))


def _recorded(state: State, fact: EgressRecorded, event: Event) -> None:
    outside = state.outside
    if fact.set_up:  # `environment.recorded` has the content that it brought in
        for seen in fact.seen:
            place = f"{seen.host}:{seen.port} {seen.verdict}"
            if place in outside.set_up or len(outside.set_up) < SET_UP_MAX:
                outside.set_up[place] = outside.set_up.get(place, 0) + seen.count
        return
    outside.through = fact.through
    outside.dropped += fact.dropped
    for seen in fact.seen:
        outside.sent += seen.sent
        outside.received += seen.received
        match seen.verdict:
            case "allowed":
                outside.allowed_count += seen.count
                _allowed(state, seen, event)
            case "refused":
                outside.refused_count += seen.count
            case "held":
                outside.held_count += seen.count
                _held(state, seen, event)


def _allowed(state: State, seen: EgressSeen, event: Event) -> None:
    if not seen.registry:
        untrusted_read(state, event.seq, f"it has read from {seen.host}")
    grant = state.outside.granted.get(seen.secret)
    if grant is not None:
        grant.used += seen.count


def _held(state: State, seen: EgressSeen, event: Event) -> None:
    """Keep the first held use of a secret for an approver; later uses wait for the same answer."""
    outside = state.outside
    bound = any(use.name == seen.secret for use in outside.policy.secrets)
    if bound and seen.secret not in outside.denied and seen.secret not in outside.held:
        outside.granted.pop(seen.secret, None)  # it was held, so the approval is used up
        outside.held[seen.secret] = HeldUse(seen.secret, seen.host, seen.port, seen.method, seen.path, event.seq)


def _failed(state: State, fact: EgressFailed, event: Event) -> None:
    outside = state.outside
    if state.hands is None:
        outside.failing = fact.reason or "it could not be opened"
    if not outside.told:
        outside.told = True
        _tell(state, fact, event)


def _tainted(state: State, fact: SessionTainted, event: Event) -> None:
    state.outside.tainted_seq = event.seq


def _provisioned(state: State, fact: HandsProvisioned, event: Event) -> None:
    state.hands = fact
    state.hands_known[fact.hands_id] = fact
    state.workspace_with = ""
    state.had_hands, state.work_home = True, state.home_id
    egress_provisioned(state)


def _gone(state: State, fact: HandsLost | HandsReleased, event: Event) -> None:
    """Remove hands. Lost ones may still hold the workspace; released ones have brought it back."""
    if state.hands is not None and state.hands.hands_id == fact.hands_id:
        state.hands = None
    known = state.hands_known.get(fact.hands_id)
    if isinstance(fact, HandsReleased):
        state.hands_known.pop(fact.hands_id, None)
        state.workspace_with = "" if state.workspace_with == fact.hands_id else state.workspace_with
    elif known is not None and known.holds_workspace:
        state.workspace_with = fact.hands_id


def _restored(state: State, fact: HandsRestored, event: Event) -> None:
    """Fold a restored, earlier workspace: earlier reads are void (S18), and the model is notified."""
    state.snapshot_seq, state.snapshot_error = event.seq, ""
    state.snapshot = fact.snapshot or state.snapshot
    state.seen = {}
    state.posted(event.seq, estimate(note_of(fact)))


def _host_files(state: State, fact: HandsHostFiles, event: Event) -> None:
    state.host_files = {**state.host_files, **dict.fromkeys((file.path for file in fact.files), not fact.before)}


def _events_lost(state: State, fact: SessionEventsLost, event: Event) -> None:
    """Fold events lost with a user's consent. Undispatched calls may have been dispatched, files may have changed
    (S18), and the hands may know later calls by ids that will be used again (S8): they get no further calls.
    """
    state.stirred()
    state.seen = {}
    if fact.workspace and state.created is not None:
        workspace = msgspec.structs.replace(state.created.workspace, path=fact.workspace)
        state.created = msgspec.structs.replace(state.created, workspace=workspace)
    for call in state.open_calls():
        call.lost = not call.attempt and not call.problem and call.where != "harness" and call.on_unknown != "retry"
    if state.hands is not None:
        _gone(state, HandsLost(hands_id=state.hands.hands_id, reason=""), event)
    state.posted(event.seq, estimate(note_of(fact)))


def required(policy: Environment) -> bool:
    """Return True if work must not begin without the environment: the policy names a part of it."""
    return any(
        getattr(policy, name)
        for name in ("setup", "packages", "toolchains", "services", "recipes", "dotenv", "submodules", "lfs")
    )


def forget_failures(state: State) -> None:
    """Retry a failed environment after a message from a user."""
    state.environment_failed = state.environment_error = ""


def _environment_recorded(state: State, fact: EnvironmentRecorded, event: Event) -> None:
    """Notify the model about a changed environment, or about one that failed and is left out."""
    for seen in fact.seen:
        if seen.verdict == "allowed" and not seen.registry:
            untrusted_read(state, event.seq, f"what stands ready for it was made with what {seen.host} sent")
    if fact.error:
        stops = state.created is not None and required(state.created.environment)
        state.environment_error = fact.error if stops else ""
        state.environment_failed = "" if stops else fact.digest
    else:
        forget_failures(state)
    if not state.environment_error and (fact.error or fact.digest != state.environment):
        state.posted(event.seq, estimate(note_of(fact)))
    state.environment = "" if fact.error else fact.digest


RESTING = ShiftEnded(status="parked", reason="person", detail="a fork; it continues after a message or a wake")
"""Initial state of a fork: it does not run by itself."""

MADE_ANEW = frozenset(
    "session_id seq at_us hash epoch fence created limits owner ended tenant".split()
    + "snapshot_seq snapshot_error snapshot outside failing".split()
)
"""State that belongs to the fork itself from its first event on."""

CARRIED = frozenset(
    "created_us window window_tokens pending unseen calls seen context trace responses summaries handoffs rule_uses "
    "message_seq providers mutated_seq set_back boot_id booted_us clock_seq".split()
)
"""State that a fork inherits. Bounded times and uses of rules keep counting: a fork renews no permission."""

NOT_CARRIED = frozenset(
    "request failure tries attempts hands hands_known in_shift interrupted cancelled paused stop_seq usage cost_pico "
    "unpriced spend asks grants notices children jobs services failed_calls breaker environment environment_failed "
    "environment_error workspace_with home_id work_home had_hands host_files uncounted".split()
)
"""State that a fork resets: running work, reservations and spend, answers of users, and children of the origin."""


def _forked(state: State, fact: SessionForked, event: Event) -> None:
    """Begin a fork at its origin's state; the origin's open work is not the fork's."""
    assert state.created is not None
    limits = msgspec.structs.replace(state.limits, budget_pico=fact.budget_pico)
    state.created = msgspec.structs.replace(
        state.created, workspace=fact.workspace, accounts=fact.accounts, limits=limits, key=fact.key, parent=None
    )
    state.created = msgspec.structs.replace(state.created, mission=None, role=None, duty=None, firing=None)
    state.limits, state.owner = limits, fact.owner
    kind = state.tenant.kinds(kind_name(state.created))
    state.tenant = Tenant(state.tenant.kinds, kind, kind.began(state.created))
    _end_calls(state, event)
    fresh = State(session_id=state.session_id)
    for name in NOT_CARRIED:
        setattr(state, name, getattr(fresh, name))
    state.ended = RESTING
    state.snapshot_seq, state.snapshot_error, state.snapshot = event.seq, "", fact.snapshot
    state.clear_signs()
    egress_forked(state)
    state.posted(event.seq, estimate(note_of(fact)))


def _end_calls(state: State, event: Event) -> None:
    opened = state.open_calls()
    if not opened:
        return
    item = state.window[-1]
    assert isinstance(item, ResponseItem)
    tokens = estimate(FORKED_CALL)
    for call in opened:
        call.end = "cancelled"
        item.results[state.calls.index(call)] = event.seq
        item.tokens += tokens
        item.tool_tokens += tokens
        state.window_tokens += tokens
        state.context.tool_tokens += tokens
    state.unseen = True


APPLY: dict[type[Fact], Apply] = {
    EgressRecorded: _recorded,
    EgressFailed: _failed,
    SessionTainted: _tainted,
    HandsProvisioned: _provisioned,
    HandsLost: _gone,
    HandsReleased: _gone,
    HandsRestored: _restored,
    HandsHostFiles: _host_files,
    SessionEventsLost: _events_lost,
    EnvironmentRecorded: _environment_recorded,
    SessionForked: _forked,
}
