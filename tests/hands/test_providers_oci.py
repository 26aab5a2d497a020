"""Hands in containers: the kit on what is installed here, what they keep apart, and what an engine is told."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import anyio
import pytest

from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.hands.base import Network, Provider
from holdfast.hands.oci import engines
from holdfast.hands.oci.engines import Bind, configuration
from holdfast.hands.oci.provider import OciProvider
from holdfast.testing.hands import CHECKS, bash, run
from tests.hands.lean import LEAN
from tests.hands.rigs import LIVES, real

GOLDEN = Path(__file__).parent / "golden"


def runc(folder: Path) -> Provider:
    """Containers of this host's own programs."""
    return OciProvider(folder, "runc", lives=LIVES)


def _unable(name: str) -> str:
    return engines.complaint(engines.named(name))


here = pytest.mark.skipif(bool(_unable("runc")), reason=f"{_unable('runc')}: {engines.named('runc').fix}")


@here
@pytest.mark.parametrize("name", LEAN)
async def test_kit_on_runc(name: str, tmp_path: Path) -> None:
    async with real(tmp_path, runc) as rig:
        await CHECKS[name](rig)


@pytest.mark.parametrize("engine", engines.ENGINES)
async def test_kit_on_an_engine(engine: str, tmp_path: Path) -> None:
    if problem := _unable(f"{engine}:none"):
        pytest.skip(problem)
    listed = await anyio.run_process([engine, "images", "--format", "{{.Repository}}:{{.Tag}}"])
    images = [name for name in listed.stdout.decode().split() if "<none>" not in name]
    if not images:
        pytest.skip(f"{engine} works here and has no image; one with bash and python3 is needed")
    for number, (name, check) in enumerate(CHECKS.items()):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o711)
        async with real(folder, lambda at: OciProvider(at, f"{engine}:{images[0]}", lives=LIVES)) as rig:
            print(name)
            await check(rig)


LOOK = """
id -u; cat /proc/self/status | grep -E '^(CapEff|NoNewPrivs|Seccomp):' | tr -d '\\t'
ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '
for path in /usr/x /etc/x /x /proc/sys/kernel/core_pattern /workspace/.git/config; do
    (echo evil > $path) 2>/dev/null && echo "LEAK $path"
done
cat {secret} 2>/dev/null && echo LEAK
ls /proc | grep -c '^[0-9]' | awk '{{ print ($1 < 12) ? "few" : "LEAK" }}'
unshare -U true 2>/dev/null && echo LEAK
(tr '\\0' '\\n' < /proc/1/environ | grep CANARY) 2>/dev/null
echo $HOME $(stat -c %U /workspace)
"""


@here
async def test_what_a_container_keeps_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary")
    secret = tmp_path / "secret"
    secret.write_text("canary")
    async with real(tmp_path, runc) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        said = await run(hands, "1.0", bash(LOOK.format(secret=secret)))
        uid = hands.identity.uid
        assert said.output.splitlines() == [
            str(uid), "CapEff:0000000000000000", "NoNewPrivs:1", "Seccomp:2", "lo", "few", "/home/agent agent"
        ], said.output  # fmt: skip
        assert uid != 0
        assert hands.identity.isolation["network"] == "hard"


@here
async def test_the_way_outside_and_extras_are_shown(tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "f").write_text("extra")
    (tmp_path / "way").mkdir()
    async with real(tmp_path, runc) as rig:
        network = Network(str(tmp_path / "way" / "s"), files={"/etc/ssl/ours.pem": b"PEM"}, env={"VIA": "proxy"})
        hands = await rig.provider.provision(rig.spec(network=network, read_only={str(extra): "/opt/extra"}), 1)
        said = await run(
            hands, "1.0", bash("cat /opt/extra/f /etc/ssl/ours.pem; echo $VIA; touch /opt/extra/x; ls /run")
        )
        assert said.output.startswith("extraPEMproxy\n"), said
        assert "Read-only file system" in said.output
        assert said.output.endswith("agent\ndoor\negress\n"), "the door itself is gone once the agent is in"
        with pytest.raises(UsageError, match="below /opt"):
            await rig.provider.provision(rig.spec(read_only={str(extra): "/usr/x"}), 1)


@here
async def test_nothing_is_left_of_a_container(tmp_path: Path) -> None:
    async with real(tmp_path, runc) as rig:
        killed = await rig.provider.provision(rig.spec(), 1)
        left = await rig.provider.provision(rig.spec(), 1)
        await rig.kill(killed)
        for hands in (killed, left):
            await hands.release(1)
            assert not rig.journal(hands).parent.exists()
            left_over = await anyio.run_process(["find", "/sys/fs/cgroup", "-name", f"*{hands.identity.hands_id}*"])
            assert left_over.stdout == b""


async def test_an_engine_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "PATH", str(tmp_path))
    for name in ("runc", "crun", "podman:debian", "docker+runsc:debian"):
        provider = OciProvider(tmp_path / "hands", name)
        found = await provider.probe()
        assert (found.usable, found.findings[0].level) == (False, "bad")
        assert "not installed" in found.findings[0].message
        assert found.findings[0].fix
    async with real(tmp_path, lambda at: OciProvider(at, "podman:debian")) as rig:
        with pytest.raises(SandboxUnavailable, match="podman is not installed here; nothing was started"):
            await rig.provider.provision(rig.spec(), 1)


async def test_an_engine_whose_daemon_does_not_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    (programs / "docker").chmod(0o755)
    monkeypatch.setattr(engines, "PATH", str(programs))
    found = await OciProvider(tmp_path / "hands", "docker:debian").probe()
    assert not found.usable
    assert "Cannot connect to the Docker daemon" in found.findings[0].message


def test_names_of_engines() -> None:
    assert engines.named("docker+runsc:python:3.12-slim") == engines.Engine("docker", "python:3.12-slim", "runsc")
    assert engines.named("podman:registry.test/a/b@sha256:00").image == "registry.test/a/b@sha256:00"
    for bad in ("podman", "podman:", "docker:-v", "docker:a b", "runc:image", "docker+evil:a", "lxc:a", "docker:--x"):
        with pytest.raises(UsageError):
            engines.named(bad)


def test_what_an_engine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held against golden files: whoever changes a wall sees it here."""
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    binds = [Bind("/w", "/workspace", True), Bind("/w/.git", "/workspace/.git")]
    told = {
        name: engines.run_command(
            *(engines.named(name), Path("/h"), "hnd_1", ["/usr/bin/python3", "-c", "x"], {"A": "b"}, (7, 8), binds),
            cwd="/workspace", home="/home/agent",
        )
        for name in ("podman:debian", "docker+runsc:debian", "runc", "runsc")
    }  # fmt: skip
    told["config.json"] = configuration(["x"], {"A": "b"}, 7, 8, binds, cwd="/workspace", home="/home/agent")  # type: ignore[assignment]
    text = json.dumps(told, indent=1) + "\n"
    golden = GOLDEN / "oci.json"
    assert text == golden.read_text(), "if the change is meant, look at the difference and write the new file"
