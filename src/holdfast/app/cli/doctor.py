"""`holdfast doctor`: what this machine can isolate, with the fix for each gap."""

from __future__ import annotations

import argparse

import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, open_runtime
from holdfast.facts.session import Workspace

MARKS = {"hard": "hard  ", "soft": "soft  ", "ok": "ok    ", "absent": "ABSENT", "bad": "BAD   "}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Look, and say what was found."""
    async with open_runtime(call.settings) as runtime:
        capabilities = await runtime.provider(Workspace(path="")).probe()
        if call.json:
            call.emit(msgspec.to_builtins(capabilities))
            return exits.DONE if capabilities.usable else exits.UNABLE
        call.say(f"{PROGRAM}, home {runtime.home.path}")
        for finding in capabilities.findings:
            call.say(f"  {MARKS[finding.level]} {finding.name}: {finding.message}")
            if finding.fix:
                call.say(f"         fix: {finding.fix}")
        if capabilities.usable:
            call.say(f"tool calls are isolated here ({capabilities.provider})")
            return exits.DONE
        call.say("tool calls cannot be isolated here; `run` refuses, unless --no-sandbox is given")
        return exits.UNABLE
