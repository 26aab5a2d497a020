"""Taint: untrusted content, private data, and egress of a session, and approvals for the use of secrets. Pure.

A session that has read untrusted content, holds private data, and has network access can be made to leak the data. The
first two cannot be undone, so the third needs an approval.
"""

from __future__ import annotations

from holdfast.facts.hands import SessionTainted
from holdfast.facts.people import ApprovalSuperseded
from holdfast.session.actions import Action, AskUse, Record
from holdfast.session.decide import waits
from holdfast.session.egress import HeldUse, SecretGrant, egress_digest, opens
from holdfast.session.fold.hands import EGRESS_GUARD
from holdfast.session.state import State

READ = "has read what strangers may have written"
PRIVATE = "holds private data"
OUTSIDE = "may talk outside"


def marks(state: State) -> tuple[str, ...]:
    """Return the marks for those of the three that apply to a session."""
    created, outside = state.created, state.outside
    private = created is not None and (
        not created.workspace.disposable or bool(outside.policy.secrets) or bool(created.environment.dotenv)
    )
    found = ((READ, bool(outside.read)), (PRIVATE, private), (OUTSIDE, opens(outside.policy)))
    return tuple(word for word, holds in found if holds)


def is_tainted(state: State) -> bool:
    """Return True if the session has read untrusted content."""
    return bool(state.outside.read)


def held_secrets(state: State, now_us: int) -> tuple[str, ...]:
    """Return the secrets that must not be used now without an approval."""
    policy = state.outside.policy
    if policy.ask == "never" or (policy.ask == "tainted" and not is_tainted(state)):
        return ()
    granted = state.outside.granted
    return tuple(use.name for use in policy.secrets if not (use.name in granted and _holds(granted[use.name], now_us)))


def _holds(grant: SecretGrant, now_us: int) -> bool:
    age_s = max(0.0, (now_us - grant.at_us) / 1e6)
    return (grant.for_s is None or age_s <= grant.for_s) and (grant.uses is None or grant.used < grant.uses)


def may_become_tainted(state: State) -> bool:
    """Return True if reading untrusted content would hold secrets that are not held now."""
    policy = state.outside.policy
    return policy.ask == "tainted" and bool(policy.secrets) and not is_tainted(state)


def next_change_us(state: State, now_us: int) -> int | None:
    """Return when the next approval of a secret expires, None for never."""
    times = [
        grant.at_us + int(grant.for_s * 1_000_000) + 1
        for grant in state.outside.granted.values()
        if grant.for_s is not None
    ]
    return min((at for at in times if at > now_us), default=None)


def wants_rewiring(state: State) -> bool:
    """Return True if the current sandbox was created without a network and the policy now has one."""
    outside = state.outside
    fresh = state.hands is not None and not outside.wired and opens(outside.policy)
    return fresh and not outside.told


def step(state: State, now_us: int) -> Action | None:
    """Record the taint, or ask about a held secret, before the work goes on; None when there is nothing to do."""
    outside = state.outside
    if outside.read and not outside.tainted_seq:
        return Record((SessionTainted(reason=outside.reason, evidence=tuple(outside.read)),))
    if state.interrupted or state.cancelled:
        return None
    return _asking(state, now_us)


def _asking(state: State, now_us: int) -> Action | None:
    outside = state.outside
    digest = egress_digest(outside.policy)
    for use in outside.held.values():
        ask = state.asks.get(use.item_id)
        if ask is None:
            return AskUse(use.secret)
        if ask.guards.get(EGRESS_GUARD) != digest:
            return _over(use, "what this session may talk to has changed since it was asked")
        if state.message_seq > ask.seq:
            return _over(use, "a person wrote instead of answering")
        return waits.wait(state, now_us, f"the use of the secret {use.secret} waits for an approval")
    return None


def _over(use: HeldUse, reason: str) -> Record:
    return Record((ApprovalSuperseded(item_id=use.item_id, reason=reason),))
