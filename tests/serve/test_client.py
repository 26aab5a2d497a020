"""The client against a real server: typed results, a stream that goes on through cuts, errors; and its example."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from holdfast.client import Client
from holdfast.errors import RequestFailed, UsageError
from tests.app.terminal import PRICE, bash, script, turn
from tests.house.source import ROOT
from tests.house.test_docs import blocks_of
from tests.serve.served import Served, serving
from tests.serve.test_proxy import free_port
from tests.support.waiting import PATIENCE_S
from tests.support.web_home import populate, web_home


@pytest.fixture(scope="module")
def front() -> Iterator[socket.socket]:
    """The listening socket of a proxy in front of the server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory, front: socket.socket) -> Iterator[Served]:
    """A server with items in its inbox, whose model writes a file. The proxy has its public address."""
    folder = tmp_path_factory.mktemp("client")
    folder.chmod(0o711)
    anyio.run(_populated, folder / "home")
    model = script(
        folder / "w.json", bash("echo one > a.txt"), bash("echo two > a.txt"), turn(text="Written."), price=PRICE
    )
    port, public = free_port(), front.getsockname()[1]
    words = ("--port", str(port), "--url", f"http://127.0.0.1:{public}")
    with serving(folder / "home", *words, model=model) as server:
        server.url = f"http://127.0.0.1:{port}"
        yield server


async def _populated(home: Path) -> None:
    async with web_home(home) as made:
        await populate(made)


@pytest.fixture
async def client(working: Served) -> AsyncIterator[Client]:
    async with Client(working.url, working.key("ada", "admin")) as client:
        yield client


async def test_sessions_are_opened_steered_and_read(client: Client) -> None:
    session = (await client.open("write", key="k", budget_usd=1.0)).session_id
    assert (await client.open("write", key="k")).session_id == session
    types = []
    with anyio.fail_after(PATIENCE_S):
        async for event in client.events("k"):
            types.append(event.type)
            if event.type == "shift.ended":
                break
    read = [event async for event in client.events("k", follow=False)]
    assert types == [event.type for event in read][: len(types)]
    first = next(event.seq for event in read if event.type == "agent.tool_result")
    at = [event.data["through_seq"] for event in read if event.type == "workspace.snapshotted"]
    at = [seq for seq in at if seq >= first]
    assert (await client.files("k", at=at[0])).files == ["a.txt"]
    assert [await client.file("k", "a.txt", at=seq) for seq in (at[0], at[-1])] == [b"one\n", b"two\n"]
    assert (await client.verify("k")).ok
    assert (await client.brief("k")).headline

    sent = [await client.post("k", "more", key="m1") for _ in range(2)]
    assert (sent[0].duplicate, sent[1].duplicate, sent[0].seq) == (False, True, sent[1].seq)
    fork = await client.fork("k", at[0])
    assert (fork.origin, fork.duplicate) == (session, False)
    assert (await client.cancel(fork.session_id, "enough")).seq is not None
    other = (await client.open("write")).session_id
    for command in (client.pause, client.resume, client.interrupt, client.cancel):
        assert (await command(other)).session_id == other
    assert "k" in [each.key async for each in client.sessions("write")]
    with anyio.fail_after(PATIENCE_S):
        while not [each async for each in client.search("a.txt echo")]:
            await client.status()

    assert (await client.set_budget("k", 2.5)).accounts[0].total.cap_usd == 2.5
    assert (await client.budget("k")).accounts[0].account_id == session
    await client.set_account("home:all", 100.0, period="day")
    assert [each.day.cap_usd for each in (await client.budgets()).accounts if each.account_id == "home:all"] == [100.0]
    assert (await client.stop("test")).stopped
    assert (await client.status()).stopped
    assert not (await client.release()).stopped
    await client.cancel("k")  # its hands go with it; those of a session that goes on stay for two minutes


async def test_an_item_is_answered_once(client: Client, working: Served) -> None:
    item = (await client.inbox())[0]
    assert (await client.item(item.item_id)).digest == item.digest
    assert (await client.answer(item, "deny", note="not now")).by == "ada"
    async with Client(working.url, working.key("bob", "operator")) as other:
        with pytest.raises(RequestFailed, match="by ada") as refused:
            await other.answer(item, "approve")
    assert (refused.value.status, refused.value.kind) == (409, "item_closed")


@asynccontextmanager
async def cutting(front: socket.socket, working: Served, cuts: list[int]) -> AsyncIterator[str]:
    """A proxy that resets one connection after the other after so many bytes of a response."""

    ends: list[asyncio.StreamWriter] = []
    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", int(working.url.rpartition(":")[2]))
        ends.extend((writer, forth))
        left = cuts.pop(0) if cuts else 10**9
        with suppress(OSError, asyncio.IncompleteReadError):
            forth.write(await reader.readuntil(b"\r\n\r\n"))
            while left > 0 and (piece := await back.read(65_536)):
                writer.write(piece[:left])
                await writer.drain()
                left -= len(piece)
        for each in (writer, forth):
            each.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.ensure_future(serve(reader, writer)))

    async with await asyncio.start_server(accept, sock=front.dup()):
        yield f"http://127.0.0.1:{front.getsockname()[1]}"
        for each in ends:
            each.transport.abort()
        await asyncio.gather(*served)


async def test_a_stream_goes_on_through_cuts(client: Client, working: Served, front: socket.socket) -> None:
    await client.pause("ses_flakytests")
    cuts = [0, 100, 2_000, 150_000, 700, 900, 1_100, 1_300, 1_500, 5_000, 1, 2_000]
    seen: list[int] = []
    async with cutting(front, working, cuts) as url, Client(url, working.key("eve")) as watching:
        with anyio.fail_after(PATIENCE_S):
            last = 0
            async for event in watching.events("ses_flakytests"):
                seen.append(event.seq)
                if not cuts and event.seq >= last:
                    break
                if event.seq >= last and len(seen) > 60:
                    last = (await client.post("ses_flakytests", "words " * 60)).seq or 0
    assert cuts == []
    assert seen == list(range(1, len(seen) + 1))


async def test_errors_say_what_happened(client: Client, working: Served) -> None:
    with pytest.raises(RequestFailed, match="ses_none") as unknown:
        await client.session("ses_none")
    assert (unknown.value.status, unknown.value.kind) == (404, "not_found")
    async with Client(working.url, "hf_wrong") as stranger:
        with pytest.raises(RequestFailed, match="API key") as refused:
            _ = [each async for each in stranger.events("last")]
    assert refused.value.status == 401
    async with Client(f"http://127.0.0.1:{free_port()}", "hf_x") as nobody:
        with pytest.raises(RequestFailed, match="no response") as unreached:
            _ = [each async for each in nobody.events("last", patience_s=0.0)]
    assert unreached.value.status == 0
    with pytest.raises(UsageError, match="address"):
        Client("127.0.0.1:8400", "hf_x")


def test_the_example_of_the_page_runs(working: Served) -> None:
    (block,) = blocks_of((ROOT / "docs" / "client.md").read_text(), "client.md")
    env = {**os.environ, "SERVER": working.url, "SERVER_KEY": working.key("ci", "operator")}
    done = subprocess.run([sys.executable, "-c", block.body], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[-400:]) == (0, "")
    assert "1 session.created" in done.stdout
    assert "itm_0002" in done.stdout
    anyio.run(_cancelled, working)


async def _cancelled(working: Served) -> None:
    async with Client(working.url, working.key("ada", "admin")) as client:
        await client.cancel("nightly-7")
