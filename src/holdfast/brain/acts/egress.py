"""Egress proxy of a session: opened before its hands, kept at the policy in force, its journal copied to the log."""

from __future__ import annotations

import anyio
import msgspec

from holdfast.brain.shift import Shift, alongside
from holdfast.egress.base import Egress, Notes
from holdfast.errors import EgressUnavailable, SecretUnavailable
from holdfast.facts.hands import EgressFailed, EgressRecorded, EgressSeen
from holdfast.facts.session import Workspace
from holdfast.facts.shift import ShiftEnded
from holdfast.hands.base import Network
from holdfast.session.decide.taint import held_secrets, may_become_tainted, next_change_us
from holdfast.session.egress import egress_digest, opens

KINDS_MAX = 64
"""Maximum kinds of requests in one event; beyond it, kinds that need no reaction are only counted."""

LOOK_US = 1_000_000
"""Polling interval of the journal while a call runs that could read untrusted content and then use a secret."""

PATH_MAX = 200
"""Maximum recorded characters of a path."""

_ORDER = {"held": 0, "refused": 1, "allowed": 2}


async def network(shift: Shift, aside: Workspace | None = None) -> Network | None:
    """Return the network of hands about to be created; None if the policy allows nothing.

    If the proxy cannot be opened, that is recorded and the hands start without a network. Hands on a checkout `aside`,
    which run checks, get no secrets.
    """
    created, policy = shift.state.created, shift.state.outside.policy
    assert created is not None
    if aside is not None:
        policy = msgspec.structs.replace(policy, secrets=())
    workspace = aside or created.workspace
    if not opens(policy) or workspace.isolation == "none":
        return None
    held, wary = held_secrets(shift.state, shift.doors.clock.now_us()), may_become_tainted(shift.state)
    try:
        if shift.doors.egress is None:
            raise EgressUnavailable("this program was made without one")
        uid = shift.doors.uid(workspace)
        gateway = await shift.doors.egress.open(shift.state.session_id, policy, uid=uid, held=held, wary=wary)
    except (EgressUnavailable, SecretUnavailable) as error:
        if shift.state.hands is None or not shift.state.outside.told:
            await shift.fact(EgressFailed(reason=str(error)))
        return None
    shift.pushed = (egress_digest(policy), held, wary)
    return Network(gateway.socket, gateway.port, gateway.env, gateway.files)


def _used(shift: Shift) -> Egress | None:
    """Return the egress door if this session uses it."""
    outside = shift.state.outside
    return shift.doors.egress if outside.wired or outside.through or opens(outside.policy) else None


async def resume(shift: Shift) -> None:
    """At the start of a shift, record the traffic since the last one and run a current proxy for live hands."""
    if _used(shift) is None:
        return
    await record(shift)
    await ready(shift)


async def ready(shift: Shift) -> None:
    """Before a call, ensure that the proxy runs with the policy in force. One that exited when idle is restarted."""
    if shift.state.hands is not None and shift.state.outside.wired and _used(shift) is not None:
        await network(shift)


async def record(shift: Shift, *, if_read: bool = False) -> None:
    """Copy the proxy's journal to the log; with `if_read`, only if it may include untrusted content."""
    egress = _used(shift)
    if egress is None:
        return
    async with shift.noting:
        after = shift.state.outside.through
        notes = await egress.notes(shift.state.session_id, after)
        read = any(seen.verdict == "allowed" and not seen.registry for seen in notes.seen)
        if notes.through > after and (read or not if_read):
            await shift.fact(recorded(notes))


def recorded(notes: Notes) -> EgressRecorded:
    """Return the event for journal entries: bounded, held requests first."""
    kinds: dict[EgressSeen, EgressSeen] = {}
    for seen in notes.seen:
        short = msgspec.structs.replace(seen, path=seen.path[:PATH_MAX])
        kind = msgspec.structs.replace(short, count=1, sent=0, received=0)
        before = kinds.get(kind)
        kinds[kind] = short if before is None else added(before, short)
    ordered = sorted(kinds.values(), key=lambda seen: (_ORDER[seen.verdict], -seen.count))
    over = sum(seen.count for seen in ordered[KINDS_MAX:])
    return EgressRecorded(through=notes.through, seen=tuple(ordered[:KINDS_MAX]), dropped=notes.dropped + over)


def added(one: EgressSeen, other: EgressSeen) -> EgressSeen:
    """Return `one` with the requests and sizes of `other` added."""
    return msgspec.structs.replace(
        one, count=one.count + other.count, sent=one.sent + other.sent, received=one.received + other.received
    )


async def push(shift: Shift) -> None:
    """Send the configuration in force to the running proxy if it has changed."""
    egress, state = _used(shift), shift.state
    if egress is None or not state.outside.wired:
        return
    held, wary = held_secrets(state, shift.doors.clock.now_us()), may_become_tainted(state)
    wanted = (egress_digest(state.outside.policy), held, wary)
    if wanted != shift.pushed:
        shift.pushed = wanted
        await egress.change(state.session_id, state.outside.policy, held=held, wary=wary)


async def keep_pushed(shift: Shift) -> None:
    """Until cancelled, apply policy changes and expiries to running calls too.

    When a call reads untrusted content, the proxy holds all secrets at once by itself; the log records it within about
    a second.
    """
    if _used(shift) is None:
        return
    while True:
        await push(shift)
        now_us = shift.doors.clock.now_us()
        at_us = next_change_us(shift.state, now_us)
        if may_become_tainted(shift.state):
            at_us = min(at_us or now_us + LOOK_US, now_us + LOOK_US)
        await _something(shift, at_us)
        await shift.refresh()
        if may_become_tainted(shift.state):
            await record(shift, if_read=True)


async def _something(shift: Shift, at_us: int | None) -> None:
    """Wait for an event, or until `at_us`."""
    log, seq = shift.doors.log, shift.state.seq
    if at_us is None:
        await log.wait(shift.state.session_id, seq)
        return
    scope = anyio.CancelScope()
    seconds = max(0.0, (at_us - shift.doors.clock.now_us()) / 1_000_000)

    async def sleep() -> None:
        with scope:
            await shift.doors.clock.sleep(seconds)

    async def watch() -> None:
        await log.wait(shift.state.session_id, seq)
        scope.cancel()

    await alongside(sleep, watch)


async def finish(shift: Shift, ended: ShiftEnded) -> bool:
    """At the end of a shift, stop the proxy and record its last entries. Returns True if there were any: decide again.

    Hands that run without a brain keep their proxy. The next brain to wake records its journal, which may still grow.
    """
    egress, session_id = _used(shift), shift.state.session_id
    if egress is None or shift.state.hands is not None:
        return False
    head = shift.state.seq
    await egress.close(session_id)
    shift.pushed = None
    await record(shift)
    if shift.state.seq != head:
        return True
    if ended.status == "cancelled":
        await egress.forget(session_id)
    return False
