"""`holdfast verify`: the chain and the rows of one session, or of all."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.screen.progress import counted
from holdfast.app.ssh_signatures import problem_with
from holdfast.errors import UsageError
from holdfast.log.anchors import Block, check, parse
from holdfast.log.verify import Finding, verify


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", nargs="?", help="one session; all of them when left out")
    parser.add_argument("--anchor", metavar="FILE", type=Path, help="compare with the anchors in this file, too")
    parser.add_argument(
        "--allowed-signers", metavar="FILE", type=Path, help="anchors count only with a signature that this file allows"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Check it."""
    async with open_runtime(call.settings) as runtime:
        name = call.args.session
        session_id = (await runtime.store.find(name)).session_id if name else None
        blocks, problems = _read(call.args.anchor, call.args.allowed_signers)
        verified = await verify(runtime.store, session_id)
        anchors = [anchor for block in blocks for _, anchor in block.anchors]
        missing = await check(runtime.store, anchors, session_id)
        found = (*verified.findings, *missing, *(Finding("", 0, problem) for problem in problems))
        verified = msgspec.structs.replace(verified, findings=found)
    if call.json:
        call.emit(msgspec.to_builtins(verified))
    else:
        for finding in verified.findings:
            where = f"{finding.session_id} at {finding.seq}: " if finding.session_id else ""
            call.say(f"DAMAGED  {where}{finding.message}")
        call.say(
            f"{counted(verified.sessions, 'session')}, {counted(verified.events, 'event')}: "
            + (counted(len(verified.findings), "finding") if verified.findings else _all_well(len(anchors)))
        )
    return exits.DAMAGED if verified.findings else exits.DONE


def _all_well(anchors: int) -> str:
    return "all chains and rows verify" + (f", and {counted(anchors, 'anchor')}" if anchors else "")


def _read(file: Path | None, allowed: Path | None) -> tuple[list[Block], list[str]]:
    """The anchors of a file, and what is wrong with the file or its signatures."""
    if file is None:
        if allowed is not None:
            raise UsageError("--allowed-signers is about anchors; name their file: --anchor FILE")
        return [], []
    try:
        data = file.read_bytes()
        if allowed is not None:
            allowed.read_bytes()
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read ({error.strerror}); nothing was compared") from error
    blocks, problems = parse(data)
    if not blocks and not problems:
        raise UsageError(f"{file} has no anchors, so nothing can be compared; `holdfast anchor --to {file}` adds some")
    for block in blocks:
        first, last = block.anchors[0][0], block.anchors[-1][0]
        if block.signature:
            problem = problem_with(block.data, block.signature, allowed)
            problem = problem and f"the signature of lines {first} to {last} of {file} is not good: {problem}"
        else:
            problem = f"lines {first} to {last} of {file} are not signed" if allowed is not None else ""
        problems += [problem] if problem else []
    return blocks, problems
