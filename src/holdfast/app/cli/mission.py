"""`holdfast mission`: plan, work, judge, merge. Each word is a module of its own."""

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
    "init": (word_init, "turn a goal into a contract: feature_list.json, init.sh, mission.toml"),
    "lint": (word_lint, "look for what is wrong with a contract before it is sealed"),
    "run": (word_run, "seal the contract and work until it is met"),
    "amend": (word_amend, "put another contract in force"),
    "show": (word_show, "the board: criteria, tasks, queue, money"),
    "replan": (word_steer, "have a new plan made for what is not met"),
    "pause": (word_steer, "have a mission and all its sessions rest"),
    "cancel": (word_steer, "end a mission; every tree of it stays reachable"),
    "deliver": (word_deliver, "the branch and a pull request of it; pushed only when told"),
}


def mission_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    for name, (module, summary) in WORDS.items():
        word = words.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        for flag, metavar, help_ in (
            ("--home", "DIR", "where everything is kept (or HOLDFAST_HOME)"),
            ("--db", "URL", "the log, sqlite:///PATH (or HOLDFAST_DB)"),
        ):
            word.add_argument(flag, metavar=metavar, help=help_, default=argparse.SUPPRESS)
        word.set_defaults(complain=word.error)
        module.arguments(word)


async def mission_run(call: Call) -> int:
    """Do what the word says."""
    module, _ = WORDS[call.args.word]
    return int(await module.run(call))
