"""The fold of what went outside and came in, and of what people said about secrets (S21)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.egress import EgressFailed, EgressRecorded, EgressSeen, SessionTainted
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalRequested, ApprovalSuperseded
from holdfast.facts.session import EgressPolicy, SessionCreated
from holdfast.session.context.notes import note_of
from holdfast.session.context.render import action_digest
from holdfast.session.context.tokens import estimate
from holdfast.session.outside import EVIDENCE_MAX, HeldUse, Outside, SecretGrant, egress_digest, opens
from holdfast.session.state import Ask, State

SET_UP_MAX = 100
"""So many places that set-ups asked for are counted; the log has all."""

EGRESS_GUARD = "egress"
"""The guard of an item about a secret: the digest of what the session may talk to."""


def began(state: State, fact: SessionCreated, event: Event) -> None:
    """A session begins; that of a tainted parent is tainted by it."""
    state.outside.policy, state.outside.policy_seq = fact.egress, event.seq
    if fact.parent is not None and fact.parent.tainted:
        read(state, event.seq, "the session that opened it had read what strangers may have written")


def changed(state: State, policy: EgressPolicy, event: Event) -> None:
    """Another policy: what people said about secrets was said of the old one."""
    outside = state.outside
    outside.policy, outside.policy_seq = policy, event.seq
    outside.granted, outside.denied, outside.told = {}, [], False
    outside.held = {name: use for name, use in outside.held.items() if use.item_id}


def forked(state: State) -> None:
    """A fork has its own way outside: the same policy, what was read, and no word of a person (S22).

    That it is tainted is said anew: its own row beside the events shows it.
    """
    origin = state.outside
    state.outside = Outside(
        policy=origin.policy,
        policy_seq=origin.policy_seq,
        read=origin.read,
        reason=origin.reason,
    )


def read(state: State, seq: int, reason: str) -> None:
    """Something came in that strangers may have written."""
    outside = state.outside
    outside.reason = outside.reason or reason
    if len(outside.read) < EVIDENCE_MAX and seq not in outside.read:
        outside.read.append(seq)


def provisioned(state: State) -> None:
    """Hands are there: with a way outside when the policy has one and it could be opened for them."""
    outside = state.outside
    outside.wired = opens(outside.policy) and not outside.failing
    outside.told = outside.told and not outside.wired
    outside.failing = ""


def use_digest(use: HeldUse) -> str:
    """The digest that binds an answer to the use of a secret."""
    value = {"secret": use.secret, "method": use.method, "host": use.host, "port": use.port, "path": use.path}
    return action_digest("use_secret", value)


def asked(state: State, fact: ApprovalRequested) -> None:
    """A person is asked about the use of a secret."""
    for use in state.outside.held.values():
        if not use.item_id and use_digest(use) == fact.action_digest:
            use.item_id = fact.item_id


def answered(state: State, ask: Ask, fact: ApprovalDecided | ApprovalExpired, event: Event) -> None:
    """A person allowed the use of a secret, or did not; the model is told. It counts for the policy they saw."""
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


def superseded(state: State, ask: Ask, fact: ApprovalSuperseded, event: Event) -> None:
    """A question about a secret counts no more: the next use of it asks again."""
    held = state.outside.held
    for name in [name for name, use in held.items() if use.item_id == ask.item_id]:
        del held[name]
        _tell(state, fact, event)


def _tell(state: State, fact: Fact, event: Event) -> None:
    state.posted(event.seq, estimate(note_of(fact)))


def _recorded(state: State, fact: EgressRecorded, event: Event) -> None:
    outside = state.outside
    if fact.set_up:  # what it brought in is said by `environment.recorded`
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
        read(state, event.seq, f"it has read from {seen.host}")
    grant = state.outside.granted.get(seen.secret)
    if grant is not None:
        grant.used += seen.count


def _held(state: State, seen: EgressSeen, event: Event) -> None:
    """The first held use of a secret is asked about; more of it wait for the same answer."""
    outside = state.outside
    bound = any(use.name == seen.secret for use in outside.policy.secrets)
    if bound and seen.secret not in outside.denied and seen.secret not in outside.held:
        outside.granted.pop(seen.secret, None)  # it was held, so what was allowed is used up
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


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    EgressRecorded: _recorded,
    EgressFailed: _failed,
    SessionTainted: _tainted,
}
