"""A repository and folders that were made to do harm: nothing of theirs is run, followed or left behind (S24)."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
import zlib
from pathlib import Path

import pytest

from holdfast.errors import RepositoryUnfit
from holdfast.repo.base import Owner
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.plumbing import Failed
from holdfast.repo.plumbing.objects import is_git_name
from holdfast.repo.repository import Commit, Conflict
from holdfast.testing.repo.rig import LINES, START
from tests.repo.repositories import everything, git, made, put

MAIN = "refs/heads/holdfast/m/main"
HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-checkout", "post-commit", "post-index-change",
    "post-merge", "post-rewrite", "pre-commit", "pre-merge-commit", "pre-receive", "prepare-commit-msg",
    "proc-receive", "reference-transaction", "update",
)  # fmt: skip


def armed(folder: Path, marker: Path) -> Path:
    """A repository in which everything that git can be told to run writes a marker."""
    repository = made(folder)
    evil = folder.parent / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $*" >> {marker}\ncat\n')
    evil.chmod(0o755)
    for name in HOOKS:
        hook = repository / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {name} >> {marker}\nexit 1\n")
        hook.chmod(0o755)
    for name, value in (
        ("core.hooksPath", str(repository / ".git/hooks")),
        ("core.fsmonitor", str(evil)),
        ("core.pager", str(evil)),
        ("core.editor", str(evil)),
        ("core.sshCommand", str(evil)),
        ("core.alternateRefsCommand", str(evil)),
        ("core.gitProxy", str(evil)),
        ("core.attributesFile", str(repository / ".gitattributes")),
        ("filter.evil.clean", str(evil)),
        ("filter.evil.smudge", str(evil)),
        ("filter.evil.process", str(evil)),
        ("filter.evil.required", "true"),
        ("merge.evil.driver", f"{evil} %A"),
        ("merge.default", "evil"),
        ("diff.evil.textconv", str(evil)),
        ("diff.evil.command", str(evil)),
        ("diff.external", str(evil)),
        ("gpg.program", str(evil)),
        ("commit.gpgSign", "true"),
        ("log.showSignature", "true"),
        ("credential.helper", str(evil)),
        ("protocol.ext.allow", "always"),
        ("alias.update-ref", f"!{evil}"),
        ("alias.merge-tree", f"!{evil}"),
        ("i18n.commitEncoding", "UTF-16"),
        ("i18n.logOutputEncoding", "UTF-16"),
        ("core.autocrlf", "true"),
        ("core.eol", "crlf"),
    ):
        git(repository, "config", name, value)
    (repository / ".git/info").mkdir(exist_ok=True)
    attributes = "* filter=evil merge=evil diff=evil text eol=crlf ident working-tree-encoding=UTF-16\n"
    (repository / ".git/info/attributes").write_text(attributes)
    return repository


async def test_nothing_that_the_repository_names_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    repository = armed(tmp_path / "r", marker)
    put(repository, {"untracked": b"x", "README.md": b"changed\n"})
    door = GitRepository(repository, tmp_path / "state")
    standing = await door.look()
    assert standing.dirty == ("README.md", "untracked")
    start = await door.resolve("HEAD")
    assert start is not None
    sides = []
    for number, line in enumerate((b"line 1\n", b"line 18\n")):
        folder = tmp_path / f"w{number}"
        await door.checkout(start.commit, folder)
        put(folder, {".gitattributes": b"* filter=evil merge=evil diff=evil text eol=crlf\n"})
        put(folder, {"src/a.py": LINES.replace(line, b"$Id$ \r\n"), ".gitconfig": b"[core]\n\tpager = false\n"})
        sides.append(await door.commit(folder, (start.commit,), "öne", 0))
        assert (await door.files(sides[-1].commit))["src/a.py"] == (folder / "src/a.py").read_bytes()
    merged = await door.merge(sides[0].commit, sides[1].commit, "both", 0)
    assert isinstance(merged, Commit)
    wanted = LINES.replace(b"line 1\n", b"$Id$ \r\n").replace(b"line 18\n", b"$Id$ \r\n")
    assert await door.files(merged.commit, ("src/a.py",)) == {"src/a.py": wanted}
    await door.checkout(merged.commit, tmp_path / "out")
    assert (tmp_path / "out/src/a.py").read_bytes() == wanted
    assert "+$Id$" in await door.diff(start.commit, merged.commit)
    assert (await door.history(sides[0].commit))[0].endswith(" öne")
    assert await door.point(MAIN, sides[0].commit, None)
    assert await door.point(MAIN, merged.commit, sides[0].commit)
    assert not marker.exists(), marker.read_text()
    git(repository, "status", check=False)
    assert marker.exists(), "the traps work, when git is used as a person uses it"


@pytest.mark.parametrize("attribute", ["merge=union", "merge=ours", "-merge", "merge=binary", "conflict-marker-size=1"])
async def test_no_attribute_decides_a_merge(tmp_path: Path, attribute: str) -> None:
    repository = made(tmp_path / "r", {**START, ".gitattributes": f"* {attribute}\n".encode()})
    door = GitRepository(repository, tmp_path / "state")
    start = (await door.look()).head
    sides = []
    for name, line in (("one", b"line 1\n"), ("two", b"line 18\n"), ("three", b"line 1\n")):
        await door.checkout(start, tmp_path / name)
        put(tmp_path / name, {"src/a.py": LINES.replace(line, name.encode())})
        sides.append((await door.commit(tmp_path / name, (start,), name, 0)).commit)
    assert isinstance(await door.merge(sides[0], sides[1], "both", 0), Commit)
    assert await door.merge(sides[0], sides[2], "both", 0) == Conflict(("src/a.py",))


def plant(repository: Path, kind: str, data: bytes) -> str:
    """Put an object into the store that git itself would refuse to make."""
    whole = f"{kind} {len(data)}\0".encode() + data
    name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    file = repository / ".git/objects" / name[:2] / name[2:]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(zlib.compress(whole))
    return name


def planted(repository: Path, rows: list[tuple[str, bytes, str]]) -> str:
    """A commit of a tree with these rows: mode, name, object."""
    tree = plant(
        repository,
        "tree",
        b"".join([f"{mode} ".encode() + name + b"\0" + bytes.fromhex(to) for mode, name, to in rows]),
    )
    return plant(
        repository, "commit", f"tree {tree}\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\nx\n".encode()
    )


async def test_no_tree_leads_out_of_its_folder(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    door = GitRepository(repository, tmp_path / "state")
    blob = plant(repository, "blob", b"owned\n")
    link = plant(repository, "blob", os.fsencode(tmp_path))
    below = plant(repository, "tree", b"100644 pwned\0" + bytes.fromhex(blob))
    hostile = (
        [("100644", b"../pwned", blob)],
        [("40000", b"..", below)],
        [("40000", b".", below)],
        [("100644", b"/pwned", blob)],
        [("100644", b"a/../../pwned", blob)],
        [("100644", b"", blob)],
        [("40000", b".git", below)],
        [("40000", b".GIT", below)],
        [("40000", b".git ", below)],
        [("40000", b"git~1", below)],
        [("40000", ".g\u200cit".encode(), below)],
        [("40000", b"x\\.git\\y", below)],
        [("120000", b"way", link), ("40000", b"way", below)],
        [("40000", b"way", below), ("120000", b"way", link)],
        [("120000", b"way", link), ("100644", b"way/pwned", blob)],
        [("100644", b"twice", blob), ("100755", b"twice", blob)],
    )
    for number, rows in enumerate(hostile):
        folder = tmp_path / f"out{number}"
        with pytest.raises(RepositoryUnfit):
            await door.checkout(planted(repository, rows), folder)
        assert not folder.exists() or not list(folder.iterdir()), rows
    assert not list(tmp_path.rglob("pwned"))


async def test_a_tree_as_no_git_writes_it_now_is_written_anew(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    door = GitRepository(repository, tmp_path / "state")
    blob = plant(repository, "blob", b"old\n")
    old = plant(repository, "tree", b"100664 file\0" + bytes.fromhex(blob) + b"100775 tool\0" + bytes.fromhex(blob))
    start = planted(repository, [("40000", b"below", old), ("100664", b"file", blob)])
    await door.checkout(start, tmp_path / "w")
    put(tmp_path / "w", {"new": b"1"})
    commit = await door.commit(tmp_path / "w", (start,), "new", 0)
    assert git(repository, "rev-list", "--objects", "--missing=print", commit.commit).count("?") == 0
    modes = {path: entry.split()[0] for entry, path in _listed(repository, commit.commit)}
    assert modes == {"below/file": "100644", "below/tool": "100755", "file": "100644", "new": "100644"}


def _listed(repository: Path, commit: str) -> list[tuple[str, str]]:
    lines = git(repository, "ls-tree", "-r", commit).splitlines()
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


async def test_a_tree_of_a_billion_files_is_refused(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    door = GitRepository(repository, tmp_path / "state")
    name, mode = plant(repository, "blob", b"x"), "100644"
    for _ in range(9):
        rows = b"".join([f"{mode} f{number}".encode() + b"\0" + bytes.fromhex(name) for number in range(10)])
        name, mode = plant(repository, "tree", rows), "40000"
    bomb = plant(
        repository, "commit", f"tree {name}\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\nx\n".encode()
    )
    with pytest.raises(RepositoryUnfit, match="more than 1,000,000 files"):
        await door.checkout(bomb, tmp_path / "out")


async def test_only_files_and_links_are_committed(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    secret = tmp_path / "secret"
    secret.write_bytes(b"the host's")
    door = GitRepository(repository, tmp_path / "state")
    start = (await door.look()).head
    work = tmp_path / "w"
    await door.checkout(start, work)
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(work / "socket"))
    (work / "README.md").unlink()
    (work / "README.md").symlink_to(secret)
    (work / "outside").symlink_to(tmp_path)
    (work / "tool").write_bytes(b"#!/bin/sh\n")
    (work / "tool").chmod(0o4755)
    (work / "back\\slash").write_bytes(b"1")
    (work / os.fsdecode(b"no \xff utf-8\n")).write_bytes(b"2")
    (work / "empty").mkdir()
    put(work, {"sub/.git": b"gitdir: /etc\n", "sub/.Git/config": b"x", "sub/git~1": b"x", "sub/ok": b"x"})
    made_ = await door.commit(work, (start,), "work", 0)
    assert {change.path: change.mode for change in await door.changes(start, made_.commit)} == {
        "README.md": "120000",
        "back\\slash": "100644",
        "no \\xff utf-8\n": "100644",
        "outside": "120000",
        "sub/ok": "100644",
        "tool": "100755",
    }
    assert git(repository, "fsck", "--strict", "--no-dangling") == ""
    back = tmp_path / "back"
    await door.checkout(made_.commit, back)
    assert os.readlink(back / "README.md") == str(secret)
    assert stat.S_IMODE((back / "tool").stat().st_mode) == 0o755
    assert b"the host's" not in (await door.diff(start, made_.commit)).encode()


@pytest.mark.skipif(os.getuid() != 0, reason="only root has files that another user cannot read")
async def test_what_the_hands_user_may_not_read_is_left_out(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    door = GitRepository(repository, tmp_path / "state")
    start = (await door.look()).head
    user = Owner(61_234, 61_234)
    work = tmp_path / "w"
    await door.checkout(start, work, user=user)
    owners = {(found.st_uid, found.st_gid) for path in (work, *work.rglob("*")) for found in [path.lstat()]}
    assert owners == {user}
    put(work, {"private": b"root's", "public": b"root's too", "hidden/x": b"1"})
    (work / "private").chmod(0o600)
    (work / "hidden").chmod(0o700)
    commit = await door.commit(work, (start,), "work", 0, user=user)
    assert [change.path for change in await door.changes(start, commit.commit)] == ["public"]
    without = await door.commit(work, (start,), "work", 0)  # the folder's owner is meant
    assert without == commit


@pytest.mark.skipif(os.getuid() != 0, reason="only root works on repositories of others")
async def test_as_root_new_objects_are_the_owners(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    subprocess.run(["chown", "-R", "61234:61234", str(repository)], check=True)  # noqa: ASYNC221
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    door = GitRepository(repository, state)
    start = (await door.look()).head
    for number, count in enumerate((1, 200)):  # loose, and as a pack
        await door.checkout(start, tmp_path / f"w{number}")
        put(tmp_path / f"w{number}", {f"f{number}-{each}": b"%d %d" % (number, each) for each in range(count)})
        commit = await door.commit(tmp_path / f"w{number}", (start,), "work", 0)
        assert await door.point(f"refs/heads/holdfast/m/{number}", commit.commit, None)
    owners = {path.lstat().st_uid for path in repository.rglob("*")}
    assert owners == {61_234}


async def test_a_folder_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    door = GitRepository(repository, tmp_path / "state")
    work = tmp_path / "w"
    work.mkdir()
    deep = "/".join(["d"] * 250)
    (work / deep).mkdir(parents=True)
    before = everything(repository)
    with pytest.raises(RepositoryUnfit, match="nested too deep"):
        await door.commit(work, ((await door.look()).head,), "work", 0)
    assert everything(repository) == before


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (b".git", True), (b".GiT", True), (b".git.", True), (b".git . ", True), (b"GIT~1", True),
        (b".git::$DATA", True), (".\u200cg\ufeffit".encode(), True), (b"a\\.git", True),
        (b".gitignore", False), (b".git2", False), (b"git", False), (b"x.git", False), (b"\xff", False),
    ],
)  # fmt: skip
def test_names_that_some_system_takes_for_git(name: bytes, is_one: bool) -> None:
    assert is_git_name(name) is is_one


ODD_NAMES = (
    ".GIT", ".Git", "git~1", "GIT~1", ".git ", ".git.", ".git . .", ".git::$INDEX_ALLOCATION", ".gi\u200ct",
    "\ufeff.git", "\u200d.g\u202ait", "a\\.git", ".git:x",
)  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_what_other_systems_take_for_git_is_named_and_left_out(tmp_path: Path, name: str) -> None:
    """As a folder with a configuration in it, at the top and below, and as a file; `.git` itself is no news."""
    repository = made(tmp_path / "r")
    door = GitRepository(repository, tmp_path / "state")
    start = (await door.look()).head
    work = tmp_path / "w"
    await door.checkout(start, work)
    put(work, {f"{name}/config": b"[core]\n", f"in/{name}/hooks/x": b"x", f"at/{name}": b"gitdir: x", "at/ok": b"1"})
    put(work, {"nested/.git/config": b"[core]\n"})
    commit = await door.commit(work, (start,), "work", 0)
    assert [change.path for change in await door.changes(start, commit.commit)] == ["at/ok"]
    assert sorted(commit.left_out) == sorted([name, f"in/{name}", f"at/{name}"])
    again = await door.commit(work, (commit.commit,), "again", 0)
    assert (again.commit, again.left_out) == (commit.commit, commit.left_out)


async def test_git_itself_protects_other_systems(tmp_path: Path) -> None:
    """What a tree could smuggle past us, git refuses to put into an index."""
    repository = made(tmp_path / "r")
    door = GitRepository(repository, tmp_path / "state")
    blob = git(repository, "rev-parse", "HEAD:README.md")
    await door.look()
    index = {"GIT_INDEX_FILE": str(tmp_path / "index")}
    door._git.run("update-index", "--add", "--cacheinfo", f"100644,{blob},.gitx/config", extra=index)
    for name in (".GIT/config", "git~1/config", ".gi\u200ct/config", ".git./config", "sub/.Git::$INDEX_ALLOCATION/x"):
        with pytest.raises(Failed, match=r"Invalid path|cannot add"):
            door._git.run("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", extra=index)
