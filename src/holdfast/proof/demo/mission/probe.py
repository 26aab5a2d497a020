"""Run a library's tests in hands with bodies missing, and cache the results."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from anyio.abc import ObjectReceiveStream

from holdfast.app.compose import Runtime
from holdfast.clock import SystemClock
from holdfast.errors import HandsError
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, ExecResult, Hands, HandsSpec
from holdfast.hands.user import choose_user, make_ready
from holdfast.ids import new_hands_id, system_entropy
from holdfast.proof.rebuild.items import WorkItem, there_with, with_tests
from holdfast.proof.rebuild.library import PYTHON, TESTDEPS_INSIDE, Library, interpreter_of, read_plain
from holdfast.proof.rebuild.probe import (
    ASK,
    FOLDER,
    OUT,
    PLUGIN,
    RUN_TIMEOUT_S,
    Ask,
    Line,
    Needs,
    command,
    decode,
    entered,
    entering,
    failing,
    identity,
    keep,
    needs,
    plugin,
    read_lines,
)
from holdfast.proof.rebuild.stripped import Whole
from holdfast.proof.rebuild.tree import SourceFile, write_tree

MAKES = 3
"""Attempts to provision hands."""

RUN_OVERHEAD_S = 1.0
"""Approximate overhead of one run of a part of the suite."""

AT_ONCE = 2
"""Number of concurrent test suites; each takes a processor."""

_EPOCH = 1


class Runner:
    """Runs commands in hands, one after another."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._runs = 0

    async def run(self, command: str, timeout_s: float) -> ExecResult:
        """Run a command to its end."""
        self._runs += 1
        call_id = f"run.{self._runs}"
        await self._hands.start(_EPOCH, call_id, ExecRequest("bash", {"command": command}, timeout_s))
        return await self._hands.wait(_EPOCH, call_id)


@asynccontextmanager
async def hands_on(runtime: Runtime, folder: Path, dependencies: Path, name: str) -> AsyncIterator[Runner]:
    """Provide fresh hands on a folder, whose owner they become; remove both afterwards."""
    workspace = Workspace(str(folder), True, read_only={str(dependencies): TESTDEPS_INSIDE})
    make_ready(workspace, choose_user(workspace))
    spec = HandsSpec(
        session_id=name,
        hands_id=new_hands_id(SystemClock().now_us(), system_entropy),
        workspace=workspace,
        read_only=workspace.read_only,
    )
    hands = await _provision(runtime, spec)
    try:
        yield Runner(hands)
    finally:
        with anyio.CancelScope(shield=True):
            await hands.release(_EPOCH)
            shutil.rmtree(folder, ignore_errors=True)


async def _provision(runtime: Runtime, spec: HandsSpec) -> Hands:
    """Provision hands; retry a few times, since a sandbox may fail right after boot."""
    provider = runtime.provider(spec.workspace)
    for _ in range(MAKES - 1):
        with contextlib.suppress(HandsError):
            return await provider.provision(spec, _EPOCH)
        spec = msgspec.structs.replace(spec, hands_id=new_hands_id(SystemClock().now_us(), system_entropy))
    return await provider.provision(spec, _EPOCH)


class Booth:
    """Hands with the library in place, where single files are changed for a run and restored."""

    def __init__(self, runner: Runner, folder: Path, library: Library) -> None:
        self._runner = runner
        self._folder = folder
        self._library = library

    async def run(self, files: Mapping[str, bytes], command: str, timeout_s: float) -> bytes:
        """Run a command with these files changed. Return the plug-in's answer, or b"" if there is none."""
        (self._folder / OUT).unlink(missing_ok=True)
        for path, data in files.items():
            (self._folder / path).write_bytes(data)
        try:
            await self._runner.run(command, timeout_s)
        finally:
            for path in files:
                if path in self._library.tree:
                    (self._folder / path).write_bytes(self._library.tree[path].data)
        return read_plain(self._folder, OUT) if (self._folder / OUT).is_file() else b""


@asynccontextmanager
async def booth(runtime: Runtime, library: Library, dependencies: Path, name: str) -> AsyncIterator[Booth]:
    """Provide a booth of that name; remove its folder and hands afterwards."""
    folder = runtime.home.workspaces / name
    shutil.rmtree(folder, ignore_errors=True)
    write_tree({**library.tree, PLUGIN: SourceFile(plugin())}, folder)
    async with hands_on(runtime, folder, dependencies, name) as runner:
        yield Booth(runner, folder, library)


Say = Callable[[str], None]


async def find_needs(
    runtime: Runtime, library: Library, whole: Whole, dependencies: Path, name: str, say: Say
) -> Needs:
    """Find the bodies that each test needs and the tests of each body, from the cache where possible."""
    interpreter = await anyio.to_thread.run_sync(interpreter_of, PYTHON)
    path = runtime.home.cache / "missions" / f"{library.name}-{identity(library, whole, interpreter)}.jsonl"
    lines = {line.missing: line for line in read_lines(path)}
    wanted = [number for number in range(-1, len(whole.bodies)) if number not in lines]
    took_s = 0.0
    if wanted:
        async with anyio.create_task_group() as group:
            send, receive = anyio.create_memory_object_stream[Callable[[Booth], Awaitable[None]]](len(wanted))
            if -1 in wanted:
                async with booth(runtime, library, dependencies, f"{name}-{FOLDER.strip('.')}") as one:
                    say(f"running the suite of {library.pin} once, to see what each test enters …")
                    began_s = SystemClock().monotonic_s()
                    lines[-1] = await entered(library, whole, one.run)
                    keep(path, lines[-1])
                    took_s = SystemClock().monotonic_s() - began_s
            left = [number for number in wanted if number >= 0]
            if left:
                say(estimate(whole, lines[-1], left, took_s))

            def job(number: int) -> Callable[[Booth], Awaitable[None]]:
                async def run(one: Booth) -> None:
                    tests = entering(lines[-1], number)
                    failed = await failing(library, whole, number, tests, one.run) if tests else ()
                    lines[number] = Line(number, failed=failed)
                    keep(path, lines[number])
                    file = whole.bodies[number].file
                    mine = [n for n, block in enumerate(whole.bodies) if block.file == file]
                    if all(n in lines for n in mine):
                        say(f"  {file}: {len(mine)} bodies ({len(lines) - 1} of {len(whole.bodies)} in all)")

                return run

            for number in left:
                send.send_nowait(job(number))
            send.close()
            for place in range(min(AT_ONCE, len(left))):
                group.start_soon(_work, runtime, library, dependencies, f"{name}-probe-{place}", receive.clone())
            receive.close()
    return needs(list(lines.values()))


def estimate(whole: Whole, all_there: Line, left: Sequence[int], took_s: float) -> str:
    """Describe the amount of probing, with a time estimate if the whole suite was just run."""
    runs = [len(entering(all_there, number)) for number in left]
    files = len({whole.bodies[number].file for number in left})
    text = f"taking out {len(left)} bodies one at a time, in {files} modules, and running {sum(runs)} tests"
    if not took_s or not all_there.entered:
        return text
    seconds = (sum(runs) * took_s / len(all_there.entered) + RUN_OVERHEAD_S * sum(map(bool, runs))) / AT_ONCE
    return f"{text}, about {max(1, round(seconds / 60))} min"


async def _work(
    runtime: Runtime,
    library: Library,
    dependencies: Path,
    name: str,
    jobs: ObjectReceiveStream[Callable[[Booth], Awaitable[None]]],
) -> None:
    async with jobs, booth(runtime, library, dependencies, name) as one:
        async for job in jobs:
            await job(one)


async def proven(
    runtime: Runtime, library: Library, whole: Whole, items: tuple[WorkItem, ...], dependencies: Path, name: str
) -> tuple[WorkItem, ...]:
    """Drop tests that do not pass when only the item and its dependencies are present."""
    digest = hashlib.sha256(library.sha256.encode() + msgspec.json.encode(items)).hexdigest()[:32]
    path = runtime.home.cache / "missions" / f"{library.name}-{digest}.proven.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[WorkItem, ...])
    except (OSError, msgspec.MsgspecError):
        pass
    kept: list[WorkItem] = []
    async with booth(runtime, library, dependencies, f"{name}-proof") as one:
        for item in items:
            tests = [test for cluster in item.clusters for test in cluster.tests]
            files = {**whole.tree_with(there_with(item, items)), ASK: msgspec.json.encode(Ask({}))}
            data = await one.run(files, command(library, tests), RUN_TIMEOUT_S) if tests else b""
            known = decode(data).tests if data else {}
            passing = {test for test, (outcome, _) in known.items() if outcome == "passed"}
            kept.append(with_tests(item, passing))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{name}.new")
    new.write_bytes(msgspec.json.encode(kept))
    new.replace(path)
    return tuple(kept)
