"""The verbs that check the integrity of logs: verify and anchor, with SSH signatures by ssh-keygen."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.exits import machine_trouble
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.log.anchors import Block, check, lines_of, parse, signature_line
from holdfast.log.verify import Finding, verify
from holdfast.service.event_lines import counted


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    parser.add_argument("session", metavar="ID", nargs="?", help="Session ID or key (default: all sessions)")
    parser.add_argument("--anchor", metavar="FILE", type=Path, help="Also compare with the anchors in this file")
    parser.add_argument(
        "--allowed-signers", metavar="FILE", type=Path, help="Require anchor signatures by a key in this file"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def verify_run(call: Call) -> int:
    """Verify the log."""
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
        result = "all chains and rows verify" + (f", and {counted(len(anchors), 'anchor')}" if anchors else "")
        if verified.findings:
            result = counted(len(verified.findings), "finding")
        call.say(f"{counted(verified.sessions, 'session')}, {counted(verified.events, 'event')}: {result}")
    return exits.DAMAGED if verified.findings else exits.DONE


def _read(file: Path | None, allowed: Path | None) -> tuple[list[Block], list[str]]:
    """The anchors of a file, and the problems of the file or its signatures."""
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
"""Time limit of a command that stores the anchors, in seconds."""


def anchor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `anchor`."""
    parser.add_argument("session", metavar="ID", nargs="*", help="Sessions to anchor (default: all, and the home)")
    parser.add_argument("--to", metavar="FILE", type=Path, help="Append the anchors to this file")
    parser.add_argument("--sign", metavar="KEY", type=Path, help="Sign with this SSH key (namespace holdfast)")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.add_argument("--exec", metavar="CMD", nargs=argparse.REMAINDER, help="Pipe the anchors to this command")


async def anchor_run(call: Call) -> int:
    """Write the anchors."""
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
    """Append whole lines to a file, and sync it to disk before returning."""
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
    """Run a user's command with the anchors as its input. It need not read them, but must end within `LIMIT_S`."""
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


# --- SSH signatures: Holdfast holds no key


NAMESPACE = "holdfast"
"""The namespace of the signatures: a signature made for another purpose is invalid."""

SIGNING_S = 120.0
"""Time limit of ssh-keygen in seconds: the user may have to type a passphrase."""


def sign(data: bytes, key: Path) -> str:
    """Sign `data` with a private key, or with the agent's key for a public one. Raises `CannotRunSafely`."""
    done = _ssh_keygen(data, "sign", "-f", str(key), "-n", NAMESPACE)
    if done.returncode != 0 or not done.stdout:
        raise CannotRunSafely(
            f"{key} cannot sign ({_last_line(done)}); nothing was written: name a key that ssh-keygen -Y sign takes"
        )
    return done.stdout.decode("ascii", "replace")


def problem_with(data: bytes, signature: str, allowed: Path | None) -> str:
    """Check a signature of `data` and return the problem, or an empty string.

    Without a file of allowed signers, a signature by any key is valid.
    """
    with tempfile.NamedTemporaryFile(prefix="holdfast-signature-") as file:
        file.write(signature.encode("utf-8", "replace"))
        file.flush()
        if allowed is None:
            done = _ssh_keygen(data, "check-novalidate", "-n", NAMESPACE, "-s", file.name)
            return "" if done.returncode == 0 else _last_line(done)
        who = _ssh_keygen(b"", "find-principals", "-s", file.name, "-f", str(allowed))
        names = who.stdout.decode("utf-8", "replace").splitlines() if who.returncode == 0 else []
        if not names:
            return f"{allowed} does not allow its key"
        done = _ssh_keygen(data, "verify", "-f", str(allowed), "-I", names[0], "-n", NAMESPACE, "-s", file.name)
        return "" if done.returncode == 0 else _last_line(done)


def _ssh_keygen(data: bytes, verb: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", "-Y", verb, *words], input=data, capture_output=True, timeout=SIGNING_S)
    except FileNotFoundError:
        raise CannotRunSafely("there is no ssh-keygen on this machine: apt install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise CannotRunSafely(f"ssh-keygen did not end within {SIGNING_S:.0f} s, and was ended") from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else f"ssh-keygen ended with status {done.returncode}"
