"""One file, several processes: order, leases that die with their holder, waiting across (S3, S5)."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from holdfast.errors import LeaseHeld, LogUnavailable
from holdfast.facts.codec import genesis
from holdfast.facts.shift import LeaseStolen
from holdfast.log.sql.threads import Probe
from holdfast.log.verify import verify
from holdfast.testing.log import Scenario
from tests.log.processes import acknowledged, line, run, running, tell
from tests.log.rigs import open_store, sqlite_rig
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.real


async def test_two_processes_append_and_post_without_a_gap(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        lease = await Scenario(rig).started()
        said: dict[str, str] = {}

        async def child(verb: str, *rest: object) -> None:
            done = await anyio.to_thread.run_sync(lambda: run(verb, holdfast_home, *rest))
            assert done.returncode == 0, done.stderr
            said[verb] = done.stdout

        async with anyio.create_task_group() as group:
            group.start_soon(child, "append", "ses_a", lease.epoch, 60)
            group.start_soon(child, "post", "ses_a", 60)
        events = await rig.store.read("ses_a", prev=genesis("ses_a"))
        assert [event.seq for event in events] == list(range(1, 123))
        by_seq = {event.seq: event.id for event in events}
        assert all(by_seq[seq] == id_ for seq, id_ in acknowledged(said["append"]))
        seqs = [seq for output in said.values() for seq, _ in acknowledged(output)]
        assert sorted(seqs) == list(range(3, 123))
        assert (await verify(rig.store)).findings == ()


async def test_processes_that_open_a_new_home_at_once_make_one_log(holdfast_home: Path) -> None:
    outputs: list[str] = []

    async def child() -> None:
        done = await anyio.to_thread.run_sync(lambda: run("create", holdfast_home, "nightly"))
        assert done.returncode == 0, done.stderr + done.stdout
        outputs.append(done.stdout)

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(child)
    words = [output.split() for output in outputs]
    assert len({session for session, _ in words}) == 1
    assert sorted(duplicate for _, duplicate in words) == ["False"] + ["True"] * 5


async def test_a_lease_ends_with_its_process_and_not_before(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        await case.open()
        with running("hold", holdfast_home, "ses_a") as child:
            assert line(child)[:2] == ["held", "1"]
            worker = (await case.row()).holder
            assert await rig.store.holders() == {"ses_a": worker}
            await case.refused(LeaseHeld, case.take(), "ses_a")
            child.send_signal(signal.SIGSTOP)
            _wait_until_stopped(child.pid)
            await case.refused(LeaseHeld, case.take(), "ses_a")
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert await rig.store.holders() == {}
            assert await rig.store.due(2**60) == ["ses_a"]
            assert (await case.take()).epoch == 2


async def test_a_stopped_holder_is_robbed_and_then_fenced(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        await case.open()
        with running("hold", holdfast_home, "ses_a") as zombie:
            _, _, worker = line(zombie)
            tell(zombie)
            assert line(zombie) == ["appended", "3"]
            zombie.send_signal(signal.SIGSTOP)
            _wait_until_stopped(zombie.pid)
            lease = await case.take(steal=True)
            assert lease.events[0].fact == LeaseStolen(from_worker_id=worker, from_epoch=1)
            zombie.send_signal(signal.SIGCONT)
            for _ in range(3):
                tell(zombie)
                assert line(zombie) == ["Fenced"]
            events = await rig.store.read("ses_a", prev=genesis("ses_a"))
            assert [event.epoch for event in events] == [0, 1, 1, 2, 2]


async def test_what_a_holder_leaves_behind_holds_nothing(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        await case.open()
        with running("parent", holdfast_home, "ses_a") as child:
            left = int(line(child)[1])
            try:
                assert len(await rig.store.holders()) == 1
                child.kill()
                child.wait()
                os.kill(left, 0)
                assert await rig.store.holders() == {}
            finally:
                os.kill(left, signal.SIGKILL)


async def test_waiting_sees_another_process_post(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        await case.open()
        heads: list[int] = []

        async def wait() -> None:
            heads.append(await rig.store.wait("ses_a", 1))

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                done = await anyio.to_thread.run_sync(lambda: run("post", holdfast_home, "ses_a", 1))
                assert done.returncode == 0, done.stderr
        assert heads == [2]


async def test_a_change_by_another_process_is_noticed(holdfast_home: Path) -> None:
    """Waited for already, or made between two waits."""
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        await case.open()
        token, quiet = 0, False
        while not quiet:
            with anyio.move_on_after(0.5) as scope:
                token = await rig.store.changed(token)
            quiet = scope.cancelled_caught
        done = await anyio.to_thread.run_sync(lambda: run("post", holdfast_home, "ses_a", 1))
        assert done.returncode == 0, done.stderr
        tokens: list[int] = []

        async def wait(after: int) -> None:
            tokens.append(await rig.store.changed(after))

        with anyio.fail_after(PATIENCE_S):
            await wait(token)
            async with anyio.create_task_group() as group:
                group.start_soon(wait, tokens[0])
                await anyio.wait_all_tasks_blocked()
                done = await anyio.to_thread.run_sync(lambda: run("post", holdfast_home, "ses_a", 1))
                assert done.returncode == 0, done.stderr
        assert token < tokens[0] < tokens[1]


async def test_what_this_process_appends_is_told_without_a_look(holdfast_home: Path) -> None:
    never = threading.Event()

    def connect() -> Probe:
        never.wait()
        raise LogUnavailable("the test is over")

    async with sqlite_rig(holdfast_home) as rig:
        rig.store._watch._connect = connect
        lease = await Scenario(rig).started()
        heads: list[int] = []

        async def wait() -> None:
            heads.append(await rig.store.wait("ses_a", 2))

        try:
            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    await anyio.wait_all_tasks_blocked()
                    await rig.store.sessions()  # reads are in order: the waiter has seen the old head
                    await anyio.wait_all_tasks_blocked()
                    await Scenario(rig).append(lease, Scenario(rig).result())
        finally:
            never.set()
        assert heads == [3]


async def test_two_stores_in_one_process_see_each_other(holdfast_home: Path) -> None:
    async with sqlite_rig(holdfast_home) as rig, await open_store(holdfast_home) as other:
        case = Scenario(rig)
        lease = await case.started()
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(other.wait, "ses_a", 2)
                await anyio.wait_all_tasks_blocked()
                await case.append(lease, case.result())
        with pytest.raises(LeaseHeld):
            await other.acquire("ses_a", case.shift(rig.worker()))


def _wait_until_stopped(pid: int) -> None:
    found, status = os.waitpid(pid, os.WUNTRACED)
    assert found == pid
    assert os.WIFSTOPPED(status)
