"""The verbs for trust in project settings and for secrets: trust, secret."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import termios
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.mission.contract import mission_found
from holdfast.app.settings.config import environment, trust_store
from holdfast.app.settings.egress_policy import open_vault, secret_sources, secret_uses
from holdfast.app.settings.tables import NAME
from holdfast.app.settings.values import nearest
from holdfast.app.trust_prompt import accept, ask, can_ask, project_found
from holdfast.clock import SystemClock, local_time, rfc3339
from holdfast.errors import NotTrusted, SecretUnavailable, UsageError
from holdfast.privileges import disable_core_dumps
from holdfast.vault.reference_vault import put, take_away, value_of
from holdfast.vault.sources import BYTES_MAX, Source


def trust_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trust`."""
    parser.add_argument("dir", metavar="DIR", nargs="?", default=".", help="Folder of the project (default: .)")
    parser.add_argument("--yes", action="store_true", help="Accept without asking (required without a terminal)")
    parser.add_argument("--list", action="store_true", help="List accepted settings files")
    parser.add_argument("--forget", action="store_true", help="Revoke acceptance for this project")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def trust_run(call: Call) -> int:
    """Show, accept, list, or forget settings files."""
    args = call.args
    if sum((args.yes, args.list, args.forget)) > 1:
        raise UsageError("--yes, --list, and --forget exclude each other; for example: holdfast trust . --yes")
    if args.list:
        return _accepted(call)
    folder = Path(args.dir).resolve()
    if args.forget:
        return _forget(call, folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {args.dir!r}; for example: holdfast trust .")
    return await _accept(call, folder)


async def _accept(call: Call, folder: Path) -> int:
    files = [*project_found(folder, {}), *mission_found(folder, {})]
    if not files:
        raise UsageError(f"there are no project settings for {folder}: no holdfast.toml, mission.toml, or hooks")
    for each in files:
        if call.json:
            call.emit(each.public())
    bad = next((each.file for each in files if each.file.problem), None)
    if bad is not None:
        raise NotTrusted(f"{bad.path} cannot be accepted: {bad.problem}; fix that and run the command again")
    if all(each.accepted for each in files):
        call.say("accepted already, and unchanged since: " + ", ".join(str(each.file.path) for each in files))
        return exits.DONE
    if call.args.yes:
        for line in (line for each in files for line in each.lines()):
            call.say(line)
    elif not can_ask(call):
        raise UsageError("there is no terminal to ask on, and nothing was accepted; read the files, then add --yes")
    elif not await ask(call, files):
        call.say("nothing was accepted")
        return exits.FAILED
    accept(files)
    call.say("accepted: " + ", ".join(str(each.file.path) for each in files))
    return exits.DONE


def _accepted(call: Call) -> int:
    entries = trust_store().entries()
    for each in entries:
        if call.json:
            call.emit(msgspec.to_builtins(each))
        else:
            call.say(f"{local_time(each.accepted_us)}  uid {each.uid}  sha256 {each.digest[:16]}  {each.path}")
    if not entries:
        call.say("you have accepted no project settings")
    return exits.DONE


def _forget(call: Call, folder: Path) -> int:
    """Forget the files in the folder, or in the nearest one above it that has any."""
    known = {Path(each.path).parent for each in trust_store().entries()}
    place = next((each for each in (folder, *folder.parents) if each in known), folder)
    gone = trust_store().forget(place)
    for path in gone:
        if call.json:
            call.emit({"path": path, "forgotten": True})
        else:
            call.say(f"forgotten: {path}")
    if not gone:
        call.say(f"nothing was accepted for {folder}")
    return exits.DONE


ACTIONS = ("list", "check", "set", "remove")


def secret_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `secret`."""
    parser.add_argument("action", metavar="list|check|set|remove", choices=ACTIONS, help="Action (there is no get)")
    parser.add_argument("name", metavar="NAME", nargs="?", help="Name of the secret (required by set and remove)")
    parser.add_argument("--keyring", action="store_true", help="With set: store a new secret in the system keyring")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def secret_run(call: Call) -> int:
    """List, check, set, or remove secrets. Only `set` reads a value."""
    action, name = call.args.action, call.args.name
    if call.args.keyring and action != "set":
        raise UsageError("--keyring is for `set` alone; for example: holdfast secret set github --keyring")
    if action in ("set", "remove"):
        if name is None:
            raise UsageError(f"say which secret; for example: holdfast secret {action} github")
        return await _set(call, name) if action == "set" else _remove(call, name)
    sources = [_source(call, name)] if name is not None else list(secret_sources(call.settings))
    if not sources:
        call.say(f"there are no secrets; add one: {call.typed('secret', 'set', 'NAME')}")
    return _check(call, sources) if action == "check" else _listed(call, sources)


def _source(call: Call, name: str) -> Source:
    known = {source.name: source for source in secret_sources(call.settings)}
    if name not in known:
        meant = nearest(name, known) if known else "there is no [secrets.NAME] table in your own holdfast.toml yet"
        raise UsageError(f"there is no secret {name!r}; {meant}")
    return known[name]


def _listed(call: Call, sources: list[Source]) -> int:
    for source in sources:
        use = next(use for use in secret_uses(call.settings) if use.name == source.name)
        told: dict[str, Any] = {
            "name": source.name,
            "from": source.described(),
            "hosts": list(use.hosts),
            "variable": use.variable or None,
            "header": use.header,
            "basic": use.basic,
            "methods": list(use.methods),
            "paths": list(use.paths),
            "headers": list(use.headers),
            "push": list(use.push),
            "expires": rfc3339(source.expires_us) if source.expires_us is not None else None,
        }
        if call.json:
            call.emit(told)
            continue
        until = f", until {told['expires'][:10]}" if told["expires"] else ""
        shown = f" as {told['variable']}" if told["variable"] else ""
        call.say(f"{source.name:<16} {told['from']:<40} for {', '.join(told['hosts'])}{shown}{until}")
    return exits.DONE


def _check(call: Call, sources: list[Source]) -> int:
    vault, code = open_vault(call.settings, SystemClock()), exits.DONE
    for source in sources:
        problem = ""
        try:
            vault.resolve(source.name)
        except SecretUnavailable as error:
            problem, code = str(error), exits.UNABLE
        if call.json:
            call.emit({"name": source.name, "ok": not problem, "problem": problem or None})
        else:
            call.say(f"{'BAD' if problem else 'ok ':<4} {source.name}{f': {problem}' if problem else ''}")
    return code


async def _set(call: Call, name: str) -> int:
    if NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} cannot be the name of a secret: take letters, digits, - and _, up to 32")
    known = {source.name: source for source in secret_sources(call.settings)}
    source = known.get(name)
    if source is not None and call.args.keyring and source.kind != "keyring":
        raise UsageError(
            f"the secret {name!r} is at {source.described()}, as your holdfast.toml says; leave --keyring out, or "
            f'write from = "keyring:holdfast/{name}" there first'
        )
    fresh = source is None
    if source is None:
        home = Path(call.settings.home).absolute()
        place = ("holdfast", name) if call.args.keyring else (str(home / "secrets" / name),)
        source = Source(name, "keyring" if call.args.keyring else "file", place)
    disable_core_dumps()
    value = b"" if sys.stdin is None else await (_typed(name) if sys.stdin.isatty() else _given())
    put(source, value_of(value), environment(), SystemClock())
    where = f"{source.kind}:{'/'.join(source.place)}"
    if call.json:
        call.emit({"name": name, "from": where, "kept": True})
    else:
        call.say(f"{name} is kept at {where}")
    if fresh:
        call.note(
            f'to use it, add to your own holdfast.toml: [secrets.{name}] from = "{where}" hosts = ["api.example.com"] '
            'variable = "API_KEY"'
        )
    return exits.DONE


async def _typed(name: str) -> bytes:
    """One line of the terminal, read without echo. Its echo is restored afterwards, also after Ctrl-C."""
    await anyio.lowlevel.checkpoint()  # signals are handled from here on, so that the echo is restored
    terminal = sys.stdin.fileno()
    before, quiet = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, quiet)
    try:
        print(f"value of {name}: ", end="", file=sys.stderr, flush=True)
        await anyio.wait_readable(terminal)
        line = os.read(terminal, BYTES_MAX + 3)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        print(file=sys.stderr)
    if line and not line.endswith(b"\n"):
        raise UsageError("that is more than a terminal takes on one line; give it on standard input: < FILE")
    return line


async def _given() -> bytes:
    """Read all of standard input, up to a little more than the maximum length of a secret."""
    source, data = sys.stdin.fileno(), b""
    mode = os.fstat(source).st_mode
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)  # files are always ready and cannot be polled
    while len(data) <= BYTES_MAX + 2:
        if waits:
            await anyio.wait_readable(source)
        piece = os.read(source, BYTES_MAX)
        if not piece:
            break
        data += piece
    return data


def _remove(call: Call, name: str) -> int:
    known = {source.name: source for source in secret_sources(call.settings)}
    kept = Path(call.settings.home).absolute() / "secrets" / name
    source = known.get(name) or (
        Source(name, "file", (str(kept),)) if NAME.fullmatch(name) and kept.is_file() else None
    )
    source = source or _source(call, name)
    was = take_away(source, environment(), SystemClock())
    where = f"{source.kind}:{'/'.join(source.place)}"
    if call.json:
        call.emit({"name": name, "from": where, "removed": was})
    else:
        call.say(f"{name} is removed from {where}" if was else f"there was nothing at {where}")
    if name in known:
        call.note(f"your holdfast.toml still has [secrets.{name}]; delete it, or set the secret again")
    return exits.DONE
