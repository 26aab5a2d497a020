"""Effects of simple shell commands, for programs with fully known options (see `session.tools.shell`)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.patterns import lazy
from holdfast.session.tools.shell import Simple, parse
from holdfast.session.tools.shell_words import UNKNOWN, Unparsed

Paths = tuple[str, ...] | None
"""Paths as the command names them; None if unknown."""

ROOT = "/workspace"
"""Path of the workspace in a sandbox."""

_SYSTEM = ("/usr/bin/", "/bin/", "/usr/local/bin/", "/usr/sbin/", "/sbin/", "/usr/local/sbin/")
_SHELLS = frozenset("sh bash dash ksh zsh".split())
_PYTHON = lazy(r"python(3(\.\d+)?)?|pytest|py\.test")
PYTHON_FILES = tuple("*.py *.pyi *.pyc *.pth *.so *.sh *.toml *.ini *.cfg *.egg-link Makefile".split())
"""Files of the workspace that Python and pytest load as code or configuration, by name."""

_SHELL_STATE = frozenset(
    "alias unalias shopt enable hash trap source . export declare typeset readonly local mapfile readarray let getopts "
    "unset bind read eval exec umask ulimit".split()
)
"""Builtins that may change the meaning of later names, variables, or the rest of the line."""

_PLAIN_NAME = lazy(r"(?!.*_proxy$)[a-z_][a-z0-9_]*|LC_[A-Z]+|LANG|TZ|CI|NO_COLOR|PYTHONUNBUFFERED")
"""Variables that affect neither the choice of a program nor the effects of the programs in these tables."""

_READERS = frozenset(
    "cat ls head tail wc cut tr basename dirname realpath readlink stat cmp comm nl od md5sum sha1sum sha256sum "
    "sha512sum b2sum cksum date id whoami uname nproc df du sleep seq expr factor rev fold expand paste join "
    "grep egrep fgrep jq printenv which tty arch".split()
)
"""Programs that change no file, start no other program, and use no network, whatever their arguments."""

_BUILTINS = frozenset(
    "echo printf pwd true false : test [ set exit wait break continue return cd type read export".split()
)


class _Options(NamedTuple):
    """Known options of a program: single letters without and with a value, and long ones."""

    flags: str = ""
    values: str = ""
    long: tuple[str, ...] = ()


_WRAPPERS: dict[str, tuple[_Options, int]] = {
    "command": (_Options("p"), 0),
    "builtin": (_Options(), 0),
    "exec": (_Options("cl", "a"), 0),
    "nohup": (_Options(), 0),
    "time": (_Options("p"), 0),
    "setsid": (_Options("cfw"), 0),
    "nice": (_Options("", "n"), 0),
    "stdbuf": (_Options("", "ioe"), 0),
    "timeout": (_Options("v", "ks", ("foreground", "preserve-status")), 1),
    "env": (_Options("i0v", "u"), 0),
    "sudo": (_Options("nEHS", "ug"), 0),
    "xargs": (_Options("0rtx", "nPLdsI"), 0),
}
"""Programs that run another one: their options, and the number of arguments before it."""

_WRITERS: dict[str, tuple[_Options, str]] = {
    "touch": (_Options("acmh", "dtr"), "all"),
    "mkdir": (_Options("pv", "m", ("parents",)), "parents"),
    "rmdir": (_Options("v"), "all"),
    "rm": (_Options("rRfvdiI", "", ("recursive", "force")), "all"),
    "unlink": (_Options(), "all"),
    "tee": (_Options("ai", "", ("append",)), "all"),
    "truncate": (_Options("c", "s"), "all"),
    "mv": (_Options("fvnuiT"), "all"),
    "cp": (_Options("rRafpvnuidLPHT", "", ("recursive", "archive")), "last"),
    "ln": (_Options("sfvnrT"), "last"),
    "chmod": (_Options("Rvfc"), "rest"),
    "sort": (_Options("bdfghinrRuVzcCmsM", "kt"), "none"),
    "uniq": (_Options("cdui", "fsw"), "one"),
    "diff": (_Options("urNqyaBbwiEZs", "U"), "none"),
    "file": (_Options("bikL"), "none"),
}
"""Programs that change some of their arguments, or none with the listed options."""

_SED = lazy(
    r"((\d+|\$|/[^/\\]*/)(,(\d+|\$|/[^/\\]*/))?)?([pdq=]|s([/|#,])(?:(?!\6)[^\\\n])*\6(?:(?!\6)[^\\\n])*\6[gpI0-9]*)"
)
_FIND_TESTS = frozenset(
    "-type -name -iname -path -ipath -maxdepth -mindepth -mtime -mmin -size -newer -perm -user".split()
)
_FIND_FLAGS = frozenset("-print -print0 -not ! -o -a -and -or -empty -prune -delete -L -P -H -xdev ( )".split())
_URL = lazy(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/@\0]*@)?\[?([^/:?#\]\0]+)")


class Doing(NamedTuple):
    """Effects of one simple command. `executes` are files or globs of the workspace, `network` is set if it may use
    one.
    """

    writes: Paths
    executes: Paths
    network: bool


_ANYTHING = Doing(None, None, True)
_UNKNOWN_COMMAND = Simple((UNKNOWN,), (), (), None, None, UNKNOWN)


def program_of(command: Simple) -> str:
    """Return the name of a system program or a builtin; empty if it is unknown or a file of the workspace."""
    word = command.words[0] if command.words else ""
    folder, _, name = word.rpartition("/")
    return "" if UNKNOWN in word or (folder and folder + "/" not in _SYSTEM) else name


def plain(assigns: Sequence[tuple[str, str]]) -> bool:
    """Return True if these variables cannot change the meaning of the commands."""
    return all(_PLAIN_NAME.fullmatch(name) for name, _ in assigns)


def commands(line: str, cwd: str | None = "", depth: int = 0) -> list[Simple]:
    """Return the simple commands of a line and those that they run in turn (`bash -c`, `env`, `xargs`, `find -exec`).

    An unknown command has `UNKNOWN` as its program. Raises `Unparsed`.
    """
    found = []
    for command in parse(line, cwd, depth):
        found.append(command)
        if not plain(command.assigns):
            found.append(_UNKNOWN_COMMAND)
        found += _inner(command, depth + 1)
    return found


def _inner(command: Simple, depth: int) -> Iterator[Simple]:
    """Return the commands that a command runs in turn."""
    name, words = program_of(command), command.words
    if name in _WRAPPERS:
        yield from _wrapped(command, name, depth)
    elif name in _SHELLS:
        yield from _shell(command, depth)
    elif name == "eval":
        yield from _script(" ".join(words[1:]), command.cwd, depth)
    elif name in _SHELL_STATE and not _keeps_meaning(name, words[1:]):
        yield _UNKNOWN_COMMAND
    elif name == "find":
        for start, word in enumerate(words):
            if word in ("-exec", "-execdir", "-ok", "-okdir"):
                rest = words[start + 1 :]
                ends = [at for at, each in enumerate(rest) if each in (";", "+")]
                inner = [each.replace("{}", UNKNOWN) for each in rest[: ends[0]]] if ends else []
                yield from _nested(command, inner, depth, None if word.endswith("dir") else command.cwd)


def _keeps_meaning(name: str, arguments: Sequence[str]) -> bool:
    if name == "export":
        return all(plain([(word.partition("=")[0], "")]) for word in arguments)
    return name == "read" and all(word == "-r" or plain([(word, "")]) for word in arguments)


def _nested(command: Simple, words: Sequence[str], depth: int, cwd: str | None) -> Iterator[Simple]:
    if not words:
        yield _UNKNOWN_COMMAND
        return
    if depth > 8:
        raise Unparsed
    inner = Simple(tuple(words), (), (), cwd, command.text, command.source)
    yield inner
    yield from _inner(inner, depth + 1)


def _wrapped(command: Simple, name: str, depth: int) -> Iterator[Simple]:
    options, positionals = _WRAPPERS[name]
    words, taken = list(command.words[1:]), []
    if name == "command" and words[:1] in (["-v"], ["-V"]):
        return
    while words and words[0][:1] in ("-", UNKNOWN):
        word = words.pop(0)
        if word == "--":
            break
        if word.startswith("--") and word[2:] in options.long:
            continue
        if len(word) < 2 or UNKNOWN in word or word[1] not in options.flags + options.values:
            yield _UNKNOWN_COMMAND
            return
        if word[1] in options.values:
            taken += words[: len(word) == 2]
            del words[: len(word) == 2]
        elif any(letter not in options.flags for letter in word[1:]):
            yield _UNKNOWN_COMMAND
            return
    taken += words[:positionals]
    del words[:positionals]
    while name in ("env", "sudo") and words and "=" in words[0]:
        taken.append(words.pop(0))
        if not plain([(taken[-1].partition("=")[0], "")]):
            yield _UNKNOWN_COMMAND
    if any(UNKNOWN in word for word in taken):  # the shell may split it: the program may be a different one
        yield _UNKNOWN_COMMAND
    elif words:
        more = [UNKNOWN] if name == "xargs" else []
        yield from _nested(command, [*words, *more], depth, command.cwd)


def _shell(command: Simple, depth: int) -> Iterator[Simple]:
    words = list(command.words[1:])
    while words and re.fullmatch(r"-[eux]+", words[0]):
        words.pop(0)
    if words and re.fullmatch(r"-[eux]*c", words[0]):
        yield from _script(words[1] if len(words) > 1 else UNKNOWN, command.cwd, depth)
    elif not words and command.text is not None:
        yield from _script(command.text, command.cwd, depth)
    elif not words or words[0][:1] in ("-", UNKNOWN):
        yield _UNKNOWN_COMMAND


def _script(text: str, cwd: str | None, depth: int) -> Iterator[Simple]:
    if UNKNOWN in text:
        yield _UNKNOWN_COMMAND
    else:
        yield from commands(text, cwd, depth)


def doing(command: Simple, *, own_programs: bool) -> Doing:
    """Return the effects of a command by itself. `own_programs` adds programs of the workspace."""
    name, arguments = program_of(command), command.words[1:]
    if not command.words:
        return Doing((), (), False)
    if not name or (own_programs and "/" not in command.words[0] and name not in _BUILTINS):
        return _ANYTHING
    if name in _READERS:
        return Doing((), (), False)
    if name in _SHELLS and not any(True for _ in _inner(command, 1)):
        return _ANYTHING  # a script
    if name in _WRAPPERS or name in _SHELLS or name == "eval":
        return Doing((), (), False)  # its inner command is in the list separately
    if name in ("curl", "wget"):
        return Doing(None, (), True)
    if _PYTHON.fullmatch(name):
        known = not any(UNKNOWN in word for word in arguments)
        return Doing(None, PYTHON_FILES if known else None, True)
    writes = _builtin(name, arguments) if name in _BUILTINS else _writes(name, arguments)
    return _ANYTHING if writes is None else Doing(writes, (), False)


def _builtin(name: str, arguments: Sequence[str]) -> Paths:
    first = arguments[0] if arguments else ""
    match name:
        case "printf":
            return None if first[:1] in ("-", UNKNOWN) else ()
        case "test" | "[":
            return None if any(UNKNOWN in word or word in ("-v", "-R") for word in arguments) else ()
        case "set":
            return () if all(re.fullmatch(r"-[euxo]+|pipefail|errexit|nounset", word) for word in arguments) else None
        case "exit" | "wait" | "break" | "continue" | "return":
            return () if all(word.isdecimal() for word in arguments) else None
        case "read" | "export":
            return () if _keeps_meaning(name, arguments) else None
        case _:
            return ()


def _writes(name: str, arguments: Sequence[str]) -> Paths:
    if any(UNKNOWN in word for word in arguments):
        return None  # the shell may split it into options
    if name == "sed":
        return _sed(arguments)
    if name == "find":
        return _find(arguments)
    if name not in _WRITERS:
        return None
    options, kind = _WRITERS[name]
    paths = _positionals(arguments, options)
    if paths is None:
        return None
    match kind:
        case "none":
            return ()
        case "one":
            return () if len(paths) <= 1 else None
        case "parents":
            return tuple(_topmost(path) for path in paths) if not any(".." in path for path in paths) else None
        case "rest":
            return paths[1:]
        case "last":
            return paths[-1:] if len(paths) >= 2 else None
        case _:
            return paths


def _topmost(path: str) -> str:
    """Return the first folder that `mkdir -p` may have to create, judging by the path alone."""
    inside = path.removeprefix(ROOT + "/")
    first = inside.removeprefix("./").partition("/")[0] if inside != path or not path.startswith("/") else path
    return f"{ROOT}/{first}" if inside != path else first


def _positionals(arguments: Sequence[str], options: _Options) -> Paths:
    """Return the arguments that are not options; None if an option is unknown."""
    found: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            found += words
            break
        if not word.startswith("-") or word == "-":
            found.append(word)
        elif word.startswith("--"):
            if word[2:] not in options.long:
                return None
        else:
            for at, letter in enumerate(word[1:], 1):
                if letter in options.values:
                    if at == len(word) - 1:
                        del words[:1]
                    break
                if letter not in options.flags:
                    return None
    return tuple(found)


def _sed(arguments: Sequence[str]) -> Paths:
    """Return the paths that `sed` with one simple script changes: its files with -i."""
    words = [word for word in arguments if word not in ("-n", "-E", "-r", "-i")]
    if not words or any(word.startswith("-") for word in words) or not _SED.fullmatch(words[0]):
        return None
    return tuple(words[1:]) if "-i" in arguments else ()


def _find(arguments: Sequence[str]) -> Paths:
    """Return the paths that `find` with known tests changes: everything below its folders with `-delete`."""
    words = list(arguments)
    starts: list[str] = []
    while words and words[0][:1] not in ("-", "(", "!"):
        starts.append(words.pop(0))
    while words:
        word = words.pop(0)
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            while words and words.pop(0) not in (";", "+"):
                pass
        elif word in _FIND_TESTS:
            del words[:1]
        elif word not in _FIND_FLAGS:
            return None
    return tuple(starts or ["."]) if "-delete" in arguments else ()


def hosts_in(words: Sequence[str]) -> list[str]:
    """Return the hosts of URLs among these words."""
    return [match[1].lower() for word in words for match in _URL.finditer(word)]


def joined(folder: str, cwd: str | None, path: str) -> str | None:
    """Return a path relative to the workspace, or absolute if it is outside; None if unknown.

    The workspace is at `ROOT` in a sandbox, and at `folder` without one.
    """
    if UNKNOWN in path or (cwd is None and not path.startswith("/")):
        return None
    full = "/" + posixpath.normpath(posixpath.join(ROOT, cwd or "", path)).lstrip("/")
    for root in (ROOT, folder.rstrip("/")):
        if root and full == root:
            return "."
        if root and full.startswith(root + "/"):
            return full[len(root) + 1 :]
    return full
