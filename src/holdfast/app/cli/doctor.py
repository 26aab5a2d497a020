"""`holdfast doctor`: what this machine can isolate, which models it can ask, with the fix for each gap."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, open_runtime
from holdfast.app.home import Home
from holdfast.app.keys import look
from holdfast.app.providers import Providers
from holdfast.app.settings import hands_policy
from holdfast.app.settings.config import database_path
from holdfast.errors import HoldfastError
from holdfast.hands.base import Capabilities, Finding

MARKS = {"hard": "hard  ", "soft": "soft  ", "ok": "ok    ", "absent": "absent", "bad": "BAD   "}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Look, and say what was found. A log that cannot be opened is a finding, not the end of looking."""
    home = Home(Path(call.settings.home).absolute())
    log, code = await _log(call)
    capabilities = await _hands(call, home)
    code = code or (exits.DONE if capabilities.usable else exits.UNABLE)
    models = await look()
    findings = (log, *capabilities.findings, *models.findings)
    if call.json:
        shown = msgspec.structs.replace(capabilities, findings=findings)
        public = {"program": PROGRAM, "home": str(home.path), "model": models.proposal or None}
        call.emit({**public, **msgspec.to_builtins(shown)})
        return code
    call.say(f"{PROGRAM}, home {home.path}")
    for finding in findings:
        call.say(f"  {MARKS[finding.level]} {finding.name}: {finding.message}")
        if finding.fix:
            fix = finding.fix.replace("\n", "\n              ")
            call.say(f"         fix: {fix}")
    call.say(_verdict(capabilities))
    call.say(_proposal(models.proposal))
    return code


async def _hands(call: Call, home: Home) -> Capabilities:
    """What the provider of the settings can do here; one that cannot be is a finding."""
    try:
        policy = hands_policy.hands(call.settings)
        return await Providers(home.hands).named(policy.provider, policy.accept_weak).probe()
    except HoldfastError as error:
        return Capabilities("", False, findings=(Finding("hands", "bad", str(error)),))


async def _log(call: Call) -> tuple[Finding, int]:
    """The finding about the log, and the exit status that it asks for."""
    try:
        async with open_runtime(call.settings) as runtime:
            sessions = await runtime.store.count()
    except HoldfastError as error:
        return Finding("log", "bad", str(error)), error.exit_code
    return Finding("log", "ok", f"{database_path(call.settings)}, {sessions} sessions"), exits.DONE


def _verdict(capabilities: Capabilities) -> str:
    if capabilities.usable and capabilities.provider == "landlock":
        return "tool calls are isolated WEAKLY here (landlock): read above what is missing"
    if capabilities.usable:
        return f"tool calls are isolated here ({capabilities.provider})"
    return "tool calls cannot be isolated here; `run` refuses, unless --no-sandbox is given"


def _proposal(flags: str) -> str:
    if flags:
        return f"a model can be asked: holdfast run GOAL {flags}"
    return (
        "no model can be asked: set a key such as ANTHROPIC_API_KEY, or start a local server such as Ollama; "
        "`holdfast demo` needs none"
    )
