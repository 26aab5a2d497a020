"""The command line: one table of verbs, each a module of its own, loaded when it is typed.

A verb's module has `arguments(parser)` and `async def run(call) -> int`, the exit status.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from holdfast import __version__


@dataclass(frozen=True)
class VerbInfo:
    """One line of the table: the module (a name without a dot is in `holdfast.app.cli`) and what the verb does."""

    module: str
    summary: str
    example: str

    @property
    def path(self) -> str:
        """The full name of the module."""
        return self.module if "." in self.module else f"holdfast.app.cli.{self.module}"


VERBS: dict[str, VerbInfo] = {
    "demo": VerbInfo("holdfast.proof.demo.verb", "watch an agent survive a kill on a real library", "holdfast demo"),
    "run": VerbInfo("run", "give an agent a goal and run it", 'holdfast run "fix the failing test" --workspace .'),
    "wake": VerbInfo("wake", "go on with a session from its log", "holdfast wake 7f3k"),
    "resume": VerbInfo("wake", "the same as wake", "holdfast resume 7f3k"),
    "mission": VerbInfo(
        "mission", "plan, work, judge, merge: from a contract to a branch", "holdfast mission run --repo ."
    ),
    "loop": VerbInfo(
        "loop", "run a command again and again until its items pass", "holdfast loop --max-iterations 20 -- claude -p"
    ),
    "send": VerbInfo("send", "post a message to a session", 'holdfast send 7f3k "use tabs"'),
    "inbox": VerbInfo("inbox", "what waits for you, in all sessions", "holdfast inbox"),
    "approve": VerbInfo("approve", "allow what an item asks for", "holdfast approve itm_7f3k --note go"),
    "deny": VerbInfo("deny", "refuse what an item asks for", 'holdfast deny itm_7f3k --note "not on a Friday"'),
    "interrupt": VerbInfo(
        "interrupt", "stop what an agent is doing; it waits for a message", "holdfast interrupt 7f3k"
    ),
    "pause": VerbInfo("pause", "have a session rest until it is woken", "holdfast pause 7f3k"),
    "handover": VerbInfo("handover", "make a session another person's", "holdfast handover 7f3k anna"),
    "budget": VerbInfo("budget", "show or set what may be spent", "holdfast budget 7f3k --set 20"),
    "egress": VerbInfo("egress", "what a session may talk to, and did", "holdfast egress 7f3k --allow api.example.com"),
    "trust": VerbInfo("trust", "show and accept the settings of a project", "holdfast trust ."),
    "secret": VerbInfo("secret", "references to secrets; values go in and never out", "holdfast secret set github"),
    "stop": VerbInfo("stop", "stop everything at once, or lift that", "holdfast stop --all"),
    "cancel": VerbInfo("cancel", "end a session for good", "holdfast cancel 7f3k"),
    "worker": VerbInfo("worker", "run whatever is due, until stopped", "holdfast worker --concurrency 8"),
    "ps": VerbInfo("ps", "list sessions", "holdfast ps --tree"),
    "brief": VerbInfo("brief", "what happened while you were away", "holdfast brief 7f3k --since 8h"),
    "why": VerbInfo("why", "where a line comes from: merge, task, call, criterion", "holdfast why src/app.py:12"),
    "show": VerbInfo("show", "one session at a glance, now or at a point of it", "holdfast show 7f3k --at 40"),
    "fork": VerbInfo("fork", "go on another way from a point of a session", "holdfast fork 7f3k --at 40"),
    "attach": VerbInfo("attach", "watch a session that another process runs", "holdfast attach 7f3k"),
    "logs": VerbInfo("logs", "the events of a session", "holdfast logs 7f3k -f"),
    "verify": VerbInfo("verify", "check the chain and the rows of one session, or all", "holdfast verify"),
    "anchor": VerbInfo(
        "anchor", "note the heads of the logs elsewhere, against cut-off ends", "holdfast anchor --to /mnt/usb/anchors"
    ),
    "recover": VerbInfo("recover", "go on after acknowledged events were lost", "holdfast recover --yes"),
    "export": VerbInfo("export", "one session as JSON lines", "holdfast export 7f3k > session.jsonl"),
    "doctor": VerbInfo("doctor", "what this machine can isolate, with a fix for each gap", "holdfast doctor"),
    "hands": VerbInfo("hands", "give this machine's hands to a brain elsewhere", "holdfast hands serve"),
    "sim": VerbInfo("sim", "run the crash simulator over many seeds", "holdfast sim --seeds 500"),
    "version": VerbInfo("version", "print the version", "holdfast version"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line with a right example."""

    example: str = "holdfast --help"

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and leave with exit status 2."""
        line = " ".join(message.split())
        self.exit(2, f"{self.prog}: {line}{'' if line.endswith('?') else ';'} an example is: {self.example}\n")


class Help(argparse.HelpFormatter):
    """Help with room for the longest verb beside its summary."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        self._action_max_length = 14


def build_parser(only: str | None = None) -> Parser:
    """The parser of the whole command line, or with the arguments of one verb alone filled in."""
    parser = Parser(
        prog="holdfast",
        description="Run AI agents that keep working for hours, days and weeks.",
        epilog="`holdfast VERB --help` says more about one of them. Start with: holdfast demo",
        formatter_class=Help,
        allow_abbrev=False,
    )
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
            formatter_class=Help,
            allow_abbrev=False,
        )
        verb.example = info.example
        verb.add_argument("--home", metavar="DIR", help="where everything is kept (or HOLDFAST_HOME)")
        verb.add_argument("--db", metavar="URL", help="the log, sqlite:///PATH (or HOLDFAST_DB)")
        verb.set_defaults(complain=verb.error)
        _module(info).arguments(verb)
    return parser


def _module(info: VerbInfo) -> Any:
    return importlib.import_module(info.path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status. Raises `SystemExit` for words that cannot be meant."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else ""
    with _quiet_interrupts():
        if verb not in VERBS:
            return _without_verb(words)
        args, unknown = build_parser(only=verb).parse_known_args(words)
        if unknown:
            args.complain(f"unrecognized arguments: {' '.join(unknown)}")
        for word in words:
            if not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word):
                args.complain(f"{word!r} holds bytes that are not UTF-8 text")
        start = importlib.import_module("holdfast.app.cli.start")
        return int(start.start(_module(VERBS[verb]), args))


def _without_verb(words: list[str]) -> int:
    """Help, the version, or a complaint."""
    parser = build_parser(only="")
    if not words:
        parser.print_help()
        return 2
    if words[0].startswith("-"):
        _, unknown = parser.parse_known_args(words)
        parser.error(f"a verb is missing{' before ' + unknown[0] if unknown else ''}")
    near = difflib.get_close_matches(words[0], VERBS, 1)
    meant = f"did you mean {near[0]!r}?" if near else f"the verbs are {', '.join(VERBS)}"
    if near:
        parser.example = VERBS[near[0]].example
    parser.error(f"there is no verb {words[0]!r}; {meant}")


@contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Before the event loop takes signals in, Ctrl-C ends the process without a traceback: nothing was begun."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
