"""Layers: what hands see and write through them, and what stays as it was on the host."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.hands.base import Layer
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.layers import try_layers
from holdfast.testing.hands import bash, run
from tests.hands.rigs import bubblewrap, real


def _tree(base: Path, *names: str) -> Path:
    """A folder with those files, which any user can read; each file says its own name."""
    base.mkdir()
    for name in names:
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    for folder, _, _ in os.walk(base):
        os.chmod(folder, 0o755)
    return base


async def test_a_layer_is_seen_and_its_writes_are_the_hands_own(tmp_path: Path) -> None:
    deps = _tree(tmp_path / "deps", "a/index.js", "b/index.js")
    async with real(tmp_path, bubblewrap) as rig:
        layers = (Layer("/workspace/node_modules", (str(deps),), private=True),)
        first = await rig.provider.provision(rig.spec(layers=layers), 1)
        second = await rig.provider.provision(rig.spec(layers=layers), 1)
        result = await run(
            first, "1", bash("cat node_modules/a/index.js; echo mine > node_modules/c; echo kept > real")
        )
        assert (result.exit_code, result.output) == (0, "a/index.js\n")
        result = await run(second, "1", bash("ls node_modules; cat real"))
        assert result.output == "a\nb\nkept\n"
        assert sorted(os.listdir(deps)) == ["a", "b"]
        assert (rig.workspace / "real").read_text() == "kept\n"
        await first.release(1)
        result = await run(second, "2", bash("ls node_modules"))
        assert result.output == "a\nb\n", "the place that both needed went with the first"
        await second.release(1)
        assert sorted(os.listdir(rig.workspace)) == ["real"]


async def test_the_system_can_be_added_to_and_the_sandbox_itself_comes_from_the_host(tmp_path: Path) -> None:
    added = _tree(tmp_path / "added", "bin/added-tool", "bin/bwrap", "bin/true")
    for tool in (added / "bin").iterdir():
        tool.write_text("#!/bin/sh\necho from the layer\n")
        tool.chmod(0o755)
    async with real(tmp_path, bubblewrap) as rig:
        spec = rig.spec(layers=(Layer("/usr", (str(added),), over=True),))
        hands = await rig.provider.provision(spec, 1)
        result = await run(hands, "1", bash("added-tool; /usr/bin/true; test -x /usr/bin/env; touch /usr/bin/x"))
        assert result.output.startswith("from the layer\nfrom the layer\n")
        assert "Read-only file system" in result.output
        status = await run(hands, "2", bash("grep CapEff /proc/self/status; unshare -Ur true"))
        assert "CapEff:\t0000000000000000" in status.output
        assert "unshare failed" in status.output


async def test_a_link_in_the_way_keeps_a_layer_out(tmp_path: Path) -> None:
    deps = _tree(tmp_path / "deps", "x")
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    async with real(tmp_path, bubblewrap) as rig:
        (rig.workspace / "packages").symlink_to(outside)
        (rig.workspace / "vendor").symlink_to(outside)
        spec = rig.spec(
            layers=(
                Layer("/workspace/packages/node_modules", (str(deps),), private=True),
                Layer("/workspace/vendor", (str(deps),)),
            )
        )
        hands = await rig.provider.provision(spec, 1)
        result = await run(hands, "1", bash("ls packages/ vendor/"))
        assert result.exit_code != 0
        assert os.listdir(outside) == []


async def test_a_file_is_shown_and_never_written_to_the_workspace(tmp_path: Path) -> None:
    async with real(tmp_path, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(files={"/workspace/.env": b"KEY=placeholder\n"}), 1)
        result = await run(hands, "1", bash("cat .env; echo X > .env; rm .env; cat .env"))
        assert result.output.count("KEY=placeholder") == 2
        assert (rig.workspace / ".env").read_bytes() == b""
        await hands.release(1)
        assert os.listdir(rig.workspace) == []


async def test_a_users_own_empty_places_stay(tmp_path: Path) -> None:
    deps = _tree(tmp_path / "deps", "x")
    async with real(tmp_path, bubblewrap) as rig:
        (rig.workspace / ".env").touch()
        (rig.workspace / "node_modules").mkdir()
        (rig.workspace / ".git").mkdir()
        spec = rig.spec(
            layers=(Layer("/workspace/node_modules", (str(deps),), private=True),), files={"/workspace/.env": b"K=1\n"}
        )
        hands = await rig.provider.provision(spec, 1)
        assert (await run(hands, "1", bash("cat .env; ls node_modules"))).output == "K=1\nx\n"
        await hands.release(1)
        assert sorted(os.listdir(rig.workspace)) == [".env", ".git", "node_modules"]


async def test_a_workspace_can_be_written_beside_itself(tmp_path: Path) -> None:
    upper = tmp_path / "draft" / "upper"
    upper.parent.mkdir()
    async with real(tmp_path, bubblewrap) as rig:
        (rig.workspace / "old").write_text("old\n")
        probe = await rig.provider.provision(rig.spec(), 1)
        for path in (upper, Path(f"{upper}.work")):
            path.mkdir()
            os.chown(path, probe.identity.uid, probe.identity.uid if os.getuid() == 0 else -1)
        spec = rig.spec(layers=(Layer("/workspace", (), upper=str(upper), over=True),))
        hands = await rig.provider.provision(spec, 1)
        result = await run(hands, "1", bash("cat old; echo new > new; mkdir -p deep/er; rm old; ls"))
        assert result.output == "old\ndeep\nnew\n"
        assert (rig.workspace / "old").read_text() == "old\n"
        assert not (rig.workspace / "new").exists()
        assert (upper / "new").read_text() == "new\n"


async def test_probe_says_whether_layers_work(tmp_path: Path) -> None:
    found = {finding.name: finding for finding in (await BubblewrapProvider(tmp_path / "hands").probe()).findings}
    assert found["layers"].level == "ok"
    refused = try_layers(Path("/proc/none"))
    assert (refused.level, "--home" in refused.fix) == ("bad", True)
