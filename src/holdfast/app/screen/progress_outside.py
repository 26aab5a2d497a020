"""Events of the way outside, of hands and of what stood ready, as short lines for people; and how a session stands."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.facts.base import Fact
from holdfast.facts.hands import (
    EgressFailed,
    EgressRecorded,
    EgressSeen,
    EnvironmentRecorded,
    HandsHostFiles,
    HandsProvisioned,
    HandsRestored,
    SessionTainted,
)
from holdfast.facts.session import EgressPolicy
from holdfast.session.decide.taint import marks
from holdfast.session.egress import opens
from holdfast.session.rows import is_weak
from holdfast.session.state import State

HOSTS_SHOWN = 3

WEAK = "WEAK ISOLATION"
NONE = "NOT SANDBOXED"


def about_outside(fact: Fact) -> str:
    """What happened, empty for what is about none of these."""
    match fact:
        case HandsProvisioned() as hands:
            weak = weakness(hands)
            return f"hands ready ({hands.provider}){': ' + weak if weak else ''}"
        case HandsRestored(through_seq=through, unkept=unkept):
            lost = f"; {len(unkept)} {'call' if len(unkept) == 1 else 'calls'} after that are gone" if unkept else ""
            return f"new hands have the files as after event {through}{lost}"
        case HandsHostFiles() as found:
            return host_files_line(found)
        case EgressRecorded() as record:
            return f"{'set-up, outside' if record.set_up else 'outside'}: {_counts(record)}"
        case EgressFailed(reason=reason):
            return f"no way outside: {' '.join(reason.split())}"
        case SessionTainted(reason=reason):
            return f"tainted: {' '.join(reason.split())}"
        case EnvironmentRecorded() as record:
            return environment_line(record)
        case _:
            return ""


def host_files_line(found: HandsHostFiles) -> str:
    """What programs of the host would run, in a line."""
    named = [f"{_shown(file.path)} ({file.kind})" for file in found.files[:HOSTS_SHOWN]]
    rest = len(found.files) - HOSTS_SHOWN
    named += [f"{rest} more"] if rest > 0 else []
    named += ["not everything was looked at"] if found.cut else []
    word = "can run code on this machine, read-only inside" if found.before else "NEW, can run code on this machine"
    return f"{word}: {', '.join(named)}"


def _shown(path: str) -> str:
    """A path that an agent chose, on one line, with nothing in it that a terminal does not show."""
    return (path if path.isprintable() else ascii(path))[:80]


def weakness(hands: HandsProvisioned) -> str:
    """How hands are less than sandboxed, loudly; empty when they are."""
    if not is_weak(hands):
        return ""
    word = NONE if hands.isolation.get("files", "none") == "none" else WEAK
    return f"{word}{': ' + ' '.join(hands.weak.split()) if hands.weak else ''}"


def _counts(record: EgressRecorded) -> str:
    """Requests by what became of them, what was stopped with its host first."""
    parts = []
    for verdict in ("held", "refused", "allowed"):
        mine = [seen for seen in record.seen if seen.verdict == verdict]
        if mine:
            hosts = _hosts(mine)
            parts.append(f"{sum(seen.count for seen in mine)} {verdict} ({hosts})")
    if record.dropped:
        parts.append(f"{record.dropped} more")
    return ", ".join(parts) or "nothing"


def _hosts(seen: Sequence[EgressSeen]) -> str:
    named = list(dict.fromkeys(f"{each.host}{'' if each.port == 443 else f':{each.port}'}" for each in seen))
    more = f" and {len(named) - HOSTS_SHOWN} more" if len(named) > HOSTS_SHOWN else ""
    return ", ".join(named[:HOSTS_SHOWN]) + more


def environment_line(record: EnvironmentRecorded) -> str:
    """What stood ready, or why it did not."""
    if record.error:
        return f"no environment: {' '.join(record.error.split())}"
    if not record.digest:
        return "no environment is wanted"
    how = "found as it was made before" if record.cached else f"made in {record.duration_ms / 1000:.1f} s"
    what = f", {len(record.packages)} packages" if record.packages else ""
    return f"environment {record.digest[:12]} {how}{what}"


# --- how a session stands ---------------------------------------------------------------------------


UNWALLED = "whatever its user can reach: there is no sandbox, and no policy holds"


def is_unwalled(state: State) -> bool:
    """Whether the session runs without a sandbox, so that nothing bounds where its commands talk to."""
    return state.created is not None and state.created.workspace.isolation == "none"


def policy_line(policy: EgressPolicy) -> str:
    """Where a session may talk to, in a line."""
    if not opens(policy):
        return "nothing is allowed"
    parts = [place.host for place in policy.allow[:HOSTS_SHOWN]]
    if len(policy.allow) > HOSTS_SHOWN:
        parts.append(f"{len(policy.allow) - HOSTS_SHOWN} more hosts")
    if policy.registries:
        parts.append("package registries")
    parts += [f"{', '.join(use.hosts)} with the secret {use.name}" for use in policy.secrets[:HOSTS_SHOWN]]
    return "; ".join(parts)


def outside_lines(state: State) -> dict[str, str]:
    """The lines of `show` about the way outside and what came in by it."""
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
        lines["tainted"] = f"yes: {outside.reason} (event {events}); it {_and(marks(state))}"
    made = sorted(path for path, new in state.host_files.items() if new)
    if made:
        shown = ", ".join(_shown(path) for path in made[:HOSTS_SHOWN])
        more = f" and {len(made) - HOSTS_SHOWN} more" if len(made) > HOSTS_SHOWN else ""
        lines["look before use"] = f"the sandbox made files that can run code on this machine: {shown}{more}"
    if outside.granted:
        lines["allowed"] = "the use of " + ", ".join(outside.granted)
    if outside.denied:
        lines["denied"] = "the use of " + ", ".join(outside.denied)
    return lines


def _and(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def outside_details(state: State) -> dict[str, object]:
    """The same for scripts."""
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
    """What a person should see of a session wherever it is shown, in a word or two each."""
    found = []
    hands, created = state.hands, state.created
    if hands is not None and is_weak(hands):
        found.append(NONE if hands.isolation.get("files", "none") == "none" else WEAK)
    elif hands is None and created is not None and created.workspace.isolation == "none":
        found.append(NONE)
    if state.outside.read:
        found.append("tainted")
    return found
