"""Many at once: two users answer the same item at the same moment; more connections than the server keeps.

python bench/crowd.py [--items N] [--connections N]

Items wait in sessions of `holdfast serve`. For each of them, one user approves and another denies at the same moment:
one answer must be decided and logged, and the other must fail with the name of the user who decided. Then connections
are opened that send nothing: the server must close those above its limit, and answer afterwards. Exit 1 if it does not.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
import httpx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.serve import fill, holdfast, server, until  # noqa: E402
from holdfast.app.home import Home, open_home  # noqa: E402
from holdfast.clock import SystemClock  # noqa: E402
from holdfast.facts.session import Agent, Rule  # noqa: E402
from holdfast.log.sqlite.store import SqliteStore  # noqa: E402
from holdfast.serve.server import CONNECTIONS_MAX  # noqa: E402

ROUND = 10
"""Items that wait at a time: each of their sessions is started by the server first."""

USERS = {"ada": "approve", "bob": "deny"}


def key(home: Home, name: str) -> dict[str, str]:
    """A header with a new key of a user."""
    words = holdfast(home, "keys", "create", name, "--role", "operator", "--json")
    made = subprocess.run(words, capture_output=True, check=True)
    return {"authorization": f"Bearer {json.loads(made.stdout)['key']}"}


async def contest(store: SqliteStore, url: str, home: Home, count: int) -> int:
    """Have two users answer each item at once; return the number of items with exactly one decision."""
    await until(store, lambda row: row.status == "parked", count)
    good = 0
    keys = {name: key(home, name) for name in USERS}
    async with httpx.AsyncClient(base_url=f"{url}/holdfast/v1", timeout=120.0) as client:

        async def answer(item: dict[str, str], name: str, got: dict[str, httpx.Response]) -> None:
            body = {"verdict": USERS[name], "digest": item["digest"]}
            got[name] = await client.post(f"/inbox/{item['item_id']}/answer", json=body, headers=keys[name])

        for item in (await client.get("/inbox?limit=500", headers=keys["ada"])).json()["items"]:
            got: dict[str, httpx.Response] = {}
            async with anyio.create_task_group() as group:
                for name in USERS:
                    group.start_soon(answer, item, name, got)
            first, second = sorted(USERS, key=lambda name: got[name].status_code)
            events = await store.read(item["session_id"])
            deciders = [event.actor for event in events if event.type == "approval.decided"]
            told = got[second].json().get("error", {}).get("message", "")
            one = (got[first].status_code, got[second].status_code) == (200, 409) and deciders == [f"user:{first}"]
            good += one and f"by {first}" in told
    return good


def crowd(url: str, count: int) -> tuple[int, bool]:
    """Open connections; return the number that the server closed at once, and whether it answers afterwards."""
    address = httpx.URL(url)
    held, closed = list[socket.socket](), 0
    try:
        for _ in range(count):
            held.append(socket.create_connection((address.host, address.port or 80), timeout=120.0))
        for each in held[CONNECTIONS_MAX:]:
            try:
                closed += each.recv(1) == b""
            except ConnectionResetError:
                closed += 1
    finally:
        for each in held:
            each.close()
    return closed, httpx.get(f"{url}/readyz", timeout=30.0).status_code == 200


async def run(args: argparse.Namespace, home: Home, folder: Path) -> int:
    """Do both, print what came of it; return the exit status."""
    asks = folder / "asks.json"
    asks.write_text(
        json.dumps({"turns": [{"tool_calls": [{"name": "bash", "input": {"command": "true"}}]}, {"text": "."}]})
    )
    asking = Agent(model=f"scripted:{asks}", tools=("bash",), rules=(Rule("bash", "ask"),))
    async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as store:
        with server(home) as (url, _):
            good = 0
            for begun in range(0, args.items, ROUND):
                count = min(ROUND, args.items - begun)
                await fill(store, home, count, f"ask{begun}x", asking)
                good += await contest(store, url, home, count)
            print(f"{args.items} items answered by two users at once: {good} with one decision that the other learned")
            began_s = time.monotonic()
            closed, ready = crowd(url, args.connections)
            took_s = time.monotonic() - began_s
            print(f"{args.connections} connections in {took_s:.1f} s: {closed} closed, then ready: {ready}")
            over = args.connections - CONNECTIONS_MAX
            await until(store, lambda row: row.status == "done", args.items)
    return 0 if good == args.items and closed == over and ready else 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="answer and connect at once")
    parser.add_argument("--items", type=int, default=200, help="items that two users answer")
    parser.add_argument("--connections", type=int, default=5_000, help="connections at a time")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        raise SystemExit(anyio.run(run, args, open_home(folder / "home"), folder))


if __name__ == "__main__":
    main()
