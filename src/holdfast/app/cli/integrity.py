"""The verbs about whole logs: verify and anchor, with SSH signatures by ssh-keygen, and migrate."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import open_runtime, postgres
from holdfast.app.exits import machine_trouble
from holdfast.app.home import Home, open_home, workers
from holdfast.app.settings.config import database_path
from holdfast.app.settings.values import postgres_address
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, LogDamaged, UsageError
from holdfast.ids import system_entropy
from holdfast.log.anchors import Block, check, lines_of, parse, signature_line
from holdfast.log.search.index import search_path
from holdfast.log.verify import Finding, verify
from holdfast.log.worker_locks import is_live
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


def migrate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `migrate`."""
    parser.add_argument(
        "address",
        metavar="URL",
        nargs="?",
        help="Address of the database, without a password (default: HOLDFAST_DB); libpq finds passwords in ~/.pgpass "
        "and PGPASSWORD",
    )
    parser.add_argument(
        "to",
        metavar="TO",
        nargs="?",
        help="Copy the log at URL to this address, and verify it there: from sqlite:///PATH to PostgreSQL, or back",
    )
    parser.add_argument(
        "--take-over", action="store_true", help="Move the sessions of a home whose machine is lost to this home"
    )
    parser.add_argument(
        "--lost", metavar="PLACE", default="", help="With --take-over: that home, if several have no worker"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def migrate_run(call: Call) -> int:
    """Create the tables of a log, or bring them to the version of this program; or copy a log."""
    if call.args.to:
        return await _copy(call)
    address = postgres_address(call.args.address or call.settings.db)
    if not address:
        raise UsageError(
            "migrate needs the address of a PostgreSQL database; for example: "
            "holdfast migrate postgresql://holdfast@db.example.com/agents"
        )
    place = postgres("connect").place_of(address)
    if call.args.take_over:
        return await _take_over(call, address, place)
    before, after = await anyio.to_thread.run_sync(partial(postgres("migrate").migrate, address))
    if call.json:
        call.emit({"database": place, "from": before, "to": after})
    elif before == after:
        call.say(f"{place}: the tables have version {after}; nothing to do")
    else:
        call.say(
            f"{place}: {'created the tables,' if not before else f'migrated the tables from version {before} to'} "
            f"version {after}"
        )
    return 0


async def _take_over(call: Call, address: str, place: str) -> int:
    """Move the sessions of a home that is lost to the home of this command."""
    here = _place(open_home(Path(call.settings.home))).place_id
    work = partial(postgres("migrate").take_over, address, here, call.args.lost)
    lost, trees = await anyio.to_thread.run_sync(work)
    if call.json:
        call.emit({"database": place, "from": lost, "to": here, "trees": trees})
    elif not trees:
        call.say(f"{place}: no other home without a worker has sessions; nothing to do")
    else:
        call.say(f"{counted(trees, 'session')} of {lost} belong to this home now, with all below them")
        call.note(
            "Sessions continue with the next worker. Commands that ran on the lost machine have an unknown outcome."
        )
        if not call.settings.objects:
            call.note("Their workspaces are lost with it: no object store is set (docs/many-machines.md).")
    return 0


def _place(home: Home) -> Any:
    return postgres("places").Place.of(home.workers, system_entropy)


async def _copy(call: Call) -> int:
    """Copy a log and verify it there, see `holdfast.log.postgres.copying`. The target is complete, or as before."""
    former, to = (replace(call.settings, db=each) for each in (call.args.address, call.args.to))
    source, target = postgres_address(former.db), postgres_address(to.db)
    if bool(source) == bool(target):
        raise UsageError(
            "migrate copies a log from a file to PostgreSQL, or back; for example: "
            "holdfast migrate sqlite:////var/lib/agents.db postgresql://holdfast@db.example.com/agents"
        )
    home, copying = open_home(Path(call.settings.home)), postgres("copying")
    if running := workers(home, database_path(former)):
        raise UsageError(f"worker {running[0]} serves this log; nothing was copied: stop it, and try again")
    file = database_path(to if source else former)
    draft = file.with_name(f".{file.name}.copying")
    try:
        if source:
            _remove(draft)
            copied = await anyio.to_thread.run_sync(copying.to_file, source, file, draft)
            to = replace(to, db=f"sqlite:///{draft}")
        else:
            work = partial(copying.to_postgres, file, target, _place(home), partial(is_live, home.workers))
            copied = await anyio.to_thread.run_sync(work)
        async with open_runtime(to) as runtime:
            findings = (await verify(runtime.store)).findings
        if findings and target:
            await anyio.to_thread.run_sync(copying.empty, target)
        if findings:
            raise LogDamaged(
                f"the copy does not verify ({findings[0].message}), and was removed: see `holdfast verify`"
            )
        if source:
            os.link(draft, file)  # fails if the name was taken meanwhile
    finally:
        _remove(draft)
    _remove(search_path(home.database))  # its positions are those of the former log
    if call.json:
        call.emit({"from": call.args.address, "to": call.args.to, "sessions": copied.sessions, "events": copied.events})
        return 0
    call.say(
        f"copied {counted(copied.sessions, 'session')}, {counted(copied.events, 'event')}: all chains and rows verify"
    )
    call.note(f"Set HOLDFAST_DB={call.args.to} from now on. The former log is as it was; do not use it any more.")
    return 0


def _remove(file: Path) -> None:
    """Delete a database file, with what SQLite keeps beside it."""
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)
