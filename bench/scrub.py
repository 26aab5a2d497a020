"""How fast secrets are taken out of what flows by, beside a copy of the same bytes.

    python bench/scrub.py [--megabytes N]

One secret of 40 characters; chunks of 64 KiB as the proxy reads them, and of 4 KiB. Bodies: random bytes, JSON, base64,
and addresses in which every third character is percent-encoded, most of them characters of the secret: the slow case.
Target: ≥ 200 MB/s for the first three in chunks of 64 KiB.
"""

from __future__ import annotations

import argparse
import base64
import random
import sys
import time
from collections.abc import Callable

from holdfast.egress.scrub import Forms, Scrubber
from holdfast.vault.base import Secret

TARGET_MB_S = 200.0
ROUNDS = 5


def flow(forms: Forms, body: bytes, chunk: int) -> None:
    """All of it through a fresh scrubber."""
    scrubber, view = Scrubber(forms), memoryview(body)
    for at in range(0, len(body), chunk):
        scrubber.feed(bytes(view[at : at + chunk]))
    scrubber.end()


def copy(body: bytes, chunk: int) -> None:
    """The floor: each chunk is copied."""
    view = memoryview(body)
    for at in range(0, len(body), chunk):
        bytes(view[at : at + chunk])


def best_mb_s(work: Callable[[], None], size: int) -> float:
    """The best of some rounds, in MB/s."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return size / best / 1e6


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=32)
    size = parser.parse_args().megabytes << 20
    chance = random.Random(1)
    began = time.perf_counter()
    forms = Forms([Secret("sk_live_51HxYz/ABCDEFGH+jklmnopqrstuvwxy")])
    print(f"made ready in {(time.perf_counter() - began) * 1e3:.1f} ms; at most {forms.longest} bytes are kept back")
    noise = chance.randbytes(1 << 20)
    bodies = {
        "random": noise * (size >> 20),
        "json": (b'{"said": "some \\"text\\" \\u00e9", "n": 12345, "k": [1, 2]}, ' * (size // 50))[:size],
        "base64": (base64.b64encode(noise) * (size >> 20))[:size],
        "addresses": (b"q=%20a%2Fb&x=%41%42%43some&" * (size // 20))[:size],
    }
    missed = 0
    print(f"{'body':12} {'chunk':>8} {'MB/s':>8} {'copy MB/s':>10}")
    for name, body in bodies.items():
        for chunk in (65_536, 4_096):
            speed = best_mb_s(lambda body=body, chunk=chunk: flow(forms, body, chunk), len(body))  # type: ignore[misc]
            floor = best_mb_s(lambda body=body, chunk=chunk: copy(body, chunk), len(body))  # type: ignore[misc]
            counts = name != "addresses" and chunk == 65_536
            missed += counts and speed < TARGET_MB_S
            print(
                f"{name:12} {chunk:8} {speed:8.0f} {floor:10.0f}  {f'≥ {TARGET_MB_S:.0f}' if counts else ''}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
