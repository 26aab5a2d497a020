"""What a state knows of the way outside, and of what came in by it."""

from __future__ import annotations

import hashlib

import msgspec

from holdfast.facts.session import EgressPolicy

EVIDENCE_MAX = 16
"""So many events that brought in strangers' words are kept as evidence; the first ones."""


class HeldUse(msgspec.Struct):
    """A use of a secret that the proxy held: the first one of it that nobody has decided on.

    `seq` is where it was recorded, `item_id` the question about it, empty while nobody was asked.
    """

    secret: str
    host: str
    port: int
    method: str
    path: str
    seq: int
    item_id: str = ""


class SecretGrant(msgspec.Struct):
    """A person allowed a secret to be used: until the policy changes, for `for_s` seconds, for `uses` requests."""

    seq: int
    at_us: int
    for_s: float | None = None
    uses: int | None = None
    used: int = 0


class Outside(msgspec.Struct):
    """The way outside (see `session.taint`).

    `policy` is in force since event `policy_seq`. `wired` says that the hands of now have a way outside; `failing` why
    the latest ones have none, and `told` that the model knows. `through` is how much of the proxy's journal is in the
    log. `read` are the events that brought in what strangers may have written, the first for `reason`; `tainted_seq` is
    where that was said. `held`, `granted` and `denied` are by name of the secret. `set_up` counts what
    set-ups asked for, by host, port, and verdict; the rest counts the requests of the session itself.
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
    """Whether a policy lets anything through: with one that does not there is no way outside at all."""
    return bool(policy.allow or policy.registries or policy.secrets)


def egress_digest(policy: EgressPolicy) -> str:
    """SHA-256 hex of a policy: what a person allowed under another one counts no more (S21)."""
    return hashlib.sha256(msgspec.json.encode(policy, order="deterministic")).hexdigest()


def outside_digest(policy: EgressPolicy) -> str:
    """What checks may talk to, as part of the key of their verdicts: empty where that is nothing."""
    aside = msgspec.structs.replace(policy, secrets=())
    return egress_digest(aside) if opens(aside) else ""
