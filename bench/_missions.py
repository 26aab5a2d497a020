"""The case `missions` of `bench/many.py`: the database is away while workers run missions."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio.to_thread
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench._scale import Site
from holdfast.log.postgres.migrate import migrate
from tests.app.terminal import bash, script, turn
from tests.app.test_mission_lint import make
from tests.support.databases import free_port, postgres_server
from tests.support.waiting import until

PASSWORD = "bench"
MISSIONS, WORKERS, STEPS, RUNNING = 20, 2, 12, 10
FIRST_S, LONGEST_S, MOVED = 5.0, 600.0, 0.1
STEP = "tail -n 1 steps | {{ read last; echo $((last + 1)); }} >> steps; sleep 2; : {number}"
CHECK = f"test \"$(echo $(cat steps))\" = '{' '.join(map(str, range(STEPS + 1)))}'"
POLICY = 'planner = "items"\njudge = "off"\nlessons = "off"\nmax_replans = 0\nmax_attempts = 1\nmax_iterations = 2\n'
COUNTS = """
select (select count(*) from events), (select count(*) from sessions where holder <> '' and parent <> ''),
    (select count(*) from sessions where status = 'runnable' or (status = 'parked' and parent = '')),
    (select count(*) from sessions where status = 'done' and parent = '')
"""
TOLD = """
select count(*) filter (where type = 'shift.started') - count(*) filter (where type = 'shift.ended'),
    count(*) filter (where type in ('session.error', 'tool.outcome_unknown')), count(distinct session_id)
from events where session_id <> 'ses_home'
"""


def begin(place: Site, number: int, model: str) -> None:
    """Begin a mission in a repository of its own. Its worker adds one number after the other to a file."""
    item = {"id": "count", "description": "steps counts", "check": CHECK, "paths": ["steps"]}
    files = {"steps": "0\n", "feature_list.json": json.dumps([item]), "mission.toml": POLICY}
    repo = place.home.path.parent / f"{place.home.path.name}-repo{number}"
    repo.mkdir()
    make(repo, files)
    words = ["--repo", str(repo), "--policy", str(repo / "mission.toml"), "--session-id", f"m{number}"]
    ran = place.holdfast("mission", "run", *words, "--model", model, "--no-lint", "--detach")
    if ran.status:
        raise RuntimeError(ran.text)


def away(home: Path, down_s: float) -> bool:
    """Kill the database while missions run, and start it again after a while; True if all went on, each step once."""
    folder, port = home / f"missions{down_s:g}", free_port()
    with ExitStack() as running:
        own = running.enter_context(postgres_server(folder, port, PASSWORD, durable=True))
        address = own.replace("@", f":{PASSWORD}@")
        migrate(address)
        place = Site(home / f"site{down_s:g}", address)
        steps = [bash(STEP.format(number=number)) for number in range(STEPS)]
        hand_in = turn(tool_calls=[{"name": "hand_in", "input": {"status": "done", "notes": "as wanted"}}])
        model = script(place.home.path / "worker.json", *steps, hand_in)
        with place.workers(WORKERS, "--concurrency", str(MISSIONS)):
            for number in range(MISSIONS):
                begin(place, number, model)
            until(lambda: found(place, COUNTS)[1] >= RUNNING)
            before, worked, *_ = found(place, COUNTS)
            running.pop_all().close()
            time.sleep(down_s)
            running.enter_context(postgres_server(folder, port, PASSWORD, durable=True))
            up_s = time.monotonic()
            until(lambda: found(place, COUNTS)[0] > before)
            first_s = time.monotonic() - up_s
            while found(place, COUNTS)[2] and time.monotonic() < up_s + LONGEST_S:
                time.sleep(0.2)
            done = found(place, COUNTS)[3]
            moved, errors, sessions = found(place, TOLD)
    print(
        f"{f'away for {down_s:g} s':24} of {MISSIONS} missions {worked} workers ran; appends again "
        f"{first_s:.1f} s after (≤ {FIRST_S:g}); {moved} of {sessions} leases moved (5 s: ≤ 10 %)\n"
        f"{'':24} {done} missions done, each of their {STEPS} steps once; {errors} errors and unknown outcomes"
    )
    good = done == MISSIONS and errors == 0 and first_s <= FIRST_S
    return good and (down_s > FIRST_S or moved <= sessions * MOVED)


def found(place: Site, query: str) -> list[int]:
    """The numbers that a query finds."""
    try:
        with place.sql() as sql:
            row: Any = sql.execute(query).fetchone()
            return list(row)
    except psycopg.OperationalError:
        return [0, 0, 1, 0]  # the database is about to be there


async def missions(address: str, home: Path) -> bool:
    """The database is killed, and away for a short and for a long time, while workers run missions."""
    return all([await anyio.to_thread.run_sync(away, home, down_s) for down_s in (5.0, 60.0)])
