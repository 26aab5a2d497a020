"""The verbs about money and limits: budget, limit, and cost."""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of, short_name
from holdfast.app.settings.config import budget_pico
from holdfast.app.settings.values import nearest
from holdfast.app.wrap import columns, table, terminal_width
from holdfast.clock import DAY, SystemClock, local_time
from holdfast.errors import UsageError
from holdfast.facts.shift import LimitScope, Period
from holdfast.log.base import Which
from holdfast.service.event_lines import one_line
from holdfast.service.spending import EARLIER, WAYS, Line, spending
from holdfast.session.costs import Cost
from holdfast.session.limits import Limit, covering
from holdfast.session.money import HOME_ACCOUNT, AccountRow, usd, usd_float

NONE = "none"
"""`--day none` lifts a cap."""

FLAGS: dict[str, Period] = {"set": "total", "day": "day", "week": "week"}


def budget_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `budget`."""
    parser.add_argument("session", metavar="ID", nargs="?", help="Session ID or key (default: show all accounts)")
    parser.add_argument("--set", metavar="USD", help=f"Cap total spending, in dollars ({NONE}: no cap)")
    parser.add_argument("--day", metavar="USD", help="Cap spending in any 24 hours")
    parser.add_argument("--week", metavar="USD", help="Cap spending in any 7 days")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--account", metavar="NAME", help="Use this account instead of the session's own")
    which.add_argument(
        "--all", dest="account", action="store_const", const=HOME_ACCOUNT, help="Use the account of all sessions"
    )
    parser.add_argument("--no-wake", action="store_true", help="Do not wake the session")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def budget_run(call: Call) -> int:
    """Set the caps, all or none, and show the accounts from leaf to root."""
    caps: dict[Period, int | None] = {}
    for name, period in FLAGS.items():
        text = getattr(call.args, name)
        try:
            if text is not None:
                caps[period] = None if text == NONE else budget_pico(text or "0")
        except UsageError as error:
            raise UsageError(str(error).replace("--budget", f"--{name}")) from error
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session) if call.args.session else None
        known = {account.account_id: account for account in await runtime.store.accounts()}
        path = list(row.accounts) if row else sorted({*known, HOME_ACCOUNT})
        chosen = call.args.account or (path[0] if row else "")
        if call.args.account and chosen not in path:
            where = f"on the path of {name_of(row)}" if row else "here"
            meant = nearest(chosen, path, "`holdfast budget`") if path else "there is none yet"
            raise UsageError(f"there is no account {chosen!r} {where}; {meant}")
        if caps and not chosen:
            raise UsageError(
                "say whose cap: a session, --account NAME, or --all; such as: holdfast budget --all --day 20"
            )
        await runtime.intake.check_caps(chosen, caps)
        for period, cap in caps.items():
            await runtime.intake.set_cap(row, chosen, period, cap)
        known = {account.account_id: account for account in await runtime.store.accounts()}
        shown = path if row or not call.args.account else [chosen]
        names = {each.session_id: short_name(each) for each in await runtime.store.sessions()}
        _show(call, [known[name] for name in shown if name in known], names)
        if caps and row:
            call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
        elif caps and await runtime.is_served():
            call.note("a worker serves this home, and goes on with the sessions that waited for it")
        elif caps:
            call.note(
                f"sessions that waited for it go on with `{call.typed('wake', 'ID')}` or `{call.typed('worker')}`"
            )
        return 0


def _show(call: Call, accounts: list[AccountRow], names: Mapping[str, str]) -> None:
    now_us = SystemClock().now_us()
    if call.json:
        for account in accounts:
            public: dict[str, Any] = {
                "account_id": account.account_id,
                "held_usd": usd_float(account.reserved_pico),
            }
            for period in FLAGS.values():
                cap, spent = account.cap_of(period), account.spent_in(period, now_us)
                public[period] = {"cap_usd": usd_float(cap), "spent_usd": usd_float(spent)}
            call.emit(public)
        return
    if not accounts:
        call.say("no money is counted yet; the first session opens an account")
        return
    lines = [("ACCOUNT", "PERIOD", "CAP", "SPENT", "HELD", "LEFT")]
    for account in accounts:
        name = one_line(names.get(account.account_id, account.account_id), 32)
        for period in FLAGS.values():
            cap = account.cap_of(period)
            if period != "total" and cap is None:
                continue
            spent, held = account.spent_in(period, now_us), account.reserved_pico
            left = "no cap" if cap is None else usd(cap - spent - held)
            capped = "-" if cap is None else usd(cap)
            lines.append((name, period, capped, usd(spent), usd(held), left))
            name = ""
    told = table(lines, range(2, 6))
    if (width := terminal_width(1)) is not None and (over := columns(told[0]) - width) > 0:
        room = max(8, max(columns(line[0]) for line in lines) - over)
        told = table([(one_line(name, room), *rest) for name, *rest in lines], range(2, 6))
    for line in told:
        call.say(line)


def limit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `limit`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--account", metavar="NAME", help="Limit the sessions that draw on this account")
    which.add_argument("--model", metavar="NAME", help="Limit the sessions of this model, and requests to it")
    which.add_argument(
        "--all", dest="account", action="store_const", const=HOME_ACCOUNT, help="Limit all sessions together"
    )
    parser.add_argument("--running", metavar="N", help=f"Run at most N sessions at a time ({NONE}: any number)")
    parser.add_argument("--rate", metavar="N", help=f"Begin at most N model requests a minute ({NONE}: any number)")
    parser.add_argument("--burst", metavar="N", help="Begin at most N requests at once (default: a tenth of the rate)")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def limit_run(call: Call) -> int:
    """Set a limit, and show all of them with their use."""
    args = call.args
    scope: LimitScope = "model" if args.model else "account"
    name = args.model or args.account
    given = {word: text for word in ("running", "rate", "burst") if (text := getattr(args, word)) is not None}
    if given and not name:
        raise UsageError(
            "say whose limit: --account NAME, --model NAME, or --all; such as: holdfast limit --all --running 8"
        )
    async with open_runtime(call.settings) as runtime:
        if given:
            before = (await runtime.intake.limits()).get(f"{scope} {name}", Limit())
            await runtime.intake.set_limit(scope, name, _limit(before, given))
        limits = await runtime.intake.limits()
        holders = frozenset(await runtime.store.holders())
        rows = await runtime.store.sessions(Which(ids=holders)) if holders else []
        running = Counter(each for row in rows for each in covering(row.accounts, row.model))
    lines = [("LIMIT OF", "RUNNING", "AT MOST", "REQUESTS/MIN", "AT ONCE")]
    for each, limit in sorted(limits.items()):
        if call.json:
            kind, _, whose = each.partition(" ")
            call.emit({"scope": kind, "name": whose, "running": running[each], **_public(limit)})
        most, rate, burst = ("-" if number is None else str(number) for number in _public(limit).values())
        lines.append((one_line(each, 40), str(running[each]), most, rate, burst))
    if not call.json and not limits:
        call.say("no limit is set; sessions run as workers have places")
    elif not call.json:
        for line in table(lines, range(1, 5)):
            call.say(line)
    return 0


def _limit(before: Limit, given: Mapping[str, str]) -> Limit:
    """Return a limit with the given changes. Raises `UsageError`."""
    numbers: dict[str, int | None] = {}
    for word, text in given.items():
        if text != NONE and not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise UsageError(f"--{word} {one_line(text)} is not a number, such as --{word} 8, or --{word} {NONE}")
        numbers[word] = None if text == NONE else int(text)
    rate = numbers.get("rate", before.per_minute)
    burst = numbers.get("burst") or (before.burst if rate == before.per_minute else max(1, (rate or 0) // 10))
    return Limit(numbers.get("running", before.running), rate, burst)


def _public(limit: Limit) -> dict[str, int | None]:
    return {"at_most": limit.running, "per_minute": limit.per_minute, "at_once": limit.per_minute and limit.burst}


def cost_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cost`."""
    parser.add_argument("--by", choices=WAYS, default="day", help="One line for each of these (default: day)")
    parser.add_argument("--csv", action="store_true", help="Print CSV, in dollars")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def cost_run(call: Call) -> int:
    """Print what all sessions cost, and the sum."""
    async with open_runtime(call.settings) as runtime:
        found = await spending(runtime.store, call.args.by, partial(local_time, form=DAY))
    total = Line("total", sum((line.cost for line in found), Cost()), sum(line.sessions for line in found))
    if call.json:
        for line in (*found, total):
            call.emit({"label": line.label, "cost_usd": line.cost.usd, "known_usd": usd_float(line.cost.pico)})
        return 0
    if call.args.csv:
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow((call.args.by, "usd", "complete"))
        rows.writerows((line.label, usd_float(line.cost.pico), not line.cost.unpriced) for line in (*found, total))
        return 0
    by_day = call.args.by == "day"
    room = (terminal_width(1) or 80) - 26
    lines = [
        (one_line(line.label, room), line.cost.short, "" if by_day else str(line.sessions)) for line in (*found, total)
    ]
    for text in table([(call.args.by.upper(), "COST", "" if by_day else "SESSIONS"), *lines], (1, 2)):
        call.say(text)
    if total.cost.unpriced:
        call.note("`+` and `–`: a part had no price, so it is not in the sum.")
    if any(line.label == EARLIER for line in found):
        call.note(f"`{EARLIER}`: before the hours that each session keeps, about a week of its work.")
    return 0
