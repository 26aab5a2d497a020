"""The verbs that read or check a log: logs, export, verify, anchor, recover."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import machine_trouble, name_of, next_step
from holdfast.app.home import open_home
from holdfast.app.recovering import check_alone, find_losses, keep_aside, lines, record
from holdfast.app.running.drive import watch
from holdfast.app.screen.progress import counted, in_detail, public
from holdfast.app.settings.config import database_path, nearest
from holdfast.app.ssh_signatures import problem_with, sign
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock, rfc3339
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.codec import Event, genesis
from holdfast.facts.union import FACT_TYPES
from holdfast.log.anchors import Block, check, lines_of, parse, signature_line
from holdfast.log.sqlite.watermark import missing
from holdfast.log.verify import Finding, verify
from holdfast.model.base import StreamPart

PAGE = 1_000


def logs_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until nobody runs it any more")
    parser.add_argument("--after", metavar="SEQ", type=position, default=0, help="only events after this one")
    parser.add_argument("--type", metavar="T", nargs="+", default=[], help="only events of these types")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def position(text: str) -> int:
    """A sequence number, or 0."""
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a sequence number, such as 40")
    return int(text)


async def logs_run(call: Call) -> int:
    """Print them."""
    for name in call.args.type:
        if name not in FACT_TYPES:
            raise UsageError(f"--type {name}: no event has that type; {nearest(name, FACT_TYPES)}")
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        if call.args.follow:
            await watch(runtime, row.session_id, _Lines(call), call.args.after)
            await _ended(call, runtime, row.session_id)
            return 0
        seen, lines = call.args.after, _Lines(call)
        while events := await runtime.store.read(row.session_id, after=seen, limit=PAGE):
            lines.on_events(events)
            seen = events[-1].seq
    return 0


async def _ended(call: Call, runtime: Runtime, session_id: str) -> None:
    """Why there is nothing more to follow."""
    row = await runtime.store.find(session_id)
    state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
    call.note(f"{name_of(row)} is {row.status}; nobody runs it now. {next_step(row, state, call.typed)}")


class _Lines:
    """An observer that prints every event that is asked for."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._types = frozenset(call.args.type)

    def on_events(self, events: list[Event]) -> None:
        """Print them."""
        for event in events:
            if self._types and event.type not in self._types:
                continue
            if self._call.json:
                self._call.emit(public(event))
            else:
                line = f"{event.seq:>6}  {rfc3339(event.at_us)[:23]}  {event.type:<24} {in_detail(event)}"
                self._call.say(line.rstrip())

    def on_delta(self, part: StreamPart) -> None:
        """Deltas are not events."""


def export_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--json", action="store_true", help="JSON lines, as without it")


async def export_run(call: Call) -> int:
    """Print every event, with its hash, verified on the way."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        seen, prev = 0, genesis(row.session_id)
        while events := await runtime.store.read(row.session_id, after=seen, prev=prev, limit=PAGE):
            for event in events:
                call.emit(public(event))
            seen, prev = events[-1].seq, events[-1].hash
    return 0


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", nargs="?", help="one session; all of them when left out")
    parser.add_argument("--anchor", metavar="FILE", type=Path, help="compare with the anchors in this file, too")
    parser.add_argument(
        "--allowed-signers", metavar="FILE", type=Path, help="anchors count only with a signature that this file allows"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


async def verify_run(call: Call) -> int:
    """Check it."""
    async with open_runtime(call.settings) as runtime:
        name = call.args.session
        session_id = (await runtime.store.find(name)).session_id if name else None
        blocks, problems = _read(call.args.anchor, call.args.allowed_signers)
        verified = await verify(runtime.store, session_id)
        anchors = [anchor for block in blocks for _, anchor in block.anchors]
        absent = await check(runtime.store, anchors, session_id)
        found = (*verified.findings, *absent, *(Finding("", 0, problem) for problem in problems))
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


LIMIT_S = 60.0
"""A command that keeps the anchors ends within this."""


def anchor_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", nargs="*", help="only these sessions (default: all, and the home)")
    parser.add_argument("--to", metavar="FILE", type=Path, help="append the anchors to this file")
    parser.add_argument("--sign", metavar="KEY", type=Path, help="sign them with this SSH key, in namespace holdfast")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--exec", metavar="CMD", nargs=argparse.REMAINDER, help="hand the anchors to this command on standard input"
    )


async def anchor_run(call: Call) -> int:
    """Write them."""
    args = call.args
    if (args.to is None) == (not args.exec):
        raise UsageError("say where the anchors go, once: --to FILE or --exec CMD; nothing was written")
    async with open_runtime(call.settings) as runtime:
        rows = await runtime.store.sessions(home=True)
        if args.session:
            rows = [await runtime.store.find(name) for name in args.session]
    data = lines_of(rows, SystemClock().now_us())
    if args.sign is not None and data:
        data += signature_line(data, sign(data, args.sign))
    if args.to is not None:
        _append(args.to, data)
    else:
        _hand_over(args.exec, data)
    where = str(args.to) if args.to is not None else args.exec[0]
    if call.json:
        call.emit({"sessions": len(rows), "signed": args.sign is not None, "to": where})
    else:
        call.say(f"anchored {counted(len(rows), 'session')} in {where}" + (", signed" if args.sign is not None else ""))
    return 0


def _append(file: Path, data: bytes) -> None:
    """Add whole lines to the end of a file, on the disk when this returns."""
    try:
        with file.open("a+b", buffering=0) as out:
            size = out.seek(0, os.SEEK_END) if out.seekable() else 0
            if size and os.pread(out.fileno(), 1, size - 1) != b"\n":
                data = b"\n" + data  # an earlier write was cut off
            left = memoryview(data)
            while left:
                left = left[out.write(left) :]
            if out.seekable():
                os.fsync(out.fileno())
    except OSError as error:
        raise machine_trouble(f"{error.strerror}: {file}") from error


def _hand_over(command: list[str], data: bytes) -> None:
    """Run a command of the user's with the anchors as its input. It need not read them, and has to end in time."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"{command[0]!r} cannot be run ({error}); nothing was anchored") from error
    try:
        child.communicate(data, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise CannotRunSafely(
            f"{command[0]!r} did not end within {LIMIT_S:.0f} s, and was ended: nothing is known to be anchored"
        ) from None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode != 0:
        raise CannotRunSafely(
            f"{command[0]!r} ended with status {child.returncode}: nothing is known to be anchored; run it again"
        )


_BUSY_TIMEOUT_S = 30.0


def recover_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this verb."""
    parser.add_argument("--yes", action="store_true", help="go on without what is missing (default: only show it)")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def recover_run(call: Call) -> int:
    """Show what is missing; with consent, record the loss in each session and open the home again."""
    database, home = database_path(call.settings), open_home(Path(call.settings.home))
    lost = await anyio.to_thread.run_sync(missing, database, _BUSY_TIMEOUT_S)
    if not lost:
        if call.json:
            call.emit({"missing": [], "sessions": [], "strays": {}, "recovered": False, "kept": ""})
        call.say("no acknowledged event is missing; nothing was changed")
        return exits.DONE
    check_alone(home)
    losses = await find_losses(database, home, lost)
    if not call.json:
        for line in lines(losses, lost):
            call.say(line)
    kept = ""
    if call.args.yes:
        kept = str(await anyio.to_thread.run_sync(keep_aside, database, home))
        async with open_runtime(call.settings, accept_loss=True) as runtime:
            check_alone(home, runtime.worker.worker_id)
            await record(runtime, database, losses, lost)
    if call.json:
        named = [{"session_id": mark.session_id, "seq": mark.seq, "at_us": mark.at_us} for mark in lost]
        call.emit({"missing": named, **msgspec.to_builtins(losses), "recovered": bool(kept), "kept": kept})
    if kept:
        call.note(f"the loss is recorded, and the home works again; the files as they were found are kept in {kept}")
        return exits.DONE
    call.note(
        "nothing was changed. Put the newest database and its -wal file back if you have them; to go on without what "
        f"is missing: `{call.typed('recover', '--yes')}`"
    )
    return exits.DAMAGED
