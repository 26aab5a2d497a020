"""How a check is typed for a probe: it goes on after a failure, and its filters let the canary through."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import msgspec

from holdfast.facts.contract import Check
from holdfast.kinds.mission.check.ability.runners import Runner, of_line

_IMPATIENT = {
    "pytest": " --maxfail=0 --continue-on-collection-errors",
    "jest": " --bail=0",
    "vitest": " --bail=0",
    "mocha": " --no-bail",
}
_CUT = {"unittest": ("-f", "--failfast"), "go": ("-failfast", "-failfast=true")}


def patient(check: Check, files: Mapping[str, bytes], more: str = "", word: str = "") -> Check:
    """A check that goes on after a failure, with further arguments, and with a filter that lets `word` through."""
    runner = of_line(check.command, files)
    if runner is None:
        return check
    line = runner.line[: runner.end] + runner.glue + _IMPATIENT.get(runner.kind, "") + more + runner.line[runner.end :]
    if not runner.script:
        for at in range(len(runner.arguments) - 1, -1, -1):
            each = runner.arguments[at]
            if each.text in _CUT.get(runner.kind, ()):
                line = line[: each.start] + line[each.end :]
            elif word:
                before = runner.arguments[at - 1].text if at else ""
                line = (
                    line[: each.start]
                    + _let_through(runner, before, each.text, line[each.start : each.end], word)
                    + line[each.end :]
                )
    return msgspec.structs.replace(check, command=line)


_FILTERS = {
    "pytest": ("-k",),
    "unittest": (),
    "node": ("--test-name-pattern",),
    "jest": ("-t", "--testNamePattern"),
    "vitest": ("-t", "--testNamePattern"),
    "mocha": ("-g", "--grep"),
    "go": ("-run", "--run"),
}


def _let_through(runner: Runner, before: str, text: str, written: str, word: str) -> str:
    names = _FILTERS[runner.kind]
    option, equals, value = text.partition("=")
    if before in names:
        return shlex.quote(f"({text}) or {word}" if runner.kind == "pytest" else f"{text}|{word}")
    if equals and option in names:
        return shlex.quote(f"{option}={value}|{word}")
    if runner.kind == "pytest" and re.match(r"-k.", text):
        return shlex.quote(f"-k({text[2:]}) or {word}")
    return written
