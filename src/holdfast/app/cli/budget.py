"""`holdfast budget`: what a session and the accounts above it may spend, have spent and hold."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of
from holdfast.app.settings.config import budget_pico, nearest
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.budget import Period
from holdfast.session.accounts import AccountRow
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow

NONE = "none"
"""`--day none` lifts a cap."""

FLAGS: dict[str, Period] = {"set": "total", "day": "day", "week": "week"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", nargs="?", help="a session; without one, every account is shown")
    parser.add_argument("--set", metavar="USD", help=f"cap everything that is spent; {NONE} lifts the cap")
    parser.add_argument("--day", metavar="USD", help="cap what is spent in any 24 hours")
    parser.add_argument("--week", metavar="USD", help="cap what is spent in any seven days")
    parser.add_argument("--account", metavar="NAME", help="another account than the session's own")
    parser.add_argument("--no-wake", action="store_true", help="only set it, and start nothing")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


async def run(call: Call) -> int:
    """Set what is to be set, all or nothing, and show the accounts from leaf to root."""
    given = {name: getattr(call.args, name) for name in FLAGS}
    caps = {FLAGS[name]: _amount(name, text) for name, text in given.items() if text is not None}
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session) if call.args.session else None
        known = {account.account_id: account for account in await runtime.store.accounts()}
        path = list(row.accounts) if row else sorted(known)
        chosen = call.args.account or (path[0] if row else "")
        if call.args.account and chosen not in path:
            where = f"on the path of {name_of(row)}" if row else "here"
            meant = nearest(chosen, path) if path else "there is none yet"
            raise UsageError(f"there is no account {chosen!r} {where}; {meant}")
        if caps and not chosen:
            raise UsageError(
                "say whose cap: a session, or --account NAME; an example is: holdfast budget 7f3k --set 20"
            )
        await _set(call, runtime, row, chosen, caps)
        known = {account.account_id: account for account in await runtime.store.accounts()}
        shown = path if row or not call.args.account else [chosen]
        _show(call, [known[name] for name in shown if name in known])
        if caps and row:
            call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
        return 0


async def _set(
    call: Call, runtime: Runtime, row: SessionRow | None, account_id: str, caps: dict[Period, int | None]
) -> None:
    await runtime.intake.check_caps(account_id, caps)
    for period, cap in caps.items():
        await runtime.intake.set_cap(row, account_id, period, cap)


def _amount(flag: str, text: str) -> int | None:
    try:
        return None if text == NONE else budget_pico(text or "0")
    except UsageError as error:
        raise UsageError(str(error).replace("--budget", f"--{flag}")) from error


def _show(call: Call, accounts: list[AccountRow]) -> None:
    now_us = SystemClock().now_us()
    if call.json:
        for account in accounts:
            call.emit(_public(account, now_us))
        return
    if not accounts:
        call.say("no money is counted yet; the first session opens an account")
        return
    call.say(f"{'ACCOUNT':<32} {'PERIOD':<7} {'CAP':>10} {'SPENT':>10} {'HELD':>10} {'LEFT':>10}")
    for account in accounts:
        name = account.account_id
        for period in FLAGS.values():
            cap = account.cap_of(period)
            if period != "total" and cap is None:
                continue
            spent, held = account.spent_in(period, now_us), account.reserved_pico
            left = "no cap" if cap is None else usd(cap - spent - held)
            capped = "-" if cap is None else usd(cap)
            call.say(f"{name:<32} {period:<7} {capped:>10} {usd(spent):>10} {usd(held):>10} {left:>10}")
            name = ""


def _public(account: AccountRow, now_us: int) -> dict[str, Any]:
    told: dict[str, Any] = {"account_id": account.account_id, "held_usd": usd_float(account.reserved_pico)}
    for period in FLAGS.values():
        cap, spent = account.cap_of(period), account.spent_in(period, now_us)
        told[period] = {"cap_usd": usd_float(cap), "spent_usd": usd_float(spent)}
    return told
