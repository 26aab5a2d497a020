"""A running `holdfast serve`, and clients that talk to it over loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx

from holdfast.clock import SystemClock
from holdfast.ids import system_entropy
from holdfast.serve.access import Access, Role
from tests.app.families import until
from tests.app.terminal import Said, script, spawn, turn
from tests.support.waiting import PATIENCE_S

API = "/holdfast/v1"

SETTINGS = """
[notify.phone]
kind = "push"
user = "ada"
[people]
notify = ["phone"]
"""


@dataclass
class Served:
    """A server of a home."""

    home: Path
    process: Popen[str]
    url: str
    link: str

    def client(self, key: str = "", **headers: str) -> httpx.Client:
        """A client, with an API key if given."""
        bearer = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers={**bearer, **headers}, timeout=PATIENCE_S, trust_env=False)

    @property
    def access(self) -> Access:
        """The credentials of the home, as the command line changes them."""
        return Access(self.home, SystemClock(), system_entropy)

    def key(self, name: str, role: Role = "viewer", project: str = "") -> str:
        """Create an API key."""
        return self.access.issue("key", name, role, project=project)[1]

    @contextmanager
    def browser(self) -> Iterator[httpx.Client]:
        """A browser that was logged in with a link."""
        _, secret = self.access.issue("link", "ada", "admin", proof="login_link:0", lives_s=60)
        with self.client(accept="text/html") as client:
            assert client.get(f"/login?link={secret}").status_code == 200
            yield client

    def refusals(self) -> list[dict[str, Any]]:
        """The recorded refusals."""
        file = self.home / "logs" / "access.log"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def stop(self) -> Said:
        """End the server, as a service manager does."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> Said:
        """Wait for the end of the server. Its output is in a file, since nobody reads a pipe while a test runs."""
        code = self.process.wait(PATIENCE_S)
        return Said(code, "", Path(f"{self.home}.err").read_text())


@contextmanager
def serving(home: Path, *words: str, model: str = "") -> Iterator[Served]:
    """A server on a free port; ended with SIGTERM unless the test has ended it."""
    env = {"HOLDFAST_MODEL": model} if model else {}
    with open(f"{home}.out", "w+") as out, open(f"{home}.err", "w") as err:
        words = ("serve", "--json", "--home", str(home), *(() if "--port" in words else ("--port", "0")), *words)
        process = spawn(*words, env=env, stdout=out, stderr=err)
        try:
            until(lambda: "\n" in Path(out.name).read_text(), process)
            told = json.loads(Path(out.name).read_text().splitlines()[0])
            yield Served(home, process, told["url"], told["link"])
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE_S)


def quick(folder: Path) -> str:
    """A model that answers at once."""
    return script(folder / "quick.json", *(turn(text=f"answer {number}") for number in range(20)))


def failure(response: httpx.Response, status: int, kind: str) -> str:
    """The message of a failed request, which has this status and type."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"type", "message"}
    assert error["type"] == kind
    return str(error["message"])


def ends(client: httpx.Client, session: str, state: str = "done") -> dict[str, Any]:
    """Follow the event stream of a session until it is in that state; the session."""
    with client.stream("GET", f"{API}/sessions/{session}/events/stream") as stream:
        for _ in stream.iter_lines():
            found: dict[str, Any] = client.get(f"{API}/sessions/{session}").json()
            if found["state"] == state:
                return found
    raise AssertionError(f"{session} does not come to be {state}")
