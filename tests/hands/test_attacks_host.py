"""What the host itself does with things that a hostile command made: no link followed, nothing run, nobody held up."""

from __future__ import annotations

import io
import json
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread

import anyio
import pytest

from holdfast.app.settings.config import load_settings
from holdfast.errors import CannotRunSafely, HandsError, UsageError
from holdfast.facts.session import HandsPolicy
from holdfast.hands.base import Hands, Layer
from holdfast.hands.box.supervisor.cgroups import Group
from holdfast.hands.box.supervisor.watcher import Watcher
from holdfast.hands.box.wire import Channel
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.session.tools import TOOLS, check_input
from holdfast.testing.hands import bash, job, run, service, tool
from tests.hands.rigs import LIVES, REAL, RealRig, real
from tests.support.waiting import PATIENCE_S

FLIPS = 2_000


@pytest.mark.parametrize(
    "text",
    [
        'db = "sqlite:////workspace/mine.db"\n',
        'home = "mine"\n',
        'user = "root"\n',
        '[egress]\nhosts = ["evil.example"]\n',
        '[secrets.x]\nfile = "/etc/shadow"\n',
        '[notify.x]\nkind = "command"\n',
        '[people]\nanybody = "approves"\n',
        '[prices."x"]\ninput_per_mtok = 0\n',
        '[search.x]\nurl = "http://evil.example"\n',
        '[hands]\nprovider = "ssh:evil.example"\n',
        "[hands]\naccept_weak = true\n",
        '[hands]\nmemory_bytes = "none"\n',
        '[environment]\nhosts = ["evil.example"]\n',
        '[environment]\ntoolchains = ["/root"]\n',
        '[environment]\ndotenv = {KEY = "secret"}\n',
        'model = "x:y@http://evil.example"\n',
        'prompts = "../elsewhere"\n',
    ],
)
def test_settings_that_a_command_plants_open_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(UsageError, match=r"holdfast\.toml"):
        load_settings(tmp_path, {})


# --- hands ---


async def planted(rig: RealRig, name: str) -> None:
    """Wait until a command has made that file."""
    with anyio.fail_after(PATIENCE_S):
        while not (rig.workspace / name).exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.01)


STOP = "kill -STOP $PPID; touch stopped; "
"""Stops the process that is to end this command."""


@pytest.mark.parametrize("what", ["bash", "service"])
async def test_who_stops_its_keeper_is_ended_nevertheless(what: str, tmp_path: Path) -> None:
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        command = f"{STOP} while :; do kill -STOP $PPID; sleep 0.01; done"
        await hands.start(1, "1.0", bash(command, 600.0) if what == "bash" else service("x", command))
        await planted(rig, "stopped")
        with anyio.fail_after(PATIENCE_S):
            await hands.kill(1, "1.0")
            assert (await hands.wait(1, "1.0")).cancelled
            late = await run(hands, "2.0", bash(f"{STOP} sleep 600", 0.5))
        assert late.timed_out
        assert (await run(hands, "3.0", bash("pgrep -c sleep"))).output == "0\n"


async def test_who_stops_its_keeper_gets_no_more_of_the_disk(tmp_path: Path) -> None:
    fill = "for i in $(seq 300); do head -c 1000000 /dev/zero > f$i; sleep 0.1; done; sleep 60"
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        hands = await rig.provider.provision(rig.spec(policy=HandsPolicy(disk_bytes=16 << 20)), 1)
        with anyio.fail_after(PATIENCE_S):
            result = await run(hands, "1.0", bash(f"{STOP} {fill}", 60.0))
        assert result.limit == "disk", result
        assert sum(path.stat().st_size for path in rig.workspace.glob("f*")) < 128 << 20


async def test_who_stops_everything_holds_no_brain_up(tmp_path: Path) -> None:
    """A folder is being packed while a job stops whatever it sees."""
    stop = "touch stopped; while :; do for p in /proc/[2-9]* /proc/[1-9][0-9]*; do p=${p#/proc/}; " + (
        "[ $p = $$ ] || kill -STOP $p; done 2> /dev/null; done"
    )
    async with real(tmp_path, lambda folder: BubblewrapProvider(folder, lives=LIVES, answer_s=3.0)) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "1.0", job(stop, 600.0))
        await planted(rig, "stopped")
        with anyio.fail_after(PATIENCE_S):
            with suppress(HandsError):
                await hands.pack(1, "/usr/share/doc", io.BytesIO())
            await hands.kill(1, "1.0")
            assert (await hands.wait(1, "1.0")).cancelled
            assert (await run(hands, "2.0", bash("echo well"))).output == "well\n"


@pytest.mark.parametrize("times", [40, pytest.param(FLIPS, marks=pytest.mark.faults)])
async def test_a_write_ends_where_it_may_whatever_becomes_of_the_path(times: int, tmp_path: Path) -> None:
    """A folder of the path is a link to the outside every other moment."""
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    flip = (
        "import itertools, os\n"
        "os.makedirs('aside')\n"
        f"for target in itertools.cycle(({str(outside)!r}, '/usr', '/output/..', '/workspace/.git')):\n"
        "    os.path.lexists('x') or os.mkdir('x')\n"
        "    os.rename('x', f'aside/{os.urandom(8).hex()}')\n"
        "    os.symlink(target, 'x')\n"
        "    os.unlink('x')\n"
        "    os.mkdir('x')\n"
        "    open('begun', 'w').close()\n"
    )
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        (rig.workspace / "flip.py").write_text(flip)
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "0.0", job("python3 flip.py", 900.0))
        await planted(rig, "begun")
        done = 0
        for number in range(times):
            written = await run(hands, f"1.{number}", tool("write", file_path=f"x/file{number}", content="mine"))
            done += written.ok
        assert done
        journal = rig.journal(hands)
        assert os.listdir(outside) == []
        assert not list(journal.parent.glob("file*"))
        assert not list((rig.workspace / ".git").iterdir())
        assert (await run(hands, "2.0", bash("ls -d /usr/file* 2> /dev/null | wc -l"))).output == "0\n"


async def test_attributes_in_a_workspace_lead_no_overlay_elsewhere(tmp_path: Path) -> None:
    """A session leaves attributes that overlays look at; a later one lays its set-up over that workspace."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("canary")
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        inner = rig.workspace / "inner"
        inner.mkdir()
        (rig.workspace / "beside").mkdir()
        (rig.workspace / "beside" / "file").write_text("beside")
        (inner / "file").write_text("")
        os.truncate(inner / "file", 6)
        os.setxattr(inner, "user.overlay.redirect", f"/../{tmp_path / 'outside'}".encode())
        os.setxattr(inner / "file", "user.overlay.metacopy", b"")
        os.setxattr(inner / "file", "user.overlay.redirect", b"/beside/file")
        hands = await rig.provider.provision(rig.spec(layers=(Layer("/workspace", (), private=True, over=True),)), 1)
        said = await run(hands, "1.0", bash("ls -a inner; cat inner/* inner/secret inner/../../outside/secret"))
        assert "canary" not in said.output, said
        assert "beside" not in said.output, said
        assert (await run(hands, "1.1", bash("touch inner/new beside/new && ls beside"))).output == "file\nnew\n"
        assert sorted(os.listdir(tmp_path / "outside")) == ["secret"]
        assert os.listdir(inner) == ["file"]
        assert os.listdir(rig.workspace / "beside") == ["file"]


HOOK = "#!/bin/sh\ntouch {ran}\n"


async def _pointed(rig: RealRig, pointer: str, store: str) -> Hands:
    git = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    await anyio.run_process(["git", "init", "-q", "--bare", str(rig.workspace / store)], env=git)
    (rig.workspace / ".git").write_text(f"gitdir: {pointer}\n")
    return await rig.provider.provision(rig.spec(), 1)


async def test_a_repository_that_git_is_pointed_to_is_kept_from_commands(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    plant = f"printf '%s' '{HOOK.format(ran=ran)}' > .store/hooks/post-checkout; chmod +x .store/hooks/post-checkout"
    replace = "mv .store .old; mv .git .gone; rm -rf .store/config; echo 'gitdir: evil' > .git"
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        hands = await _pointed(rig, "./.store", ".store")
        said = await run(hands, "1.0", bash(f"{plant}; {replace}; git config core.fsmonitor 'touch {ran}'; git status"))
        assert "Read-only file system" in said.output, said
        env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
        env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        for command in ("status", "log", "checkout -b other"):
            await anyio.run_process(["git", "-C", str(rig.workspace), *command.split()], env=env, check=False)
        assert not ran.exists()
        assert (rig.workspace / ".git").read_text() == "gitdir: ./.store\n"
        assert not (rig.workspace / ".old").exists()


@pytest.mark.parametrize("pointer", ["deep/store", "link", "link/../deep/store"])
async def test_a_repository_that_could_be_moved_away_is_refused(pointer: str, tmp_path: Path) -> None:
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        (rig.workspace / "deep").mkdir()
        (rig.workspace / "link").symlink_to("deep/store")
        with pytest.raises(CannotRunSafely, match="lies in the workspace"):
            await _pointed(rig, pointer, "deep/store")


async def test_a_repository_elsewhere_is_none_of_the_commands(tmp_path: Path) -> None:
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        hands = await _pointed(rig, str(tmp_path / "elsewhere"), "../elsewhere")
        assert not (await run(hands, "1.0", bash(f"ls {tmp_path / 'elsewhere'}"))).ok
        assert "Read-only" in (await run(hands, "1.1", bash("echo 'gitdir: mine' > .git"))).output


MEMINFO = "MemTotal: 16000000 kB\nMemAvailable: {} kB\n"


@pytest.mark.parametrize(("free", "told"), [(900_000, True), (1_100_000, False), (0, False)])
def test_memory_that_no_process_has_is_seen_before_the_machine_runs_out(free: int, told: bool, tmp_path: Path) -> None:
    """Where no group holds the hands, files in memory and buffers of sockets are in nobody's count."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO.format(8_000_000))
    holding = {"memory_bytes": 1 << 30, "processes": None, "disk_bytes": None, "inodes": None}
    mine, theirs = socket.socketpair()
    watch = Watcher(
        Channel(theirs.detach()), os.getpid(), {**holding, "paths": [], "baseline": ""}, Group([]), str(meminfo)
    )
    running = Thread(target=watch.serve, daemon=True)
    running.start()
    with mine:
        mine.sendall(b'{"began":"1.0","pid":1}\n')
        mine.settimeout(0.6)
        with pytest.raises(TimeoutError):
            mine.recv(1)
        (tmp_path / "next").write_text(MEMINFO.format(free))
        (tmp_path / "next").rename(meminfo)
        mine.settimeout(10 if told else 0.6)
        with nullcontext() if told else pytest.raises(TimeoutError):
            assert json.loads(mine.recv(1000)) == {"over": "memory", "call": "1.0"}
    running.join(10)


def test_what_an_ended_call_wrote_is_not_the_next_ones_doing(tmp_path: Path) -> None:
    """A count that comes in, or is begun, when the call is over ends no other."""
    holding = {"memory_bytes": None, "processes": None, "disk_bytes": 2 << 20, "inodes": 1000}
    mine, theirs = socket.socketpair()
    folder = tmp_path / "work"
    folder.mkdir()
    watch = Watcher(
        Channel(theirs.detach()), os.getpid(), {**holding, "paths": [str(folder)], "baseline": ""}, Group([])
    )
    disk = watch._disk

    def counted() -> str:
        while disk.fd >= 0:
            select.select([disk.fd], [], [])
            disk.hear()
        return disk.over

    now = time.monotonic()  # when the next count is due is told by this clock: other tests fill and empty the disk

    def looks(later_s: float) -> None:
        watch._look(now + later_s)
        assert disk.fd >= 0, "it counts"

    with mine:
        looks(0)
        counted()
        watch._take({"began": "1.0", "pid": 0})
        (folder / "large").write_bytes(b"x" * (8 << 20))
        looks(1e3)
        watch._take({"ended": "1.0"})
        assert counted() == "", "the count was on its way when the call ended"
        for number in range(2, 12):  # room that other tests free in between hides what is written: then once more
            (folder / f"large{number}").write_bytes(b"x" * (16 << 20))
            watch._take({"began": f"{number}.0", "pid": 0})
            looks(number * 1e3)
            assert counted() == "disk", "it is over, and nobody made room"
            watch._take({"ended": f"{number}.0"})
            (folder / f"more{number}").write_bytes(b"x" * (16 << 20))
            watch._look(now + number * 1e3 + 1)
            if disk.fd >= 0:
                break
        assert counted() == "disk", "nothing runs"
        watch._look(now + number * 1e3 + 1.01)
        watch._take({"began": "20.0", "pid": 0})
        watch._look(now + number * 1e3 + 1.02)
        mine.settimeout(0.5)
        with pytest.raises(TimeoutError):
            mine.recv(1)
        counted()


WORDS = {"sandbox", "isolation", "user", "uid", "provider", "privileged", "escalate", "network", "unsafe", "layers"}


@pytest.mark.parametrize("name", TOOLS)
def test_no_tool_has_a_word_for_less_isolation(name: str) -> None:
    given = TOOLS[name].input_type
    assert given is not None
    assert given.__struct_config__.forbid_unknown_fields
    assert not WORDS & set(given.__struct_fields__)
    assert "sandbox" in check_input(TOOLS["bash"], {"command": "true", "sandbox": False})


DROPPED = """
import anyio, pathlib, sys
from holdfast.facts.session import Workspace
from holdfast.hands.base import HandsSpec
from holdfast.hands.bubblewrap import BubblewrapProvider
provider = BubblewrapProvider(pathlib.Path(sys.argv[1]) / "home" / "hands", sockets=pathlib.Path(sys.argv[1]))
spec = HandsSpec("s", "hnd_a", Workspace(sys.argv[1] + "/work", disposable=sys.argv[2] == "disposable"))
anyio.run(provider.provision, spec, 1)
print("made")
"""


@pytest.mark.parametrize("whose", ["disposable", "owned"])
def test_a_root_that_may_not_become_another_makes_no_hands(whose: str, tmp_path: Path) -> None:
    """The step to another user is taken away: nothing runs as root instead."""
    if os.getuid() != 0:
        pytest.skip("only root has a user to change")
    work = tmp_path / "work"
    work.mkdir()
    if whose == "owned":
        os.chown(work, 61_234, 61_234)
    kept = ["setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid", "--"]
    words = [*kept, sys.executable, "-c", DROPPED, str(tmp_path), whose]
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    assert "made" not in done.stdout
    assert "CannotRunSafely" in done.stderr, done.stderr
    assert "tool calls never run as root" in done.stderr
    assert os.listdir(work) == []


async def test_no_name_of_a_job_is_a_word_of_the_host(tmp_path: Path) -> None:
    """What the host runs for news has the call's id as one word, and nothing that the job chose."""
    ran = tmp_path / "ran"
    name = f"x'; touch {ran}; $(touch {ran}) `touch {ran}`"
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        told = tmp_path / "told"
        note = (sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(repr(sys.argv[2:]))", str(told))
        hands = await rig.provider.provision(rig.spec(on_news=(*note, "{call}", "{news}")), 1)
        await hands.start(1, "1.0;touch", job(f"echo '{{call}} {{news}}' # {name!r}", name=name))
        with anyio.fail_after(PATIENCE_S):
            while not (told.exists() and told.read_text()):  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.01)
        assert told.read_text() == "['1.0;touch', 'exit']"
        assert not ran.exists()
