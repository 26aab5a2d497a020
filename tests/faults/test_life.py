"""The life cycle of a home at full size: prune under SIGKILL, and backups of a home whose sessions run.

- prune: 500 finished sessions, 5 at work, and 3 missions; killed at 30 random moments.
- backup: 20 sessions at work; 20 backups, each restored elsewhere, verified, and woken.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from holdfast.environment.layers import size_of
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import SessionEventsLost
from holdfast.log.verify import verify
from tests.app.asking import kill_all
from tests.app.families import until
from tests.app.terminal import HOLDFAST, ended, rows, script, spawn, turn, typed
from tests.service.finished import Builder, building, git, repository
from tests.service.test_backup import at_work

pytestmark = pytest.mark.faults

FINISHED, LIVE, MISSIONS, KILLS = 500, 5, 3, 30
CHANGED = 20
"""Finished sessions whose workspace is not in the snapshot store as it is."""


async def home_of_many(made: Builder, repo: Path) -> dict[str, bytes]:
    """Build the home; the contents that exist only there, by session."""
    for number in range(FINISHED):
        await made.session(f"ses_{number:04}")
    for number in range(MISSIONS):
        await made.mission(f"ses_mission{number}", repo)
    for number in range(LIVE):
        await made.session(f"ses_live{number}", over=False)
    only_here = {}
    for number in range(CHANGED):
        name = f"ses_{number * 7:04}"
        only_here[name] = made.chance.randbytes(3_000)
        (made.workspace(name) / "late").write_bytes(only_here[name])
    return only_here


async def killed_at_random(chance: random.Random, most_s: float, *words: str) -> None:
    process = await anyio.open_process(
        [*HOLDFAST, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with anyio.move_on_after(chance.uniform(0.3, most_s)):
        await process.wait()
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def used(home: Path) -> int:
    return sum(size_of(home / name) for name in ("workspaces", "snapshots", "egress", "usage"))


async def test_prune_of_a_large_home(tmp_path: Path, holdfast_home: Path) -> None:
    repo, chance = repository(tmp_path / "repo"), random.Random(30)
    acknowledged: dict[str, int] = {}
    async with AsyncExitStack() as opened:
        made = await opened.enter_async_context(building(holdfast_home))
        only_here = await home_of_many(made, repo)
        first = {name: names[-1] for name, names in (await made.shelf.kept()).items() if "live" not in name}
        before, reclaimable = used(holdfast_home), made.reclaimable
        group = await opened.enter_async_context(anyio.create_task_group())
        for number in range(LIVE):
            group.start_soon(at_work, made, f"ses_live{number}", acknowledged, 0.5)
        soon = ("prune", "--older-than", "0.001")
        for number in range(KILLS):
            await killed_at_random(chance, 14.0, *soon, *(["--yes"] if number >= KILLS // 2 else []))
            if number == KILLS // 2 - 1:  # nothing was confirmed so far
                for name, content in only_here.items():
                    assert (made.workspace(name) / "late").read_bytes() == content
                assert "refs/heads/holdfast/mission0/task" in git(repo, "for-each-ref", "--format=%(refname)")
        said = await anyio.to_thread.run_sync(lambda: ended(spawn(*soon, "--yes"), 600.0))
        assert said.code == 0, said
        group.cancel_scope.cancel()
    async with building(holdfast_home) as made:
        freed = before - used(holdfast_home)
        grown = sum(path.stat().st_size for path in holdfast_home.glob("snapshots/grown/ses_live*"))
        print(f"reclaimable {reclaimable}, freed {freed}, left {used(holdfast_home)}, grown {grown}")
        assert (await verify(made.store)).findings == ()
        kept = await made.shelf.kept()
        for name, snapshot in first.items():
            assert kept[name][-1] == snapshot, f"{name} lost its last snapshot"
        for number, (name, snapshot) in enumerate(sorted(first.items())):
            if number % 25 == 0:
                await made.shelf.restore(snapshot, tmp_path / "copies" / name)
        for name, seq in acknowledged.items():
            assert (await made.store.find(name)).head >= seq
            assert (made.workspace(name) / "file").is_file()
        refs = git(repo, "for-each-ref", "--format=%(refname)").splitlines()
        assert refs == [
            *(f"refs/heads/holdfast/mission{number}/main" for number in range(MISSIONS)),
            "refs/heads/trunk",
        ]
    assert freed >= 0.8 * reclaimable


SESSIONS, BACKUPS, STEPS, WOKEN = 20, 20, 1_000, 3


def steps_of(file: Path) -> Counter[str]:
    return Counter(file.read_text().split()) if file.exists() else Counter()


def has_steps(file: Path) -> bool:
    return len(steps_of(file)) >= 3


async def asked(home: Path) -> tuple[dict[str, int], dict[str, set[str]]]:
    """The heads of a restored home before it was told, and the steps that its sessions had asked for by then."""
    heads, steps = {}, {}
    async with building(home) as made:
        assert (await verify(made.store)).findings == ()
        for row in await made.store.sessions():
            events = await made.store.read(row.session_id)
            assert isinstance(events[-1].fact, SessionEventsLost)
            heads[row.session_id] = events[-2].seq
            facts = [event.fact for event in events if isinstance(event.fact, AgentToolUse)]
            steps[row.key] = {str(fact.input["command"]).split()[1] for fact in facts}
    return heads, steps


def step(number: int, count: int, out: Path) -> dict[str, object]:
    """A turn whose effect names the home that it happened in."""
    command = f"echo {number}.{count} >> {out}/{number}.$(basename $(realpath ../..)); echo {count} > f; sleep 0.3"
    call = {"name": "bash", "input": {"command": command}}
    return {"tool_calls": [call], "usage": {"input_tokens": 100, "output_tokens": 10}}


def test_backups_of_a_home_at_work(tmp_path: Path, holdfast_home: Path) -> None:
    """No effect that a backup knows of, asked for or begun, happens again in the restored home."""
    out, chance = tmp_path / "out", random.Random(20)
    out.mkdir()
    out.chmod(0o777)
    worker = spawn("worker", "--concurrency", str(SESSIONS), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    repeated, missing, woke = 0, 0, 0
    try:
        until(lambda: any((holdfast_home / "serving").glob("*.lock")), worker)
        for number in range(SESSIONS):
            turns = [step(number, count, out) for count in range(STEPS)]
            model = script(tmp_path / f"m{number}.json", *turns, turn(text="done"))
            words = ("--model", model, "--session-id", f"k{number}", "--no-sandbox", "--max-turns", "1000", "--detach")
            assert typed("run", "x", *words).code == 0
        until(lambda: len(list(out.iterdir())) == SESSIONS, worker)
        for number in range(BACKUPS):
            file, then = tmp_path / f"{number}.tar", tmp_path / f"home{number}"
            heads = dict(
                rows(
                    holdfast_home / "holdfast.db",
                    "select session_id, head from sessions where session_id <> 'ses_home'",
                )
            )
            assert typed("backup", file).code == 0
            assert typed("restore", file, "--to", then).code == 0
            found, steps = anyio.run(asked, then)
            missing += sum(found[name] < head for name, head in heads.items())
            keys = chance.sample(sorted(steps), WOKEN)
            for process, key in [(spawn("wake", key, "--home", then), key) for key in keys]:
                file = out / f"{key.removeprefix('k')}.home{number}"
                until(partial(has_steps, file), process)
                process.kill()
                ended(process)
            kill_all(then)
            for key in keys:
                name = key.removeprefix("k")
                again = steps_of(out / f"{name}.home{number}")
                repeated += sum((steps_of(out / f"{name}.home") + again)[each] > 1 for each in steps[key])
                woke += bool(again)
            assert "all chains and rows verify" in typed("verify", "--home", then).out
    finally:
        worker.kill()
        ended(worker)
        kill_all(holdfast_home)
    print(f"{BACKUPS} backups: {missing} acknowledged events missing, {woke} sessions woke, {repeated} effects twice")
    assert (missing, repeated, woke) == (0, 0, BACKUPS * WOKEN)
