"""The supervisor's deaths and its journal: what was done is known, or known to be unknown."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest

from holdfast.errors import Fenced, HandsError, HandsLost, SandboxUnavailable, StorageFull
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Hands
from holdfast.hands.box.processes import descendants, hold_lock, is_locked
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.incarnation import is_deserted
from holdfast.hands.launch import Lives
from holdfast.hands.supervised import SupervisedHands
from holdfast.hands.unsandboxed import UnsandboxedProvider
from holdfast.testing.hands import bash, run, tool
from tests.hands.rigs import RealRig, kill_and_wait, real, started_in_time
from tests.hands.test_exec import living
from tests.support.as_user import UID
from tests.support.waiting import PATIENCE_S


async def until(path: Path) -> None:
    """Return when a file is there."""
    with anyio.fail_after(PATIENCE_S):
        while not path.exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.005)


async def until_dead(pid: int) -> None:
    """Return when a process that is not our child has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(handle)
    finally:
        os.close(handle)


async def test_sigkill_in_the_middle_of_a_call(rig: RealRig) -> None:
    word = f"survivor-{os.getpid()}-{rig.folder.parent.name}"
    hands = await rig.provider.provision(rig.spec(), 1)
    command = f"setsid bash -c 'exec -a {word} sleep 300' & touch ready; sleep 300"
    await hands.start(1, "1.0", bash(command))
    await until(rig.workspace / "ready")
    with anyio.fail_after(PATIENCE_S):
        while not (inside := living(f"{word}\0" + "300")):  # noqa: ASYNC110 - another process becomes it
            await anyio.sleep(0.005)
    await rig.kill(hands)
    assert (await hands.status(1, "1.0")).state == "unknown"
    for pid in inside:
        await until_dead(pid)
    assert living(word) == [], "what ran in the sandbox dies with the supervisor"


async def test_a_dead_brain_costs_no_result(rig: RealRig, request: pytest.FixtureRequest) -> None:
    """The process that started a call is killed with its whole group; another takes the result."""
    provider = request.node.callspec.params["rig"]
    command = [sys.executable, "-m", "tests.hands.dying_brain", provider, str(rig.folder), str(rig.workspace)]
    async with await anyio.open_process(command, start_new_session=True, stderr=None) as brain:
        assert brain.stdout is not None
        identity = msgspec.json.decode(await brain.stdout.receive(), type=HandsProvisioned)
        os.killpg(brain.pid, signal.SIGKILL)
    hands = await rig.provider.attach(identity)
    await hands.fence(2)
    assert (await hands.status(2, "1.0")).state == "running"
    (rig.workspace / "go").touch()
    result = await hands.wait(2, "1.0")
    assert (result.output, result.exit_code) == ("done\n", 0)
    assert (rig.workspace / "marks").read_text() == "x"
    await hands.release(2)


async def test_a_journal_torn_at_every_byte(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await run(hands, "1.0", bash("echo first"))
    seen = {
        item.path: item.digest for item in (await run(hands, "1.1", tool("write", file_path="f", content="a"))).files
    }
    await run(hands, "2.0", tool("write", seen, file_path="f", content="b"))
    await one.kill(hands)
    journal = one.journal(hands)
    whole = journal.read_bytes()
    last = whole.rindex(b'{"t":"started"')
    end = whole.index(b"\n", last)
    for cut in range(last, len(whole) + 1):
        journal.write_bytes(whole[:cut])
        status = await hands.status(1, "2.0")
        if cut <= end:
            assert status.state == "never_started", cut
        elif cut < len(whole):
            assert status.state == "unknown", cut
            assert status.expectation is not None
            assert status.expectation.before == next(iter(seen.values()))
        else:
            assert status.state == "finished", cut
        assert (await hands.status(1, "1.0")).state == "finished"
    journal.write_bytes(b"")
    assert (await hands.status(1, "1.0")).state == "unknown", "without its first line a journal says nothing"


async def test_sigkill_while_the_journal_is_written(one: RealRig) -> None:
    """Kills at many moments of a burst of calls: each call is known to have ended, or not to be known."""
    for turn in range(8):
        hands = await one.provider.provision(one.spec(), 1)
        marks = one.workspace / f"marks{turn}"
        done = await _burst(hands, one.supervisor(hands), marks.name, 0.01 + 0.007 * turn)
        effects = len(marks.read_text()) if marks.exists() else 0
        states = [(await hands.status(1, f"{number}.0")).state for number in range(done + 2)]
        assert set(states[:done]) <= {"finished"}
        assert states[done + 1] == "never_started"
        assert effects <= done + 1
        if states[done] == "never_started":
            assert effects == done


async def _burst(hands: Hands, pid: int, marks: str, kill_after_s: float) -> int:
    """Call after call until the supervisor is killed; how many calls had ended."""

    async def kill() -> None:
        await anyio.sleep(kill_after_s)
        await kill_and_wait(pid)

    async with anyio.create_task_group() as group:
        group.start_soon(kill)
        for done in range(100_000):
            try:
                await run(hands, f"{done}.0", bash(f"printf x >> {marks}"))
            except HandsLost:
                return done
    raise AssertionError("it was not killed")


async def test_a_stopped_supervisor_is_never_waited_for(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await hands.start(1, "1.0", bash("printf x >> marks; sleep 300"))
    pid = one.supervisor(hands)
    impatient = SupervisedHands(hands.identity, one.folder / hands.identity.hands_id, answer_s=0.3)
    os.kill(pid, signal.SIGSTOP)
    try:
        with anyio.fail_after(PATIENCE_S):
            for step in (
                lambda: impatient.fence(2),
                lambda: impatient.status(2, "1.0"),
                lambda: impatient.wait(2, "1.0"),
                lambda: impatient.start(2, "2.0", bash("printf y >> marks")),
                lambda: impatient.release(2),
            ):
                with pytest.raises(HandsError) as caught:
                    await step()
                assert not isinstance(caught.value, HandsLost), "it is not dead, and nothing is known"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (await hands.status(1, "1.0")).state == "running"
    assert (await hands.status(1, "2.0")).state == "never_started", "who gave up asking wants nothing any more"
    await hands.kill(1, "1.0")
    assert (await hands.wait(1, "1.0")).cancelled
    assert (one.workspace / "marks").read_text() == "x"


async def test_a_zombie_has_no_effect(rig: RealRig) -> None:
    zombie = await rig.provider.provision(rig.spec(), 1)
    heir = await rig.provider.attach(zombie.identity)
    waited: list[str] = []

    async def wait() -> None:
        try:
            await zombie.wait(1, "1.0")
        except Fenced as fenced:
            waited.append(f"{fenced.mine} {fenced.current}")

    await zombie.start(1, "1.0", bash("sleep 300"))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(0.05)
            await heir.fence(2)
    assert waited == ["1 2"], "who waits under an old epoch is told"
    for number in range(20):
        with pytest.raises(Fenced):
            await zombie.start(1, f"2.{number}", bash("printf x >> marks"))
        with pytest.raises(Fenced):
            await zombie.kill(1, "1.0")
    assert not (rig.workspace / "marks").exists()
    assert (await heir.status(2, "1.0")).state == "running"


async def test_a_write_that_was_cut_short_can_be_probed(one: RealRig) -> None:
    """Killed after its start was journaled: the journal says what the file was and was to become."""
    hands = await one.provider.provision(one.spec(), 1)
    first = await run(hands, "1.0", tool("write", file_path="f", content="before"))
    seen = {item.path: item.digest for item in first.files}
    pid = one.supervisor(hands)
    agent = descendants(pid)[0].pid
    os.kill(agent, signal.SIGSTOP)
    with anyio.move_on_after(0.2):
        await hands.start(1, "2.0", tool("write", seen, file_path="f", content="after"))
    assert "2.0" not in replay(str(one.journal(hands))).started, "not before the agent has said what it would do"
    await one.kill(hands)
    os.kill(agent, signal.SIGCONT)
    await until_dead(agent)
    assert (await hands.status(1, "2.0")).state == "never_started"
    assert (one.workspace / "f").read_text() == "before"


async def test_idle_and_unclaimed_it_ends_and_still_testifies(tmp_path: Path) -> None:
    lives = Lives(grace_s=0.2)
    async with real(tmp_path, lambda folder: UnsandboxedProvider(folder, lives=lives)) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        await run(hands, "1.0", bash("echo kept"))
        pid = rig.supervisor(hands)
        other = await rig.provider.provision(rig.spec(), 1)
        gone = rig.supervisor(other)
        other._talk.close()  # type: ignore[attr-defined]
        await until_dead(gone)
        os.kill(pid, 0)  # just as idle, and older, but claimed by this process: it stays
        await hands.start(1, "2.0", bash("sleep 0.8; echo done"))
        hands._talk.close()  # type: ignore[attr-defined]
        journal = rig.journal(hands)
        await until_dead(pid)
        assert replay(str(journal)).exits["2.0"]["result"]["output"] == "done\n", "no call is cut short by it"
        assert (await hands.status(1, "2.0")).state == "finished"
        assert (await hands.status(1, "3.0")).state == "never_started"


async def test_who_only_looks_whether_it_answers_does_not_keep_it(tmp_path: Path) -> None:
    """Each command that begins to work looks at all sockets of the user."""
    lives = Lives(grace_s=0.3)
    async with real(tmp_path, lambda folder: UnsandboxedProvider(folder, lives=lives)) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        pid, address = rig.supervisor(hands), Path(hands.identity.address)

        async def look() -> None:
            while address.exists() and not is_deserted(address):  # noqa: ASYNC110 - a socket sets no event of ours
                await anyio.sleep(0.01)

        with closing(socket.socket(socket.AF_UNIX)) as silent:
            silent.connect(str(address))
            async with anyio.create_task_group() as group:
                group.start_soon(look)
                hands._talk.close()  # type: ignore[attr-defined]
                await until_dead(pid)


async def test_never_claimed_it_leaves_nothing(tmp_path: Path) -> None:
    """Whoever asked for hands is killed before it could record them: they end, and their folder goes."""
    folder, workspace = tmp_path / "hands", tmp_path / "work"
    workspace.mkdir()
    command = [sys.executable, "-m", "tests.hands.dying_brain", "unclaimed", str(folder), str(workspace)]
    async with await anyio.open_process(command, start_new_session=True, stderr=None) as brain:
        assert brain.stdout is not None
        pid = int(await brain.stdout.receive())
        os.killpg(brain.pid, signal.SIGKILL)
    await until_dead(pid)
    assert list(folder.iterdir()) == []
    assert list(workspace.iterdir()) == []


async def test_at_its_longest_life_it_takes_no_new_call(tmp_path: Path) -> None:
    waits = "sleep {life}; touch late; while [ ! -e go ]; do sleep 0.01; done; echo done"
    lives = Lives(longest_s=0.5)
    async with started_in_time(tmp_path, lives, lambda life: bash(waits.format(life=life))) as (rig, hands, _):
        await until(rig.workspace / "late")
        with pytest.raises(HandsLost, match="longest life"):
            await hands.start(1, "2.0", bash("printf x >> marks"))
        (rig.workspace / "go").touch()
        assert (await hands.wait(1, "1.0")).output == "done\n"
        await until_dead(rig.supervisor(hands))
        assert (await hands.status(1, "2.0")).state == "never_started"


async def test_sigterm_lets_a_running_call_end(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await hands.start(1, "1.0", bash("touch ready; sleep 0.3; echo done"))
    await until(one.workspace / "ready")
    pid = one.supervisor(hands)
    os.kill(pid, signal.SIGTERM)
    assert (await hands.wait(1, "1.0")).output == "done\n"
    await until_dead(pid)
    assert (await hands.status(1, "1.0")).state == "finished"


async def test_a_full_disk_refuses_the_start_and_loses_nothing(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can mount a disk that is full at once")
    folder = tmp_path / "small"
    folder.mkdir()
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=64k,mode=711", "tmpfs", str(folder)])
    try:
        async with real(tmp_path, lambda _: UnsandboxedProvider(folder)) as rig:
            hands = await rig.provider.provision(rig.spec(), 1)
            await run(hands, "1.0", bash("echo kept"))
            filler = folder / "filler"
            _fill(filler)
            started = await _until_refused(hands)
            assert len((rig.workspace / "marks").read_text()) == started
            assert (await hands.status(1, f"2.{started}")).state == "never_started"
            filler.unlink()
            assert (await run(hands, "3.0", bash("cat marks"))).output == "x" * started, "what was refused did not run"
            assert (await run(hands, f"2.{started}", bash("printf x >> marks"))).ok
            assert (await hands.status(1, "1.0")).state == "finished"
            await hands.release(1)
    finally:
        await anyio.run_process(["umount", "-l", str(folder)])


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


async def _until_refused(hands: Hands) -> int:
    """Call after call until one is refused for want of space; its number."""
    for number in range(500):
        try:
            await run(hands, f"2.{number}", bash("printf x >> marks"))
        except StorageFull:
            return number
    raise AssertionError("the disk was not full")


async def test_the_supervisor_is_clean_and_detached(
    one: RealRig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET", "canary")
    lock = hold_lock(str(tmp_path / "brain.lock"))
    try:
        hands = await one.provider.provision(one.spec(), 1)
        pid = one.supervisor(hands)
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"canary" not in environment
        assert os.getsid(pid) != os.getsid(0)
        held = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        assert not [path for path in held if "brain.lock" in path]
    finally:
        os.close(lock)
    assert not is_locked(str(tmp_path / "brain.lock"))


async def test_what_fails_to_start_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    (tmp_path / "base").mkdir()
    async with real(tmp_path / "base", lambda folder: BubblewrapProvider(folder, program=str(broken))) as rig:
        with pytest.raises(SandboxUnavailable, match="AppArmor"):
            await rig.provider.provision(rig.spec(), 1)
        assert list(rig.folder.iterdir()) == []
        assert os.listdir(rig.workspace) == []


async def test_a_stranger_is_not_served(one: RealRig) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can ask as another user")
    hands = await one.provider.provision(one.spec(), 1)
    address = hands.identity.address
    ask = f"import socket; s=socket.socket(1); s.connect({address!r}); s.send(b'x'); print(s.recv(10))"
    command = ["/usr/bin/python3", "-c", ask]
    done = await anyio.run_process(command, user=UID, group=UID, extra_groups=[], check=False, cwd="/")
    assert done.returncode != 0
    assert b"PermissionError" in done.stderr


async def test_nonsense_on_the_socket_harms_nobody(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    for line in (
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"verb":"start","epoch":"x","id":1}\n',
        b'{"verb":"fly","epoch":1,"id":1}\n',
    ):
        async with await anyio.connect_unix(hands.identity.address) as stream:
            await stream.send(line)
            with anyio.move_on_after(2):
                try:
                    assert b"error" in await stream.receive()
                except anyio.EndOfStream:
                    pass
    assert (await run(hands, "1.0", bash("echo well"))).output == "well\n"
