"""`holdfast fork`: another session that goes on from a point of one."""

from __future__ import annotations

import argparse
from functools import partial

from holdfast.app.at import shelf_of
from holdfast.app.call import Call
from holdfast.app.cli.logs import position
from holdfast.app.compose import PROGRAM, Runtime, open_runtime
from holdfast.app.exits import name_of
from holdfast.app.running.opening import KEY_LENGTH, check_model
from holdfast.app.settings.config import budget_pico
from holdfast.errors import UsageError
from holdfast.log.workers import is_live
from holdfast.service import forks
from holdfast.service.forks import Forked, Ground, Wish, point_at
from holdfast.session.home import HOME
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--at", metavar="SEQ", type=position, required=True, help="go on after that event")
    parser.add_argument("--key", metavar="KEY", default="", help="a key of your own; a second fork with it is this one")
    parser.add_argument("--budget", metavar="USD", default="", help="a money cap of its own; else that of the session")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Open the fork, or find the one with this key. Nothing runs by it."""
    _check_key(call.args.key)
    cap = budget_pico(call.args.budget)
    async with open_runtime(call.settings) as runtime:
        origin = await runtime.store.find(call.args.session)
        if origin.session_id == HOME:
            raise UsageError(f"{HOME} is the log of the home itself and never ran; `holdfast ps --all` lists sessions")
        done = await _existing(call, runtime, origin)
        if done is None:
            done = await _fork(call, runtime, origin, cap)
        account = await runtime.store.account(done.row.accounts[0])
        _say(call, done, account.cap_pico if account else None)
        return 0


async def _existing(call: Call, runtime: Runtime, origin: SessionRow) -> Forked | None:
    key = call.args.key
    return await forks.existing(runtime.intake, origin, call.args.at, key) if key else None


async def _fork(call: Call, runtime: Runtime, origin: SessionRow, cap: int | None) -> Forked:
    point = await point_at(runtime.store, origin, call.args.at, runtime.kinds)
    if cap is None and origin.accounts:
        account = await runtime.store.account(origin.accounts[0])
        cap = account.cap_pico if account else None
    elif cap is not None and not point.state.limits.unpriced:
        check_model(call, origin.model, cap)
    home = runtime.home
    ground = Ground(home.workspaces, runtime.worker.worker_id, partial(is_live, home.workers))
    wish = Wish(call.args.key, cap, PROGRAM)
    return await forks.fork(runtime.intake, shelf_of(runtime), ground, origin, point, wish)


def _check_key(key: str) -> None:
    if key and (not key.strip() or not key.isprintable() or key.startswith("-") or len(key) > KEY_LENGTH):
        raise UsageError(
            f"--key {key!r} cannot be a key: it has 1 to {KEY_LENGTH} printable characters and no - in front, for "
            "example --key other-way"
        )


def _say(call: Call, done: Forked, cap: int | None) -> None:
    row, fact = done.row, done.fact
    if call.json:
        call.emit(
            {
                "session_id": row.session_id,
                "key": row.key,
                "origin": fact.origin,
                "origin_seq": fact.origin_seq,
                "workspace": row.workspace,
                "snapshot": fact.snapshot,
                "snapshot_seq": fact.snapshot_seq,
                "unkept_calls": list(fact.unkept),
                "budget_usd": usd_float(cap),
                "duplicate": done.duplicate,
            }
        )
        return
    key = f" (key {row.key})" if row.key else ""
    call.say(
        f"{row.session_id}{key} {'was' if done.duplicate else 'is'} forked from {fact.origin} at {fact.origin_seq}"
    )
    call.say(f"workspace {row.workspace}: the files as they were after event {fact.snapshot_seq}")
    if fact.unkept:
        calls = ", ".join(fact.unkept)
        call.say(f"calls after that, whose changes to files are not in it: {calls}")
    call.say(f"it may spend {'without a cap of its own' if cap is None else 'at most ' + usd(cap)}")
    if row.head == fact.origin_seq + 1:
        name = name_of(row)
        say, wake = call.typed("send", name, "your words"), call.typed("wake", name)
        call.note(f"Nothing runs yet. Tell it how to go on with `{say}`, or let it go on as it is with `{wake}`.")
