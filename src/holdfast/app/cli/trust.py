"""`holdfast trust`: accept the settings files of a project, after seeing what they change."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.mission.trust import mission_found
from holdfast.app.settings.config import trust_store
from holdfast.app.trusting import accept, ask, can_ask, project_found
from holdfast.errors import NotTrusted, UsageError


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("dir", metavar="DIR", nargs="?", default=".", help="a folder of the project (default: .)")
    parser.add_argument("--yes", action="store_true", help="accept without a question; needed without a terminal")
    parser.add_argument("--list", action="store_true", help="list what you have accepted")
    parser.add_argument("--forget", action="store_true", help="forget what you have accepted in this project")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


async def run(call: Call) -> int:
    """Show, accept, list, or forget."""
    args = call.args
    if sum((args.yes, args.list, args.forget)) > 1:
        raise UsageError("--yes, --list, and --forget exclude each other; an example is: holdfast trust . --yes")
    if args.list:
        return _list(call)
    folder = Path(args.dir).resolve()
    if args.forget:
        return _forget(call, folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {args.dir!r}; an example is: holdfast trust .")
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
        raise NotTrusted(f"{bad.path} cannot be accepted: {bad.problem}; mend that and type it again")
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


def _list(call: Call) -> int:
    entries = trust_store().entries()
    for each in entries:
        if call.json:
            call.emit(msgspec.to_builtins(each))
        else:
            call.say(f"{each.accepted[:19]}Z  uid {each.uid}  sha256 {each.digest[:16]}  {each.path}")
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
