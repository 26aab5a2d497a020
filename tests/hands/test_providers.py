"""What the providers look at, say and refuse before any call."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from holdfast.clock import boot_id
from holdfast.errors import CannotRunSafely, SandboxUnavailable, UsageError
from holdfast.facts.session import Workspace
from holdfast.hands import host
from holdfast.hands.base import HandsSpec
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.launch import agent_command, agent_parts
from holdfast.hands.limits import mechanisms
from holdfast.hands.probe import diagnose
from holdfast.hands.unsandboxed import UnsandboxedProvider
from holdfast.testing.hands import bash, run, tool
from tests.hands.rigs import REAL, real
from tests.support.waiting import PATIENCE_S

KINDS = {"files", "network", "processes", "syscalls", "users", "memory", "disk", "cpu"}


async def test_the_probe_tells_the_truth_here(tmp_path: Path) -> None:
    found = await BubblewrapProvider(tmp_path).probe()
    assert found.usable
    assert set(found.isolation) == KINDS
    hard = {kind for kind, level in found.isolation.items() if level == "hard"}
    assert hard - {"memory", "cpu"} == {"files", "network", "processes", "syscalls", "users"}
    assert ("memory" in hard) == mechanisms.find().hard
    assert {"sandbox", "user", "supervisor", *KINDS} <= {finding.name for finding in found.findings}
    none = await UnsandboxedProvider(tmp_path).probe()
    assert set(none.isolation.values()) == {"none"}
    assert list(tmp_path.iterdir()) == []


async def test_without_bubblewrap(tmp_path: Path) -> None:
    provider = BubblewrapProvider(tmp_path / "hands", program="/nowhere/bwrap")
    found = await provider.probe()
    assert not found.usable
    assert "install" in found.findings[0].fix
    workspace = tmp_path / "work"
    workspace.mkdir()
    with pytest.raises(SandboxUnavailable, match=r"not installed.*install.*bubblewrap"):
        await provider.provision(HandsSpec("s", "hnd_a", Workspace(str(workspace), disposable=True)), 1)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("bwrap: setting up uid map: Permission denied", "/etc/apparmor.d/bwrap"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "apparmor_restrict_unprivileged_userns=0"),
        ("bwrap: No permissions to create a new namespace", "namespace"),
        ("bwrap: Failed to make / slave: Operation not permitted", "namespace"),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            "sysctl -w user.max_user_namespaces",
        ),
        ("bwrap: Unknown option --disable-userns", "0.8 or later"),
        ("bwrap: execvp /usr/bin/python3: No such file or directory", "python3"),
        ("", "holdfast doctor"),
    ],
)
def test_each_refusal_of_the_kernel_has_its_fix(said: str, told: str) -> None:
    finding = diagnose(said)
    assert finding.level == "bad"
    assert finding.fix
    assert told in f"{finding.message} {finding.fix}"


async def test_a_probe_that_fails_is_not_usable(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: No space left on device' >&2\nexit 1\n")
    broken.chmod(0o755)
    found = await BubblewrapProvider(tmp_path, program=str(broken)).probe()
    assert not found.usable
    assert "max_user_namespaces" in found.findings[0].fix


def test_closed_user_namespaces_are_refused_with_the_way_out(tmp_path: Path) -> None:
    """The real thing: no more user namespaces for this process and what it starts."""
    if os.getuid() != 0:
        pytest.skip("only root can close user namespaces for a while")
    code = (
        "import anyio, sys, pathlib\n"
        "from holdfast.hands.bubblewrap import BubblewrapProvider\n"
        "found = anyio.run(BubblewrapProvider(pathlib.Path(sys.argv[1])).probe)\n"
        "print(found.usable, found.findings[0].message, found.findings[0].fix)\n"
    )
    inner = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all -- "$@"'
    ordinary = ["unshare", "--user", "--map-user=1000", "--keep-caps", "sh", "-c", inner, "sh"]
    command = [*ordinary, sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.stdout.startswith("False "), done
    assert "user.max_user_namespaces" in done.stdout


def test_a_root_that_can_become_nobody_is_refused(tmp_path: Path) -> None:
    """Root of a user namespace with one user id, as in some rootless containers."""
    (tmp_path / "work").mkdir()
    code = (
        "import anyio, sys, pathlib\n"
        "from holdfast.hands.base import HandsSpec\n"
        "from holdfast.facts.session import Workspace\n"
        "from holdfast.hands.bubblewrap import BubblewrapProvider\n"
        "provider = BubblewrapProvider(pathlib.Path(sys.argv[1]) / 'home' / 'hands')\n"
        "print(anyio.run(provider.probe).findings[0].message)\n"
        "anyio.run(provider.provision, HandsSpec('s', 'hnd_a', Workspace(sys.argv[1] + '/work')), 1)\n"
    )
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert "root can become nobody else" in done.stdout, done
    assert "CannotRunSafely" in done.stderr
    assert "run Holdfast as an ordinary user" in done.stderr


async def test_git_is_looked_at_and_not_touched(tmp_path: Path) -> None:
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        await anyio.run_process(["git", "init", "-q", str(rig.workspace)])
        (rig.workspace / "f").write_text("x")
        hands = await rig.provider.provision(rig.spec(), 1)
        said = await run(hands, "1.0", bash("git status --short; git log; echo evil > .git/hooks/pre-commit"))
        assert said.output.startswith("?? f\n"), said
        assert "Read-only file system" in said.output
        blocked = await run(hands, "1.1", tool("write", file_path=".git/config.worktree", content="x"))
        assert "read-only" in blocked.output
        assert blocked.files == ()
        await hands.release(1)
        assert (rig.workspace / ".git").is_dir()


async def test_a_placeholder_goes_when_the_last_hands_go(tmp_path: Path) -> None:
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        first = await rig.provider.provision(rig.spec(), 1)
        second = await rig.provider.provision(rig.spec(), 1)
        await first.release(1)
        said = await run(second, "1.0", bash("mkdir .git; touch .git/config"))
        assert "Read-only file system" in said.output
        await rig.kill(second)
        await second.release(1)
        assert not (rig.workspace / ".git").exists()


async def test_a_linked_git_is_refused(tmp_path: Path) -> None:
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        (rig.workspace / ".git").symlink_to("elsewhere")
        with pytest.raises(CannotRunSafely, match="symbolic link"):
            await rig.provider.provision(rig.spec(), 1)


async def test_extras_are_read_only_and_env_is_added(tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "module.py").write_text("VALUE = 7\n")
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        spec = rig.spec(read_only={str(extra): "/opt/extra"}, env={"PYTHONPATH": "/opt/extra"})
        hands = await rig.provider.provision(spec, 1)
        said = await run(hands, "1.0", bash("python3 -c 'import module; print(module.VALUE)'; touch /opt/extra/x"))
        assert said.output.startswith("7\n"), said
        assert "Read-only file system" in said.output
        for outside, inside in ((str(extra), "opt"), (str(extra), "/tmp/x"), (str(extra), "/"), ("/nowhere", "/opt/x")):
            with pytest.raises(UsageError):
                await rig.provider.provision(rig.spec(read_only={outside: inside}), 1)


async def test_extras_are_found_without_a_sandbox_too(tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "module.py").write_text("VALUE = 7\n")
    async with real(tmp_path, REAL["unsandboxed"]) as rig:
        hands = await rig.provider.provision(
            rig.spec(read_only={str(extra): "/opt/extra"}, env={"PYTHONPATH": "/opt/extra"}), 1
        )
        assert (await run(hands, "1.0", bash("python3 -B -c 'import module; print(module.VALUE)'"))).output == "7\n"


@pytest.mark.parametrize("provider", REAL)
async def test_a_workspace_that_holds_our_own_records_is_refused(provider: str, tmp_path: Path) -> None:
    home = tmp_path / "project" / ".local" / "holdfast"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "project")
    for workspace in (tmp_path / "project", tmp_path / "link", home):
        spec = HandsSpec("s", "hnd_a", Workspace(str(workspace), disposable=True))
        with pytest.raises(CannotRunSafely, match="keeps its own records"):
            await REAL[provider](home / "hands").provision(spec, 1)
    assert list(home.iterdir()) == []


async def test_a_bad_hands_id_is_no_path(tmp_path: Path) -> None:
    for hands_id in ("../x", "a/b", "", ".hidden", "x" * 65):
        with pytest.raises(UsageError):
            await UnsandboxedProvider(tmp_path).provision(HandsSpec("s", hands_id, Workspace(str(tmp_path))), 1)


async def test_many_hands_at_once_on_one_machine(tmp_path: Path) -> None:
    """Two sandboxes share no process, port, temporary file, abstract socket."""
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        one, two = [await rig.provider.provision(rig.spec(), 1) for _ in range(2)]
        server = (
            "import socket; t = socket.create_server(('127.0.0.1', 7777)); u = socket.socket(socket.AF_UNIX); "
            "u.bind('\\0canary'); u.listen(); open('/tmp/canary', 'w'); open('ready', 'w'); import time; time.sleep(60)"
        )
        await one.start(1, "1.0", bash(f'python3 -c "{server}"'))
        with anyio.fail_after(PATIENCE_S):
            while not (rig.workspace / "ready").exists():  # noqa: ASYNC110 - another process makes it
                await anyio.sleep(0.01)
        look = (
            "import socket, os\n"
            "for family, address in ((socket.AF_INET, ('127.0.0.1', 7777)), (socket.AF_UNIX, '\\0canary')):\n"
            "    try: socket.socket(family).connect(address); print('LEAK')\n"
            "    except ConnectionRefusedError: print('refused')\n"
            "print(os.path.exists('/tmp/canary'), [p for p in os.listdir('/proc') if p.isdigit() and int(p) > 30])\n"
        )
        (rig.workspace / "look.py").write_text(look)
        said = await run(two, "1.0", bash("python3 look.py"))
        assert said.output == "refused\nrefused\nFalse []\n"
        await one.kill(1, "1.0")


def test_this_host_has_a_name(tmp_path: Path) -> None:
    assert host.host_id() == host.host_id()
    assert len(host.host_id()) == 16
    assert len(boot_id()) == 36
    folder = host.run_directory(os.getuid())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(str(folder)) < 60


def test_a_run_directory_of_someone_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "holdfast"
    theirs.mkdir()
    theirs.chmod(0o777)
    monkeypatch.setattr(host, "_run_path", lambda uid: theirs)
    with pytest.raises(CannotRunSafely, match="not a folder that only"):
        host.run_directory(os.getuid())
    theirs.rmdir()
    theirs.symlink_to(tmp_path)
    with pytest.raises(CannotRunSafely):
        host.run_directory(os.getuid())


def test_the_agent_starts_from_source_too(tmp_path: Path) -> None:
    """Where the system's Python has another format of compiled code, the sources are taken."""
    magic, parts = marshal.loads(agent_parts())
    path = tmp_path / "agent"
    path.write_bytes(marshal.dumps((b"other", {name: (source, b"") for name, (source, _) in parts.items()})))
    done = subprocess.run(agent_command(str(path)), stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0
    assert len(magic) == 4
