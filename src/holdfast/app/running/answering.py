"""`holdfast answer`, `approve`, and `deny`: answer an inbox item and continue its session."""

from __future__ import annotations

import argparse

from holdfast.app.call import ITEM, Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of
from holdfast.app.screen.inbox import block
from holdfast.app.settings.config import budget_pico
from holdfast.errors import UnknownItem, UnknownSession, UsageError
from holdfast.facts.people import Grant, Verdict
from holdfast.service.answers import Answer, asked
from holdfast.session.context.text import visible_line
from holdfast.session.rows import ItemRow

DONE: dict[Verdict, str] = {"approve": "approved", "deny": "denied"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that the three verbs share."""
    parser.add_argument("item", metavar="ITEM", help=ITEM)
    parser.add_argument("--digest", metavar="SHA256", default="", help="Fail unless the action has this digest")
    parser.add_argument("--no-wake", action="store_true", help="Answer only; start no process")
    parser.add_argument("--json", action="store_true", help="Print JSON")


def note_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--note`, for `approve` and `deny`."""
    parser.add_argument("--note", metavar="T", default="", help="A note for the agent: a reason, or the answer")


async def answer(call: Call, verdict: Verdict, note: str) -> int:
    """Answer an item. Its session continues in the process that runs it, a worker, or a new process."""
    async with open_runtime(call.settings) as runtime:
        item = await _item(call, runtime)
        request = await asked(runtime.store, item)
        if call.args.verb == "answer" and request.kind != "question":
            raise UsageError(
                f"{item.item_id} is not a question; nothing was changed: "
                f"{call.typed('approve', item.item_id)}, or {call.typed('deny', item.item_id)}"
            )
        given = Answer(
            verdict=verdict,
            note=note,
            digest=call.args.digest,
            grant=await _grant(call, runtime, item),
            budget_pico=budget_pico(getattr(call.args, "budget", None) or ""),
        )
        receipt = await runtime.intake.answer(item, given)
        row = await runtime.store.find(item.session_id)
        if call.json:
            call.emit(
                {
                    "item_id": item.item_id,
                    "session_id": item.session_id,
                    "seq": receipt.seq,
                    "verdict": verdict,
                    "action": request.action,
                    "by": runtime.intake.actor,
                    "proof": runtime.intake.caller.proof,
                }
            )
        else:
            done = "answered" if call.args.verb == "answer" else DONE[verdict]
            call.say(f"{done} {item.item_id} of {name_of(row)}: {visible_line(item.title)}{_more(given.grant)}")
            for line in block("action", request.action):
                call.say(line)
        call.note(await see_to(call, runtime, item.session_id, start=not call.args.no_wake))
        return 0


async def _item(call: Call, runtime: Runtime) -> ItemRow:
    """Find the item. Raises `UnknownItem`, for the name of a session with the ids of its open items."""
    name = call.args.item
    try:
        return await runtime.store.item(name)
    except UnknownItem:
        try:
            row = await runtime.store.find(name)
        except UnknownSession:
            row = None
        mine = [each.item_id for each in await runtime.store.items() if row and each.session_id == row.session_id]
        if not mine:
            raise
        raise UnknownItem(f"{name!r} is a session; name its inbox item instead: {' or '.join(mine)}") from None


async def _grant(call: Call, runtime: Runtime, item: ItemRow) -> Grant | None:
    args = call.args
    bounds = {name: getattr(args, name, None) for name in ("for_s", "uses", "match")}
    if all(value is None for value in bounds.values()):
        return None
    if bounds["for_s"] is None and bounds["uses"] is None:
        raise UsageError(
            "--match allows further calls and needs a bound: --for or --uses; for example: "
            f'holdfast approve {item.item_id} --match "git push*" --for 2h'
        )
    return await runtime.intake.grant_for(item, for_s=args.for_s, uses=args.uses, match=args.match)


def _more(grant: Grant | None) -> str:
    if grant is None:
        return ""
    times = f" the next {grant.uses}" if grant.uses is not None else " further ones"
    until = f" for {grant.for_s:g} s" if grant.for_s is not None else ""
    return f"; also{times} of {grant.tool} like {visible_line(grant.match)}{until}"
