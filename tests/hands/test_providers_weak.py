"""Hands behind Landlock alone: only when somebody accepts them, and with what they do keep apart."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import anyio
import pytest

from holdfast.app.providers import Providers
from holdfast.errors import CannotRunSafely, SandboxUnavailable
from holdfast.facts.session import HandsPolicy, Workspace
from holdfast.hands.base import Layer, Network
from holdfast.hands.box import confine
from holdfast.hands.landlock import OLDEST, LandlockProvider
from holdfast.testing.hands import CHECKS, bash, run
from tests.hands.lean import LEAN
from tests.hands.rigs import real
from tests.hands.weak_driver import landlock
from tests.support.as_user import UID, run_as_user

here = pytest.mark.skipif(
    confine.abi() < OLDEST, reason=f"this kernel has Landlock version {confine.abi()}, {OLDEST} is needed"
)

ATTEMPTS = """
import ctypes, os, signal, socket
def attempt(name, step):
    try: step(); print("LEAK", name)
    except OSError as error: print("blocked", name, error.errno is not None)
def connect(family, address, kind=socket.SOCK_STREAM):
    socket.socket(family, kind).connect(address)
attempt("read", lambda: open("{secret}").read())
attempt("list", lambda: os.listdir("{outside}"))
attempt("write", lambda: open("{outside}/new", "w"))
attempt("cut", lambda: os.truncate("{secret}", 0))
attempt("remove", lambda: os.unlink("{secret}"))
attempt("link", lambda: os.link("{secret}", "mine"))
attempt("follow", lambda: (os.symlink("{secret}", "link"), open("link").read()))
attempt("move out", lambda: (open("f", "w"), os.rename("f", "{outside}/f")))
attempt("loopback", lambda: connect(socket.AF_INET, ("127.0.0.1", {port})))
attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("unix", lambda: connect(socket.AF_UNIX, "{outside}/socket"))
attempt("abstract", lambda: connect(socket.AF_UNIX, "\\0canary"))
attempt("environment", lambda: open("/proc/{pid}/environ").read())
attempt("memory", lambda: open("/proc/{pid}/mem", "rb"))
attempt("root link", lambda: os.listdir("/proc/{pid}/root/"))
attempt("sysctl", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("shadow", lambda: open("/etc/shadow").read())
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if libc.syscall(*words) < 0: raise OSError(ctypes.get_errno(), "")
attempt("unshare", lambda: call(272, 0x10000000))
attempt("ptrace", lambda: call(101, 16, {pid}, 0, 0))
"""


@here
@pytest.mark.parametrize("name", LEAN)
async def test_kit(name: str, tmp_path: Path) -> None:
    async with real(tmp_path, landlock) as rig:
        await CHECKS[name](rig)


@here
def test_as_an_ordinary_user(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.hands.weak_driver")
    assert found["said"].endswith(f"Permission denied\n{UID}\n"), found
    assert "commands run as your own user" in found["weak"]


@here
async def test_what_it_keeps_apart(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    secret = outside / "secret"
    secret.write_text("canary")
    secret.chmod(0o666)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen(["sleep", "60"]) as victim,  # noqa: ASYNC220 - it only stands there
    ):
        unix.bind(str(outside / "socket"))
        unix.listen()
        (outside / "socket").chmod(0o777)
        abstract.bind(f"\0canary{os.getpid()}")
        abstract.listen()
        try:
            async with real(tmp_path, landlock) as rig:
                code = ATTEMPTS.format(secret=secret, outside=outside, port=tcp.getsockname()[1], pid=victim.pid)
                (rig.workspace / "attempts.py").write_text(code.replace("canary", f"canary{os.getpid()}"))
                hands = await rig.provider.provision(rig.spec(), 1)
                said = await run(hands, "1.0", bash("python3 attempts.py; echo $HOME > $TMPDIR/x && cat $TMPDIR/x"))
                assert "LEAK" not in said.output, said.output
                assert said.output.count("blocked") == 20, said.output
                assert said.output.endswith("/scratch\n")
                assert "no namespaces" in hands.identity.weak, "it is in the event"
                assert hands.identity.isolation["files"] == "soft"
        finally:
            victim.kill()
    assert secret.read_text() == "canary"


def test_nobody_gets_it_unasked(tmp_path: Path) -> None:
    with pytest.raises(CannotRunSafely, match="accept_weak = true"):
        LandlockProvider(tmp_path, accept_weak=False)
    with pytest.raises(CannotRunSafely, match="accept_weak"):
        Providers(tmp_path).of(HandsPolicy(provider="landlock"), Workspace("/w"))
    given = Providers(tmp_path).of(HandsPolicy(accept_weak=True), Workspace("/w"))
    assert type(given).__name__ == "BubblewrapProvider", "accepted is not asked for"


@here
async def test_what_it_cannot_have_is_refused(tmp_path: Path) -> None:
    async with real(tmp_path, landlock) as rig:
        for change in ({"network": Network("/run/x.sock")}, {"layers": (Layer("/opt/x", ("/usr",)),)}):
            with pytest.raises(SandboxUnavailable, match="nothing was started"):
                await rig.provider.provision(rig.spec(**change), 1)


async def test_a_kernel_without_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "abi", lambda: 2)
    provider = landlock(tmp_path / "hands")
    found = await provider.probe()
    assert not found.usable
    assert "version 2" in found.findings[0].message
    async with real(tmp_path, landlock) as rig:
        with pytest.raises(SandboxUnavailable, match="Landlock version 2"):
            await rig.provider.provision(rig.spec(), 1)


def test_what_each_version_can_refuse() -> None:
    assert confine.handled(1) == ((1 << 13) - 1, 0, 0)
    assert confine.handled(3) == ((1 << 15) - 1, 0, 0)
    assert confine.handled(4) == ((1 << 15) - 1, 3, 0)
    assert confine.handled(7) == ((1 << 16) - 1, 3, 3)


async def test_signals_stay_inside(tmp_path: Path) -> None:
    """Signals to processes outside are refused where the kernel can, also to those of the same user."""
    if confine.abi() < 6:
        pytest.skip(f"Landlock version {confine.abi()} refuses no signals; the event says so")
    async with real(tmp_path, landlock) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        uid = hands.identity.uid
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if os.getuid() == 0 else []
        victim = await anyio.open_process([*become, "sleep", "60"])
        said = await run(hands, "1.0", bash(f"kill -9 {victim.pid}; echo $?"))
        assert said.output.endswith("Operation not permitted\n1\n"), said
        victim.kill()
        await victim.aclose()
