"""Layers on the disk: what goes when, what is never shown to another repository, what a broken one says."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.environment.base import Draft, Laid, Made, Wanted
from holdfast.environment.detect import look
from holdfast.environment.layers import keep_new, packages_laid
from holdfast.environment.store import FRESH_S, LayerStore
from holdfast.errors import EnvironmentFailed, UsageError
from holdfast.facts.hands import EnvironmentRecorded, HandsProvisioned
from holdfast.facts.session import Environment
from tests.environment.removing import removed
from tests.environment.rigs import write
from tests.support.as_user import run_as_user


async def nobody(hands: HandsProvisioned) -> None:
    raise AssertionError(hands)


async def make(store: LayerStore, digest: str, size: int, age_s: float) -> Path:
    """A layer of that size that was last used so long ago."""
    wanted = Wanted(digest, commands=("x",))
    draft = await store.prepare(wanted, (os.getuid(), os.getgid()), nobody)
    assert isinstance(draft, Draft)
    (Path(draft.workspace) / "new").mkdir()
    (Path(draft.workspace) / "new" / "data").write_bytes(b"x" * size)
    made = await store.seal(draft, wanted, "/nonexistent", EnvironmentRecorded(digest=digest))
    assert made.record.bytes >= size
    folder = Path(made.folder)
    used = SystemClock().now_us() / 1e6 - age_s
    os.utime(folder / "made.json", (used, used))
    return folder


async def test_what_is_long_unused_or_too_much_goes_and_what_is_held_stays(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "environments"
    store = LayerStore(folder, SystemClock())
    fresh = await make(store, "fresh", 200_000, 1)
    old = await make(store, "old", 1_000, 11 * FRESH_S)
    held = await make(store, "held", 200_000, 3 * FRESH_S)
    large = await make(store, "large", 200_000, 4 * FRESH_S)
    store = LayerStore(folder, SystemClock(), bytes_max=300_000, unused_s=10 * FRESH_S)
    fd = os.open(held, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    store.tidy()
    assert [path.exists() for path in (fresh, old, held, large)] == [True, False, True, False]
    os.close(fd)
    store.tidy()
    assert [path.exists() for path in (fresh, held)] == [True, False]


async def test_a_draft_of_a_dead_one_goes(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "environments"
    dead, alive = LayerStore(folder, SystemClock()), LayerStore(folder, SystemClock())
    wanted = Wanted("d" * 8, commands=("x",))
    draft = await dead.prepare(wanted, (os.getuid(), os.getgid()), nobody)
    assert isinstance(draft, Draft)
    alive.tidy()
    assert Path(draft.folder).exists(), "it is being made"
    os.close(dead.locks.pop(wanted.digest))
    alive.tidy()
    assert not Path(draft.folder).exists()


async def test_a_broken_layer_says_what_to_do(tmp_path: Path) -> None:
    store = LayerStore(tmp_path / "home" / "environments", SystemClock())
    folder = await make(store, "broken", 1, 1)
    (folder / "made.json").write_text("{")
    with pytest.raises(EnvironmentFailed, match=f"Remove that folder.*|{folder}"):
        await store.find(Wanted("broken"))


def test_a_digest_is_over_all_that_it_is_made_from(tmp_path: Path) -> None:
    work = write(tmp_path / "work", {"requirements.txt": "a\n", "README": "x\n"})
    other = write(tmp_path / "other", {"requirements.txt": "a\n"})
    auto = Environment(auto=True)
    first = look(str(work), auto, 1).digest
    (work / "README").write_text("y\n")
    assert look(str(work), auto, 1).digest == first
    changed = {
        look(str(work), Environment(auto=True, setup=("x",)), 1).digest,
        look(str(work), Environment(auto=True, packages=("zip",)), 1).digest,
        look(str(work), auto, 2).digest,
        look(str(other), auto, 1).digest,
    }
    (work / "requirements.txt").write_text("b\n")
    changed.add(look(str(work), auto, 1).digest)
    assert len(changed | {first}) == 6


def test_worktrees_of_a_repository_share_and_pretenders_do_not(tmp_path: Path) -> None:
    files = {"requirements.txt": "a\n"}
    main, tree, liar = (write(tmp_path / name, files) for name in ("main", "tree", "liar"))
    inner = main / ".git" / "worktrees" / "tree"
    inner.mkdir(parents=True)
    (inner / "gitdir").write_text(f"{tree}/.git\n")
    for folder in (tree, liar):
        (folder / ".git").write_text(f"gitdir: {inner}\n")
    digests = [look(str(folder), Environment(auto=True), 1).digest for folder in (tree, liar)]
    assert digests[0] != digests[1]
    (tmp_path / "second").mkdir()
    second = write(tmp_path / "second", files)
    twin = main / ".git" / "worktrees" / "second"
    twin.mkdir()
    (twin / "gitdir").write_text(f"{second}/.git\n")
    (second / ".git").write_text(f"gitdir: {twin}\n")
    assert look(str(second), Environment(auto=True), 1).digest == digests[0]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Environment(packages=("zlib; rm -rf /",)), "not the name of a Debian package"),
        (Environment(packages=("-o=Dir::Etc=/x",)), "not the name of a Debian package"),
        (Environment(recipes=("oracle",)), "may name browser, postgresql"),
        (Environment(toolchains=("/etc",)), "the sandbox replaces"),
        (Environment(toolchains=("/srv/there/is/none",)), "is not a folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(policy: Environment, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        look(str(tmp_path), policy, 1)


def test_links_and_caches_are_not_kept(tmp_path: Path) -> None:
    upper = write(tmp_path / "upper", {"a/__pycache__/x": "", "a/new": "n", "b/c": "c", "old": "changed"})
    (upper / "link").symlink_to("/etc")
    real = write(tmp_path / "real", {"a/there": "", "old": "o"})
    kept = keep_new(upper, real, lfs=False)
    assert [each.inside for each in kept.laid] == ["/workspace/a/new", "/workspace/b"]
    assert kept.changed == ("old",)
    assert sorted(str(path.relative_to(upper)) for path in upper.rglob("*")) == ["a", "a/new", "b", "b/c"]


def test_a_link_in_a_removed_folder_changes_nothing_outside(tmp_path: Path) -> None:
    """Root changes no permissions before it removes a folder, so this is shown as an ordinary user too."""
    for found in (removed(tmp_path), run_as_user(tmp_path, "tests.environment.removing")):
        assert found == {"left": False, "outside": 0o755}


def test_packages_lay_nothing_over_what_is_the_sandboxs_own(tmp_path: Path) -> None:
    root = write(
        tmp_path / "root",
        {"usr/bin/x": "", "etc/passwd": "", "etc/ssl/certs/a": "", "etc/own/conf": "", "opt/app/bin": "", "var/x": ""},
    )
    (root / "etc" / "shadow").symlink_to("/etc/shadow")
    assert packages_laid(root) == (
        Laid("/usr", f"{root}/usr", "over"),
        Laid("/etc/own", f"{root}/etc/own", "read"),
        Laid("/opt/app", f"{root}/opt/app", "read"),
    )


def test_packages_are_shared_by_all_workspaces(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, {"requirements.txt": name}) for name in ("one", "other"))
    policy = Environment(auto=True, packages=("zip", "jq"))
    found = [look(str(one), policy, 1), look(str(other), policy, 2)]
    assert len({each.base for each in found}) == 1
    assert len({each.digest for each in found}) == 2
    assert look(str(one), Environment(packages=("zip",)), 1).base != found[0].base
    assert look(str(one), Environment(auto=True), 1).base == ""


async def test_a_layer_whose_packages_are_gone_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "environments"
    store, owner = LayerStore(folder, SystemClock()), (os.getuid(), os.getgid())
    packages, wanted = Wanted("base", packages=("zip",)), Wanted("main", commands=("x",))

    async def seal(each: Wanted, base: Made | None) -> Made:
        draft = await store.prepare(each, owner, nobody)
        assert isinstance(draft, Draft)
        (Path(draft.packages) / "root" / "usr").mkdir(parents=True)
        return await store.seal(draft, each, "/nonexistent", EnvironmentRecorded(digest=each.digest), base)

    base = await seal(packages, None)
    made = await seal(wanted, base)
    assert made.folders == (str(folder / "main"), str(folder / "base"))
    assert made.laid[0] == Laid("/usr", str(folder / "base" / "packages" / "root" / "usr"), "over")
    assert await store.find(wanted) == made
    shutil.rmtree(base.folder)
    assert await store.find(wanted) is None
    again = await seal(wanted, None)
    assert again.folders == (made.folder,)
    assert [each.inside for each in again.laid] == ["/usr"]
