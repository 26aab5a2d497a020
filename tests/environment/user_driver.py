"""One of the three repositories, as whoever runs this: prints what came of it as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from tests.environment import repositories
from tests.environment.repositories import NO_NETWORK
from tests.environment.rigs import home, listing


async def tried(base: Path, name: str) -> dict[str, Any]:
    """Set up, run the suite and look for a network; then once more, as another session."""
    workspace, policy, suite = getattr(repositories, name)(base / "work")
    before = listing(workspace)
    async with home(base) as here:
        await here.run(workspace, policy, suite, NO_NETWORK)
        first, results = await here.record(), await here.results()
        await here.run(workspace, policy, suite)
        again = await here.record()
        after = listing(workspace)
        return {
            "error": first.error,
            "cached": [first.cached, again.cached],
            "same": first.digest == again.digest,
            "ms": [first.duration_ms, again.duration_ms],
            "bytes": first.bytes,
            "outputs": [*results, *await here.results()],
            "kept": {path: text for path, text in after.items() if path in before} == before,
            "top": sorted(each.name for each in workspace.iterdir()),
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(tried, Path(sys.argv[1]), sys.argv[2])))
