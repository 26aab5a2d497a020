"""Commands, paths, and hosts of a tool call: the single interpretation that rules, guards, and approvers share.

Pure and conservative: what is not certain is unknown, never guessed. Paths are as the call names them; a symbolic link
may lead elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.facts.session import EgressPolicy, Searcher, Workspace
from holdfast.session.egress import opens
from holdfast.session.tools.commands import ROOT, Paths, commands, doing, hosts_in, joined, program_of
from holdfast.session.tools.jobs import JOB_START, JOB_STOP, SERVICE_START, SERVICE_STOP, WEB_FETCH, WEB_SEARCH
from holdfast.session.tools.shell import Redirect, Simple
from holdfast.session.tools.shell_words import UNKNOWN, Unparsed

SHOWN_MAX = 20
_NO_FILE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "-")
_FILE_TOOLS = ("read", "write", "edit")
_LATER = {JOB_START: "; it goes on as a job", SERVICE_START: "; it goes on until it is stopped"}


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One effect of a call, as rules see it. `UNKNOWN` in a text stands for an unknown part.

    `texts` are equivalent spellings: an allow rule has to match one of them. A deny or ask rule matches one of them, or
    of `also`.
    """

    texts: tuple[str, ...]
    also: tuple[str, ...] = ()


class Effects(msgspec.Struct, frozen=True):
    """Effects of a call."""

    whole: str
    parts: tuple[Part, ...]
    writes: Paths = ()
    executes: Paths = ()
    names: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    network: bool = False


def effects_of(
    name: str, value: dict[str, Any], *, main: str = "", folder: str = "", own_programs: bool = False
) -> Effects:
    """Return the effects of a call of the tool `name`. `main` names its main argument; without it all arguments are
    read.
    """
    whole = whole_of(name, value, main)
    if lines := lines_of(name, value):
        return _of_lines(whole, lines, folder, own_programs)
    if name in _FILE_TOOLS:
        return _of_file(name, whole, folder)
    if name in ("glob", "grep"):
        path = joined(folder, "", str(value.get("path") or ".")) or "."
        return Effects(whole, (Part((whole,), (path,)),), names=(path,))
    if name == WEB_FETCH:
        return Effects(whole, (Part((whole,)),), hosts=tuple(hosts_in([whole])), network=True)
    if name == WEB_SEARCH:
        return Effects(whole, (Part((whole,)),), network=True)
    if name in (JOB_STOP, SERVICE_STOP):
        return Effects(whole, (Part((whole,)),))
    return Effects(whole, (Part((whole,)),), writes=None, executes=None, network=True)


def whole_of(name: str, value: dict[str, Any], main: str) -> str:
    """Return the main argument of a call as text, including a service's health check; without one, all arguments."""
    if not main:
        return msgspec.json.encode(value, order="sorted").decode() if value else ""
    return "\n".join(lines_of(name, value)) or str(value.get(main, ""))


_LINES = {"bash": ("command",), JOB_START: ("command",), SERVICE_START: ("command", "health")}


def lines_of(name: str, value: dict[str, Any]) -> list[str]:
    """Return the command lines of a call, including the health check of a service."""
    return [str(value[key]) for key in _LINES.get(name, ()) if value.get(key)]


def _of_file(name: str, path: str, folder: str) -> Effects:
    known = joined(folder, "", path) or path
    same = (known,) if known.startswith("/") else (known, f"./{known}", f"{ROOT}/{known}", f"{folder}/{known}")
    writes = () if name == "read" else (known,)
    return Effects(path, (Part(same, (path,)),), writes=writes, names=(known,))


def _of_lines(whole: str, lines: Sequence[str], folder: str, own_programs: bool) -> Effects:
    try:
        found = [command for line in lines for command in commands(line)]
    except (Unparsed, RecursionError):
        return Effects(whole, (Part((UNKNOWN,), (whole,)),), writes=None, executes=None, network=True)
    parts: list[Part] = []
    writes: list[str] | None = []
    executes: list[str] | None = []
    network = False
    names: list[str] = []
    for command in found:
        parts += _parts(command, folder)
        does = doing(command, own_programs=own_programs)
        network = network or does.network or any(_is_socket(each.target) for each in command.redirects)
        executes = None if executes is None or does.executes is None else [*executes, *does.executes]
        targets = [each.target for each in command.redirects if _to_file(each)]
        paths = [joined(folder, command.cwd, each) for each in (*(does.writes or ()), *targets)]
        known = [path for path in paths if path is not None]
        complete = writes is not None and does.writes is not None and len(known) == len(paths)
        writes = [*(writes or ()), *known] if complete else None
        names += _names(command, folder)
    programs = tuple(dict.fromkeys(program_of(each) for each in found if "/" not in "".join(each.words[:1])))
    return Effects(
        whole,
        tuple(parts),
        None if writes is None else tuple(dict.fromkeys(writes)),
        None if executes is None else tuple(dict.fromkeys(executes)),
        tuple(dict.fromkeys(names)),
        tuple(each for each in programs if each),
        tuple(dict.fromkeys(host for each in found for host in hosts_in(each.words))),
        network,
    )


def _to_file(redirect: Redirect) -> bool:
    return ">" in redirect.op and redirect.target not in _NO_FILE


def _is_socket(target: str) -> bool:
    """Return True if bash may open a connection for a redirection."""
    return UNKNOWN in target or target.startswith(("/dev/tcp/", "/dev/udp/"))


def _names(command: Simple, folder: str) -> list[str]:
    words = [word.partition("=")[2] if word.startswith("-") else word for word in command.words]
    words += [each.target for each in command.redirects]
    paths = (joined(folder, command.cwd, word) for word in words if word and len(word) < 1_000)
    return [path for path in paths if path is not None and path not in _NO_FILE]


def _parts(command: Simple, folder: str) -> list[Part]:
    """Return a command as rules see it, and each file to which it redirects its output."""
    parts = []
    if command.words:
        text = " ".join(
            " ".join(_path_word(word, command.cwd, folder, at == 0).split(" ")) for at, word in enumerate(command.words)
        )
        first, *others = command.words
        resolved = [word if word.startswith("-") else joined(folder, command.cwd, word) or word for word in others]
        spelled = [" ".join([program_of(command) or first, *each]) for each in (others, resolved)]
        also = (" ".join(command.words), " ".join(command.source.split()), *spelled)
        parts.append(Part((text,), tuple(dict.fromkeys(also))))
    for each in command.redirects:
        if _to_file(each):
            path = joined(folder, command.cwd, each.target) or UNKNOWN
            parts.append(Part((f"> {path}",), (f"> {each.target}",)))
    return parts


def _path_word(word: str, cwd: str | None, folder: str, first: bool) -> str:
    """Normalize the path in a word of a command, if it is written as one; a program of the workspace keeps a slash."""
    if "/" not in word or word.startswith("-") or "://" in word:
        return word
    path = joined(folder, cwd, word)
    if path is None:
        return word if UNKNOWN in word else UNKNOWN
    return f"./{path}" if first and "/" not in path else path


def normalized_pattern(pattern: str) -> str:
    """Return a rule's pattern for a command, with the paths of its arguments normalized as in parts."""
    first, *others = pattern.split(" ")
    return " ".join([first, *(each.removeprefix(ROOT + "/").removeprefix("./") for each in others)])


def told(
    effects: Effects,
    workspace: Workspace,
    policy: EgressPolicy,
    searchers: Sequence[Searcher] = (),
    *,
    tool: str = "",
    walled: bool = True,
) -> str:
    """Describe the reach of a call in a sandbox, for approvers; `walled` if the sandbox cuts off the network."""
    if workspace.isolation == "none":
        return "everything that this user can reach: there is no sandbox"
    return (
        f"{_told_files(effects, workspace)}; {_told_network(effects, policy, searchers, walled)}{_LATER.get(tool, '')}"
    )


def _told_files(effects: Effects, workspace: Workspace) -> str:
    if effects.writes is None:
        return f"which files it changes is unknown: any of {workspace.path} and of the sandbox's scratch folders"
    if not effects.writes:
        return f"changes no files of {workspace.path}"
    paths = effects.writes[:SHOWN_MAX]
    more = len(effects.writes) - len(paths)
    left = f", and {more} more that the action names" if more else ""
    return f"changes {', '.join(paths)}{left} (with everything below) in {workspace.path}"


def _told_network(effects: Effects, policy: EgressPolicy, searchers: Sequence[Searcher], walled: bool) -> str:
    if not effects.network:
        return "no network"
    if not walled:
        return "network: unknown, since its sandbox does not cut the network off"
    if not opens(policy):
        return "no network"
    allowed = dict.fromkeys(host for each in policy.secrets for host in each.hosts)
    allowed = dict.fromkeys(each.host for each in policy.allow) | allowed
    reach = [*allowed, *(["package registries"] if policy.registries else [])]
    named = [host for host in effects.hosts if host in allowed]
    refused = [host for host in effects.hosts if host not in allowed and not policy.registries]
    said = f"network: may send to {', '.join(reach)}"
    said += f"; it names {', '.join(named)}" if named else ""
    said += f"; it names {', '.join(refused)}, which is refused" if refused else ""
    return said
