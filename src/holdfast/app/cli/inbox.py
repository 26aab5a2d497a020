"""The inbox and its answers: inbox, answer, approve, deny."""

from __future__ import annotations

import argparse
import os
import sys
import unicodedata
from functools import partial

from holdfast.app.call import Call, positive, span
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.running import answering
from holdfast.app.screen.inbox import details, folded, is_listed_whole, lines, public, public_item
from holdfast.app.screen.live import can_draw
from holdfast.app.screen.picker import pick
from holdfast.app.settings.config import terminal_wishes
from holdfast.app.wrap import terminal_width
from holdfast.brain.shift import together
from holdfast.clock import SystemClock
from holdfast.service.inbox import SHOWN, inbox, shown
from holdfast.service.posting import person
from holdfast.session.rows import ItemRow


def inbox_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `inbox`."""
    parser.add_argument("item", metavar="ITEM", nargs="?", help="Show one item in full")
    parser.add_argument("--plain", action="store_true", help="Print a plain list, without the interactive view")
    parser.add_argument("--json", action="store_true", help="Print JSON lines (does not mark items as seen)")


async def inbox_run(call: Call) -> int:
    """Show one item, the picker on a terminal, or the list."""
    async with open_runtime(call.settings) as runtime:
        if call.args.item:
            return await _one(call, runtime, await runtime.store.item(call.args.item))
        terminal, color = terminal_wishes()
        if not call.json and not call.args.plain and can_draw(terminal) and os.isatty(0) and os.isatty(1):
            return await pick(call, runtime, sys.stdout, color=color)
        return await _list(call, runtime)


async def _one(call: Call, runtime: Runtime, item: ItemRow) -> int:
    row = await runtime.store.find(item.session_id)
    if not call.json:
        await runtime.intake.seen(item)
        item = await runtime.store.item(item.item_id)
    now_us = SystemClock().now_us()
    found = await shown(runtime.store, item, now_us)
    if call.json:
        call.emit(public_item(found))
        return 0
    width = terminal_width(1)

    def columns(char: str) -> int:  # about as many as it takes, never too few
        return 1 if unicodedata.east_asian_width(char) in ("Na", "H", "N") else 2

    for line in details(found, row, now_us):
        for part in [line] if width is None else folded(line, width, columns):
            call.say(part)
    if item.status == "open":
        call.say("")
        words = ("answer", item.item_id, *(found.request.options[:1] or ("your words",)))
        yes = words if found.request.needs_words else ("approve", item.item_id)
        call.say(f"answer    {call.typed(*yes)}")
        call.say(f"          {call.typed('deny', item.item_id, '--note', 'your words')}")
    return 0


async def _list(call: Call, runtime: Runtime) -> int:
    now_us = SystemClock().now_us()
    entries = await inbox(runtime.store, now_us, limit=None if call.json else SHOWN)
    if call.json:
        for entry in entries:
            call.emit(public(entry))
        return 0
    stop = await runtime.store.stopped()
    if stop is not None:
        call.say(f"EVERYTHING IS STOPPED by {person(stop.by)}; `{call.typed('stop', '--release')}` lifts it\n")
    for line in lines(entries, now_us):
        call.say(line)
    asked = [entry.item for entry in entries if entry.item is not None]
    whole = [each for each in asked if is_listed_whole(each)]
    await together(partial(runtime.intake.seen, each.item) for each in whole)
    if len(asked) == SHOWN:
        call.note(f"these are the {SHOWN} oldest; `{call.typed('inbox', '--json')}` lists all")
    if asked:
        call.say("")
        call.say(f"`{call.typed('inbox', asked[0].item.item_id)}` shows all of it")
    if whole:
        item_id, question = whole[0].item.item_id, whole[0].request.needs_words
        yes = call.typed("answer", item_id, "your words") if question else call.typed("approve", item_id)
        no = call.typed("deny", item_id, "--note", "your words")
        call.say(f"`{yes}` {'answers' if question else 'allows'} it, `{no}` refuses it")
    return 0


def answer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `answer`."""
    answering.arguments(parser)
    parser.add_argument("text", metavar="TEXT", help="The answer, for the agent")


async def answer_run(call: Call) -> int:
    """Answer a question in words."""
    return await answering.answer(call, "approve", call.args.text)


def approve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `approve`."""
    answering.arguments(parser)
    answering.note_argument(parser)
    parser.add_argument(
        "--for",
        metavar="TIME",
        dest="for_s",
        type=span,
        help="Also allow the same action for this time, such as 2h",
    )
    parser.add_argument("--uses", metavar="N", type=positive, help="Also allow the same action N more times")
    parser.add_argument("--match", metavar="GLOB", help="With --for or --uses: allow all actions that match")
    parser.add_argument("--budget", metavar="USD", help="For a budget item: set this cap instead of the proposed one")


async def approve_run(call: Call) -> int:
    """Approve the item."""
    return await answering.answer(call, "approve", call.args.note)


def deny_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `deny`."""
    answering.arguments(parser)
    answering.note_argument(parser)


async def deny_run(call: Call) -> int:
    """Deny the item."""
    return await answering.answer(call, "deny", call.args.note)
