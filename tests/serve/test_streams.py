"""Event streams: none is lost or doubled over cuts, frames have a rate, the newest status wins."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import anyio
import httpx

from holdfast.serve.site import Site
from holdfast.serve.stream import FRAME_S, EventStream, frame
from tests.app.terminal import typed
from tests.serve.served import API, Served
from tests.support.waiting import until


def messages(text: str) -> list[tuple[int, Any]]:
    """The whole messages of a part of a stream, as a browser reads it: cursor and data."""
    found = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((int(fields["id"]), json.loads(fields["data"])))
    return found


def test_a_stream_that_is_cut_50_times_loses_and_doubles_nothing(served: Served, admin: str) -> None:
    rng, over = random.Random(15), threading.Event()
    with served.client(admin) as client:
        session = client.post(API + "/sessions", json={"goal": "say hi"}).json()["session_id"]

        def write() -> None:
            with served.client(admin) as writer:
                for number in range(120):
                    writer.post(f"{API}/sessions/{session}/messages", json={"text": f"message {number}" * 20})
                writer.post(f"{API}/sessions/{session}/cancel")
            over.set()

        thread = threading.Thread(target=write)
        thread.start()
        seen: list[int] = []
        last, cuts = "0", 0

        def read(cut: int | None) -> None:
            nonlocal last
            with client.stream("GET", f"{API}/sessions/{session}/events/stream", headers={"last-event-id": last}) as on:
                text = ""
                for part in on.iter_bytes():
                    text += part.decode()
                    if (cut is not None and len(text) >= cut) or ": alive" in text:
                        break
            for cursor, events in messages(text if cut is None else text[:cut]):
                seen.extend(event["seq"] for event in events)
                last = str(cursor)

        while cuts < 50 or not over.is_set():
            read(rng.randint(0, 6_000))
            cuts += 1
        thread.join()
        read(None)
        head = client.get(f"{API}/sessions/{session}").json()["events"]
        while seen[-1] < head:
            read(None)
    assert cuts >= 50
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > 120


class Told(NamedTuple):
    """A message of the stream of a home."""

    at_us: int
    name: str
    counts: dict[str, Any]


def told(stream: httpx.Response) -> Iterator[Told]:
    """The messages as they come."""
    fields: dict[str, str] = {}
    for line in stream.iter_lines():
        assert line != ": alive", "there is no news"
        name, _, value = line.partition(": ")
        fields[name] = value
        if name == "data":
            yield Told(int(fields["id"]), fields["event"], json.loads(value))


def test_the_newest_status_wins(served: Served, admin: str) -> None:
    with served.client(admin) as client, client.stream("GET", API + "/stream") as stream:
        counts = (each.counts for each in told(stream) if each.name == "status")
        before = next(counts)
        for _ in range(5):
            client.post(API + "/sessions", json={"goal": "say hi"})
        seen = [before]
        while seen[-1]["done"] < before["done"] + 5:
            seen.append(next(counts))
    assert len({json.dumps(each) for each in seen}) == len(seen), "a status was sent again without a change"


def test_what_changes_no_count_is_told_too(served: Served, admin: str) -> None:
    """A page of a session that runs, and goes on running, is out of date all the same."""
    with served.client(admin) as client, client.stream("GET", API + "/stream") as stream:
        client.post(API + "/sessions", json={"goal": "say hi", "key": "counted"})
        until(lambda: client.get(f"{API}/sessions/counted").json()["state"] == "done")
        began_us = time.time_ns() // 1_000
        typed("budget", "counted", "--set", "20", "--home", served.home).went()
        assert next(each for each in told(stream) if each.at_us > began_us and each.name == "changed").counts == {}


async def test_frames_are_as_rare_as_promised_and_end_with_the_server() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def frames() -> AsyncIterator[bytes | None]:
        for number in range(3):
            yield frame(number, "status", b"{}")
            yield None
        await anyio.sleep_forever()

    sent: list[dict[str, Any]] = []
    quiet = anyio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 7:
            quiet.set()

    async def receive() -> Any:
        await anyio.sleep_forever()

    closing = anyio.Event()
    site = cast(Site, SimpleNamespace(clock=SimpleNamespace(sleep=sleep), closing=closing))
    async with anyio.create_task_group() as group:
        group.start_soon(EventStream(site, frames()), {}, receive, send)
        await quiet.wait()
        closing.set()
    assert slept == [FRAME_S] * 3
    assert FRAME_S >= 1 / 5
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
