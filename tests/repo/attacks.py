"""What a hostile workspace tries on those who snapshot it. Each returns when it got nowhere.

Run by `test_attacks` as the tests' user, and by `user_driver` as an ordinary one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from holdfast.repo.base import Kept, shown
from holdfast.repo.snapshot_store import ShadowShelf
from holdfast.repo.walk import MAX_DEPTH, MAX_OPEN
from holdfast.testing.repo import refused
from tests.repo.rigs import fresh, picture
from tests.support.waiting import PATIENCE_S


def run(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a program to its end."""
    subprocess.run(command, check=True, env=env)


SECRET = b"the secret of the host, which no snapshot may hold"


FOLDERS = 30
SWAP = f"""
import os, sys
mine = os.getppid()
base = sys.argv[1]
os.chdir(base)
os.mkdir("aside")
open("plain", "w").close()
def flip():
    for _ in range(30):
        os.symlink(base + "/outside/secret", "link")
        os.rename("link", "work/file")
        os.link("plain", "again")
        os.rename("again", "work/file")
names = [f"{{number:02}}" for number in range({FOLDERS})]
print("go", flush=True)
while os.getppid() == mine:
    for name in names:
        os.rename("work/" + name, "aside/" + name)
        os.symlink(base + "/outside", "work/" + name)
    flip()
    for name in names:
        os.unlink("work/" + name)
        os.rename("aside/" + name, "work/" + name)
    flip()
"""
FIFO = """
import os, sys
mine = os.getppid()
os.chdir(sys.argv[1])
open("plain", "w").close()
print("go", flush=True)
while os.getppid() == mine:
    os.mkfifo("fifo")
    os.rename("fifo", "work/x")
    os.link("plain", "again")
    os.rename("again", "work/x")
"""


@contextmanager
def meanwhile(program: str, ground: Ground) -> Iterator[None]:
    """Another process runs that program beside the block; it does not share our interpreter lock."""
    other = subprocess.Popen([sys.executable, "-c", program, str(ground.base)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"go\n"
        yield
        assert other.poll() is None, "the other process ended by itself"
    finally:
        other.kill()
        other.communicate()


class Ground:
    """A workspace, a shelf, and a folder of the host beside them with a secret in it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.work = base / "work"
        self.work.mkdir()
        self.outside = base / "outside"
        (self.outside / "deep").mkdir(parents=True)
        for name in ("secret", "deep/secret"):
            (self.outside / name).write_bytes(SECRET)
        self.ran = base / "ran"
        self.shelf = ShadowShelf(base / "snapshots")

    def program(self, name: str) -> str:
        """A program in the workspace that leaves a trace on the host."""
        path = self.work / name
        path.write_text(f"#!/bin/sh\necho ran >> {self.ran}\ncat\n")
        path.chmod(0o755)
        return str(path)

    async def round_trip(self) -> tuple[Kept, Path]:
        """Keep the workspace, restore it beside; returns the copy."""
        kept = await self.shelf.keep("ses_a", self.work, 1)
        copy = fresh(self.base / "copy")
        await self.shelf.restore(kept.snapshot, copy)
        return kept, copy

    def secret_in(self, folder: Path) -> list[Path]:
        """Files and links below a folder through which the secret can be read, links not followed."""
        return [
            path
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
            if SECRET in path.read_bytes()
        ]


async def configuration_of_git(ground: Ground) -> None:
    """Filters, hooks, monitors, drivers and includes of a repository in the workspace, and around it."""
    program = ground.program("run")
    work = ground.work
    env = {"PATH": "/usr/bin:/bin", "HOME": str(work), "GIT_CONFIG_NOSYSTEM": "1"}
    settings = {
        "filter.x.clean": program,
        "filter.x.smudge": program,
        "filter.x.process": program,
        "filter.x.required": "true",
        "core.fsmonitor": program,
        "core.hooksPath": str(work / "hooks"),
        "core.pager": program,
        "core.editor": program,
        "core.sshCommand": program,
        "core.gitProxy": program,
        "diff.external": program,
        "diff.x.textconv": program,
        "merge.x.driver": program,
        "gc.recentObjectsHook": program,
        "pack.packSizeLimit": "1",
        "uploadpack.packObjectsHook": program,
        "include.path": str(work / "more"),
    }
    run(["git", "init", "-q", str(work)], env)
    for name, value in settings.items():
        run(["git", "-C", str(work), "config", name, value], env)
    shutil.copy(work / ".git" / "config", work / ".gitconfig")
    for name in (".gitattributes", "sub/.gitattributes"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("* filter=x diff=x merge=x text eol=crlf ident working-tree-encoding=utf-16\n")
    (work / "hooks").mkdir()
    for name in ("pre-auto-gc", "post-index-change", "reference-transaction", "post-checkout"):
        shutil.copy(program, work / "hooks" / name)
        shutil.copy(program, work / ".git" / "hooks" / name)
    (work / "sub" / "file").write_bytes(b"$Id$\r\nline\nline\r\n\x00")
    kept, copy = await ground.round_trip()
    expected = {path: what for path, what in picture(work).items() if path.split(b"/")[0] != b".git"}
    assert picture(copy) == expected
    (work / "sub" / "file").write_bytes(b"other")
    again = await ground.shelf.keep("ses_a", work, 2)
    assert len(await ground.shelf.changes(kept.snapshot, again.snapshot)) == 1
    await ground.shelf.tidy()
    assert not ground.ran.exists(), "the host ran a program of the workspace"


async def submodules_and_repositories_inside(ground: Ground) -> None:
    """Gitlinks, nested repositories, `.gitmodules` with a command: a repository is a folder of files."""
    nested = ground.work / "nested"
    nested.mkdir()
    (nested / "file").write_text("x")
    (nested / ".git").symlink_to(ground.outside)
    linked = ground.work / "linked"
    linked.mkdir()
    (linked / ".git").write_text(f"gitdir: {ground.outside}\n")
    (linked / "file").write_text("y")
    (ground.work / ".gitmodules").write_text(
        '[submodule "x"]\n\tpath = nested\n\tupdate = !touch ran\n\turl = ext::x\n'
    )
    _, copy = await ground.round_trip()
    assert set(picture(copy)) == {b".gitmodules", b"nested", b"nested/file", b"linked", b"linked/file"}


async def links_to_the_host(ground: Ground) -> None:
    """Links are kept as links: to files, to folders, to nothing, to themselves, through `..`."""
    (ground.work / "in").mkdir()
    links: dict[str, str | Path] = {
        "file": ground.outside / "secret",
        "folder": ground.outside,
        "in/up": "../../outside/secret",
        "none": "/no/such/file",
        "self": "self",
        "proc": "/proc/self/root",
        "passwd": "/etc/passwd",
    }
    for name, target in links.items():
        (ground.work / name).symlink_to(target)
    _, copy = await ground.round_trip()
    assert picture(copy) == picture(ground.work)
    assert [os.readlink(copy / name) for name in links] == [str(target) for target in links.values()]
    assert ground.secret_in(copy) == []


async def a_folder_that_becomes_a_link_meanwhile(ground: Ground) -> None:
    """Another process swaps folders, and a file, for links to the host as fast as it can."""
    for number in range(FOLDERS):
        (ground.work / f"{number:02}").mkdir()
        (ground.work / f"{number:02}" / "secret").write_bytes(b"mine")
    names = set()
    with meanwhile(SWAP, ground):
        for seq in range(80):
            names.add((await ground.shelf.keep("ses_a", ground.work, seq)).snapshot)
    assert len(names) > 1, "no snapshot saw a swap: the race was not run"
    for name in names:
        copy = fresh(ground.base / "copy")
        await ground.shelf.restore(name, copy)
        assert ground.secret_in(copy) == []


async def what_is_no_file(ground: Ground) -> None:
    """A FIFO that nobody writes to, a socket, a folder of FIFOs: named, and never waited for."""
    os.mkfifo(ground.work / "fifo")
    (ground.work / "in").mkdir()
    os.mkfifo(ground.work / "in" / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(ground.work)  # the path of a socket has 107 bytes at most
        try:
            sock.bind("sock")
        finally:
            os.chdir(here)
        (ground.work / "plain").write_text("x")
        kept, copy = await ground.round_trip()
    found = {each.path: each.why for each in kept.skipped}
    assert found == {"fifo": "a FIFO", "in/fifo": "a FIFO", "sock": "a socket"}
    assert kept.skipped_total == 3
    assert set(picture(copy)) == {b"plain", b"in"}


async def a_file_that_becomes_a_fifo_meanwhile(ground: Ground) -> None:
    """A keep that opened the FIFO to read would wait for ever."""
    with meanwhile(FIFO, ground), anyio.fail_after(PATIENCE_S):
        for seq in range(200):
            await ground.shelf.keep("ses_a", ground.work, seq)


async def names_that_git_refuses(ground: Ground) -> None:
    """Names are bytes: what looks like `.git`, what is no text, what has a line in it, what is very long."""
    odd = [b".GIT", b".Git", b"git~1", b".git ", b".git.", b".git::$INDEX_ALLOCATION", b".g\xe2\x80\x8cit", b"a\\.git"]
    names = [
        b"a\\b",
        b".gitignore",
        b"git~2",
        b"\xff\xfe",
        b"new\nline",
        b"tab\t",
        b"-rf",
        b"--help",
        b"HEAD",
        b" ",
        b"x" * 255,
        b'"',
        b"a.",
        b"a",
        b"a-",
    ]
    for name in [*names, *odd]:
        path = os.path.join(os.fsencode(ground.work), name)
        os.mkdir(path)
        Path(os.fsdecode(os.path.join(path, name))).write_bytes(name)
    kept, copy = await ground.round_trip()
    assert sorted((each.path, each.why) for each in kept.skipped) == sorted(
        (shown(name), "taken for .git by other systems") for name in odd
    )
    for name in odd:
        shutil.rmtree(os.path.join(os.fsencode(ground.work), name))
    assert picture(copy) == picture(ground.work)
    assert kept.files == len(names)
    os.unlink(os.path.join(os.fsencode(ground.work), b"\xff\xfe", b"\xff\xfe"))
    after = await ground.shelf.keep("ses_a", ground.work, 2)
    changes = await ground.shelf.changes(kept.snapshot, after.snapshot)
    assert [(each.path, each.kind) for each in changes] == [("\\xff\\xfe/\\xff\\xfe", "removed")]


async def folders_nested_deep(ground: Ground) -> None:
    """A chain of folders that no path can name is kept; one that is far deeper, or forked, is refused."""

    def dig(levels: int, beside: bool) -> None:
        fd = os.open(ground.work, os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(levels):
            os.mkdir("d", dir_fd=fd)
            if beside:
                os.mkdir("a", dir_fd=fd)
            below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)

    def clear() -> None:
        run(["rm", "-rf", str(ground.work)])
        ground.work.mkdir()

    dig(MAX_DEPTH - 2, beside=False)
    kept, copy = await ground.round_trip()
    assert kept.files == 1
    again = await ground.shelf.keep("ses_b", copy, 1)
    assert again.snapshot == kept.snapshot
    before = len(os.listdir("/proc/self/fd"))
    for levels, beside in ((MAX_DEPTH + 1, False), (2 * MAX_OPEN + 10, True)):
        clear()
        dig(levels, beside)
        assert "nested too deep" in await refused(ground.shelf.keep("ses_a", ground.work, 2))
    run(["rm", "-rf", str(ground.work), str(copy)])
    assert len(os.listdir("/proc/self/fd")) == before, "folders were left open"


async def modes(ground: Ground) -> None:
    """Permission bits come back, set-user-id does not; what cannot be read is named."""
    for mode in (0o600, 0o644, 0o755, 0o444, 0o400, 0o700, 0o664):
        file = ground.work / f"file{mode:o}"
        file.write_text("x")
        file.chmod(mode)
    for mode in (0o700, 0o755, 0o500, 0o555):
        folder = ground.work / f"folder{mode:o}"
        folder.mkdir()
        (folder / "in").write_text("x")
        folder.chmod(mode)
    (ground.work / "empty").mkdir()
    (ground.work / "empty").chmod(0o711)
    bits = ground.work / "setuid"
    bits.write_text("x")
    bits.chmod(0o755)
    without = await ground.shelf.keep("ses_b", ground.work, 1)
    bits.chmod(0o6755)
    kept, copy = await ground.round_trip()
    assert kept.snapshot == without.snapshot
    expected = picture(ground.work)
    expected[b"setuid"] = ("-rwxr-xr-x", expected[b"setuid"][1])
    assert picture(copy) == expected
    assert kept.skipped == ()


async def what_cannot_be_read(ground: Ground) -> None:
    """As root a file without permissions is kept; an ordinary user cannot, and is told so."""
    closed = ground.work / "closed"
    closed.write_text("x")
    closed.chmod(0)
    folder = ground.work / "folder"
    folder.mkdir()
    (folder / "in").write_text("x")
    folder.chmod(0o400)  # its names can be read, and nothing else
    (ground.work / "hidden").mkdir()
    (ground.work / "hidden").chmod(0)
    kept, copy = await ground.round_trip()
    folder.chmod(0o700)
    if os.geteuid() == 0:
        assert kept.skipped == ()
        assert (copy / "closed").stat().st_mode & 0o777 == 0
        return
    found = {each.path: each.why for each in kept.skipped}
    assert found == {"closed": "not readable", "folder/in": "not readable", "hidden": "not readable"}
    (copy / "folder").chmod(0o700)
    assert set(picture(copy)) == {b"folder"}


ATTACKS: dict[str, Callable[[Ground], Awaitable[None]]] = {
    attack.__name__: attack
    for attack in (
        configuration_of_git,
        submodules_and_repositories_inside,
        links_to_the_host,
        a_folder_that_becomes_a_link_meanwhile,
        what_is_no_file,
        a_file_that_becomes_a_fifo_meanwhile,
        names_that_git_refuses,
        folders_nested_deep,
        modes,
        what_cannot_be_read,
    )
}
