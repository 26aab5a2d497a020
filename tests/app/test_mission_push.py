"""A mission's branch is pushed through the broker when told, and by nothing that the repository could say."""

from __future__ import annotations

import base64
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest

from holdfast.app.mission.deliver import Prepared, _on_loopback, link, prepare, push, said
from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.errors import RepositoryUnfit
from holdfast.facts.session import SecretUse
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.plumbing.refs import forge_of
from holdfast.testing.egress import part
from holdfast.vault.fake import FakeVault
from tests.egress.test_clients import heads, repository
from tests.egress.upstream import World
from tests.repo.repositories import git
from tests.repo.test_repository_hostile import armed

VALUE = "canary-of-the-forge-77"
USE = SecretUse("forge", ("forge.test", "other.test"), basic=True, paths=("/git/*",), push=("refs/heads/holdfast/*",))
REF = "refs/heads/holdfast/tidy/main"


@asynccontextmanager
async def forge(folder: Path) -> AsyncIterator[tuple[World, ProxyEgress]]:
    """A server of git behind a real proxy that has its password."""
    repository(folder)
    world = World(folder)
    world.serve("forge.test", "93.184.216.11")
    vault = FakeVault({"forge": VALUE}, SystemClock())
    egress = ProxyEgress(folder / "home" / "egress", vault, bundle=str(world.bundle), network=part(world.tables))
    try:
        yield world, egress
    finally:
        world.close()


def mission(folder: Path, marker: Path, url: str) -> Path:
    """A repository full of traps, with the main line of a mission."""
    path = armed(folder / "mine", marker)
    git(path, "config", "remote.origin.url", url)
    git(path, "config", "remote.origin.uploadpack", str(folder / "evil"))
    git(path, "config", "remote.origin.receivepack", str(folder / "evil"))
    git(path, "config", "url.https://evil.test/.insteadOf", "https://forge.test/")
    git(path, "config", "http.proxy", "http://127.0.0.1:9")
    git(path, "config", "http.sslVerify", "false")
    marker.unlink(missing_ok=True)
    git(path, "-c", "core.hooksPath=/dev/null", "update-ref", REF, "HEAD")
    return path


async def ready(path: Path, state: Path, remote: str = "origin") -> Prepared:
    return await prepare(path, state, "tidy", base="refs/heads/main", title="Tidy\n it", body="What.\n", remote=remote)


async def test_a_branch_is_pushed_through_the_broker(tmp_path: Path) -> None:
    marker, state = tmp_path / "marker", tmp_path / "state"
    path = mission(tmp_path, marker, "https://forge.test/git/project.git")
    door, start = GitRepository(path, state), git(path, "rev-parse", "HEAD")
    await door.checkout(start, tmp_path / "w")
    (tmp_path / "w/large").write_bytes(random.Random(1).randbytes(3 << 20))  # more than git sends in one piece
    large = await door.commit(tmp_path / "w", (start,), "large", 0)
    assert await door.point(REF, large.commit, start)
    async with forge(tmp_path) as (world, egress):
        prepared = await ready(path, state)
        assert REF.removeprefix("refs/heads/") not in heads(tmp_path)
        where = await push(prepared, state, egress, (USE,), uid=os.getuid())
        assert where == "https://forge.test/git/project.git holdfast/tidy/main"
        assert heads(tmp_path)["holdfast/tidy/main"] == prepared.commit == git(path, "rev-parse", REF)
        basic = base64.b64encode(f"x-access-token:{VALUE}".encode()).decode()
        assert {seen.headers.get("authorization") for seen in world.of("forge.test")} == {f"Basic {basic}"}
        git(tmp_path / "repositories/project.git", "fsck", "--strict")
        await push(prepared, state, egress, (USE,), uid=os.getuid())  # told twice
    assert not marker.exists(), marker.read_text()
    assert not list((tmp_path / "home/egress").glob("push_*"))
    assert VALUE not in "".join(file.read_text(errors="replace") for file in state.rglob("*") if file.is_file())


async def test_a_reply_that_arrives_while_the_way_ends_is_dropped(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        door.listen()
        client = socket.socket()
        async with _on_loopback(tmp_path / "door") as port:
            await anyio.to_thread.run_sync(client.connect, ("127.0.0.1", port))
            far, _ = await anyio.to_thread.run_sync(door.accept)
            for piece in (b"ask", b"again"):  # the second one comes to a reader that waits
                far.sendall(piece)
                assert await anyio.to_thread.run_sync(client.recv, 100) == piece
            far.sendall(b"late")
            await anyio.lowlevel.checkpoint()  # the loop sees it in the turn in which the block ends
        with far, client:
            assert client.recv(100) == b""


async def test_what_is_not_allowed_is_not_pushed(tmp_path: Path) -> None:
    marker, state = tmp_path / "marker", tmp_path / "state"
    path = mission(tmp_path, marker, "git@forge.test:git/project.git")
    async with forge(tmp_path) as (world, egress):
        prepared = await ready(path, state)
        for use in (
            msgspec.structs.replace(USE, push=("refs/heads/agent/*",)),
            msgspec.structs.replace(USE, push=("-refs/heads/holdfast/*",)),
            msgspec.structs.replace(USE, push=()),
            msgspec.structs.replace(USE, basic=False),
            msgspec.structs.replace(USE, hosts=("other.test",)),
        ):
            with pytest.raises(RepositoryUnfit) as caught:
                await push(prepared, state, egress, (use,), uid=os.getuid())
            assert str(caught.value).endswith(f"push it yourself: {prepared.command}")
        assert not world.seen
        elsewhere = msgspec.structs.replace(USE, paths=("/another/*",))
        with pytest.raises(RepositoryUnfit, match="403"):
            await push(prepared, state, egress, (elsewhere,), uid=os.getuid())
        assert REF.removeprefix("refs/heads/") not in heads(tmp_path)
        assert await push(prepared, state, egress, (USE,), uid=os.getuid())  # an address for ssh, by HTTPS


async def test_a_branch_that_others_moved_is_not_forced(tmp_path: Path) -> None:
    state = tmp_path / "state"
    path = mission(tmp_path, tmp_path / "marker", "https://forge.test/git/project.git")
    async with forge(tmp_path) as (_, egress):
        bare = tmp_path / "repositories/project.git"
        theirs = heads(tmp_path)["main"]
        git(bare, "update-ref", REF, theirs)
        with pytest.raises(RepositoryUnfit, match="rejected"):
            await push(await ready(path, state), state, egress, (USE,), uid=os.getuid())
        assert heads(tmp_path)["holdfast/tidy/main"] == theirs


async def test_it_is_prepared_in_words(tmp_path: Path) -> None:
    state = tmp_path / "state"
    path = mission(tmp_path, tmp_path / "marker", "git@github.com:team/web.git")
    prepared = await ready(path, state)
    assert said(prepared).splitlines() == [
        f"branch   holdfast/tidy/main at {prepared.commit[:12]}, for main",
        f"push     git -C {path} push origin {REF}:{REF}",
        "open     https://github.com/team/web/compare/main...holdfast/tidy/main?expand=1&title=Tidy+it&body=What.%0A",
        "",
        "Tidy it",
        "",
        "What.",
    ]
    long = msgspec.structs.replace(prepared, body="x" * 10_000)
    assert link(long) == "https://github.com/team/web/compare/main...holdfast/tidy/main?expand=1"
    lab = msgspec.structs.replace(prepared, url="https://gitlab.example.com/a/b/c.git")
    assert link(lab).startswith(
        "https://gitlab.example.com/a/b/c/-/merge_requests/new?merge_request%5Bsource_branch%5D=holdfast%2Ftidy%2Fmain&"
    )
    none = await ready(path, state, remote="nowhere")
    assert "there is no remote nowhere; merge locally: git merge holdfast/tidy/main" in said(none)
    assert link(none) == ""
    with pytest.raises(RepositoryUnfit, match="has no branch holdfast/other/main"):
        await prepare(path, state, "other", base="main", title="", body="")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://forge.test/a/b.git", "forge.test"),
        ("https://user:word@forge.test/a/b", "forge.test"),
        ("ssh://git@forge.test:2222/a/b", "forge.test"),
        ("git@forge.test:a/b", "forge.test"),
        ("https://forge.test:8443/a", ""),
        ("http://forge.test/a", ""),
        ("ext::sh -c evil", ""),
        ("file:///etc", ""),
        ("/srv/git/a.git", ""),
        ("../a", ""),
        ("", ""),
        ("https://forge.test/a/../b", ""),
        ("https://forge.test/a?b", ""),
        ("https://forge.test/a b", ""),
        ("https://forge.test", ""),
        ("https://[::1/x", ""),
    ],
)
def test_addresses_of_remotes(url: str, host: str) -> None:
    found = forge_of(url)
    assert (found.host if found else "") == host
    if found:
        assert found.url.startswith(f"https://{host}/a")
        assert "word" not in found.url
