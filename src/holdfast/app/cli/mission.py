"""`holdfast mission`: plan, work, judge, merge. Each subcommand has its own module."""

from __future__ import annotations

import argparse
from types import ModuleType

from holdfast.app.call import Call
from holdfast.app.mission import amend as word_amend
from holdfast.app.mission import deliver as word_deliver
from holdfast.app.mission import init as word_init
from holdfast.app.mission import lint as word_lint
from holdfast.app.mission import run as word_run
from holdfast.app.mission import show as word_show
from holdfast.app.mission import steer as word_steer

WORDS: dict[str, tuple[ModuleType, str]] = {
    "init": (word_init, "Turn a goal into a contract"),
    "lint": (word_lint, "Check a contract before it is sealed"),
    "run": (word_run, "Seal the contract and work until it is met"),
    "amend": (word_amend, "Replace the contract"),
    "show": (word_show, "Show criteria, tasks, merge queue, and spend"),
    "replan": (word_steer, "Plan again for the criteria that are not met"),
    "pause": (word_steer, "Pause a mission and all its sessions"),
    "cancel": (word_steer, "Cancel a mission; its commits stay reachable"),
    "deliver": (word_deliver, "Prepare the branch and a pull request; push on request"),
}


def mission_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mission`."""
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    for name, (module, summary) in WORDS.items():
        word = words.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        for flag, metavar, help_ in (
            ("--home", "DIR", "Data directory (env: HOLDFAST_HOME)"),
            ("--db", "URL", "Log: sqlite:///PATH, or postgresql://USER@HOST/NAME (env: HOLDFAST_DB)"),
        ):
            word.add_argument(flag, metavar=metavar, help=help_, default=argparse.SUPPRESS)
        word.set_defaults(complain=word.error)
        module.arguments(word)


async def mission_run(call: Call) -> int:
    """Carry out the subcommand."""
    module, _ = WORDS[call.args.word]
    return int(await module.run(call))
