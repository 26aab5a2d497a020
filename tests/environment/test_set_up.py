"""A set-up: what it leaves, what it does not touch, and what comes of it when it fails, is stopped or killed.

Everything here stays on this machine: the commands fetch nothing.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import pytest

from holdfast.facts.hands import EnvironmentRecorded, HandsProvisioned
from holdfast.facts.session import Destination, EgressPolicy, Environment, SecretUse, Service
from holdfast.facts.tool import ServiceStarted
from holdfast.session.context.window import build, needed
from tests.environment.rigs import Home, home, listing, write
from tests.support.waiting import PATIENCE_S


async def appears(making: Path) -> None:
    """Wait until a set-up says that it has begun: a file that a process of the sandbox makes, which sets no event."""
    with anyio.fail_after(PATIENCE_S):
        while not list(making.glob("*/workspace/begun")):  # noqa: ASYNC110 - see above
            await anyio.sleep(0.01)


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """A process that sets up, to be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.environment.killed", *arguments], cwd=Path(__file__).parents[2]
    )


def with_submodule(work: Path) -> None:
    """A repository with a submodule whose folder is empty, as after a plain clone."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
    library = write(work / "library", {"lib.h": "#define ONE 1\n"})
    for command in (
        [*git, "-C", str(library), "init", "-q"],
        [*git, "-C", str(library), "add", "."],
        [*git, "-C", str(library), "commit", "-qm", "one"],
        [*git, "-C", str(work), "init", "-q"],
        [*git, "-C", str(work), "submodule", "add", "-q", str(library), "vendor/lib"],
        [*git, "-C", str(work), "config", "-f", ".gitmodules", "submodule.vendor/lib.url", "/workspace/library"],
        [*git, "-C", str(work), "add", ".gitmodules", "vendor"],
        [*git, "-C", str(work), "commit", "-qm", "all"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(work / "vendor/lib")
    (work / "vendor/lib").mkdir()


def layers(here: Home) -> list[str]:
    """The digests of what is there, and of what is being made."""
    folder = here.folder / "environments"
    made = [path.name for path in folder.iterdir() if path.name != "making"] if folder.exists() else []
    return made + [f"making {path.name}" for path in (folder / "making").iterdir()]


async def test_what_is_new_is_laid_and_the_workspace_stays_as_it_is(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"src/main.py": "print(1)\n", "settings": "user's\n", "old/kept": "1\n"})
    before = listing(work)
    command = (
        "mkdir -p deps/a src/gen && echo a > deps/a/x && echo g > src/gen/y && echo changed > settings && rm old/kept "
        "&& echo top > stamp && mkdir /opt/environment/bin && printf '#!/bin/sh\\necho tool\\n' "
        "> /opt/environment/bin/our-tool && chmod +x /opt/environment/bin/our-tool && rm -rf old && mkdir old && "
        "echo new > old/new && touch __pycache__ 2>/dev/null; true"
    )
    async with home(tmp_path) as here:
        look = "cat deps/a/x src/gen/y settings stamp old/new; ls old; our-tool; echo mine > deps/a/x; echo w > real"
        await here.run(work, Environment(setup=(command,)), look, "cat deps/a/x real; echo no > stamp")
        results = await here.results()
        assert results[0] == "a\ng\nuser's\ntop\nnew\nnew\ntool\n"
        assert results[1].startswith("mine\nw\n")
        assert "Read-only" in results[1]
        record = await here.record()
        shown = {"/workspace/deps", "/workspace/src/gen", "/workspace/stamp", "/workspace/old", "/opt/environment"}
        assert set(record.folders) == shown
        assert any("settings" in note for note in record.notes)
        assert listing(work) == {**before, "real": "w\n"}
        await here.run(work, Environment(setup=(command,)), "cat deps/a/x")
        assert await here.results() == ["a\n"]
        assert (await here.record()).cached


async def test_a_failed_set_up_parks_and_says_what_to_type(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    policy = Environment(setup=("mkdir half", "echo first line; test -e mended || { echo the reason >&2; exit 3; }"))
    async with home(tmp_path) as here:
        outcome = await here.run(work, policy, "ls half")
        assert outcome.ended is not None
        assert (outcome.ended.status, outcome.ended.reason) == ("parked", "person")
        session_id = here.sessions[-1]
        for words in ("ended with status 3", "the reason", f"holdfast send {session_id}", "Nothing of it was kept"):
            assert words in outcome.ended.detail
        record = await here.record()
        assert [step.exit_code for step in record.steps] == [0, 3]
        assert layers(here) == []
        assert await here.facts(HandsProvisioned) == []
        assert os.listdir(work) == ["a"]

        (work / "mended").touch()
        await here.intake.send(await here.store.find(session_id), "go on")
        outcome = await here.wake(session_id)
        assert outcome.ended is not None
        assert outcome.ended.status == "done"
        assert [fact.error == "" for fact in await here.facts(EnvironmentRecorded)] == [False, True]


async def test_what_was_only_found_is_gone_on_without(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"init.sh": "echo broken\nexit 1\n", "package-lock.json": "{}"})
    async with home(tmp_path) as here:
        outcome = await here.run(work, Environment(auto=True), "echo worked", "echo again")
        assert await here.results() == ["worked\n", "again\n"]
        record = await here.record()
        assert "`bash ./init.sh` ended with status 1" in record.error
        bodies = {event.seq: event.fact for event in await here.store.read(here.sessions[-1])}
        context = build(outcome.state, {seq: bodies[seq] for seq in needed(outcome.state)}, "")
        assert "Go on without it." in str(context.messages)


async def test_two_that_want_the_same_make_it_once(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    policy = Environment(setup=("mkdir made && cat /proc/sys/kernel/random/uuid > made/by",))
    async with home(tmp_path) as here:
        ids = [await here.open(work, policy) for _ in range(3)]
        async with anyio.create_task_group() as group:
            for session_id in ids:
                group.start_soon(here.wake, session_id, "cat made/by")
        assert len({tuple(await here.results(number)) for number in range(3)}) == 1
        assert sorted([(await here.record(number)).cached for number in range(3)]) == [False, True, True]
        assert len(layers(here)) == 1


async def test_one_that_was_killed_is_made_again_whole(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    command = "mkdir made && echo half > made/x && if [ ! -e go ]; then touch begun; sleep 600; fi; echo whole > made/x"
    async with home(tmp_path) as here:
        child = begin(str(here.folder), str(work), command)
        await appears(here.folder / "environments" / "making")
        child.send_signal(signal.SIGKILL)
        child.wait()
        (left,) = [path.name for path in (here.folder / "hands").iterdir()]
        (work / "go").touch()
        await here.run(work, Environment(setup=(command,)), "cat made/x; ls")
        assert await here.results() == ["whole\na\ngo\nmade\n"]
        assert not (here.folder / "hands" / left).exists(), "the hands of the killed one live"
        assert len(layers(here)) == 1
        assert (await here.record()).cached is False


async def test_a_person_can_stop_it(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    async with home(tmp_path) as here:
        session_id = await here.open(work, Environment(setup=("touch begun; sleep 600",)))

        async def stop() -> None:
            await appears(here.folder / "environments" / "making")
            await here.intake.interrupt(await here.store.find(session_id))

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            outcome = await here.wake(session_id, "true")
        assert outcome.ended is not None
        assert outcome.ended.reason == "person"
        assert await here.facts(EnvironmentRecorded) == []
        assert layers(here) == []


async def test_it_gets_no_further_than_it_may(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    secret = tmp_path / "secret"
    secret.write_text("of the host\n")
    ask = "python3 -c \"import urllib.request as r; r.urlopen('https://elsewhere.test/x', timeout=5)\""
    tries = f"{ask} 2>/dev/null; touch /usr/x /etc/x; cat {secret}; echo x > .git/config"
    async with home(tmp_path) as here:
        policy = Environment(setup=(tries,), hosts=(Destination("named.test"),))
        outcome = await here.run(work, policy, "true")
        assert outcome.ended is not None
        detail = outcome.ended.detail
        assert "It was refused elsewhere.test:443" in detail
        assert "of the host" not in detail
        (step,) = (await here.record()).steps
        assert step.output.count("Read-only file system") >= 2
        assert os.listdir(work) == ["a"]


async def test_services_run_before_the_first_call_in_every_hands(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"index.html": "served\n"})
    fetch = "python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/index.html').read())\""
    service = Service("web", "exec python3 -m http.server --bind 127.0.0.1 8000", fetch)
    async with home(tmp_path) as here:
        await here.run(work, Environment(services=(service,)), fetch)
        assert await here.results() == ["b'served\\n'\n"]
        assert [fact.name for fact in await here.facts(ServiceStarted)] == ["web"]
        broken = Service("web", "echo cannot; exit 1", "false", 5.0)
        outcome = await here.run(work, Environment(services=(broken,)), "true")
        assert outcome.ended is not None
        assert outcome.ended.reason == "person"
        assert "the service web of the environment is not ready" in outcome.ended.detail
        assert "cannot" in outcome.ended.detail


async def test_tool_chains_of_the_host_are_shown(tmp_path: Path) -> None:
    if not os.access("/opt", os.W_OK):
        pytest.skip("/opt cannot be written here, and tests have no other folder that is none of the sandbox's own")
    work = write(tmp_path / "work", {"a": "a\n"})
    with tempfile.TemporaryDirectory(dir="/opt") as chain:
        write(Path(chain), {"bin/our-compiler": "#!/bin/sh\necho compiled\n"})
        for path in (chain, f"{chain}/bin", f"{chain}/bin/our-compiler"):
            os.chmod(path, 0o755)
        async with home(tmp_path) as here:
            await here.run(work, Environment(toolchains=(chain,)), f"our-compiler; touch {chain}/x")
            (said,) = await here.results()
            assert said.startswith("compiled\n")
            assert "Read-only file system" in said
            assert (await here.record()).toolchains == (chain,)
            outcome = await here.run(work, Environment(toolchains=("relative/path",)), "true")
            assert outcome.ended is not None
            assert "takes absolute paths" in outcome.ended.detail


async def test_dotenv_has_placeholders_and_is_no_file_of_the_workspace(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {".env": "KEY=the user's own secret\n"})
    use = SecretUse("api", ("api.test",), variable="API_KEY")
    egress = EgressPolicy(allow=(Destination("api.test"),), secrets=(use,))
    async with home(tmp_path, secrets={"api": "canary-value"}) as here:
        policy = Environment(dotenv={"KEY": "api"}, setup=("mkdir seen && cp .env seen/dotenv",))
        await here.run(work, policy, "cat .env; echo $API_KEY; wc -c < seen/dotenv", egress=egress)
        (said,) = await here.results()
        first, second, size = said.splitlines()
        assert first == f"KEY={second}"
        assert size == "0", "the set-up saw the user's own"
        assert "canary" not in said
        assert (work / ".env").read_text() == "KEY=the user's own secret\n"
        outcome = await here.run(work, Environment(dotenv={"KEY": "unknown"}), "true", egress=egress)
        assert outcome.ended is not None
        assert "add it under [[egress.secrets]]" in outcome.ended.detail


async def test_submodules_are_there_at_their_commits(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with_submodule(work)
    async with home(tmp_path) as here:
        await here.run(work, Environment(submodules=True), "cat vendor/lib/lib.h")
        assert await here.results() == ["#define ONE 1\n"]
        assert os.listdir(work / "vendor/lib") == []


async def test_without_a_sandbox_there_is_none(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    async with home(tmp_path) as here:
        outcome = await here.run(work, Environment(setup=("true",)), "true", isolation="none")
        assert outcome.ended is not None
        assert "leave --no-sandbox out" in outcome.ended.detail
        assert await here.facts(HandsProvisioned) == []


async def test_what_other_hands_need_for_their_mounts_is_not_there(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    (work / "made").mkdir(mode=0o555)
    (work / "list").touch(mode=0o444)
    (work / "left").mkdir(mode=0o555)
    async with home(tmp_path) as here:
        command = "mkdir made && echo new > made/one && test ! -e list && echo new > list"
        await here.run(work, Environment(setup=(command,)), "cat made/one list; ls")
        assert await here.results() == ["new\nnew\na\nleft\nlist\nmade\n"]
        assert (work / "left").is_dir()


@pytest.mark.faults
async def test_killed_at_any_moment_it_is_made_again_whole(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"a": "a\n"})
    chance = random.Random(7)
    async with home(tmp_path) as here:
        for number in range(40):
            command = f": {number}; mkdir made && for n in $(seq 50); do echo $n > made/$n; done; sync -d made/50"
            child = begin(str(here.folder), str(work), command)
            await anyio.sleep(chance.uniform(0.3, 1.5))  # no event stands for "any moment"
            child.kill()
            child.wait()
            before = await here.run(work, Environment(setup=(command,)), "cat made/* | wc -l")
            assert before.ended is not None
            assert before.ended.status == "done", before.ended
            assert (await here.results())[0].strip() == "50"
        names = layers(here)
        assert len(names) == 40
        assert not [name for name in names if name.startswith("making")]
