"""`holdfast completion`: scripts that complete command lines in bash, zsh, and fish.

The scripts hold all commands and flags; only the names of sessions and inbox items are looked up when TAB is pressed.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.cli import build_parser
from holdfast.app.settings.config import database_path, load_settings
from holdfast.errors import HoldfastError
from holdfast.log.recent_names import recent_names

SHELLS = ("bash", "zsh", "fish")
_LOOKED_UP = {"ID": "ids", "ITEM": "items"}
_FILES = ("DIR", "FILE", "CMD", "GOAL_OR_FILE", "URL|FILE", "FILE:LINE")


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `completion`."""
    parser.add_argument("shell", choices=(*SHELLS, *_LOOKED_UP.values()), metavar="SHELL", help="bash, zsh, or fish")
    parser.epilog = (
        f"{parser.epilog}. To keep it: bash: holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast. "
        "zsh: holdfast completion zsh > ~/.holdfast.zsh, and source that file in ~/.zshrc. "
        "fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish"
    )


def completion_quick(args: argparse.Namespace) -> bool:
    """Print recent names for a script, one a line, and return True; False for the name of a shell.

    A shell waits for it, so it runs without an event loop and imports little. It never fails.
    """
    if args.shell in SHELLS:
        return False
    with suppress(HoldfastError, OSError):
        for name in recent_names(database_path(load_settings(Path.cwd(), vars(args))), args.shell):
            print(name)
    return True


async def completion_run(call: Call) -> int:
    """Print the script, made from the parser of all commands."""
    places = list(_places(build_parser(), ()))
    call.say(_fish(places) if call.args.shell == "fish" else _bash(places, zsh=call.args.shell == "zsh"))
    return exits.DONE


@dataclass(frozen=True)
class _Argument:
    """An argument: its flags, none if it has a position; its help; and its values.

    `kind` is `ids`, `items`, `files`, `words` (`choices`), `any`, or empty for a flag without a value.
    """

    flags: tuple[str, ...]
    summary: str
    kind: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """A command or subcommand: its words, summary, subcommands, and arguments."""

    words: tuple[str, ...]
    below: dict[str, str]
    arguments: tuple[_Argument, ...]

    def first(self) -> _Argument | None:
        """The first argument with a position."""
        return next((each for each in self.arguments if not each.flags), None)


def _places(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[_Place]:
    below: dict[str, str] = {}
    arguments: list[_Argument] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            below = {name: helps.get(name, "") for name in action.choices}
            for name, inner in action.choices.items():
                yield from _places(inner, (*words, name))
        elif action.help != argparse.SUPPRESS:
            metavar = str(action.metavar or action.dest)
            kind = _LOOKED_UP.get(metavar) or ("files" if metavar in _FILES else "any")
            kind = "words" if action.choices else "" if action.nargs == 0 else kind
            choices = tuple(str(each) for each in action.choices or () if each not in _LOOKED_UP.values())
            arguments.append(_Argument(tuple(action.option_strings), action.help or "", kind, choices))
    yield _Place(words, below, tuple(arguments))


def _bash(places: Sequence[_Place], *, zsh: bool) -> str:
    """A script for bash; zsh runs it through its `bashcompinit`."""
    flags, values, positions = [], [], []
    for place in places:
        name = " ".join(place.words)
        names = [flag for each in place.arguments for flag in each.flags]
        flags.append(f"        {shlex.quote(name)}) flags={shlex.quote(' '.join(names))} ;;")
        for each in place.arguments:
            if each.flags and each.kind:
                patterns = "|".join(shlex.quote(f"{name} {flag}") for flag in each.flags)
                values.append(f"        {patterns}) {_bash_values(each)} ;;")
        first = place.first()
        if place.below:
            positions.append(f"        {shlex.quote(name)}) words={shlex.quote(' '.join(place.below))} ;;")
        elif first is not None and first.kind != "any":
            positions.append(f"        {shlex.quote(name)}) {_bash_values(first)} ;;")
    nested = "|".join(sorted({place.words[0] for place in places if place.below and place.words}))
    head = _ZSH if zsh else ""
    return head + _BASH.replace("NESTED", nested).replace("FLAGS", "\n".join(flags)).replace(
        "VALUES", "\n".join(values)
    ).replace("POSITIONS", "\n".join(positions))


def _bash_values(argument: _Argument) -> str:
    if argument.kind == "words":
        return f"words={shlex.quote(' '.join(argument.choices))}"
    return {"files": "files=1", "any": ":"}.get(
        argument.kind, f'words=$(holdfast completion {argument.kind} "${{home[@]}}" 2>/dev/null)'
    )


_ZSH = """(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
autoload -Uz bashcompinit && bashcompinit
"""

_BASH = r"""# Completion of holdfast. Made by `holdfast completion`.
_holdfast() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} place="" words="" flags="" files="" i word
    local -a home=()
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
            --home|--db)
                i=$((i + 1))
                [[ ${COMP_WORDS[i]} == = ]] && i=$((i + 1))
                ((i < COMP_CWORD)) && home+=("$word" "${COMP_WORDS[i]}") ;;
            -*) ;;
            *)
                case $place in
                    "") [[ $word != help ]] && place=$word ;;
                    NESTED) place="$place $word" ;;
                esac ;;
        esac
    done
    case "$place $prev" in
VALUES
        *)
            if [[ $cur == -* ]]; then
                case $place in
FLAGS
                esac
                words=$flags
            else
                case $place in
POSITIONS
                    *) files=1 ;;
                esac
            fi ;;
    esac
    if [[ -z $files ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        [[ -n $BASH_VERSION ]] && compopt +o default +o bashdefault 2>/dev/null
    fi
    return 0
}
complete -o bashdefault -o default -F _holdfast holdfast
"""


def _fish(places: Sequence[_Place]) -> str:
    lines = [_FISH.strip()]
    for place in places:
        start = f"complete -c holdfast -n {shlex.quote('__holdfast_at ' + ' '.join(place.words))}"
        for name, summary in place.below.items():
            lines.append(f"{start} -a {shlex.quote(name)} -d {_fish_text(summary)}")
        for each in place.arguments:
            long = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in each.flags)
            values = {"ids": "-a '(__holdfast_names ids)'", "items": "-a '(__holdfast_names items)'", "files": "-F"}
            taken = values.get(each.kind, f"-a {shlex.quote(' '.join(each.choices))}" if each.choices else "")
            if each.flags:
                needs = " -r" if each.kind else ""
                lines.append(f"{start} {long}{needs} {taken} -d {_fish_text(each.summary)}")
            elif each == place.first() and taken:
                lines.append(f"{start} {taken}")
    return "\n".join(lines)


def _fish_text(text: str) -> str:
    return "'" + text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'") + "'"


_FISH = r"""
# Completion of holdfast. Made by `holdfast completion`.
function __holdfast_words
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case '--home=*' '--db=*' '-*=*'
            case --home --db
                set -e words[1]
            case '-*' help
            case '*'
                echo $words[1]
        end
        set -e words[1]
    end
end
function __holdfast_at
    set -l words (__holdfast_words)
    set -l count (count $argv)
    if test $count -eq 0
        test (count $words) -eq 0
        return
    end
    test (count $words) -ge $count; and test "$words[1..$count]" = "$argv"
end
function __holdfast_names
    set -l words (commandline -opc)
    set -l home
    for i in (seq (count $words))
        if contains -- $words[$i] --home --db
            set -a home $words[$i] $words[(math $i + 1)]
        end
    end
    holdfast completion $argv $home 2>/dev/null
end
complete -c holdfast -f
"""
