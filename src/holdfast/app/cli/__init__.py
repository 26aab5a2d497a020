"""The command line: a table of verbs. A verb's module is loaded when the user types the verb.

For a verb `approve`, the module has `approve_arguments(parser)` and `async def approve_run(call) -> int`, which returns
the exit status.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from holdfast import __version__
from holdfast.app.wrap import drop_rest, filled, terminal_width


@dataclass(frozen=True)
class VerbInfo:
    """A verb of the table: its module, its summary, and an example.

    A module name without a dot is in `holdfast.app.cli`.
    """

    module: str
    summary: str
    example: str

    @property
    def path(self) -> str:
        """The full name of the module."""
        return self.module if "." in self.module else f"holdfast.app.cli.{self.module}"


VERBS: dict[str, VerbInfo] = {
    "demo": VerbInfo(
        "holdfast.proof.demo.verb", "Watch an agent survive a kill while it rebuilds a real library", "holdfast demo"
    ),
    "init": VerbInfo("setup", "Choose a model, check its key, and write your settings", "holdfast init"),
    "run": VerbInfo("run", "Run an agent on a goal", 'holdfast run "fix the failing test" --until "pytest -q"'),
    "wake": VerbInfo("steer", "Continue a session from its log", "holdfast wake 7f3k9q"),
    "resume": VerbInfo("steer", "Same as wake", "holdfast resume 7f3k9q"),
    "mission": VerbInfo(
        "mission", "Plan, work, judge, and merge: from a contract to a branch", "holdfast mission run --repo ."
    ),
    "loop": VerbInfo("loop", "Repeat a command until its items pass", "holdfast loop --max-iterations 20 -- claude -p"),
    "items": VerbInfo(
        "holdfast.app.items.verb",
        "Work through a list, item by item",
        "holdfast items run list.jsonl --each 'Summarize: {text}'",
    ),
    "every": VerbInfo(
        "holdfast.app.duty.verbs",
        "Run an agent at intervals, or by a schedule",
        'holdfast every 6h "Check the backups"',
    ),
    "duty": VerbInfo(
        "holdfast.app.duty.verbs",
        "Steer duties: agents that run by schedules and events",
        "holdfast duty list",
    ),
    "send": VerbInfo("steer", "Send a message to a session", 'holdfast send 7f3k9q "use tabs"'),
    "inbox": VerbInfo("inbox", "List what needs your attention in all sessions", "holdfast inbox"),
    "answer": VerbInfo("inbox", "Answer a question of an agent in words", 'holdfast answer itm_7f3k "SQLite"'),
    "approve": VerbInfo("inbox", "Approve an inbox item", "holdfast approve itm_7f3k --note go"),
    "deny": VerbInfo("inbox", "Deny an inbox item", 'holdfast deny itm_7f3k --note "not on a Friday"'),
    "interrupt": VerbInfo("steer", "Interrupt an agent; it waits for a message", "holdfast interrupt 7f3k9q"),
    "pause": VerbInfo("steer", "Pause a session until it is woken", "holdfast pause 7f3k9q"),
    "handover": VerbInfo("steer", "Transfer a session to another user", "holdfast handover 7f3k9q anna"),
    "limit": VerbInfo("money", "Limit sessions and requests", "holdfast limit --account project:web --running 4"),
    "budget": VerbInfo("money", "Show or set budgets", "holdfast budget 7f3k9q --set 20"),
    "cost": VerbInfo("money", "Show what sessions cost", "holdfast cost --by project"),
    "egress": VerbInfo(
        "egress", "Show or change a session's network access", "holdfast egress 7f3k9q --allow api.example.com"
    ),
    "trust": VerbInfo("trust", "Review and accept a project's settings", "holdfast trust ."),
    "secret": VerbInfo("trust", "Manage references to secrets (values are never shown)", "holdfast secret set github"),
    "stop": VerbInfo("worker", "Stop every session, or lift the stop", "holdfast stop --all"),
    "cancel": VerbInfo("steer", "Cancel a session permanently", "holdfast cancel 7f3k9q"),
    "worker": VerbInfo("worker", "Run sessions as they become due", "holdfast worker --concurrency 8"),
    "serve": VerbInfo(
        "holdfast.app.server.verbs", "Run sessions, and show them in a browser", "holdfast serve --port 8400"
    ),
    "open": VerbInfo(
        "holdfast.app.server.verbs", "Print a link that logs a browser in to the running server", "holdfast open"
    ),
    "keys": VerbInfo(
        "holdfast.app.server.verbs",
        "Manage API keys of the server",
        "holdfast keys create anna --role operator --project .",
    ),
    "service": VerbInfo(
        "holdfast.app.server.service", "Keep the server running: crashes, reboots, logouts", "holdfast service install"
    ),
    "ps": VerbInfo("ps", "List sessions", "holdfast ps is:parked"),
    "search": VerbInfo("search", "Search the words of all sessions", "holdfast search parser is:failed newer:2d"),
    "brief": VerbInfo("brief", "Summarize what happened while you were away", "holdfast brief 7f3k9q --since 8h"),
    "why": VerbInfo(
        "brief", "Trace a line of code to its merge, task, call, and criterion", "holdfast why src/app.py:12"
    ),
    "show": VerbInfo("show", "Show a session, now or at an earlier event", "holdfast show 7f3k9q --at 40"),
    "diff": VerbInfo("show", "Show what a session changed in its files", "holdfast diff 7f3k9q --at 9 40"),
    "undo": VerbInfo("show", "Restore a session's files as after an event", "holdfast undo 7f3k9q --to 40"),
    "fork": VerbInfo("show", "Fork a session at an earlier event", "holdfast fork 7f3k9q --at 40"),
    "attach": VerbInfo("run", "Watch a session that another process runs", "holdfast attach 7f3k9q"),
    "logs": VerbInfo("log", "Print the events of one session or of all", "holdfast logs 7f3k9q -f"),
    "verify": VerbInfo("integrity", "Check the integrity of one session or of all", "holdfast verify"),
    "anchor": VerbInfo(
        "integrity",
        "Save head hashes elsewhere, to detect truncated logs",
        "holdfast anchor --to /mnt/anchors",
    ),
    "recover": VerbInfo("log", "Continue after acknowledged events were lost", "holdfast recover --yes"),
    "export": VerbInfo("log", "Export a session as JSON lines", "holdfast export 7f3k9q > session.jsonl"),
    "rm": VerbInfo("life", "Remove sessions for good", "holdfast rm 7f3k9q"),
    "prune": VerbInfo("life", "Free the space of finished sessions", "holdfast prune --older-than 30d"),
    "backup": VerbInfo("life", "Back up a home, also while sessions run", "holdfast backup night.tar.gz"),
    "restore": VerbInfo("life", "Restore a home from a backup", "holdfast restore night.tar.gz --to ./home"),
    "migrate": VerbInfo(
        "integrity",
        "Prepare a log in PostgreSQL, or copy a log there and back",
        "holdfast migrate postgresql://holdfast@db.example.com/agents",
    ),
    "config": VerbInfo("setup", "Show or change settings", "holdfast config set model anthropic:NAME"),
    "notify": VerbInfo("setup", "Send a test notification", "holdfast notify test"),
    "completion": VerbInfo(
        "completion", "Print a script that completes commands in a shell", "source <(holdfast completion bash)"
    ),
    "doctor": VerbInfo("machine", "Check what this machine can isolate, and how to fix gaps", "holdfast doctor"),
    "hands": VerbInfo("machine", "Provide sandboxes to a brain on another machine", "holdfast hands serve"),
    "sim": VerbInfo("sim", "Run the crash simulator over many seeds", "holdfast sim --seeds 500"),
    "version": VerbInfo("machine", "Print the version", "holdfast version"),
}


_OTHER_WORDS = {
    "ls": "ps", "list": "ps", "status": "ps", "sessions": "ps", "log": "logs", "events": "logs", "tail": "logs",
    "start": "run", "exec": "run", "new": "run", "continue": "wake", "kill": "cancel", "abort": "cancel",
    "message": "send", "say": "send", "watch": "attach", "reply": "answer",
    "check": "doctor", "diagnose": "doctor", "halt": "stop", "summary": "brief", "blame": "why",
    "find": "search", "grep": "search",
}  # fmt: skip
"""Words that users of other tools try first."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, with a correct example."""

    example: str = "holdfast --help"

    def __init__(self, *args: Any, **options: Any) -> None:
        add_help = options.pop("add_help", True)
        options["add_help"] = False
        super().__init__(*args, **options)
        self._positionals.title = "arguments"
        if add_help:
            self.add_argument("-h", "--help", action="help", default=argparse.SUPPRESS, help="Print help")

    def format_help(self) -> str:
        """Format the help; on a terminal, no line is wider than it."""
        text, width = super().format_help(), terminal_width(1)
        return text if width is None else "\n".join(filled(text, width)) + "\n"

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, the version, or an error. A closed pipe ends the command quietly, a full disk with a sentence."""
        try:
            print(message, end="", file=file or sys.stderr, flush=True)
        except OSError as error:
            drop_rest(2 if file is sys.stderr else 1)
            if file is sys.stdout and not isinstance(error, BrokenPipeError):
                self.exit(5, f"{self.prog}: standard output cannot be written ({error.strerror})\n")

    def error(self, message: str) -> NoReturn:
        """Print the error with an example, and exit with status 2."""
        line = " ".join(message.split())
        self.exit(2, f"{self.prog}: {line}{'' if line.endswith('?') else ';'} for example: {self.example}\n")


class Help(argparse.HelpFormatter):
    """Help formatter with room for the longest verb beside its summary."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        self._action_max_length = 14


def build_parser(only: str | None = None) -> Parser:
    """Build the parser of all verbs, of `only` one, or of their names and summaries alone for ""."""
    parser = Parser(
        prog="holdfast",
        description="Run AI agents that keep working for hours, days, and weeks.",
        epilog="Run 'holdfast COMMAND --help' for more about a command. Start with: holdfast demo",
        formatter_class=Help,
        allow_abbrev=False,
    )
    version = f"holdfast {__version__}"
    parser.add_argument("--version", action="version", version=version, help="Print the version")
    parser.add_argument("-V", action="version", version=version, help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", title="commands", parser_class=Parser)
    for name, info in VERBS.items():
        if only and name != only:
            continue  # dozens of parsers take longer than most modules
        if only == "":
            verbs.add_parser(name, help=info.summary, add_help=False)
            continue
        verb = verbs.add_parser(
            name,
            help=info.summary,
            description=f"{info.summary}.",
            epilog=f"Example: {info.example}",
            formatter_class=Help,
            allow_abbrev=False,
        )
        verb.example = info.example
        verb.add_argument("--home", metavar="DIR", help="Data directory (env: HOLDFAST_HOME)")
        verb.add_argument(
            "--db", metavar="URL", help="Log: sqlite:///PATH, or postgresql://USER@HOST/NAME (env: HOLDFAST_DB)"
        )
        getattr(importlib.import_module(info.path), f"{name}_arguments")(verb)
        verb.set_defaults(complain=verb.error, options=re.findall(r"--[a-z-]+", verb.format_help()))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status. Raises `SystemExit` for invalid usage."""
    if argv is None:
        gc.disable()  # loading modules makes no garbage, and searching for it took a tenth of a start
    words = _verb_first(list(sys.argv[1:] if argv is None else argv))
    verb = words[0] if words else ""
    with _quiet_interrupts():
        if verb not in VERBS:
            return _without_verb(words)
        _check_system()
        if words[:2] == ["completion", "words"]:
            importlib.import_module(VERBS[verb].path).propose(words[2:])
            return 0
        args, unknown = build_parser(only=verb).parse_known_args(words)
        if unknown:
            text = next((args.__dict__[name] for name in FREE_TEXT if args.__dict__.get(name)), "")
            if text and not any(word.startswith("-") for word in unknown):
                args.complain(f'put the text in quotes: "{" ".join([text, *unknown])}"')
            near = _alike(unknown[0], args.options, 0.75)
            meant = f"; did you mean {near[0]}?" if near else ""
            args.complain(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        for word in words:
            if not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word):
                args.complain(f"argument {word!r} is not valid UTF-8")
        start = importlib.import_module("holdfast.app.cli.start")
        run = getattr(importlib.import_module(VERBS[verb].path), f"{verb}_run")
        if argv is None:
            gc.freeze()
            gc.enable()
        code = int(start.start(run, args))
        if argv is None:
            _leave(code)
        return code


def _leave(code: int) -> None:
    """End the process at once; return if a thread is still at work, or if a stream is closed, as Python itself reports.

    Taking all modules apart took an eighth of a short command's time.
    """
    others = [each for each in threading.enumerate() if not each.daemon and each is not threading.current_thread()]
    for each in others:
        each.join(0.2)  # those of the event loop are about to end
    if not any(each.is_alive() for each in others):
        with suppress(OSError, ValueError):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _alike(word: str, known: Iterable[str], cutoff: float) -> list[str]:
    """Return the known word that is most like one that the user typed, if any is."""
    from difflib import get_close_matches  # only a mistake needs it

    return get_close_matches(word, list(known), 1, cutoff)


FREE_TEXT = ("goal", "text")
"""Arguments that users type as several words without quotes."""

_MODULES = ("fcntl", "grp", "pwd", "resource", "termios")


def _check_system() -> None:
    """Exit with one sentence where Python modules or system calls are missing that all commands need."""
    missing = [] if hasattr(os, "pidfd_open") else ["os.pidfd_open"]
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        Parser(prog="holdfast").exit(
            5,
            f"holdfast: this machine ({sys.platform}) or its Python lacks {', '.join(missing)}; nothing was started. "
            "Use Linux 5.3 or newer with a Python built for it; on Windows in WSL 2, on macOS in a virtual machine\n",
        )


BEFORE = ("--home", "--db")
"""Arguments of every verb, which may also stand before it."""


def _verb_first(words: list[str]) -> list[str]:
    """Move `--home` and `--db` behind the verb, and turn `help VERB` into `VERB --help`."""
    moved = []
    while words and words[0].partition("=")[0] in BEFORE:
        size = 1 if "=" in words[0] else 2
        moved += words[:size]
        words = words[size:]
    if words[:1] == ["help"]:
        return [*(word for word in words[1:] if word != "help"), "--help"]
    return [*words[:1], *moved, *words[1:]] if words else moved


def _without_verb(words: list[str]) -> int:
    """Print help or the version, or report the error."""
    parser = build_parser(only="")
    if not words:
        parser.print_help()
        return 2
    if words[0].partition("=")[0] in BEFORE:
        parser.error(f"missing command after {words[0]}")
    if words[0].startswith("-"):
        _, unknown = parser.parse_known_args(words)
        parser.error(f"missing command{' before ' + unknown[0] if unknown else ''}")
    other = _OTHER_WORDS.get(words[0])
    alike = [name for name in VERBS if name[0] == words[0][:1]]
    near = [other] if other else _alike(words[0], alike, 0.7)
    meant = f"did you mean {near[0]!r}?" if near else "`holdfast help` lists the commands"
    if near:
        parser.example = VERBS[near[0]].example
    parser.error(f"unknown command {words[0]!r}; {meant}")


@contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Until the event loop handles signals, let Ctrl-C end the process without a traceback: nothing has started."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
