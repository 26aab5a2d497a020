"""Egress of a session: the policy in force, its traffic, and the secrets held back."""

from __future__ import annotations

import hashlib

import msgspec

from holdfast.facts.session import EgressPolicy

EVIDENCE_MAX = 16
"""Number of events kept as evidence of untrusted content; the first ones."""


class HeldUse(msgspec.Struct):
    """First use of a secret that the proxy held, without a decision yet.

    `seq` is where it was recorded, `item_id` its inbox item, empty before an approver is asked.
    """

    secret: str
    host: str
    port: int
    method: str
    path: str
    seq: int
    item_id: str = ""


class SecretGrant(msgspec.Struct):
    """Approval to use a secret: until the policy changes, for `for_s` seconds, for `uses` requests."""

    seq: int
    at_us: int
    for_s: float | None = None
    uses: int | None = None
    used: int = 0


class Outside(msgspec.Struct):
    """Egress state of a session.

    `policy` is in force since event `policy_seq`. `wired` means that the current sandbox has a network; `failing` is
    why the latest has none, and `told` that the model knows. `through` is the last position of the proxy's journal that
    the log has. `read` are the events that brought in untrusted content, the first for `reason`; `tainted_seq` is the
    event that recorded it. `held`, `granted`, and `denied` are by name of the secret. `set_up` counts the requests of
    set-ups by host, port, and verdict; the other counts are the session's own.
    """

    policy: EgressPolicy = EgressPolicy()
    policy_seq: int = 0
    wired: bool = False
    failing: str = ""
    told: bool = False
    through: int = 0
    read: list[int] = []
    reason: str = ""
    tainted_seq: int = 0
    held: dict[str, HeldUse] = {}
    granted: dict[str, SecretGrant] = {}
    denied: list[str] = []
    allowed_count: int = 0
    refused_count: int = 0
    held_count: int = 0
    sent: int = 0
    received: int = 0
    dropped: int = 0
    set_up: dict[str, int] = {}


def opens(policy: EgressPolicy) -> bool:
    """Return True if a policy allows anything. Otherwise there is no network at all."""
    return bool(policy.allow or policy.registries or policy.secrets)


def egress_digest(policy: EgressPolicy) -> str:
    """Return the SHA-256 of a policy. An approval under another policy is void (S21)."""
    return hashlib.sha256(msgspec.json.encode(policy, order="deterministic")).hexdigest()


def outside_digest(policy: EgressPolicy) -> str:
    """Return the part of a verdict's key for the hosts that checks may reach; empty for none."""
    aside = msgspec.structs.replace(policy, secrets=())
    return egress_digest(aside) if opens(aside) else ""
