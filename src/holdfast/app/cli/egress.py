"""`holdfast egress`: show the network access and activity of a session, and change its access while it runs."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.app.call import SESSION, Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of
from holdfast.app.running.family import workspace_of
from holdfast.app.settings.egress_policy import secret_uses
from holdfast.app.settings.tables import named_destination
from holdfast.app.settings.values import nearest, size_text
from holdfast.brain.recall import recall
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.errors import EgressUnavailable, EmergencyStop, LeaseHeld, SecretUnavailable, UsageError
from holdfast.facts.hands import EgressRecorded, EgressSeen
from holdfast.facts.session import Destination, EgressPolicy, SecretUse, SessionUpdated
from holdfast.service.access_lines import UNWALLED, is_unwalled
from holdfast.service.events import events
from holdfast.session.decide.taint import held_secrets, is_tainted, marks, may_become_tainted
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

SHOWN = 20
"""Maximum number of request kinds in the output; the latest are shown."""


def egress_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `egress`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    for flag, what in (("allow", "Allow this host over TLS"), ("deny", "Deny this host (repeatable)")):
        parser.add_argument(f"--{flag}", metavar="HOST[:PORT]", action="append", default=[], help=what)
    parser.add_argument("--registries", choices=("on", "off"), help="Allow or deny package registries")
    parser.add_argument("--secret", metavar="NAME", action="append", default=[], help="Allow the use of this secret")
    parser.add_argument(
        "--no-secret", metavar="NAME", action="append", default=[], help="Revoke the use of this secret"
    )
    parser.add_argument("--no-wake", action="store_true", help="Do not wake the session")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def egress_run(call: Call) -> int:
    """Apply the changes, all or none, and show the resulting access."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        if row.session_id == HOME:
            raise UsageError(
                f"{HOME} is the log of the home itself and runs nothing; `holdfast ps --all` lists sessions"
            )
        state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
        policy = state.outside.policy
        wanted = changed(call, policy)
        if wanted != policy:
            await runtime.intake.update(row, SessionUpdated(egress=wanted))
            state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
            held, wary = held_secrets(state, SystemClock().now_us()), may_become_tainted(state)
            try:  # a live proxy has to apply it even when no brain runs
                await runtime.egress.change(row.session_id, state.outside.policy, held=held, wary=wary)
            except (EgressUnavailable, SecretUnavailable) as error:
                call.note(f"the change is in the log, but its proxy did not receive it: {error}")
        await _show(call, runtime, row, state)
        if wanted != policy:
            call.note(await _next(call, runtime, row))
        return 0


async def _next(call: Call, runtime: Runtime, row: SessionRow) -> str:
    """Record in a session that was done that it still is, so that no list shows it as due; else see to its wake."""
    if row.status != "done":
        return await see_to(call, runtime, row.session_id, start=not call.args.no_wake)
    with suppress(LeaseHeld, EmergencyStop):
        await wake(row.session_id, runtime.doors(await workspace_of(runtime, row)))
    say = call.typed("send", name_of(row), "your words")
    return f"{name_of(row)} is done; the change counts when it goes on: `{say}`"


def changed(call: Call, policy: EgressPolicy) -> EgressPolicy:
    """The policy after the changes on the command line. Raises `UsageError` when there is nothing to remove."""
    args = call.args
    allow, secrets = list(policy.allow), list(policy.secrets)
    for text in args.deny:
        allow, secrets = _without(text, allow, secrets)
    for text in args.allow:
        place = named_destination(text)
        if not any(place.host == each.host and set(place.ports) <= set(each.ports) for each in allow):
            allow.append(place)
    known = {use.name: use for use in secret_uses(call.settings)} if args.secret else {}
    for name in args.secret:
        if name not in known:
            meant = nearest(name, known) if known else "there is no [secrets.NAME] table in your own holdfast.toml yet"
            raise UsageError(f"there is no secret {name!r}; {meant}")
        secrets = [use for use in secrets if use.name != name] + [known[name]]
    for name in args.no_secret:
        if all(use.name != name for use in secrets):
            raise UsageError(f"the session does not use a secret {name!r}; `holdfast egress ID` shows what it may use")
        secrets = [use for use in secrets if use.name != name]
    registries = policy.registries if args.registries is None else args.registries == "on"
    return msgspec.structs.replace(policy, allow=tuple(allow), secrets=tuple(secrets), registries=registries)


def _without(
    text: str, allow: list[Destination], secrets: list[SecretUse]
) -> tuple[list[Destination], list[SecretUse]]:
    """Remove one port of a host, or the whole host together with the secrets bound to it."""
    place = named_destination(text)
    whole = len(place.ports) == 1 and not text.endswith(f":{place.ports[0]}")
    left = []
    for each in allow:
        ports = () if whole else tuple(port for port in each.ports if port not in place.ports)
        if each.host != place.host:
            left.append(each)
        elif ports:
            left.append(msgspec.structs.replace(each, ports=ports))
    unbound = secrets
    if whole:
        unbound = [
            msgspec.structs.replace(use, hosts=hosts)
            for use in secrets
            if (hosts := tuple(host for host in use.hosts if host != place.host))
        ]
    if left == allow and unbound == secrets:
        raise UsageError(
            f"--deny {text}: the session may not talk to it anyway; `holdfast egress ID` shows what it may"
        )
    return left, unbound


def _unbound(use: SecretUse, host: str) -> SecretUse | None:
    hosts = tuple(each for each in use.hosts if each != host)
    return msgspec.structs.replace(use, hosts=hosts) if hosts else None


# --- showing ---------------------------------------------------------------------------------------


async def _show(call: Call, runtime: Runtime, row: SessionRow, state: State) -> None:
    outside, policy = state.outside, state.outside.policy
    seen = await _seen(runtime, row, state)
    if call.json:
        call.emit(
            {
                "session_id": row.session_id,
                "policy": msgspec.to_builtins(policy),
                "open": outside.wired,
                "failing": outside.failing or None,
                "marks": list(marks(state)),
                "tainted": is_tainted(state),
                "held_secrets": list(held_secrets(state, SystemClock().now_us())),
                "allowed": outside.allowed_count,
                "refused": outside.refused_count,
                "held": outside.held_count,
                "sent_bytes": outside.sent,
                "received_bytes": outside.received,
                "dropped": outside.dropped,
                "seen": [msgspec.to_builtins(each) for each in seen],
            }
        )
        return
    if is_unwalled(state):
        call.note(f"it may talk to {UNWALLED}")
    for line in _allowed(policy):
        call.say(line)
    if outside.failing:
        call.say(f"there is no way outside now: {outside.failing}")
    if is_tainted(state):
        call.say(f"it {', '.join(marks(state))}: {outside.reason}")
    call.say(
        f"{outside.allowed_count} requests allowed, {outside.refused_count} refused, {outside.held_count} held; "
        f"{size_text(outside.sent)} sent, {size_text(outside.received)} received"
    )
    for each in seen[-SHOWN:]:
        call.say(f"  {_line(each)}")
    if not policy.allow and not policy.registries and not policy.secrets:
        call.note(f"let it talk to a host: {call.typed('egress', name_of(row), '--allow', 'api.example.com')}")


def _allowed(policy: EgressPolicy) -> list[str]:
    lines = [f"may talk to  {_place(each)}" for each in policy.allow]
    if policy.registries:
        lines.append("may talk to  the package registries of this machine's own tools")
    for use in policy.secrets:
        bounds = _bounds(use, "methods", "paths", "headers", "push")
        tail = f"  ({'; '.join(bounds)})" if bounds else ""
        lines.append(f"may use      the secret {use.name} for {', '.join(use.hosts)}{tail}")
    return lines or ["may talk to  nothing outside"]


def _bounds(each: Destination | SecretUse, *names: str) -> list[str]:
    return [f"{name} {', '.join(values)}" for name in names if (values := getattr(each, name))]


def _place(each: Destination) -> str:
    host = f"[{each.host}]" if ":" in each.host else each.host
    bounds = _bounds(each, "methods", "paths", "headers")
    bounds += ["also without TLS"] if each.plain else []
    bounds += ["private addresses"] if each.private else []
    return f"{host}:{','.join(map(str, each.ports))}" + (f"  ({'; '.join(bounds)})" if bounds else "")


async def _seen(runtime: Runtime, row: SessionRow, state: State) -> list[EgressSeen]:
    """The session's network activity, grouped by kind, latest last."""
    kinds: dict[tuple[Any, ...], EgressSeen] = {}
    after = row.origin_seq
    while page := await events(runtime.store, row.session_id, after=after, types=["egress.recorded"]):
        after = page[-1].seq
        facts = (event.fact for event in page if isinstance(event.fact, EgressRecorded) and not event.fact.set_up)
        for each in (each for fact in facts for each in fact.seen):
            kind = (each.verdict, each.host, each.port, each.reason, each.method, each.path, each.secret)
            if before := kinds.pop(kind, None):
                sums = {name: getattr(each, name) + getattr(before, name) for name in ("count", "sent", "received")}
                each = msgspec.structs.replace(each, **sums)
            kinds[kind] = each
    return list(kinds.values())


def _line(each: EgressSeen) -> str:
    what = f"{each.method} {each.host}:{each.port}{each.path}" if each.method else f"{each.host}:{each.port}"
    times = f" × {each.count}" if each.count > 1 else ""
    secret = f" with the secret {each.secret}" if each.secret else ""
    why = f": {each.reason}" if each.reason else ""
    return f"{each.verdict:<8} {what}{times}{secret}{why}"
