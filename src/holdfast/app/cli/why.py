"""`holdfast why`: from a line of a file to the merge, task, call and criterion that it comes from."""

from __future__ import annotations

import argparse

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.screen.tracing import Line, Traced, read_place, trace
from holdfast.kinds.mission.why import SHORT, Link


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("place", metavar="FILE:LINE", help="a file of the repository, and a line of it")
    parser.add_argument("--repo", metavar="DIR", default=".", help="the repository that FILE is in")
    parser.add_argument("--mission", metavar="ID", default="", help="count lines as on the main line of this mission")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Follow the line back."""
    place = read_place(call.args.place, call.args.repo)
    async with open_runtime(call.settings) as runtime:
        found = await trace(runtime, place, call.args.mission)
    if call.json:
        call.emit({"type": "why", **msgspec.to_builtins(found)})
        return 0 if found.links else 1
    call.say(f"{found.path}:{found.line}  {_shown(place, found)}")
    for link in found.links:
        call.say(_line(call, link))
    if found.note:
        call.say(found.note)
    return 0 if found.links else 1


def _shown(place: Line, found: Traced) -> str:
    return found.text.strip() or "(an empty line, of which there may be many alike)"


def _line(call: Call, link: Link) -> str:
    marks = [f"event {each.seq} of {each.session_id}" for each in link.evidence]
    marks += [f"commit {link.commit[:SHORT]}"] if link.commit else []
    where = f" [{', '.join(marks)}]" if marks else ""
    command = f"  `{call.typed(*link.command)}`" if link.command else ""
    return f"{link.what:<10} {link.text}{where}{command}"
