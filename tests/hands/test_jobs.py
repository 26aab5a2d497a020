"""Jobs and services on real hands: what ends them, what does not, and who is told."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import anyio
import msgspec
import pytest

from holdfast.errors import HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.box.processes import descendants
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.launch import Lives
from holdfast.testing.hands import bash, job, run, service
from tests.hands.rigs import RealRig, started_in_time
from tests.hands.test_exec import STUBBORN, living
from tests.hands.test_supervisor import until, until_dead
from tests.support.child import command_of
from tests.support.waiting import PATIENCE_S


async def test_a_job_is_ended_whole(rig: RealRig, tmp_path: Path) -> None:
    word = f"job-{os.getpid()}-{tmp_path.name}"
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(
        1, "1.0", job(STUBBORN.format(word=word) + "\ntouch ready; while [ ! -e go ]; do sleep 0.01; done")
    )
    await until(rig.workspace / "ready")
    (rig.workspace / "go").touch()
    result = await hands.wait(1, "1.0")
    assert result.ok
    assert result.killed >= 2
    assert living(word) == []


async def test_a_job_lives_without_a_brain_and_its_end_is_told(rig: RealRig, request: pytest.FixtureRequest) -> None:
    """The process that started it is killed with its group; the supervisor stays, though nobody is there."""
    provider = request.node.callspec.params["rig"]
    command = [sys.executable, "-m", "tests.hands.dying_brain", provider, str(rig.folder), str(rig.workspace), "job"]
    async with await anyio.open_process(command, start_new_session=True, stderr=None) as brain:
        assert brain.stdout is not None
        identity = msgspec.json.decode(await brain.stdout.receive(), type=HandsProvisioned)
        os.killpg(brain.pid, signal.SIGKILL)
    (rig.workspace / "go").touch()
    hands = await rig.provider.attach(identity)
    assert (await hands.wait(2, "1.0")).output == "done\n"
    assert (rig.workspace / "marks").read_text() == "x"
    await hands.release(2)


async def test_idleness_and_age_end_no_job(tmp_path: Path) -> None:
    lives = Lives(grace_s=0.1, longest_s=2.0)
    waits = "sleep {life}; touch late; while [ ! -e go ]; do sleep 0.01; done; echo done"
    async with started_in_time(tmp_path, lives, lambda life: job(waits.format(life=life + 0.2))) as (rig, hands, _):
        pid = rig.supervisor(hands)
        hands._talk.close()  # type: ignore[attr-defined]
        await until(rig.workspace / "late")
        assert (await run(hands, "2.0", bash("echo young"))).ok, "while a job runs they take calls"
        hands._talk.close()  # type: ignore[attr-defined]
        (rig.workspace / "go").touch()
        assert await rig.heard(1) == [("1.0", "exit")]
        await until_dead(pid)
        assert replay(str(rig.journal(hands))).exits["1.0"]["result"]["output"] == "done\n"


async def test_a_service_outlives_idleness_and_not_age(tmp_path: Path) -> None:
    lives = Lives(grace_s=0.1, longest_s=2.5)
    word = f"service-{os.getpid()}-{tmp_path.name}"
    began = time.monotonic()
    async with started_in_time(tmp_path, lives, lambda life: service("one", f"exec -a {word} sleep 300")) as (
        rig,
        hands,
        life_s,
    ):
        pid = rig.supervisor(hands)
        hands._talk.close()  # type: ignore[attr-defined]
        await until_dead(pid)
        assert time.monotonic() - began >= life_s, "no idleness ended them"
        assert (await hands.status(1, "1.0")).state == "unknown"
        with anyio.fail_after(PATIENCE_S):
            while living(word):  # noqa: ASYNC110 - another process ends
                await anyio.sleep(0.01)


async def test_who_does_not_take_the_news_is_told_again(one: RealRig) -> None:
    """With a clean environment, until the command exits with 0."""
    tries = one.workspace.parent / "tries"
    script = f'env >> {tries}.env; echo "$1 $2" >> {tries}; [ $(wc -l < {tries}) -ge 3 ]'
    spec = one.spec(on_news=("/bin/sh", "-c", script, "tell", "{call}", "{news}"))
    hands = await one.provider.provision(spec, 1)
    await hands.start(1, "1.0", job("true"))
    with anyio.fail_after(PATIENCE_S):
        while not tries.exists() or len(tries.read_text().splitlines()) < 3:  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.02)
    await hands.start(1, "2.0", job("sleep 0.7"))
    with anyio.fail_after(PATIENCE_S):
        while "2.0" not in tries.read_text():  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.02)
    assert tries.read_text().splitlines() == ["1.0 exit"] * 3 + ["2.0 exit"], "and then no more"
    names = {line.split("=")[0] for line in Path(f"{tries}.env").read_text().splitlines()}
    assert names <= {"PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}


async def test_who_is_told_outlives_the_hands(one: RealRig) -> None:
    """What is told may be a brain, which ends these hands: it must not end with them."""
    base = one.workspace.parent
    script = f"touch {base}/told; while [ ! -e {base}/go ]; do sleep 0.01; done; touch {base}/lived"
    hands = await one.provider.provision(one.spec(on_news=("/bin/sh", "-c", script)), 1)
    pid = one.supervisor(hands)
    await hands.start(1, "1.0", job("true"))
    await until(base / "told")
    await hands.release(1)
    await until_dead(pid)
    (base / "go").touch()
    await until(base / "lived")


async def test_a_dead_sandbox_with_a_job_is_told(rig: RealRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job("touch ready; sleep 300"))
    await until(rig.workspace / "ready")
    pid = rig.supervisor(hands)
    agent = [entry for entry in descendants(pid) if b"agent" in command_of(entry.pid)]
    for entry in agent:
        with contextlib.suppress(ProcessLookupError):  # the end of one takes others with it
            os.kill(entry.pid, signal.SIGKILL)
    assert await rig.heard(1) == [("1.0", "lost")]
    await until_dead(pid)
    assert (await hands.status(1, "1.0")).state == "unknown"
    assert replay(str(rig.journal(hands))).lost


async def test_a_pattern_has_a_bounded_cost(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await hands.start(1, "1.0", job(f"echo {'a' * 40}b; while [ ! -e go ]; do sleep 0.01; done", line="(a+)+$"))
    status = await hands.status(1, "1.0", wait_s=PATIENCE_S)
    assert status.state == "running"
    assert "took longer" in status.problem
    assert (await run(hands, "2.0", bash("touch go; echo well"))).ok
    assert (await hands.wait(1, "1.0")).ok
    await run(hands, "3.0", job("head -c 20000000 /dev/zero | tr '\\0' a; echo; echo the word", line="word"))
    assert (await hands.status(1, "3.0")).line == "the word", "behind a line of 20 MB"


async def test_services_see_each_other_and_calls_see_them(rig: RealRig) -> None:
    if rig.provider.__class__ and (await rig.provider.probe()).provider == "unsandboxed":
        pytest.skip("without a sandbox the port would be the host's")
    hands = await rig.provider.provision(rig.spec(), 1)
    serve = "exec python3 -m http.server 8099 --bind 127.0.0.1"
    ask = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8099/f').read().decode())\""
    await run(hands, "1.0", bash("printf served > f"))
    await hands.start(1, "2.0", service("web", serve, health=f"{ask} > /dev/null", ready_s=PATIENCE_S))
    assert (await hands.status(1, "2.0", wait_s=PATIENCE_S)).ready == "yes"
    await hands.start(1, "3.0", service("second", f"{ask}; sleep 300", health="test -e other"))
    assert (await hands.read(1, "3.0", wait_s=PATIENCE_S)).text == "served\n"
    assert (await run(hands, "4.0", bash(ask))).output == "served\n"
    assert "GET /f" in (await hands.read(1, "2.0")).text


async def test_a_health_command_that_hangs_is_ended(one: RealRig, tmp_path: Path) -> None:
    word = f"health-{os.getpid()}-{tmp_path.name}"
    hands = await one.provider.provision(one.spec(), 1)
    health = f"echo trying; exec -a {word} sleep 300"
    await hands.start(1, "1.0", service("web", health=health, ready_s=0.5))
    status = await hands.status(1, "1.0", wait_s=PATIENCE_S)
    assert (status.state, status.ready) == ("running", "no")
    assert "trying" in status.problem
    with anyio.fail_after(PATIENCE_S):
        while living(word):  # noqa: ASYNC110 - another process ends
            await anyio.sleep(0.01)


async def test_nothing_is_left_of_services_when_hands_go(rig: RealRig, tmp_path: Path) -> None:
    word = f"left-{os.getpid()}-{tmp_path.name}"
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", service("one", f"touch ready; exec -a {word} sleep 300"))
    await until(rig.workspace / "ready")
    await hands.release(1)
    assert living(word) == []
    with pytest.raises(HandsLost):
        await hands.wait(1, "1.0")
