"""`holdfast completion`: scripts that complete command lines in bash, zsh, and fish.

A script passes the words up to the cursor to `holdfast completion words`, which prints the proposals, one a line. An
empty answer leaves the word to the shell, which proposes files.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.cli import BEFORE, VERBS, build_parser
from holdfast.app.settings.config import database_path, load_settings
from holdfast.errors import HoldfastError
from holdfast.log.recent_names import recent_names

_BASH = r"""_holdfast() {
    local IFS=$'\n'
    COMPREPLY=($(holdfast completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _holdfast holdfast"""

_ZSH = r"""(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
_holdfast() {
    local -a found
    found=(${(f)"$(holdfast completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _holdfast holdfast"""

_FISH = r"""function __holdfast
    set -l found (holdfast completion words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
    test -n "$found"; and printf '%s\n' $found; or __fish_complete_path (commandline -ct)
end
complete -c holdfast -f -a '(__holdfast)'"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_NAMES = {"ID": "ids", "ITEM": "items"}
"""The metavar of an argument → the names that are looked up for it."""


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `completion`."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="bash, zsh, or fish")
    parser.epilog = f"{parser.epilog}. docs/settings.md says where to keep the script for each shell"


async def completion_run(call: Call) -> int:
    """Print the script."""
    call.say(SCRIPTS[call.args.shell], whole=True)
    return exits.DONE


def propose(words: list[str]) -> None:
    """Print the proposals for the last of these words, the one at the cursor.

    A shell waits for it, so it runs without an event loop and imports little. It never fails.
    """
    with suppress(HoldfastError, OSError, SystemExit):
        for name in _proposals(words[:-1], words[-1] if words else ""):
            print(name)


def _proposals(before: list[str], current: str) -> list[str]:
    flags: dict[str, str] = {}
    rest: list[str] = []
    for word in before:
        if rest and rest[-1] in BEFORE:
            flags[rest.pop().removeprefix("--")] = word
        elif word not in ("help", "="):
            rest.append(word)
    if not rest or rest[0] not in VERBS:
        return [name for name in VERBS if name.startswith(current)] if not rest else []
    parser: argparse.ArgumentParser = build_parser(only=rest[0])
    for word in rest:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
    actions = parser._actions
    asked = next((each for each in actions if rest[-1] in each.option_strings and each.nargs != 0), None)
    if asked is None and current.startswith("-"):
        found = [flag for each in actions if each.help != argparse.SUPPRESS for flag in each.option_strings]
    else:
        asked = asked or next((each for each in actions if not each.option_strings), None)
        found = [str(each) for each in asked.choices or ()] if asked is not None else []
        kind = _NAMES.get(str(asked.metavar)) if asked is not None else None
        if kind is not None:
            found = recent_names(database_path(load_settings(Path.cwd(), flags)), kind)
    return [each for each in found if each.startswith(current)]
