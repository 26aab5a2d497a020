"""Random stories on both stores and on a model of a few lines: same answers, same bytes (S1–S5, S15)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.facts.codec import genesis
from holdfast.facts.people import Verdict
from holdfast.log.base import Lease, Post
from holdfast.log.memory import MemoryStore
from holdfast.log.sqlite import SqliteStore
from holdfast.log.verify import rebuild, verify
from holdfast.log.worker_locks import Worker
from holdfast.testing.log import Scenario, Store
from tests.log.model import CAP, NAMES, Model, Step

WORKERS = ("wrk_1", "wrk_2")
names = st.sampled_from(NAMES)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), names, st.sampled_from(["", "key"])),
        st.tuples(st.just("say"), names, st.sampled_from(["k1", "k2", "k3"])),
        st.tuples(st.just("take"), names, st.sampled_from(WORKERS), st.booleans()),
        st.tuples(st.just("release"), names),
        st.tuples(st.just("kill"), st.sampled_from(WORKERS)),
        st.tuples(st.just("fact"), names, st.sampled_from([0, 0, 0, -1, 1]), st.integers(1, 3)),
        st.tuples(st.just("decide"), names, st.sampled_from([0, 0, -1, 1])),
        st.tuples(st.just("batch"), names, names, st.sampled_from(["k1", "k4"])),
        st.tuples(st.just("reserve"), names, st.integers(0, 60)),
        st.tuples(st.just("settle"), names, st.integers(0, 60)),
        st.tuples(st.just("ask"), names, st.sampled_from(["itm_1", "itm_2"])),
        st.tuples(st.just("answer"), names, st.sampled_from(["itm_1", "itm_2"]), st.sampled_from(["approve", "deny"])),
        st.tuples(st.just("cap"), names, names, st.none() | st.integers(0, 150)),
        st.tuples(st.just("stop"), st.just("")),
        st.tuples(st.just("lift"), st.just("")),
    ),
    min_size=5,
    max_size=40,
)


class Still:
    """A clock that the story moves, so that both stores stamp the same."""

    at = 0

    def now_us(self) -> int:
        return self.at

    def monotonic_s(self) -> float:
        return self.at / 1e6

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


class Counting:
    """Entropy that counts."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, size: int, /) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")


class Machine:
    """A store, its workers, and what a story remembers between steps."""

    def __init__(self, store: Store, clock: Still, revive: Callable[[str], None], kill: Callable[[str], None]) -> None:
        self.store = store
        self.clock = clock
        self.revive = revive
        self.kill = kill
        self.case = Scenario(self)
        self.leases: dict[str, Lease] = {}
        self.open_requests: dict[str, list[int]] = {}
        self.last_stop = 0

    def worker(self) -> str:
        raise AssertionError("steps name their workers")

    def advance(self, seconds: float) -> None:
        self.clock.at += round(seconds * 1e6)

    async def rewrite(self, session_id: str, seq: int, body: bytes | None) -> None:
        raise AssertionError("nothing is rewritten here")

    async def do(self, step: Step) -> object:
        """The answer to a step, comparable among stores: a value, or the name of an error."""
        self.clock.at += 1_000
        try:
            return await getattr(self, step[0])(*step[1:])
        except HoldfastError as error:
            return type(error).__name__

    def lease(self, name: str) -> Lease:
        return self.leases.get(name) or Lease(name, 0, "", ())

    async def open(self, name: str, key: str) -> object:
        accounts = (name,) if name == NAMES[0] else (name, NAMES[0])
        return await self.case.open(name, key=key and f"{key}", accounts=accounts, cap=CAP)

    async def say(self, name: str, key: str) -> object:
        return await self.case.say(name, key)

    async def take(self, name: str, worker: str, steal: bool) -> object:
        self.revive(worker)
        self.leases[name] = await self.case.take(name, worker=worker, steal=steal)
        return self.leases[name]

    async def release(self, name: str) -> object:
        await self.store.release(self.lease(name))
        return None

    async def fact(self, name: str, off: int, count: int) -> object:
        drafts = [self.case.result(str(n)) for n in range(count)]
        return await self.store.append(name, self.lease(name).epoch + off, drafts)

    async def decide(self, name: str, off: int) -> object:
        head = (await self.store.find(name)).head + off
        return await self.case.append(self.lease(name), self.case.parked(), head=head)

    async def batch(self, name: str, other: str, key: str) -> object:
        post = Post(other, key, self.case.message())
        return await self.case.append(self.lease(name), self.case.result(), posts=[post])

    async def reserve(self, name: str, amount: int) -> object:
        (event,) = await self.case.append(self.lease(name), self.case.request(amount))
        self.open_requests.setdefault(name, []).append(event.seq)
        return event

    async def settle(self, name: str, cost: int) -> object:
        if not self.open_requests.get(name):
            return None
        (event,) = await self.case.append(self.lease(name), self.case.response(self.open_requests[name][0], cost))
        self.open_requests[name].pop(0)
        return event

    async def ask(self, name: str, item_id: str) -> object:
        return await self.case.append(self.lease(name), self.case.question(item_id))

    async def answer(self, name: str, item_id: str, verdict: Verdict) -> object:
        return await self.case.answer(name, item_id, verdict)

    async def cap(self, name: str, account_id: str, cap: int | None) -> object:
        await self.store.find(name)
        if await self.store.account(account_id) is None:
            return None
        return await self.case.set_cap(account_id, cap, session_id=name)

    async def stop(self, _: str) -> object:
        receipt = await self.case.stop()
        self.last_stop = receipt.seq
        return receipt

    async def lift(self, _: str) -> object:
        return await self.case.go_on(self.last_stop)


async def tell(machines: list[Machine], model: Model, story: list[Step]) -> None:
    for step in story:
        if step[0] == "kill":
            for machine in machines:
                machine.kill(step[1])
            model.do(step)
            continue
        answers = [await machine.do(step) for machine in machines]
        assert answers[0] == answers[1], step
        expected = model.do(step)
        failed = isinstance(answers[0], str)
        assert failed == (expected is not None), (step, answers[0])
        if expected is not None and expected is not HoldfastError:
            assert answers[0] == expected.__name__, step


async def compare(machines: list[Machine], model: Model) -> None:
    for machine in machines:
        store = machine.store
        rows = {row.session_id: row for row in await store.sessions()}
        assert {name: row.head for name, row in rows.items()} == model.head
        assert {name: row.epoch for name, row in rows.items()} == model.epoch
        holders = {name: worker for name, worker in model.holder.items() if worker in model.live}
        assert await store.holders() == holders
        books = await machine.case.books()
        for name in rows:
            held = sum(sum(model.held.get(each, [])) for each in model.head if name in model.path(each))
            spent = sum(model.spent.get(each, 0) for each in model.head if name in model.path(each))
            assert (name, model.caps[name], spent, held) in books
        items = {item.item_id: (item.session_id, item.status) for item in await store.items(open_only=False)}
        assert items == model.items
        assert (await store.stopped() is not None) == model.stopped
        assert (await verify(store)).findings == ()
        assert await rebuild(store) == await store.beside()
    one, two = (machine.store for machine in machines)
    assert await one.beside() == await two.beside()
    for name in model.head:
        assert await one.read(name, prev=genesis(name)) == await two.read(name, prev=genesis(name))


async def play(story: list[Step], home: Path) -> None:
    memory_clock, sqlite_clock = Still(), Still()
    memory = MemoryStore(memory_clock, Counting())
    workers: dict[str, Worker] = {}

    def revive(worker_id: str) -> None:
        if worker_id not in workers:
            workers[worker_id] = Worker.start(home / "workers", worker_id)

    def kill(worker_id: str) -> None:
        if worker_id in workers:
            workers.pop(worker_id).close()

    async with await SqliteStore.open(
        home / "holdfast.db", workers=home / "workers", clock=sqlite_clock, entropy=Counting()
    ) as sqlite:
        machines = [
            Machine(memory, memory_clock, memory.worker_lives, memory.worker_died),
            Machine(sqlite, sqlite_clock, revive, kill),
        ]
        model = Model()
        try:
            await tell(machines, model, story)
            await compare(machines, model)
        finally:
            for worker in workers.values():
                worker.close()


@settings(max_examples=60)
@given(steps)
def test_both_stores_tell_the_same_true_story(story: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as home:
        anyio.run(play, [("open", NAMES[0], ""), *story], Path(home))
