"""Whose hands they are: never root's in a sandbox, and nothing of a user's is given away unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import Workspace
from holdfast.hands.base import HandsSpec
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.unsandboxed import UnsandboxedProvider
from holdfast.hands.user import choose_user, make_ready, take_over
from holdfast.testing.hands import bash, run
from holdfast.uids import SANDBOXES, set_apart
from tests.hands.rigs import REAL, real
from tests.support.as_user import UID

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root has a choice of users")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "kept").write_text("mine")
    return made


@as_root
async def test_a_workspace_of_root_is_refused_with_the_ways_out(folder: Path, tmp_path: Path) -> None:
    before = [(path, path.stat().st_uid, path.stat().st_mtime_ns) for path in (folder, folder / "kept")]
    for provider in (BubblewrapProvider(tmp_path / "hands"), UnsandboxedProvider(tmp_path / "hands")):
        with pytest.raises(CannotRunSafely) as caught:
            await provider.provision(HandsSpec("ses", "hnd_a", Workspace(str(folder))), 1)
        assert caught.value.exit_code == 5
        for word in (str(folder), "--user NAME", "--take-over", "nothing was started"):
            assert word in str(caught.value)
    assert [(path, path.stat().st_uid, path.stat().st_mtime_ns) for path in (folder, folder / "kept")] == before
    assert not (tmp_path / "hands").exists()


@as_root
def test_the_owner_of_the_workspace(folder: Path) -> None:
    os.chown(folder, UID, UID)
    user = choose_user(Workspace(str(folder)))
    assert (user.uid, user.gid) == (UID, UID)


@as_root
def test_a_group_of_root_is_not_kept(folder: Path) -> None:
    os.chown(folder, UID, 0)
    assert choose_user(Workspace(str(folder))).gid == UID


@as_root
def test_a_named_user(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotRunSafely, match=r"may not write in .*--user nobody --take-over"):
        choose_user(Workspace(str(folder), user="nobody"))
    folder.chmod(0o777)
    assert choose_user(Workspace(str(folder), user="nobody")).uid == 65534
    assert choose_user(Workspace(str(folder), user="65534")).name == "nobody"
    with pytest.raises(UsageError, match="there is no such user"):
        choose_user(Workspace(str(folder), user="no-such-user-here"))
    with pytest.raises(CannotRunSafely, match="never run as root"):
        choose_user(Workspace(str(folder), user="root"))
    assert choose_user(Workspace(str(folder), user="root", isolation="none")).uid == 0
    made = tmp_path / "made"
    made.mkdir()
    own = choose_user(Workspace(str(made), disposable=True, user="nobody"))
    make_ready(Workspace(str(made), disposable=True, user="nobody"), own)
    assert made.stat().st_uid == 65534


@as_root
def test_an_id_is_set_apart_where_it_may_write(folder: Path) -> None:
    folder.chmod(0o777)
    user = choose_user(Workspace(str(folder)))
    assert user.uid == set_apart(str(folder)) == choose_user(Workspace(str(folder))).uid
    assert user.uid in range(*SANDBOXES)
    assert folder.stat().st_uid == 0


@as_root
def test_a_disposable_workspace_is_made_theirs(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not theirs")
    (folder / "link").symlink_to(outside)
    os.link(outside, folder / "second-name")
    (folder / "deep").mkdir()
    workspace = Workspace(str(folder), disposable=True)
    user = choose_user(workspace)
    make_ready(workspace, user)
    for path in (folder, folder / "kept", folder / "deep", folder / "link"):
        assert path.lstat().st_uid == user.uid, path
    assert outside.stat().st_uid == 0, "neither a link nor a second name gives away what lies outside"
    assert choose_user(workspace).uid == user.uid, "the next hands are the same user's"


@as_root
def test_taking_over(folder: Path) -> None:
    user = take_over(folder)
    assert choose_user(Workspace(str(folder))).uid == user.uid == (folder / "kept").stat().st_uid
    take_over(folder, "nobody")
    assert (folder / "kept").stat().st_uid == 65534
    for system in ("/", "/etc", "/home", "/usr"):
        with pytest.raises(CannotRunSafely, match="folder of the system"):
            take_over(Path(system))


@as_root
def test_a_workspace_behind_a_closed_door(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    inner = closed / "project"
    inner.mkdir()
    os.chown(inner, UID, UID)
    workspace = Workspace(str(inner))
    with pytest.raises(CannotRunSafely, match=f"cannot enter {closed} .*chmod o\\+x {closed}"):
        make_ready(workspace, choose_user(workspace))


def test_a_workspace_that_is_none(tmp_path: Path) -> None:
    if os.getuid() == 0:
        with pytest.raises(UsageError, match="cannot be used"):
            choose_user(Workspace(str(tmp_path / "absent")))
    else:
        assert choose_user(Workspace(str(tmp_path))).uid == os.getuid()
        with pytest.raises(CannotRunSafely, match="only root"):
            choose_user(Workspace(str(tmp_path), user="root"))


@as_root
@pytest.mark.parametrize("provider", REAL)
async def test_they_have_no_group_of_ours(provider: str, tmp_path: Path) -> None:
    os.setgroups([0, 4])
    try:
        async with real(tmp_path, REAL[provider]) as rig:
            hands = await rig.provider.provision(rig.spec(), 1)
            result = await run(hands, "1.0", bash("id -u; id -G; grep -c . /proc/self/status"))
            uid, groups, _ = result.output.split("\n", 2)
            assert int(uid) == hands.identity.uid != 0
            assert groups == str(hands.identity.uid)
            journal = rig.journal(hands)
            assert journal.stat().st_mode & 0o777 == 0o600
            assert (await run(hands, "1.1", bash(f"cat {journal}"))).exit_code == 1
    finally:
        os.setgroups([])
