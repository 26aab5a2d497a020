"""The command line: one table of verbs, each a module of its own, loaded when it is typed.

A verb's module has `arguments(parser)` and `async def run(call) -> int`, the exit status.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from holdfast import __version__


@dataclass(frozen=True)
class VerbInfo:
    """One line of the table: the module's name under `holdfast.app.cli`, and what the verb does."""

    module: str
    summary: str
    example: str


VERBS: dict[str, VerbInfo] = {
    "demo": VerbInfo("demo", "watch an agent survive a kill on a real library", "holdfast demo"),
    "run": VerbInfo("run", "give an agent a goal and run it", 'holdfast run "fix the failing test" --workspace .'),
    "wake": VerbInfo("wake", "go on with a session from its log", "holdfast wake 7f3k"),
    "resume": VerbInfo("wake", "the same as wake", "holdfast resume 7f3k"),
    "send": VerbInfo("send", "post a message to a session", 'holdfast send 7f3k "use tabs"'),
    "interrupt": VerbInfo(
        "interrupt", "stop what an agent is doing; it waits for a message", "holdfast interrupt 7f3k"
    ),
    "cancel": VerbInfo("cancel", "end a session for good", "holdfast cancel 7f3k"),
    "ps": VerbInfo("ps", "list sessions", "holdfast ps --all"),
    "show": VerbInfo("show", "one session at a glance", "holdfast show 7f3k"),
    "logs": VerbInfo("logs", "the events of a session", "holdfast logs 7f3k -f"),
    "verify": VerbInfo("verify", "check the chain and the rows of one session, or all", "holdfast verify"),
    "export": VerbInfo("export", "one session as JSON lines", "holdfast export 7f3k > session.jsonl"),
    "doctor": VerbInfo("doctor", "what this machine can isolate, with a fix for each gap", "holdfast doctor"),
    "sim": VerbInfo("sim", "run the crash simulator over many seeds", "holdfast sim --seeds 500"),
    "version": VerbInfo("version", "print the version", "holdfast version"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line with a right example."""

    example: str = ""

    def error(self, message: str) -> NoReturn:
        example = self.example or "holdfast --help"
        self.exit(2, f"{self.prog}: {message}; an example is: {example}\n")


def build_parser(only: str | None = None) -> Parser:
    """The parser of the whole command line, or with the arguments of one verb alone filled in."""
    parser = Parser(prog="holdfast", description="Run AI agents that keep working for hours, days and weeks.")
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=Parser)
    for name, info in VERBS.items():
        if only is not None and name != only:
            verbs.add_parser(name, help=info.summary, add_help=False)
            continue
        verb = verbs.add_parser(
            name,
            help=info.summary,
            description=f"{info.summary[0].upper()}{info.summary[1:]}.",
            epilog=f"example: {info.example}",
            allow_abbrev=False,
        )
        verb.example = info.example
        verb.add_argument("--home", metavar="DIR", help="where everything is kept (or HOLDFAST_HOME)")
        verb.add_argument("--db", metavar="URL", help="the log, sqlite:///PATH (or HOLDFAST_DB)")
        _module(info).arguments(verb)
    return parser


def _module(info: VerbInfo) -> Any:
    return importlib.import_module(f"holdfast.app.cli.{info.module}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else ""
    if verb not in VERBS:
        parser = build_parser(only="")
        if not words:
            parser.print_help()
            return 2
        parser.parse_args(words)
        parser.error(f"there is no verb {verb!r}")
    args = build_parser(only=verb).parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    start = importlib.import_module("holdfast.app.cli.start")
    return int(start.start(_module(VERBS[verb]), args))
