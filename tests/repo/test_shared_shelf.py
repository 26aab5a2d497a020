"""Snapshots in an object store: another home restores them, and a store that is down or lies harms nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import obstore
import pytest

from holdfast.errors import SnapshotFailed, UsageError
from holdfast.repo import shared_shelf
from holdfast.repo.shared_shelf import MANY_PACKS, SharedShelf, open_objects
from holdfast.testing.repo import CHECKS
from tests.repo.rigs import picture
from tests.repo.shared_rig import SharedRig, serving
from tests.support.databases import free_port


def files(base: Path) -> dict[str, bytes]:
    """All objects of a store in a folder."""
    root = base / "objects"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def work(base: Path, **contents: str) -> Path:
    """A workspace with these files."""
    folder = base / "work"
    folder.mkdir(exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text(text)
    return folder


def whole(base: Path) -> None:
    """Everything that the object store names is there, and has the bytes that its name says."""
    found = files(base)
    for key, data in found.items():
        kind, first, last = key.split("/")
        if kind == "snapshots":
            manifest = msgspec.json.decode(data)
            assert {f"packs/{first}/{name}" for name in manifest["packs"]} <= found.keys()
        elif kind == "trees":
            assert f"snapshots/{last}/{first}" in found


async def test_each_of_many_snapshots_is_restored_elsewhere(tmp_path: Path) -> None:
    rig = SharedRig(tmp_path)
    pictures = {}
    for number in range(MANY_PACKS + 5):
        folder = work(tmp_path, **{"same": "x" * 1000, "changes": f"{number}", f"new{number % 7}": f"{number}"})
        name = (await rig.shelf.keep("ses_a", folder, number + 1)).snapshot
        pictures[name] = picture(folder)
    for name in [*pictures][::13]:
        there = tmp_path / name
        await rig.elsewhere.restore(name, there)
        assert picture(there) == pictures[name]
    manifests = [msgspec.json.decode(data) for key, data in files(tmp_path).items() if key.startswith("snapshots")]
    assert max(len(each["packs"]) for each in manifests) == MANY_PACKS
    latest = max(manifests, key=lambda each: each["seq"])
    assert len(latest["packs"]) == 5, "after so many packs, the next one holds everything"


async def test_an_unchanged_workspace_sends_nothing(tmp_path: Path) -> None:
    rig = SharedRig(tmp_path)
    await rig.shelf.keep("ses_a", work(tmp_path, a="1"), 1)
    first = files(tmp_path)
    await rig.shelf.keep("ses_a", work(tmp_path), 2)
    assert files(tmp_path) == first
    assert sorted(key.partition("/")[0] for key in first) == ["packs", "snapshots", "trees"]


async def test_another_object_store_gets_everything(tmp_path: Path) -> None:
    await SharedRig(tmp_path).shelf.keep("ses_a", work(tmp_path, a="1"), 1)
    other = SharedRig(tmp_path, f"file://{tmp_path}/other/objects")
    for seq, text in enumerate(("1", "2"), start=2):
        name = (await other.shelf.keep("ses_a", work(tmp_path, a=text), seq)).snapshot
        await other.elsewhere.restore(name, tmp_path / f"there{seq}")
        assert (tmp_path / f"there{seq}/a").read_text() == text
    whole(tmp_path / "other")


async def test_names_from_the_store_lead_nowhere(tmp_path: Path) -> None:
    rig = SharedRig(tmp_path)
    name = (await rig.shelf.keep("ses_a", work(tmp_path, a="1"), 1)).snapshot
    store = open_objects(f"file://{tmp_path}/objects")
    for odd in ("ses a", "ses.a", "s" * 200):
        obstore.put(store, f"snapshots/{odd}/{name}", files(tmp_path)[f"snapshots/ses_a/{name}"])
        obstore.put(store, f"trees/{name}/{odd}", b"")
    obstore.delete(store, f"trees/{name}/ses_a")
    with pytest.raises(SnapshotFailed):
        await rig.elsewhere.restore(name, tmp_path / "there")
    assert not (tmp_path / "elsewhere/git/refs/holdfast").exists() or not [
        *(tmp_path / "elsewhere/git/refs/holdfast").iterdir()
    ]


async def test_a_removed_session_leaves_nothing_and_others_keep_theirs(tmp_path: Path) -> None:
    rig = SharedRig(tmp_path)
    folder = work(tmp_path, a="1")
    name = (await rig.shelf.keep("ses_a", folder, 1)).snapshot
    await rig.shelf.keep("ses_b", folder, 1)
    await rig.shelf.forget("ses_a")
    assert {key for key in files(tmp_path) if "ses_a" in key} == set()
    await rig.elsewhere.restore(name, tmp_path / "there")
    await rig.shelf.forget("ses_b")
    assert files(tmp_path) == {}


async def test_a_thinned_session_keeps_what_its_other_snapshots_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_shelf, "LEFT_OVER_S", -3600.0)
    rig = SharedRig(tmp_path)
    names = [(await rig.shelf.keep("ses_a", work(tmp_path, **{f"f{n}": str(n)}), n)).snapshot for n in range(1, 5)]
    obstore.put(open_objects(f"file://{tmp_path}/objects"), "packs/ses_a/left", b"by a killed process")
    await rig.shelf.thin({"ses_a": names[:2]})
    whole(tmp_path)
    assert "packs/ses_a/left" not in files(tmp_path)
    await rig.shelf.tidy()
    names.append((await rig.shelf.keep("ses_a", work(tmp_path, last="5"), 5)).snapshot)
    for name in names[2:]:
        await rig.elsewhere.restore(name, tmp_path / name)
    assert not [key for key in files(tmp_path) if names[0] in key or names[1] in key]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("written", [False, True])
async def test_killed_at_each_write(tmp_path: Path, after: int, written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SharedRig(tmp_path)
    await rig.shelf.keep("ses_a", work(tmp_path, a="1"), 1)
    puts = []
    put = obstore.put

    def dies(store: Any, key: str, data: Any) -> None:
        puts.append(key)
        if len(puts) == after + 1:
            if written:
                put(store, key, data)
            raise Killed
        put(store, key, data)

    with monkeypatch.context() as patched:
        patched.setattr(obstore, "put", dies)
        if after < 3:
            with pytest.raises(Killed):
                await rig.shelf.keep("ses_a", work(tmp_path, b="2"), 2)
        else:
            await rig.shelf.keep("ses_a", work(tmp_path, b="2"), 2)
            assert len(puts) == 3
    whole(tmp_path)
    again = SharedRig(tmp_path)
    folder = work(tmp_path, c="3")
    name = (await again.shelf.keep("ses_a", folder, 3)).snapshot
    whole(tmp_path)
    await again.elsewhere.restore(name, tmp_path / "there")
    assert picture(tmp_path / "there") == picture(folder)


@pytest.mark.parametrize("what", ["flipped", "cut", "swapped", "manifest"])
async def test_wrong_bytes_are_never_used(tmp_path: Path, what: str) -> None:
    rig = SharedRig(tmp_path)
    name = (await rig.shelf.keep("ses_a", work(tmp_path, a="1"), 1)).snapshot
    other = (await rig.shelf.keep("ses_b", work(tmp_path, a="2"), 1)).snapshot
    store = open_objects(f"file://{tmp_path}/objects")
    (pack,) = [key for key in files(tmp_path) if key.startswith("packs/ses_a/")]
    data = files(tmp_path)[pack]
    manifest = f"snapshots/ses_a/{name}"
    if what == "flipped":
        obstore.put(store, pack, data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    elif what == "cut":
        obstore.put(store, pack, data[:-1])
    elif what == "swapped":  # a manifest that names another snapshot's packs, each of which is as it was written
        (foreign,) = [key for key in files(tmp_path) if key.startswith("packs/ses_b/")]
        obstore.put(store, f"packs/ses_a/{foreign.rpartition('/')[2]}", files(tmp_path)[foreign])
        obstore.put(store, manifest, files(tmp_path)[f"snapshots/ses_b/{other}"])
    else:
        obstore.put(store, manifest, b"{}}")
    with pytest.raises(SnapshotFailed):
        await rig.elsewhere.restore(name, tmp_path / "there")
    assert not (tmp_path / "there").exists() or picture(tmp_path / "there") == {}
    await rig.elsewhere.restore(other, tmp_path / "other")
    assert (tmp_path / "other/a").read_text() == "2"


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://a/b", "s3://", "/srv/objects"])
def test_an_address_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no address of an object store"):
        open_objects(url)


# --- S3 ------------------------------------------------------------------------------------------


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys as the environment gives them."""
    values = {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "testing-secret", "REGION": "us-east-1"}
    for name, value in values.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.fixture
def moto(tmp_path: Path, keys: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with the semantics of S3, and a bucket."""
    with serving("moto_server", "-H", "127.0.0.1", "-p", "{port}", folder=tmp_path) as address:
        assert httpx.put(f"{address}/agents").status_code == 200
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield "s3://agents/holdfast"


async def test_the_kit_on_s3(moto: str, tmp_path: Path) -> None:
    for number, check in enumerate(CHECKS.values()):
        base = tmp_path / str(number)
        base.mkdir()
        await check(SharedRig(base, f"{moto}/{number}"))


async def test_a_large_snapshot_on_s3(moto: str, tmp_path: Path) -> None:
    rig = SharedRig(tmp_path, moto)
    folder = work(tmp_path)
    (folder / "large").write_bytes(os.urandom(20_000_000))
    name = (await rig.shelf.keep("ses_a", folder, 1)).snapshot
    await rig.elsewhere.restore(name, tmp_path / "there")
    assert picture(tmp_path / "there") == picture(folder)


async def test_signatures_count(tmp_path: Path, keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s3/agents").mkdir(parents=True)
    words = ("serve", "s3", str(tmp_path / "s3"), "--addr", "127.0.0.1:{port}", "--auth-key", "test,testing-secret")
    with serving("rclone", *words, folder=tmp_path) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        rig = SharedRig(tmp_path, "s3://agents")
        folder = work(tmp_path, a="1")
        name = (await rig.shelf.keep("ses_a", folder, 1)).snapshot
        await rig.elsewhere.restore(name, tmp_path / "there")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        wrong = SharedRig(tmp_path, "s3://agents")
        with pytest.raises(SnapshotFailed, match="could not write to the object store s3://agents"):
            await wrong.shelf.keep("ses_a", work(tmp_path, a="2"), 2)
    assert picture(tmp_path / "there") == {b"a": picture(tmp_path / "there")[b"a"]}


async def test_a_store_that_is_down_or_silent_is_said_and_works_again(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_shelf, "_CLIENT", {**shared_shelf._CLIENT, "timeout": "1s", "connect_timeout": "1s"})
    retries = {**shared_shelf._RETRIES, "max_retries": 0}
    monkeypatch.setattr(shared_shelf, "_RETRIES", retries)
    working = os.environ["AWS_ENDPOINT_URL"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for number, port in enumerate((free_port(), silent.getsockname()[1]), start=1):
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
            shelf = SharedShelf(tmp_path / "snapshots", moto)
            with pytest.raises(SnapshotFailed, match="nothing counts that is not there"):
                await shelf.keep("ses_a", work(tmp_path, a=str(number)), number)
    monkeypatch.setenv("AWS_ENDPOINT_URL", working)
    rig = SharedRig(tmp_path, moto)
    name = (await rig.shelf.keep("ses_a", work(tmp_path), 3)).snapshot
    await rig.elsewhere.restore(name, tmp_path / "there")
    assert (tmp_path / "there/a").read_text() == "2"
