"""`holdfast demo --cluster N`: workers serve one log in PostgreSQL, one of them is killed, and the others go on."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, Runtime, open_runtime, postgres
from holdfast.app.running.opening import check_machine
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown
from holdfast.log.verify import verify
from holdfast.session.money import HOME_ACCOUNT

MOST, EACH, STEPS = 8, 2, 5
"""Most workers, sessions for each, and commands of a session."""

LOOK_S, LONGEST_S, START_S = 0.5, 180.0, 30.0
"""Interval of looks, longest time for all sessions, and time for the database to start."""

_USERS = ("postgres", "nobody")
"""Users to run a database as when root may not: the first one that exists."""


async def run_cluster(call: Call, workers: int) -> int:
    """Run the demo. Returns 0 if all sessions are done, each command ran once, and the log verifies."""
    if not 2 <= workers <= MOST:
        raise UsageError(f"--cluster {workers} has to be from 2 to {MOST}, such as --cluster 3")
    with _folder(call.args.keep) as folder, _server(folder / "postgres") as address:
        await anyio.to_thread.run_sync(postgres("migrate").migrate, address)
        settings = replace(call.settings, home=str(folder / "home"), db=address, objects="")
        async with open_runtime(settings) as runtime:
            sessions = [await _open(call, runtime, number) for number in range(EACH * workers)]
            processes = [_worker(runtime, address, number) for number in range(workers)]
            try:
                killed, moved_s = await _watch(call, runtime, sessions, processes)
            finally:
                _end(processes)
            return await _told(call, runtime, sessions, killed, moved_s)


async def _open(call: Call, runtime: Runtime, number: int) -> str:
    """Open a session whose model is a script: some commands, then an answer."""
    session_id = runtime.intake.new_session_id()
    turns: list[dict[str, Any]] = [
        {"text": "", "tool_calls": [{"name": "bash", "input": {"command": f"sleep 1; echo step {step} >> steps"}}]}
        for step in range(STEPS)
    ]
    script = runtime.home.path / f"session{number}.json"
    script.write_text(json.dumps({"turns": [*turns, {"text": "All steps are done."}]}), encoding="utf-8")
    workspace = runtime.fresh_workspace(session_id, Workspace(""))
    if not number:
        await check_machine(call, runtime, workspace)
    created = SessionCreated(
        goal=f"{STEPS} steps, a second each",
        agent=Agent(model=f"scripted:{script}", name="demo"),
        workspace=workspace,
        key=f"session-{number + 1}",
        accounts=(session_id, HOME_ACCOUNT),
        program=PROGRAM,
    )
    await runtime.intake.open(session_id, created)
    return session_id


def _worker(runtime: Runtime, address: str, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "holdfast", "worker", "--concurrency", str(EACH + 1)]
    with (runtime.home.logs / f"worker{number + 1}.log").open("ab") as output:
        return subprocess.Popen(
            [*command, "--home", str(runtime.home.path), "--db", address],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip


async def _watch(
    call: Call, runtime: Runtime, sessions: list[str], processes: list[subprocess.Popen[bytes]]
) -> tuple[int, float]:
    """Print who has how many sessions until all are done, and kill a worker once each has one.

    Returns how many sessions it had, and the seconds until others had them.
    """
    clock, taken, shown = SystemClock(), set[str](), ""
    began_s, killed_s, moved_s = clock.monotonic_s(), 0.0, 0.0
    call.say("  seconds  " + "".join(f"{f'worker {number + 1}':>10}" for number in range(len(processes))) + "   done")
    while clock.monotonic_s() < began_s + LONGEST_S:
        holders = await runtime.store.holders()
        pids = {session_id: await _pid(runtime, session_id) for session_id in holders}
        held = Counter(pids.values())
        rows = [await runtime.store.find(session_id) for session_id in sessions]
        done = sum(row.status == "done" for row in rows)
        now_s = clock.monotonic_s() - began_s
        cells = [f"{held[each.pid] if each.poll() is None else 'killed':>10}" for each in processes]
        if (line := "".join(cells) + f"{done:>4} of {len(sessions)}") != shown:
            call.say(f"{now_s:9.1f}  {line}")
            shown = line
        if done == len(sessions):
            break
        victim = max(processes, key=lambda each: held[each.pid])
        if not taken and all(held[each.pid] for each in processes):
            taken = {session_id for session_id, pid in pids.items() if pid == victim.pid}
            killed_s = clock.monotonic_s()
            victim.send_signal(signal.SIGKILL)
            await anyio.to_thread.run_sync(victim.wait)
        elif taken and not moved_s and all(row.holder in holders.values() for row in rows if row.session_id in taken):
            moved_s = clock.monotonic_s() - killed_s
        await clock.sleep(LOOK_S)
    return len(taken), moved_s


async def _pid(runtime: Runtime, session_id: str) -> int:
    events = await runtime.store.read(session_id)
    return next((event.fact.pid for event in reversed(events) if isinstance(event.fact, ShiftStarted)), 0)


async def _told(call: Call, runtime: Runtime, sessions: list[str], killed: int, moved_s: float) -> int:
    """Say what happened, by the log and by the files of the sessions."""
    rows = [await runtime.store.find(session_id) for session_id in sessions]
    facts = [event.fact for each in sessions for event in await runtime.store.read(each)]
    unknown = sum(isinstance(fact, ToolOutcomeUnknown) for fact in facts)
    ran = sum(isinstance(fact, ToolDispatched) for fact in facts)
    lines = [(Path(row.workspace) / "steps").read_text(encoding="utf-8").splitlines() for row in rows]
    right = sum(each == [f"step {step}" for step in range(STEPS)] for each in lines)
    whole = not (await verify(runtime.store)).findings
    done = sum(row.status == "done" for row in rows)
    good = done == right == len(sessions) and killed > 0 and whole
    if call.json:
        told = {"sessions": len(sessions), "done": done, "right": right, "killed_with": killed, "moved_s": moved_s}
        call.emit({"type": "result", **told, "unknown": unknown, "verifies": whole, "ok": good})
        return 0 if good else 1
    call.say("\nWhat happened")
    call.say(f"  killed   a worker with {killed} sessions; others had them after {moved_s:.1f} s")
    call.say(f"  work     {done} of {len(sessions)} sessions are done; {ran} commands, {unknown} of unknown outcome")
    call.say(f"  files    {right} of {len(sessions)} have each step once, in order")
    call.say(f"  log      {'all chains and rows verify' if whole else 'it does not verify'}")
    return 0 if good else 1


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """A folder for the demo, which is removed afterwards unless the user named it."""
    folder = Path(keep).absolute() if keep else Path(tempfile.mkdtemp(prefix="holdfast-cluster-"))
    if keep and folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name a new or empty folder with --keep")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """A PostgreSQL that only its user, and root, can reach: by a socket in this folder. Yields its address."""
    found = [shutil.which("initdb"), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")))]
    initdb = Path(next(filter(None, found), "") or "")
    if not initdb.name:
        raise CannotRunSafely(
            "the programs of PostgreSQL are not installed, which this demo runs; nothing was started: "
            "apt install postgresql"
        )
    folder.mkdir()
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        names = {each.pw_name: each for each in pwd.getpwall()}
        entry = next(names[name] for name in _USERS if name in names)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    words = ["-D", "data", "-U", "holdfast", "--auth=trust", "-E", "UTF8", "--no-sync"]
    made = subprocess.run([initdb, *words], cwd=folder, env=env, capture_output=True, text=True, check=False, **user)
    if made.returncode:
        raise CannotRunSafely(f"initdb failed; nothing was started: {made.stderr.strip().splitlines()[-1]}")
    options = ("listen_addresses=", f"unix_socket_directories={folder}", "unix_socket_permissions=0700")
    command = [str(initdb.with_name("postgres")), "-D", "data", *(word for each in options for word in ("-c", each))]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, **user)
    try:
        until_s = SystemClock().monotonic_s() + START_S
        while b"ready to accept connections" not in (folder / "log").read_bytes():
            if server.poll() is not None or SystemClock().monotonic_s() > until_s:
                raise CannotRunSafely(f"PostgreSQL did not start; its output is in {folder / 'log'}")
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.05)
        yield f"postgresql:///postgres?host={folder}&user=holdfast"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
