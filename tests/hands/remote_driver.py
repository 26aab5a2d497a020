"""A worker of its own process, with a short lease: `python -m tests.hands.remote_driver URL KEY HOME`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from holdfast.app.providers import serving_provider
from holdfast.clock import SystemClock
from holdfast.hands.far.server import FarServer
from holdfast.hands.remote.worker import Worker


async def main(url: str, key: str, home: Path) -> None:
    """Work until killed."""
    server = FarServer(serving_provider("", home), home, program="test")
    server.open(SystemClock())

    def say(text: str) -> None:
        print(text, flush=True)

    await Worker(url, key, server, name=str(home), environment="default", say=say, ttl_s=5).run()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], Path(sys.argv[3]))
