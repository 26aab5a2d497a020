"""A session uses secrets of every kind of place; afterwards their values are nowhere, in none of their forms."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.settings import egress_policy
from holdfast.app.settings.config import load_settings
from holdfast.app.settings.egress_policy import open_vault
from holdfast.brain.doors import NoObserver
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.facts.codec import Event
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.tool import ToolResult
from holdfast.hands.user import choose_user
from holdfast.testing.egress import part
from tests.app.terminal import HOLDFAST, bash, script, turn
from tests.egress.upstream import World
from tests.vault.rigs import keyring_home

pytestmark = pytest.mark.real

VALUES = {kind: f"canary-{kind}-Value+/=?0123456789" for kind in ("env", "file", "keyring", "command")}

PROGRAM = """
import json, os, sys, urllib.request
for name in ("ENV", "FILE", "KEYRING", "COMMAND", "LOST", "EXPIRED"):
    placeholder = os.environ[name + "_KEY"]
    host = "two.test" if name == "LOST" else "one.test"  # nothing goes to a host whose secret cannot be found
    request = urllib.request.Request("https://" + host + "/" + name, headers={"x-api-key": "Key " + placeholder})
    try:
        said = urllib.request.urlopen(request).read().decode()
    except urllib.error.HTTPError as error:
        said = str(error.code) + error.read().decode()
    print(said)
    open("answers", "a").write(said)
"""


def _forms(value: str) -> Iterator[bytes]:
    plain = value.encode()
    yield plain
    yield plain.hex().encode()
    yield plain.hex().upper().encode()
    yield urllib.parse.quote(value, safe="").encode()
    for before in range(3):
        whole = base64.b64encode(bytes(before) + plain)
        yield whole[4 : len(whole) // 4 * 4 - 4]
        yield base64.urlsafe_b64encode(bytes(before) + plain)[4 : len(whole) // 4 * 4 - 4]


FORMS = [form for value in VALUES.values() for form in _forms(value)]


def _shown(data: bytes, where: str) -> list[str]:
    return [f"{form!r} in {where}" for form in FORMS if form in data]


@dataclass
class Watch(NoObserver):
    """Looks around when a result comes in, while the proxy, the supervisor and the sandbox live."""

    home: Path
    problems: list[str] = field(default_factory=list)
    proxies: int = 0

    def on_events(self, events: list[Event]) -> None:
        """Look at what they can be seen by, and whether they would leave a core file."""
        if not any(isinstance(event.fact, ToolResult) for event in events):
            return
        for where, data in _files(self.home):
            self.problems += _shown(data, f"{where}, while it ran")
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                self.problems += _shown(command + (entry / "environ").read_bytes(), f"the environment of {command!r}")
            except OSError:
                continue
            if b"holdfast.testing.egress" in command and _holds_open(entry, self.home):
                self.proxies += 1
                limits = (entry / "limits").read_text()
                if limits.split("Max core file size", 1)[1].split()[:2] != ["0", "0"]:
                    self.problems.append("the proxy would leave a core file")


def _holds_open(process: Path, folder: Path) -> bool:
    """Whether a process works in that folder: other tests beside this one have proxies too."""
    with contextlib.suppress(OSError):
        return any(os.readlink(fd).startswith(f"{folder}/") for fd in (process / "fd").iterdir())
    return False


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the values are: a folder that is not searched."""
    folder = tmp_path / "places"
    for name, value in keyring_home(folder).items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("HYGIENE", VALUES["env"])
    (folder / "token").touch(0o600)
    (folder / "token").write_text(VALUES["file"])
    (folder / "service.name.entry").write_text(VALUES["keyring"])
    printing = [
        f"command:{sys.executable}",
        "-c",
        f"print(bytes.fromhex({VALUES['command'].encode().hex()!r}).decode())",
    ]
    tables = {
        "env": '"env:HYGIENE"',
        "file": f'"file:{folder}/token"',
        "keyring": '"keyring:service/name"',
        "command": json.dumps(printing),
        "lost": '"env:HYGIENE_NOT_THERE"',
        "expired": '"env:HYGIENE"\nexpires = 2001-01-01',
    }
    (folder / "holdfast").mkdir()
    (folder / "holdfast" / "holdfast.toml").write_text(
        "".join(
            f'[secrets.{name}]\nhosts = ["{"two" if name == "lost" else "one"}.test"]\nheader = "x-api-key"\n'
            f'variable = "{name.upper()}_KEY"\nfrom = {place}\n'
            for name, place in tables.items()
        )
        + '[egress]\nask = "never"\n'
    )
    return folder


async def _session(home: Path, tmp_path: Path, world: World, watch: Watch) -> str:
    program = base64.b64encode(PROGRAM.encode()).decode()
    model = script(
        tmp_path / "m.json",
        bash(f"echo {program} | base64 -d > ask.py; python3 ask.py; env"),
        bash("cat answers"),
        turn(text="Done."),
    )
    settings = load_settings(tmp_path, {"home": str(home)})
    async with open_runtime(settings) as runtime:
        vault = open_vault(settings, SystemClock())
        egress = ProxyEgress(home / "egress", vault, bundle=str(world.bundle), network=part(world.tables))
        session_id = await _opened(runtime, model)
        row = await runtime.store.find(session_id)
        doors = runtime.doors(Workspace(row.workspace, True), observer=watch)
        doors = replace(doors, egress=egress, uid=lambda workspace: choose_user(workspace).uid)
        outcome = await wake(session_id, doors)
        assert outcome.ended is not None
        assert outcome.ended.status == "done", outcome.ended
        return session_id


async def _opened(runtime: Runtime, model: str) -> str:
    session_id = runtime.intake.new_session_id()
    workspace = runtime.fresh_workspace(session_id, Workspace(""))
    created = SessionCreated(
        goal="ask",
        agent=Agent(model),
        workspace=workspace,
        accounts=(session_id,),
        egress=egress_policy.egress(runtime.settings),
    )
    await runtime.intake.open(session_id, created)
    return session_id


def _files(home: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of the home, and what is packed in the stores of snapshots as it is."""
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes()
        if path.name == "objects" and path.is_dir():
            command = ["git", f"--git-dir={path.parent}", "cat-file", "--batch", "--batch-all-objects"]
            yield f"{path}, unpacked", subprocess.run(command, capture_output=True, check=True).stdout


def _told(session_id: str, home: Path) -> Iterator[tuple[str, str, str]]:
    """What is said about a session, and about the secrets."""
    for line in (
        f"export {session_id}",
        f"logs {session_id}",
        f"show {session_id}",
        f"show {session_id} --json",
        f"egress {session_id}",
        f"egress {session_id} --json",
        "verify",
        "secret list",
        "secret check",
        "secret check --json",
        "doctor",
    ):
        done = subprocess.run([*HOLDFAST, *line.split(), "--home", str(home)], capture_output=True, check=False)
        yield line, done.stdout.decode(), done.stderr.decode()


async def test_no_value_is_anywhere(
    tmp_path: Path, holdfast_home: Path, places: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world, watch = World(tmp_path), Watch(holdfast_home)
    try:
        world.serve("one.test", "93.184.216.1")
        world.serve("two.test", "93.184.216.2")
        session_id = await _session(holdfast_home, tmp_path, world, watch)
        used = {seen.path: seen.headers["x-api-key"] for seen in world.of("one.test")}
        # All four came to where they belong, so what follows is no empty search.
        assert used == {f"/{kind.upper()}": f"Key {value}" for kind, value in VALUES.items()}
    finally:
        world.close()
    out, err = capfd.readouterr()
    problems = watch.problems + _shown((out + err).encode(), "what was printed")
    said = ""
    for line, printed, noted in _told(session_id, holdfast_home):
        problems += _shown((printed + noted).encode(), f"holdfast {line}")
        assert "Traceback" not in noted
        said += printed
    assert "the secret 'lost' is not available" in said
    assert "the secret 'expired' expired at 2001-01-01" in said
    assert said.count("/COMMAND") >= 1
    files = list(_files(holdfast_home))
    for where, data in files:
        problems += _shown(data, where)
    reflected = [where for where, data in files if b"/COMMAND" in data and b"*****" in data]
    for place in ("holdfast.db", "snapshots", "workspaces"):
        assert any(place in where for where in reflected), reflected  # what was searched had something to find
    assert problems == []
    assert watch.proxies >= 1
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0


def test_the_search_would_find_one(tmp_path: Path) -> None:
    for index, form in enumerate(FORMS):
        (tmp_path / str(index)).write_bytes(b"x" + form + b"y")
    assert len([where for where, data in _files(tmp_path) if _shown(data, where)]) == len(FORMS)
