"""Hands elsewhere: over standard streams and over a real sshd; connections that break, ends that die, hostile tars."""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import shutil
import signal
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from holdfast.errors import HandsUnreachable, SandboxUnavailable, UsageError, WorkspaceGone
from holdfast.hands.base import Hands, Network
from holdfast.hands.far import tar_program
from holdfast.hands.far.provider import ssh_command
from holdfast.testing.hands import CHECKS, bash, run
from tests.hands.far_rig import FarRig, far, serve_command
from tests.support.waiting import PATIENCE_S, remove


@pytest.mark.parametrize("name", CHECKS)
async def test_kit_over_standard_streams(name: str, tmp_path: Path) -> None:
    async with far(tmp_path) as rig:
        await CHECKS[name](rig)


async def _marked(rig: FarRig, hands: Hands, path: str) -> None:
    """Wait until a command there has made that file."""
    with anyio.fail_after(PATIENCE_S):
        while not (rig.there / "served" / "work" / "ses_kit" / path).exists():  # noqa: ASYNC110 - another process does
            await anyio.sleep(0.01)


async def test_a_connection_that_breaks_ends_nothing(tmp_path: Path) -> None:
    """SIGKILL to the far end's process while a call runs: the next one takes the result, and it ran once."""
    async with far(tmp_path) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "1.0", bash("printf x >> marks; while [ ! -e go ]; do sleep 0.02; done; cat marks"))
        await _marked(rig, hands, "marks")
        async with anyio.create_task_group() as group:

            async def take() -> None:
                result = await hands.wait(1, "1.0")
                assert (result.ok, result.output) == (True, "x"), result

            group.start_soon(take)
            await anyio.lowlevel.checkpoint()
            os.kill(rig.link.pid, signal.SIGKILL)
            await hands.start(1, "1.0", bash("printf x >> marks"))
            assert (await run(hands, "2.0", bash("touch go"))).ok


async def test_another_brain_goes_on_with_what_runs(tmp_path: Path) -> None:
    async with far(tmp_path) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "1.0", bash("printf x >> marks; while [ ! -e go ]; do sleep 0.02; done; cat marks"))
        await _marked(rig, hands, "marks")
        rig.link.close()  # what the end of a brain's process does to the connection
        other = FarRig.again(rig)
        found = await other.far.attach(hands.identity)
        await found.fence(2)
        assert (await found.status(2, "1.0")).state == "running"
        await run(found, "2.0", bash("touch go"), 2)
        assert (await found.wait(2, "1.0")).output == "x"
        other.link.close()


async def test_the_workspace_goes_there_and_comes_back(tmp_path: Path) -> None:
    async with far(tmp_path) as rig:
        work = rig.workspace
        for folder in ("old", "kept", "sub/.git"):
            (work / folder).mkdir(parents=True)
        (work / "old" / "gone").write_text("gone soon")
        (work / "kept" / "run.sh").write_text("#!/bin/sh\n")
        (work / "kept" / "run.sh").chmod(0o755)
        (work / "sub" / ".git" / "config").write_text("mine")
        (work / "big").write_bytes(os.urandom(3 << 20))
        before = (work / "kept" / "run.sh").stat()
        hands = await rig.provider.provision(rig.spec(), 1)
        said = await run(
            hands,
            "1.0",
            bash("ls kept; wc -c < big; cat sub/.git/config; rm -r old; ln -s /etc/passwd link; mkdir -p sub/x/.git; "
                 "echo evil > sub/x/.git/config; echo new > sub/new; chmod 600 sub/new; echo evil > sub/.git/config"),
        )  # fmt: skip
        assert said.output.startswith(f"run.sh\n{3 << 20}\nmine"), said
        assert "sub/.git/config: Read-only file system" in said.output
        # The sandbox there does not let it be written; the machine itself, which nobody here trusts, can.
        (rig.there / "served" / "work" / "ses_kit" / "sub" / ".git" / "config").write_text("evil")
        await hands.release(1)
        assert not (work / "old").exists()
        assert (work / "sub" / "new").read_text() == "new\n"
        assert (work / "sub" / "new").stat().st_mode & 0o777 == 0o600
        assert (work / "link").readlink() == Path("/etc/passwd")
        assert (work / "sub" / ".git" / "config").read_text() == "mine", "git on this host would run what it names"
        assert not (work / "sub" / "x" / ".git").exists()
        after = (work / "kept" / "run.sh").stat()
        assert (after.st_ino, after.st_mtime_ns, after.st_uid) == (before.st_ino, before.st_mtime_ns, before.st_uid)
        assert list((rig.there / "served" / "work").iterdir()) == [], "nothing of it is left there"
        assert list((rig.there / "served" / "spool").iterdir()) == []


async def test_a_transfer_goes_on_by_position(tmp_path: Path) -> None:
    """The far end dies again and again while the workspace is sent."""
    content = os.urandom(2 << 20)
    async with far(tmp_path) as rig:
        (rig.workspace / "big").write_bytes(content)
        asked = rig.link.ask
        puts = 0

        async def ask(what: object, *, answer_s: float) -> object:
            nonlocal puts
            done = await asked(what, answer_s=answer_s)  # type: ignore[arg-type]
            if getattr(what, "verb", "") == "begin":  # its answer was lost on the way: the same hands, not others
                done = await asked(what, answer_s=answer_s)  # type: ignore[arg-type]
            if getattr(what, "verb", "") == "put":
                puts += 1
                if puts in (2, 5):
                    os.kill(rig.link.pid, signal.SIGKILL)
            return done

        rig.link.ask = ask  # type: ignore[assignment, method-assign]
        hands = await rig.provider.provision(rig.spec(), 1)
        assert puts >= 9, "asked chunk by chunk, none of them twice as another one"
        said = await run(hands, "1.0", bash("sha256sum < big"))
        assert said.output == f"{hashlib.sha256(content).hexdigest()}  -\n"


async def test_lost_hands_leave_their_work_to_the_next(tmp_path: Path) -> None:
    async with far(tmp_path) as rig:
        first = await rig.provider.provision(rig.spec(), 1)
        await run(first, "1.0", bash("echo work > done"))
        await rig.kill(first)
        second = await rig.provider.provision(rig.spec(continues=first.identity.hands_id), 1)
        assert (await run(second, "2.0", bash("cat done"))).output == "work\n"
        await rig.kill(second)
        remove(rig.there / "served" / "work")
        with pytest.raises(WorkspaceGone):
            await rig.provider.provision(rig.spec(continues=second.identity.hands_id), 1)


async def test_what_belongs_to_this_host_is_refused(tmp_path: Path) -> None:
    async with far(tmp_path) as rig:
        for change in ({"network": Network("/run/x.sock")}, {"read_only": {"/usr/share": "/opt/x"}}):
            with pytest.raises(SandboxUnavailable, match="nothing was started"):
                await rig.provider.provision(rig.spec(**change), 1)


async def test_a_far_end_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    rig = FarRig(tmp_path, ("/bin/sh", "-c", "echo 'holdfast: command not found' >&2; exit 127"), patience_s=0.2)
    with pytest.raises(HandsUnreachable, match="command not found"):
        await rig.provider.provision(rig.spec(), 1)
    assert not (await rig.far.probe()).usable
    rig.link.close()


def test_no_host_is_an_option() -> None:
    for bad in ("-oProxyCommand=x", "", "a b", "host/x", "a@-x", "h:x", "$(x)"):
        with pytest.raises(UsageError, match="no host"):
            ssh_command(bad)
    command = ssh_command("me@build-1.example:2222")
    assert command[-4:] == ("2222", "--", "me@build-1.example", "holdfast hands serve")
    assert {"-a", "-x", "BatchMode=yes", "ClearAllForwardings=yes"} <= set(command), "no credential goes there"


# --- hostile tars ---


def _tar(*members: tuple[str, str, str]) -> io.BytesIO:
    """(name, kind, content or target) as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            if kind == "file":
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
                continue
            info.type = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE}[kind]
            info.linkname = text
            tar.addfile(info)
    out.seek(0)
    return out


@pytest.mark.parametrize(
    "members",
    [
        [("/etc/cron.d/x", "file", "evil")],
        [("../x", "file", "evil")],
        [("a/../../x", "file", "evil")],
        [("up", "link", ".."), ("up/x", "file", "evil")],
        [("up", "link", "/"), ("up/tmp/x", "file", "evil")],
        [("x", "hard", "/etc/passwd")],
        [("x", "fifo", "")],
        [("f", "file", "1"), ("f/x", "file", "evil")],
    ],
)
def test_a_hostile_tar_changes_nothing(members: list[tuple[str, str, str]], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.raises(tar_program.TarRefused):
        tar_program.unpack(str(folder), _tar(("fine", "file", "x"), *members), most=1 << 20)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "work"]


def test_a_tar_is_bounded_and_brings_no_git(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(tar_program.TarRefused, match="more than 3 bytes"):
        tar_program.unpack(str(tmp_path), _tar(("f", "file", "1234")), most=3)
    tar_program.unpack(str(tmp_path), _tar((".git/hooks/x", "file", "evil"), ("a/.git", "file", "evil")), most=1 << 20)
    assert [path.name for path in tmp_path.rglob("*")] == [".git"]
    (tmp_path / "a" / ".git").mkdir(parents=True)
    with pytest.raises(tar_program.TarRefused, match=r"holds a \.git"):
        tar_program.unpack(str(tmp_path), _tar(("a", "file", "1")), most=1 << 20)


# --- a real sshd ---


@asynccontextmanager
async def _over_ssh(base: Path) -> AsyncIterator[FarRig]:
    """A real ssh to a real sshd, which runs for one connection at a time and listens nowhere."""
    sshd, keygen = shutil.which("sshd", path="/usr/sbin:/usr/bin"), shutil.which("ssh-keygen")
    if sshd is None or keygen is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH client and server here (apt-get install openssh-client openssh-server)")
    made = os.getuid() == 0 and not os.path.isdir("/run/sshd")
    if made:
        os.mkdir("/run/sshd", 0o755)
    for name in ("host", "user"):
        await anyio.run_process([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(base / name)])
    (base / "sshd.conf").write_text(
        f"HostKey {base}/host\nAuthorizedKeysFile {base}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\n"
    )
    proxy = f"{sshd} -i -e -f {base}/sshd.conf"
    options = ["-F", "none", "-i", str(base / "user"), "-o", f"ProxyCommand={proxy}"]
    options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    serve = shlex.join(["env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", *serve_command(base / "there")])
    program, *rest = ssh_command("localhost", serve=serve)
    rig = FarRig(base, (program, *options, *rest))
    try:
        yield rig
    finally:
        with anyio.CancelScope(shield=True):
            await rig.close()
        if made:
            os.rmdir("/run/sshd")


async def test_over_a_real_sshd(tmp_path: Path) -> None:
    async with _over_ssh(tmp_path) as rig:
        (rig.workspace / "f").write_text("sent")
        hands = await rig.provider.provision(rig.spec(), 1)
        await hands.start(1, "1.0", bash("printf x >> marks; while [ ! -e go ]; do sleep 0.02; done; cat f marks"))
        await _marked(rig, hands, "marks")
        os.kill(rig.link.pid, signal.SIGKILL)
        await run(hands, "2.0", bash("env > environment; touch go"))
        assert (await hands.wait(1, "1.0")).output == "sentx"
        await hands.release(1)
        assert "SSH_" not in (rig.workspace / "environment").read_text()
