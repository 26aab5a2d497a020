"""`holdfast mission`: plan, work, judge, merge. Each word is a module of its own."""

from __future__ import annotations

import argparse
from types import ModuleType

from holdfast.app.call import Call
from holdfast.app.mission import amend as mission_amend
from holdfast.app.mission import deliver as mission_deliver
from holdfast.app.mission import init as mission_init
from holdfast.app.mission import lint as mission_lint
from holdfast.app.mission import run as mission_run
from holdfast.app.mission import show as mission_show
from holdfast.app.mission import steer as mission_steer

WORDS: dict[str, tuple[ModuleType, str]] = {
    "init": (mission_init, "turn a goal into a contract: feature_list.json, init.sh, mission.toml"),
    "lint": (mission_lint, "look for what is wrong with a contract before it is sealed"),
    "run": (mission_run, "seal the contract and work until it is met"),
    "amend": (mission_amend, "put another contract in force"),
    "show": (mission_show, "the board: criteria, tasks, queue, money"),
    "replan": (mission_steer, "have a new plan made for what is not met"),
    "pause": (mission_steer, "have a mission and all its sessions rest"),
    "cancel": (mission_steer, "end a mission; every tree of it stays reachable"),
    "deliver": (mission_deliver, "the branch and a pull request of it; pushed only when told"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
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


async def run(call: Call) -> int:
    """Do what the word says."""
    module, _ = WORDS[call.args.word]
    return int(await module.run(call))
