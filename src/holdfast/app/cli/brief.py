"""Reports from logs: brief, why."""

from __future__ import annotations

import argparse

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.screen.briefs import show_all, since_of
from holdfast.app.screen.tracing import read_place, trace
from holdfast.kinds.mission.brief.document import markdown
from holdfast.kinds.mission.why import SHORT
from holdfast.service.briefs import brief_of


def brief_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `brief`."""
    parser.add_argument(
        "session", metavar="ID", nargs="?", default="", help="Session or mission ID (default: everything that changed)"
    )
    parser.add_argument(
        "--since", metavar="WHEN", default="", help="Start, such as 8h, 2d, 2026-11-20, or an event with ID"
    )
    parser.add_argument("--json", action="store_true", help="Print everything as JSON")


async def brief_run(call: Call) -> int:
    """Print the brief."""
    async with open_runtime(call.settings) as runtime:
        if not call.args.session:
            return await show_all(call, runtime)
        row = await runtime.store.find(call.args.session)
        since_us = await since_of(runtime, row, call.args.since) if call.args.since else None
        told = await brief_of(runtime.store, runtime.kinds, runtime.shelf, row, since_us=since_us)
        if call.json:
            call.emit({"type": "brief", **msgspec.to_builtins(told)})
        else:
            call.say(markdown(told, call.typed).rstrip())
    return 0


def why_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.add_argument("place", metavar="FILE:LINE", help="File and line in the repository")
    parser.add_argument("--repo", metavar="DIR", default=".", help="Repository that contains FILE")
    parser.add_argument("--mission", metavar="ID", default="", help="Number lines as on this mission's main branch")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def why_run(call: Call) -> int:
    """Trace the line back to its origin."""
    place = read_place(call.args.place, call.args.repo)
    async with open_runtime(call.settings) as runtime:
        found = await trace(runtime, place, call.args.mission)
    if call.json:
        call.emit({"type": "why", **msgspec.to_builtins(found)})
        return 0 if found.links else 1
    shown = found.text.strip() or "(an empty line, of which there may be many alike)"
    call.say(f"{found.path}:{found.line}  {shown}")
    for link in found.links:
        marks = [f"event {each.seq} of {each.session_id}" for each in link.evidence]
        marks += [f"commit {link.commit[:SHORT]}"] if link.commit else []
        where = f" [{', '.join(marks)}]" if marks else ""
        command = f"  `{call.typed(*link.command)}`" if link.command else ""
        call.say(f"{link.what:<10} {link.text}{where}{command}")
    if found.note:
        call.say(found.note)
    return 0 if found.links else 1
