"""Two homes with one object store, and S3 servers that we did not write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from holdfast.repo.shared_shelf import SharedShelf
from tests.repo.rigs import ShadowRig
from tests.support.databases import free_port
from tests.support.waiting import until

READS = ("restore", "export", "changes", "diff", "files", "content")


class SharedRig(ShadowRig):
    """One home takes the snapshots, the other one reads them."""

    def __init__(self, base: Path, url: str = "") -> None:
        super().__init__(base)
        url = url or f"file://{base}/objects"
        self.shelf = SharedShelf(base / "snapshots", url)
        self.elsewhere = SharedShelf(base / "elsewhere", url)
        for verb in READS:
            setattr(self.shelf, verb, getattr(self.elsewhere, verb))


@contextmanager
def serving(program: str, *words: str, folder: Path) -> Iterator[str]:
    """Run a server from this environment, until the block ends. Yields its address; `{port}` in words is its port."""
    port = free_port()
    command = [str(Path(sys.executable).parent / program), *(word.format(port=port) for word in words)]
    with (folder / f"{program}.log").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as server:
        try:
            until(lambda: _answers(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def _answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", timeout=2.0)
    except httpx.TransportError:
        return False
    return True
