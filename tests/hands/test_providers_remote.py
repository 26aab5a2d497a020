"""Hands behind the queue: workers that die, double and come back; a queue that starts again; keys and tokens."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import HandsUnreachable, UsageError
from holdfast.facts.session import Workspace
from holdfast.hands.base import Hands, HandsSpec
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.remote.provider import RemoteProvider
from holdfast.hands.remote.queue import Queue
from holdfast.hands.remote.serve import Request, Service
from holdfast.hands.remote.worker import check_url
from holdfast.ids import new_hands_id, system_entropy
from holdfast.testing.hands import CHECKS, bash, run
from tests.hands.rigs import Remembering, kill_and_wait
from tests.support.waiting import PATIENCE_S

SOME = (
    "calls.a_call_id_runs_once",
    "calls.dead_hands_testify_by_their_journal",
    "calls.release_ends_everything_and_repeats",
    "calls.a_file_must_have_been_read_before_it_is_changed",
)
"""The verbs are those of hands elsewhere, which have the whole kit; these cross the queue."""

ONCE = "printf x >> marks; while [ ! -e go ]; do sleep 0.02; done; cat marks"


class RemoteRig:
    """A queue that is served, and workers on what stands for other machines."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.workspace = base / "work"
        self.workspace.mkdir()
        self.near = base / "near"
        self.queue = Queue(self.near / "remote" / "queue.db", SystemClock(), system_entropy)
        self.key = self.queue.new_key("worker")
        self.provider = Remembering(RemoteProvider(self.queue, base / "spool", SystemClock(), patience_s=40.0))
        self.port = "0"
        self.started: list[subprocess.Popen[str]] = []

    def serve(self) -> subprocess.Popen[str]:
        """Start the queue's server, at the same port as before."""
        words = ["hands", "--home", str(self.near), "queue", "--listen", f"127.0.0.1:{self.port}"]
        server = self._start([sys.executable, "-m", "holdfast", *words], stderr=subprocess.PIPE)
        assert server.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())
        assert found is not None
        self.port = found[1]
        return server

    def worker(self, machine: str = "there") -> subprocess.Popen[str]:
        """Start a worker on that machine."""
        home = self.base / machine
        home.mkdir(mode=0o711, exist_ok=True)
        url = f"http://127.0.0.1:{self.port}"
        module = [sys.executable, "-m", "tests.hands.remote_driver", url, self.key, str(home)]
        return self._start(module, stdout=subprocess.PIPE)

    def _start(self, command: list[str], **pipes: Any) -> subprocess.Popen[str]:
        root = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
        made: subprocess.Popen[str] = subprocess.Popen(command, text=True, env=env, **pipes)
        self.started.append(made)
        return made

    def spec(self, **changes: object) -> HandsSpec:
        """A spec with a new hands id on the one workspace."""
        hands_id = new_hands_id(SystemClock().now_us(), system_entropy)
        return HandsSpec("ses_kit", hands_id, Workspace(str(self.workspace), disposable=True), **changes)  # type: ignore[arg-type]

    async def kill(self, hands: Hands) -> None:
        """SIGKILL to the supervisor there."""
        journal = self.base / "there" / "hands" / hands.identity.hands_id / "journal"
        await kill_and_wait(int(replay(str(journal)).opened["pid"]))

    async def made(self, path: str) -> None:
        """Wait until a command there has made that file."""
        with anyio.fail_after(PATIENCE_S):
            while not (self.base / "there" / "work" / "ses_kit" / path).exists():  # noqa: ASYNC110 - not our process
                await anyio.sleep(0.02)


@asynccontextmanager
async def remote(base: Path, *, workers: int = 1) -> AsyncIterator[RemoteRig]:
    """A rig whose hands are given back at the end, while somebody still works."""
    rig = RemoteRig(base)
    try:
        rig.serve()
        for _ in range(workers):
            rig.worker()
        yield rig
        for hands in rig.provider.made:
            await hands.release(1 << 40)
    finally:
        for process in rig.started:
            process.kill()
            process.communicate()
        rig.queue.close()


async def test_checks_of_the_kit(tmp_path: Path) -> None:
    """One after another, with one worker, as sessions come and go."""
    async with remote(tmp_path) as rig:
        for name in SOME:
            await CHECKS[name](rig)
            for hands in rig.provider.made:
                await hands.release(1 << 40)
            for path in rig.workspace.iterdir():
                await anyio.run_process(["rm", "-rf", str(path)])


async def test_a_worker_killed_in_a_call_gives_one_result(tmp_path: Path) -> None:
    async with remote(tmp_path, workers=0) as rig:
        first = rig.worker()
        (rig.workspace / "given").write_text("given")
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "1.0", bash(ONCE))
        await rig.made("marks")
        async with anyio.create_task_group() as group:

            async def take() -> None:
                assert (await hands.wait(1, "1.0")).output == "x"

            group.start_soon(take)
            await anyio.lowlevel.checkpoint()
            first.kill()
            rig.worker()
            assert (await run(hands, "2.0", bash("cat given; touch go"))).output == "given"
        await hands.release(1)
        assert (rig.workspace / "marks").read_text() == "x"


async def test_a_worker_stopped_past_its_lease_is_turned_away(tmp_path: Path) -> None:
    """SIGSTOP, the lease runs out, another one goes on; SIGCONT: the zombie's answer counts for nothing."""
    async with remote(tmp_path, workers=0) as rig:
        zombie = rig.worker()
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "1.0", bash(ONCE))
        await rig.made("marks")
        zombie.send_signal(signal.SIGSTOP)
        rig.worker()
        assert (await run(hands, "2.0", bash("touch go"))).ok
        assert (await hands.wait(1, "1.0")).output == "x"
        zombie.send_signal(signal.SIGCONT)
        assert zombie.stdout is not None
        said = [await anyio.to_thread.run_sync(zombie.stdout.readline) for _ in range(2)]
        assert said == ["ses_kit: taken\n", "ses_kit: another worker has it now, or it is over\n"]
        assert (await run(hands, "3.0", bash("cat marks"))).output == "x"


async def test_a_queue_that_starts_again_loses_nothing(tmp_path: Path) -> None:
    async with remote(tmp_path) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "1.0", bash(ONCE))
        await rig.made("marks")
        server = rig.started[0]
        server.kill()
        server.wait()
        async with anyio.create_task_group() as group:

            async def take() -> None:
                assert (await hands.wait(1, "1.0")).output == "x"

            group.start_soon(take)
            await anyio.lowlevel.checkpoint()
            rig.serve()
            assert (await run(hands, "2.0", bash("touch go"))).ok


async def test_nobody_comes(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "q.db", SystemClock(), system_entropy)
    provider = RemoteProvider(queue, tmp_path / "spool", SystemClock(), patience_s=-20.0)
    (tmp_path / "work").mkdir()
    with pytest.raises(HandsUnreachable, match="no worker came"):
        await provider.provision(HandsSpec("ses_1", "hnd_1", Workspace(str(tmp_path / "work"), True)), 1)
    assert (await provider.probe()).findings[0].message == "no worker asks for work now"
    handed = queue.poll("w", 5000)
    assert handed is not None
    assert queue.asked("ses_1", handed.token, 0) == [], "what was given up is not done later"
    queue.close()


class _Clock(SystemClock):
    """Wall time by hand."""

    at_us = 1_000_000_000_000_000

    def now_us(self) -> int:
        return self.at_us


class _Wire:
    """Requests to a service, without a network."""

    def __init__(self, folder: Path) -> None:
        self.clock = _Clock()
        self.queue = Queue(folder / "queue.db", self.clock, system_entropy)
        self.key = self.queue.new_key("worker")
        self._service = Service(self.queue, self.clock)

    async def __call__(self, method: str, path: str, secret: str, body: bytes = b"") -> tuple[int, object]:
        whole = path if path.startswith("/v1/sessions") else f"/v1/environments/e{path}"
        return await self._service.answer(Request(method, whole, {"authorization": f"Bearer {secret}"}, body))

    async def took(self) -> tuple[str, str]:
        """The next item's id and token, acknowledged."""
        status, item = await self("GET", "/work/poll", self.key)
        assert status == 200
        assert isinstance(item, dict)
        secret = item["secret"]
        padded = secret + "=" * (-len(secret) % 4)
        token = json.loads(base64.urlsafe_b64decode(padded))["sessions_token"]
        assert (await self("POST", f"/work/{item['id']}/ack", self.key))[0] == 200
        return item["id"], token


@pytest.fixture
def wire(tmp_path: Path) -> _Wire:
    """A queue with a service."""
    return _Wire(tmp_path)


async def test_a_lease_is_compared_and_swapped(wire: _Wire) -> None:
    wire.queue.ask("ses_a", b"{}")
    work, token = await wire.took()
    beat = f"/work/{work}/heartbeat"
    status, first = await wire("POST", f"{beat}?expected_last_heartbeat=NO_HEARTBEAT&desired_ttl_seconds=10", token)
    assert isinstance(first, dict)
    assert (status, first["type"], first["lease_extended"], first["state"], first["ttl_seconds"]) == (
        200, "work_heartbeat", True, "active", 10
    )  # fmt: skip
    wire.clock.at_us += 1_000_000
    status, refused = await wire("POST", f"{beat}?expected_last_heartbeat=NO_HEARTBEAT", token)
    assert isinstance(refused, dict)
    details = refused["error"]["details"]
    assert (status, details["error_code"]) == (412, "heartbeat_precondition_failed")
    assert details["current_state"]["latest_heartbeat_at"] == first["last_heartbeat"]
    assert (await wire("POST", f"{beat}?expected_last_heartbeat={first['last_heartbeat']}", token))[0] == 200
    assert (await wire("GET", "/work/poll", wire.key)) == (200, None), "it is held"
    wire.clock.at_us += 31_000_000
    again, newer = await wire.took()
    assert again == work
    assert newer != token
    assert (await wire("POST", f"{beat}?expected_last_heartbeat=NO_HEARTBEAT", token))[0] == 412
    assert (await wire("POST", f"{beat}?expected_last_heartbeat=NO_HEARTBEAT", newer))[0] == 200
    assert (await wire("POST", f"/work/{work}/stop", token))[0] == 412
    assert (await wire("POST", f"/work/{work}/stop", newer))[0] == 200
    assert (await wire("POST", f"/work/{work}/stop", newer))[0] == 409


async def test_the_first_answer_counts(wire: _Wire) -> None:
    seq = wire.queue.ask("ses_a", b'{"id": 0, "verb": "wait"}')
    _, old = await wire.took()
    wire.clock.at_us += 31_000_000
    _, token = await wire.took()
    assert (await wire("POST", f"/v1/sessions/ses_a/answers/{seq}", old, b'"late"'))[0] == 400
    assert (await wire("POST", f"/v1/sessions/ses_a/answers/{seq}", token, b'"one"'))[0] == 200
    assert (await wire("POST", f"/v1/sessions/ses_a/answers/{seq}", token, b'"two"'))[0] == 400
    assert wire.queue.answer(seq) == b'"one"'
    assert (await wire("GET", "/v1/sessions/ses_a/asks", token)) == (200, {"asks": []})


async def test_keys_and_tokens_open_one_thing_each(wire: _Wire, tmp_path: Path) -> None:
    wire.queue.ask("ses_a", b'{"id": 0, "verb": "a"}')
    _, mine = await wire.took()
    wire.queue.ask("ses_b", b'{"id": 0, "verb": "b"}')
    work, other = await wire.took()
    assert (await wire("GET", "/v1/sessions/ses_b/asks", mine))[0] == 400
    assert (await wire("GET", "/v1/sessions/ses_b/asks", wire.key))[0] == 400
    for path in ("/work/poll", "/work/stats", f"/work/{work}"):
        assert (await wire("GET", path, other))[0] == 401
        assert (await wire("GET", path, ""))[0] == 401
    assert (await wire("POST", f"/work/{work}/heartbeat", mine))[0] == 412
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (wire.key, mine, other):
        assert secret.encode() not in stored
    wire.queue.end_session("ses_a")
    assert wire.queue.revoke("worker")
    assert not wire.queue.revoke("worker")
    assert (await wire("GET", "/work/poll", wire.key))[0] == 401


async def test_an_item_is_handed_out_again_when_nobody_claims_it(wire: _Wire) -> None:
    wire.queue.ask("ses_a", b"{}")
    wire.queue.ask("ses_a", b"{}")
    assert (await wire("GET", "/work/poll", wire.key))[1] is not None
    assert (await wire("GET", "/work/poll?block_ms=1", wire.key)) == (200, None), "one item for a session"
    wire.clock.at_us += 5_000_001
    assert (await wire("GET", "/work/poll", wire.key))[1] is not None
    for bad in ("block_ms=0", "block_ms=1000", "block_ms=x", "reclaim_older_than_ms=-1"):
        assert (await wire("GET", f"/work/poll?{bad}", wire.key))[0] == 400
    status, stats = await wire("GET", "/work/stats", wire.key)
    assert isinstance(stats, dict)
    assert (status, stats["depth"], stats["pending"], stats["workers_polling"]) == (200, 1, 0, 1)
    assert (await wire("DELETE", "/work/poll", wire.key))[0] == 404
    assert (await wire("GET", "/v1/x", wire.key))[0] == 404


async def test_work_asked_for_while_a_worker_stops_is_not_lost(wire: _Wire) -> None:
    wire.queue.ask("ses_a", b"{}")
    work, token = await wire.took()
    wire.queue.end_session("ses_a")
    status, beat = await wire("POST", f"/work/{work}/heartbeat", token)
    assert isinstance(beat, dict)
    assert (status, beat["lease_extended"], beat["state"]) == (200, False, "stopping")
    assert (await wire("POST", f"/work/{work}/stop", token))[0] == 200
    again, _ = await wire.took()
    assert again != work


def test_a_key_is_not_sent_in_the_clear() -> None:
    assert check_url("https://brains.test/") == "https://brains.test"
    assert check_url("http://127.0.0.1:8478") == "http://127.0.0.1:8478"
    for bad in ("http://brains.test", "brains.test", "ftp://x", "https://", "https://x?a=b"):
        with pytest.raises(UsageError):
            check_url(bad)
