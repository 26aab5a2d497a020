"""Isolation and network access of a session, as lines for users and as data."""

from __future__ import annotations

from holdfast.facts.hands import HandsHostFiles, HandsProvisioned
from holdfast.facts.session import EgressPolicy
from holdfast.session.decide.taint import marks
from holdfast.session.egress import opens
from holdfast.session.rows import is_weak
from holdfast.session.state import State

HOSTS_SHOWN = 3

WEAK = "WEAK ISOLATION"
NONE = "NOT SANDBOXED"


def weakness(hands: HandsProvisioned) -> str:
    """A warning about weak isolation of hands; empty if the isolation is full."""
    if not is_weak(hands):
        return ""
    word = NONE if hands.isolation.get("files", "none") == "none" else WEAK
    return f"{word}{': ' + ' '.join(hands.weak.split()) if hands.weak else ''}"


def host_files_line(found: HandsHostFiles) -> str:
    """The files in the workspace that programs on the host would execute."""
    named = [f"{shown_path(file.path)} ({file.kind})" for file in found.files[:HOSTS_SHOWN]]
    rest = len(found.files) - HOSTS_SHOWN
    named += [f"{rest} more"] if rest > 0 else []
    named += ["the scan was cut short"] if found.cut else []
    word = "can run code on this machine, read-only inside" if found.before else "NEW, can run code on this machine"
    return f"{word}: {', '.join(named)}"


def shown_path(path: str) -> str:
    """A path chosen by an agent, on one line, with unprintable characters escaped."""
    return (path if path.isprintable() else ascii(path))[:80]


def policy_line(policy: EgressPolicy) -> str:
    """The destinations that an egress policy allows."""
    if not opens(policy):
        return "nothing is allowed"
    parts = [place.host for place in policy.allow[:HOSTS_SHOWN]]
    if len(policy.allow) > HOSTS_SHOWN:
        parts.append(f"{len(policy.allow) - HOSTS_SHOWN} more hosts")
    if policy.registries:
        parts.append("package registries")
    parts += [f"{', '.join(use.hosts)} with the secret {use.name}" for use in policy.secrets[:HOSTS_SHOWN]]
    return "; ".join(parts)


UNWALLED = "whatever its user can reach: there is no sandbox, and no policy holds"


def is_unwalled(state: State) -> bool:
    """True if the session runs without a sandbox, so that no policy limits its network access."""
    return state.created is not None and state.created.workspace.isolation == "none"


def outside_lines(state: State) -> dict[str, str]:
    """The lines of `show` about network access and taint."""
    outside = state.outside
    lines = {"outside": UNWALLED if is_unwalled(state) else policy_line(outside.policy)}
    used = outside.allowed_count + outside.refused_count + outside.held_count + outside.dropped
    if used:
        counts = f"{outside.allowed_count} allowed, {outside.refused_count} refused, {outside.held_count} held"
        sizes = f"{outside.sent} bytes sent, {outside.received} received"
        lines["requests"] = f"{counts}; {sizes}"
    if outside.set_up:
        lines["set-up"] = "asked for " + ", ".join(f"{place} × {count}" for place, count in outside.set_up.items())
    if outside.told:
        lines["outside"] += "; there was no way outside when it was last tried"
    if outside.read:
        events = ", ".join(map(str, outside.read[:5])) + (" …" if len(outside.read) > 5 else "")
        *first, last = marks(state)
        and_ = f"{', '.join(first)} and {last}" if first else last
        lines["tainted"] = f"yes: {outside.reason} (event {events}); it {and_}"
    made = sorted(path for path, new in state.host_files.items() if new)
    if made:
        shown = ", ".join(shown_path(path) for path in made[:HOSTS_SHOWN])
        more = f" and {len(made) - HOSTS_SHOWN} more" if len(made) > HOSTS_SHOWN else ""
        lines["look before use"] = f"the sandbox made files that can run code on this machine: {shown}{more}"
    if outside.granted:
        lines["allowed"] = "the use of " + ", ".join(outside.granted)
    if outside.denied:
        lines["denied"] = "the use of " + ", ".join(outside.denied)
    return lines


def outside_details(state: State) -> dict[str, object]:
    """The same content as data."""
    outside, hands = state.outside, state.hands
    return {
        "taint": {"tainted": bool(outside.read), "events": list(outside.read), "marks": list(marks(state))},
        "host_files": [path for path, new in sorted(state.host_files.items()) if new],
        "weak": bool(hands is not None and is_weak(hands)),
        "weak_reason": hands.weak if hands is not None else "",
        "environment": hands.environment if hands is not None else "",
        "egress": {
            "open": opens(outside.policy),
            "allowed": outside.allowed_count,
            "refused": outside.refused_count,
            "held": outside.held_count,
            "sent_bytes": outside.sent,
            "received_bytes": outside.received,
            "set_up": dict(outside.set_up),
            "granted": list(outside.granted),
            "denied": list(outside.denied),
        },
    }


def warnings(state: State) -> list[str]:
    """Warnings that every view of a session shows, one or two words each."""
    found = []
    hands, created = state.hands, state.created
    if hands is not None and is_weak(hands):
        found.append(NONE if hands.isolation.get("files", "none") == "none" else WEAK)
    elif hands is None and created is not None and created.workspace.isolation == "none":
        found.append(NONE)
    if state.outside.read:
        found.append("tainted")
    return found
