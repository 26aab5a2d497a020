"""`holdfast anchor`: note the heads of chains elsewhere, so that a log that is cut off or written anew shows."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from pathlib import Path

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.exits import machine_trouble
from holdfast.app.screen.progress import counted
from holdfast.app.ssh_signatures import sign
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.log.anchors import lines_of, signature_line

LIMIT_S = 60.0
"""A command that keeps the anchors ends within this."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", nargs="*", help="only these sessions (default: all, and the home)")
    parser.add_argument("--to", metavar="FILE", type=Path, help="append the anchors to this file")
    parser.add_argument("--sign", metavar="KEY", type=Path, help="sign them with this SSH key, in namespace holdfast")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--exec", metavar="CMD", nargs=argparse.REMAINDER, help="hand the anchors to this command on standard input"
    )


async def run(call: Call) -> int:
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
