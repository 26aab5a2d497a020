"""Cases of `bench/many.py` about a database that is away: restarted, or with all its connections cut."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import anyio
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench._leases import SESSIONS, answers, heads, sessions, taken_over
from holdfast.log.postgres.beats import TTL_S
from tests.log.elsewhere import There, holder
from tests.log.processes import tell
from tests.support.databases import free_port, postgres_server

PASSWORD = "bench"
CUT_EVERY_S, CUT_FOR_S = 0.7, 60.0
CUT = (
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where backend_type = 'client backend' and pid <> pg_backend_pid()"
)


async def acts(child: subprocess.Popen[str], said: Counter[str]) -> None:
    """Let the holder append to each of its sessions once, and count what it says."""
    tell(child, "act")
    said.update(await answers(child))


async def acts_for(child: subprocess.Popen[str], said: Counter[str], seconds: float) -> None:
    """Let the holder append for that long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        await acts(child, said)


async def whole(case: There, before: list[int], said: Counter[str], moved: int) -> bool:
    """Print what the holder said; True if each acknowledged append is there once, and none failed."""
    grown = sum(await heads(case)) - sum(before) - moved  # a takeover appends `shift.started`
    lost, errors = said["act"] - grown, said.total() - said["act"] - said["Fenced"]
    print(f"{'':24} {said['act']} appends acknowledged, {grown} stored; {errors} errors")
    return lost == 0 and errors == 0


async def restart(address: str, home: Path) -> bool:
    """The database is killed and away for a while; the holder keeps its sessions, although a rival wants them."""
    good = True
    for down_s in (5.0, 60.0):
        folder, port = home / f"down{down_s:g}", free_port()
        with ExitStack() as running:
            own = running.enter_context(postgres_server(folder, port, PASSWORD, durable=True))
            async with sessions(own.replace("@", f":{PASSWORD}@"), home, "b") as (case, rig):
                with holder(rig, home / "a", TTL_S, sessions=SESSIONS) as child:
                    before, said, moved = await heads(case), Counter[str](), list[float]()
                    await acts(child, said)
                    running.pop_all().close()
                    await anyio.sleep(down_s)
                    running.enter_context(postgres_server(folder, port, PASSWORD, durable=True))
                    up_s = time.monotonic()

                    async def rival(moved: list[float] = moved, case: There = case) -> None:
                        moved += await taken_over(case, 2 * TTL_S)

                    async with anyio.create_task_group() as group:
                        group.start_soon(rival)
                        await acts(child, said)
                        first_s = time.monotonic() - up_s
                        await acts_for(child, said, 2 * TTL_S)
                    print(
                        f"{f'away for {down_s:g} s':24} {len(moved)} of {len(SESSIONS)} leases moved (5 s: ≤ 10 %), "
                        f"appends again {first_s:.1f} s after (≤ 5)"
                    )
                    good &= await whole(case, before, said, len(moved)) and first_s <= 5.0
                    good &= down_s > 5.0 or len(moved) <= len(SESSIONS) // 10
    return good


async def cut(address: str, home: Path) -> bool:
    """All connections are cut again and again while the holder appends and a rival wants its sessions."""
    async with sessions(address, home, "b") as (case, rig):
        with holder(rig, home / "a", TTL_S, sessions=SESSIONS) as child:
            before, said, moved, cuts = await heads(case), Counter[str](), list[float](), 0

            async def cutter() -> None:
                nonlocal cuts
                with psycopg.connect(address, autocommit=True) as connection:
                    while True:
                        cuts += connection.execute(CUT).rowcount
                        await anyio.sleep(CUT_EVERY_S)

            async def rival() -> None:
                nonlocal moved
                moved = await taken_over(case, CUT_FOR_S)

            async with anyio.create_task_group() as group:
                group.start_soon(cutter)
                async with anyio.create_task_group() as inner:
                    inner.start_soon(rival)
                    await acts_for(child, said, CUT_FOR_S)
                group.cancel_scope.cancel()
            print(f"{f'{cuts} connections cut':24} {len(moved)} of {len(SESSIONS)} leases moved (≤ 15 %)")
            return await whole(case, before, said, len(moved)) and len(moved) <= len(SESSIONS) * 15 // 100


CASES = {each.__name__: each for each in (restart, cut)}
