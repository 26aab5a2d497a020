"""The verbs about duties: every, duty. Each subcommand of `duty` has its own function."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from holdfast.app.call import Call
from holdfast.app.duty import add as word_add
from holdfast.app.duty import show as word_show
from holdfast.app.duty import steer as word_steer
from holdfast.app.duty import test as word_test

Arguments = Callable[[argparse.ArgumentParser], None]
Word = tuple[Arguments, Callable[[Call], Awaitable[int]], str]

WORDS: dict[str, Word] = {
    "add": (word_add.add_arguments, word_add.add, "Add a duty from a file, or change it"),
    "list": (word_show.list_arguments, word_show.list_run, "List duties with their next instant and last outcome"),
    "show": (word_show.show_arguments, word_show.show_run, "Show a duty, its notes, and its dead events"),
    "history": (word_show.history_arguments, word_show.history_run, "Show the firings of a duty and their values"),
    "run-now": (word_steer.named, word_steer.run_now, "Fire a duty now"),
    "pause": (word_steer.named, word_steer.pause, "Pause a duty; a firing at work goes on"),
    "resume": (word_steer.named, word_steer.resume, "Resume a duty; instants of the pause do not fire"),
    "remove": (word_steer.named, word_steer.remove, "End a duty and its firing for good; the log stays"),
    "test": (word_test.test_arguments, word_test.test, "Say what changed rules would have decided, at no cost"),
    "ack": (word_steer.ack_arguments, word_steer.ack, "Acknowledge alerts: silent until they are cleared"),
    "replay": (word_steer.replay_arguments, word_steer.replay, "Put dead events back into the queue"),
}


def duty_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty`."""
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    for name, (arguments, _, summary) in WORDS.items():
        word = words.add_parser(name, help=summary, description=f"{summary}.")
        for flag, metavar, help_ in (
            ("--home", "DIR", "Data directory (env: HOLDFAST_HOME)"),
            ("--db", "URL", "Log: sqlite:///PATH, or postgresql://USER@HOST/NAME (env: HOLDFAST_DB)"),
        ):
            word.add_argument(flag, metavar=metavar, help=help_, default=argparse.SUPPRESS)
        word.set_defaults(complain=word.error)
        arguments(word)


async def duty_run(call: Call) -> int:
    """Carry out the subcommand."""
    return await WORDS[call.args.word][1](call)


every_arguments, every_run = word_add.every_arguments, word_add.every
