"""The command line of one invocation: arguments, settings, and output."""

from __future__ import annotations

import argparse
import errno
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

from holdfast.app.settings.config import Settings
from holdfast.app.settings.values import count, duration_s
from holdfast.app.wrap import drop_rest, filled, terminal_width
from holdfast.brain.doors import ObserverGone
from holdfast.errors import CannotRunSafely, StorageFull
from holdfast.session.context.text import harmless, visible_json

SESSION = "Session: its key, its ID, the ID's last six characters or more, or `last`"
"""Help of an argument that names a session."""

ITEM = "Inbox item: its ID, the ID's last six characters or more, or a unique prefix"
"""Help of an argument that names an item."""


class ReaderGone(ObserverGone):
    """Standard output was closed by its reader."""


@dataclass
class Call:
    """The parsed command line of one invocation, its settings, and its output."""

    args: argparse.Namespace
    settings: Settings
    above: Callable[[str], None] | None = None
    """Receives notes while the live view is drawn, and in a process that must not wait for their reader."""
    out: Callable[[str], None] | None = None
    """Receives the lines of standard output in such a process."""

    @property
    def json(self) -> bool:
        """True if standard output carries JSON lines."""
        return bool(getattr(self.args, "json", False))

    def say(self, text: str, *, whole: bool = False) -> None:
        """Print a line for the user: on standard error if standard output is JSON.

        On a terminal it is wrapped at words, unless it must stay `whole`: a patch, a script, a value.
        """
        if self.json:
            self.note(text)
        else:
            _put(sys.stdout, harmless(text) if whole else fitted(text, 1))

    def note(self, text: str) -> None:
        """Print a line about progress on standard error. If that is closed, the line is dropped."""
        if self.above is not None:
            self.above(text)
            return
        try:
            print(fitted(text, 2), file=sys.stderr, flush=True)
        except OSError:
            drop_rest(2)

    def emit(self, value: dict[str, Any]) -> None:
        """Print one JSON object as a line of standard output, with hidden characters as `\\uXXXX`."""
        line = visible_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        if self.out is not None:
            self.out(line)
        else:
            _put(sys.stdout, line)

    def typed(self, *words: str) -> str:
        """Format a command that the user can run as is, for the same home and log."""
        for flag in ("home", "db"):
            if value := getattr(self.args, flag, None):
                words += (f"--{flag}", value)
        return shlex.join(("holdfast", *words))


def fitted(text: str, descriptor: int) -> str:
    """The text as lines that fit the terminal behind a descriptor, if there is one."""
    width = terminal_width(descriptor)
    return harmless(text) if width is None else "\n".join(filled(harmless(text).expandtabs(4), width))


def _put(stream: TextIO, line: str) -> None:
    """Write a line. Raises `ReaderGone`, or `CannotRunSafely` if the output cannot be written."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            drop_rest(1)
        raise write_error(error) from None


def write_error(error: OSError) -> Exception:
    """Return the error of a failed write to standard output: `ReaderGone`, `StorageFull`, or `CannotRunSafely`."""
    if isinstance(error, BrokenPipeError):
        return ReaderGone()
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    kind = StorageFull if full else CannotRunSafely
    return kind(
        f"standard output cannot be written ({error.strerror}); sessions are kept in the log and intact: redirect the "
        "output and run the command again"
    )


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        return count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def position(text: str) -> int:
    """Parse a sequence number, or 0."""
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a sequence number, such as 40")
    return int(text)


def span(text: str) -> float:
    """Parse a time span such as `90s` or `2h`, in seconds."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


RUN_S = 30 * 60.0
"""Longest wait for one outage of a run on a terminal, by default."""

NIGHT_S = 12 * 3600.0
"""Longest wait of a mission, of a loop, and of any session in the background."""


def wait_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--wait`, the same for each verb that runs a session in the foreground."""
    parser.add_argument(
        "--wait",
        metavar="DURATION",
        type=lambda text: 0.0 if text == "0" else span(text),
        help="Longest wait for a provider outage, such as 2h (default: 30m for a run, 12h for a mission or loop; "
        "0 with --json or without a terminal)",
    )


RULES = {
    "allow": "Allow tools that match a glob",
    "ask": "Require approval for tools that match a glob",
    "deny": "Deny tools that match a glob (the last matching rule or flag wins)",
}


def rule_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--rules`, and a flag for each decision."""
    parser.add_argument("--rules", metavar="FILE", default="", help="Permission rules in TOML")
    for decision in ("allow", "ask", "deny"):
        parser.add_argument(
            f"--{decision}",
            metavar="TOOL",
            dest="rule_flags",
            action="append",
            default=[],
            type=partial(lambda decision, pattern: (decision, pattern), decision),
            help=RULES[decision],
        )


def sandbox_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what tools may reach, and as whom they run."""
    parser.add_argument(
        "--allow-host",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="Allow tools to reach this host over TLS",
    )
    parser.add_argument("--registries", action="store_true", help="Allow this machine's package registries")
    parser.add_argument(
        "--secret", metavar="NAME", action="append", default=[], help="Expose only these secrets (default: all)"
    )
    parser.add_argument("--user", metavar="NAME", help="Run tools as this system user (root only)")
    parser.add_argument("--no-sandbox", action="store_true", help="Run tools without isolation (recorded in the log)")
