"""Which hosts a set-up talked to is in the log, however it ended; and the views say so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.facts.hands import EgressRecorded
from holdfast.facts.session import Destination, Environment
from holdfast.kinds import KINDS
from holdfast.kinds.mission.brief.events import NEWS, Seen
from holdfast.service.access_lines import outside_details, outside_lines
from holdfast.service.event_lines import describe
from holdfast.testing.egress import part
from holdfast.vault.fake import FakeVault
from tests.egress.upstream import World
from tests.environment.rigs import Home, home, write
from tests.session.story import Story

ASK = (
    'python3 -c "import ssl, sys, urllib.request as r; '
    "r.urlopen(sys.argv[1], data=b'x' * 2000, context=ssl._create_unverified_context(), timeout=20)\" "
)


@asynccontextmanager
async def online(base: Path) -> AsyncIterator[Home]:
    """A home whose set-ups reach a registry and a named host, both on this machine."""
    (base / "world").mkdir()
    world = World(base / "world")
    try:
        for number, name in enumerate(("registry.test", "named.test")):
            world.serve(name, f"93.184.216.{number + 1}")
        async with home(base) as here:
            here.egress = ProxyEgress(
                here.folder / "egress",
                FakeVault({}, SystemClock()),
                registries=lambda: [Destination("registry.test")],
                bundle=str(world.bundle),
                network=part(world.tables),
                idle_s=20.0,
            )
            yield here
    finally:
        world.close()


TO_REGISTRY = {("registry.test", 443, "allowed", True)}
TO_NAMED = {("named.test", 443, "allowed", False)}
REFUSED = {("elsewhere.test", 443, "refused", False)}

CASES = {
    "one that succeeds": (f"{ASK} https://registry.test/up && mkdir made", TO_REGISTRY),
    "one that fails afterwards": (f"{ASK} https://registry.test/up; exit 3", TO_REGISTRY),
    "one that uses two hosts": (
        f"{ASK} https://registry.test/up; {ASK} https://named.test/x; mkdir made",
        TO_REGISTRY | TO_NAMED,
    ),
    "one that fails on a refused host": (f"{ASK} https://elsewhere.test/", REFUSED),
    "one that goes on after a refused host": (f"{ASK} https://elsewhere.test/; mkdir made", REFUSED),
    "one that ends itself": (f"{ASK} https://registry.test/up; kill -9 $$", TO_REGISTRY),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_set_up_leaves_the_hosts_it_asked_for_in_the_log(name: str, tmp_path: Path) -> None:
    command, places = CASES[name]
    work = write(tmp_path / "work", {"a": "a\n"})
    policy = Environment(setup=(command,), hosts=(Destination("named.test"),))
    async with online(tmp_path) as here:
        await here.run(work, policy, "true")
        (record,) = [each for each in await here.facts(EgressRecorded) if each.set_up]
        assert {(each.host, each.port, each.verdict, each.registry) for each in record.seen} == places
        assert all(each.sent > 2000 for each in record.seen if each.verdict == "allowed")
        assert {each.method for each in record.seen} == {""}  # a tunnel cannot be read
        assert bool(record.through) is False

        state, _ = await recall(here.sessions[-1], here.store, here.store, KINDS)
        for host, port, verdict, _ in places:
            assert f"{host}:{port} {verdict} × 1" in outside_lines(state)["set-up"]
            assert host in describe(Story().tell(record).events[-1])
            (kind,) = [each for each in NEWS if each.name == "set_up"]
            assert f"1 {verdict} to {host}:{port}" in kind.tell(record, Seen(""))
        egress = outside_details(state)["egress"]
        assert isinstance(egress, dict)
        assert len(egress["set_up"]) == len(places)
        assert (egress["allowed"], egress["refused"]) == (0, 0)  # the session itself asked for nothing


async def test_one_that_is_interrupted_says_it_too(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    policy = Environment(setup=(f"{ASK} https://registry.test/up; touch begun; sleep 600",))
    async with online(tmp_path) as here:
        session_id = await here.open(work, policy)

        async def interrupt() -> None:
            making = here.folder / "environments" / "making"
            with anyio.fail_after(120):
                while not list(making.glob("*/workspace/begun")):  # noqa: ASYNC110 - made by a process of the sandbox
                    await anyio.sleep(0.01)
            await here.intake.interrupt(await here.store.find(session_id), "enough")

        async with anyio.create_task_group() as group:
            group.start_soon(interrupt)
            await here.wake(session_id, "true")
        assert [each.host for fact in await here.facts(EgressRecorded) for each in fact.seen] == ["registry.test"]


async def test_one_that_was_made_before_asks_for_nothing(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    policy = Environment(setup=(f"{ASK} https://registry.test/up && mkdir made",))
    async with online(tmp_path) as here:
        for _ in range(2):
            await here.run(work, policy, "true")
        assert [each.set_up for each in await here.facts(EgressRecorded, 0)] == [True]
        assert await here.facts(EgressRecorded, 1) == []
        assert [each.host for each in (await here.record()).seen] == ["registry.test"]
