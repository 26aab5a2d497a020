"""Overhead of the model clients: load time, a request, and a streamed part.

python bench/models.py [--runs N]

For each family: seconds to load the client (once per process), and the milliseconds of a whole request to a model
server on this machine, against the same bytes requested with a bare HTTP client in the same run. Exit 1 if a
request costs more than 60 ms over the bare one; a provider takes hundreds before its first token.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.clock import SystemClock
from tests.model.rigs import FAMILIES, Rig, connect, request, tool_turn, user
from tests.support.fault_proxy import Exchange, fault_proxy
from tests.support.model_server import ModelServer, Unavailable, model_server

OVER_BARE_MS = 60.0

LOAD = "import time; a = time.perf_counter(); import holdfast.model.direct.{}; print(time.perf_counter() - a)"


def load_s(module: str) -> float:
    """Seconds until a fresh Python has the family's client."""
    done = subprocess.run([sys.executable, "-c", LOAD.format(module)], capture_output=True, text=True, check=True)
    return float(done.stdout)


async def bare_ms(port: int, asked: Exchange) -> float:
    """The same request with a bare client, a new connection too."""
    began = time.perf_counter()
    kept = {name: value for name, value in asked.headers.items() if name not in ("host", "content-length")}
    async with httpx2.AsyncClient(trust_env=False, verify=False) as client:
        answer = await client.request(
            asked.method, f"http://127.0.0.1:{port}{asked.path}", content=asked.body, headers=kept
        )
        assert answer.status_code == 200, answer.text
    return (time.perf_counter() - began) * 1000


async def family(name: str, server: ModelServer, runs: int) -> tuple[float, float]:
    """Median milliseconds of a request with the client, and with a bare one; the two take turns."""
    async with fault_proxy(server.port) as proxy:
        rig = Rig(name, server, proxy)
        server.load(*tool_turn(reasoning="Where might it be?"))
        await rig.ask(request(user()))
        model, module, path = FAMILIES[name]
        rig.model = connect(model, module, f"http://127.0.0.1:{server.port}{path}", SystemClock())
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(runs):
            began = time.perf_counter()
            await rig.ask(request(user()))
            found[0].append((time.perf_counter() - began) * 1000)
            found[1].append(await bare_ms(server.port, proxy.seen[0]))
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> int:
    """Measure, print a table, compare with the target."""
    parser = argparse.ArgumentParser(description="measure the clients of models")
    parser.add_argument("--runs", type=int, default=40)
    args = parser.parse_args()
    missed = False
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, model_server(Path(folder)) as server:
            print(
                f"{'family':<12} {'load s':>7} {'request ms':>11} {'bare ms':>8} {'over':>6}   (medians of {args.runs})"
            )
            for name in FAMILIES:
                mine, bare = anyio.run(family, name, server, args.runs)
                missed |= mine - bare > OVER_BARE_MS
                print(f"{name:<12} {load_s(FAMILIES[name][1]):>7.2f} {mine:>11.1f} {bare:>8.1f} {mine - bare:>6.1f}")
    except Unavailable as why:
        print(f"models: not measured: {why}")
        return 0
    print(f"a request at most {OVER_BARE_MS:g} ms over the bare one: {'MISSED' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
