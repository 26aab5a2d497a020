"""Case of `bench/many.py` about a machine that is lost with its processes and its disk."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import anyio.to_thread
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.repo.rigs import picture
from tests.repo.shared_rig import serving
from tests.support.lost_host import Host

MEGABYTES = 100
MAKE = f"for i in $(seq {MEGABYTES}); do head -c 1000000 /dev/urandom > f$i; done"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}


def moved(home: Path, address: str, objects: str, session: str) -> bool:
    """Lose a machine, continue on another one, and print how long that took; True if all is there in time."""
    host = Host(home / session, address, "", objects)
    if host.holdfast("migrate").returncode:
        raise SystemExit("the log cannot be prepared")
    workspace, held = host.lose(session, home / "talk.json", MAKE, "sleep 900", "ls | wc -l")
    lost_s, most_s = time.time(), 10.0 + MEGABYTES / 50
    restored = host.finish(session)
    ended_s = time.time() - lost_s
    there_s = restored[0]["at_us"] / 1e6 - lost_s if restored else ended_s
    same = picture(workspace) == held
    print(
        f"lost, {session:6} {MEGABYTES} MB: at work after {there_s:.1f} s "
        f"(≤ {most_s:g}), ended after {ended_s:.1f} s; same bytes: {same}; the model was told: {len(restored) == 1}"
    )
    return same and len(restored) == 1 and there_s <= most_s


async def lost(address: str, home: Path) -> bool:
    """A session of a lost machine continues on another one, from a folder and from an S3 server."""
    with serving("moto_server", "-H", "127.0.0.1", "-p", "{port}", folder=home) as server:
        await anyio.to_thread.run_sync(httpx.put, f"{server}/agents")
        os.environ.update(KEYS, AWS_ENDPOINT_URL=server)
        secret, _, rest = address.partition("://")[2].partition("@")
        os.environ["PGPASSWORD"] = secret.partition(":")[2]
        plain = f"postgresql://{secret.partition(':')[0]}@{rest}"
        good = True
        for objects, session in ((f"file://{home}/objects", "folder"), ("s3://agents/bench", "s3")):
            good &= await anyio.to_thread.run_sync(moved, home, plain, objects, session)
    return good
