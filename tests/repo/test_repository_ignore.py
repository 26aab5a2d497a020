"""What `.gitignore` leaves out, decided by us and by git, is the same."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from holdfast.repo.plumbing.ignore import Ignoring
from tests.repo.repositories import PATH, git

PIECES = (
    "a", "b", "ab", "*", "?", "**", "a*", "*b", "[ab]", "[!a]", "[^b]", "[a-b]", "[[:alpha:]]", "\\a", "\\*", ".x",
    "***", "a**b", "[]a]", "[a", "\\", " ", "c ", "\\ ", "[a-]", "[--b]", "#", "!", "\\#", "\\!", "[[:nope:]]", "[!]a]",
    "[\\]a]",
)  # fmt: skip
NAMES = ("a", "b", "ab", "aab", "c", ".x", "c ", "*", "#", "!", "]", "-", "[a", "a b", " ")


def line(chance: random.Random) -> str:
    parts = ["".join(chance.choices(PIECES, k=chance.choice((1, 1, 1, 2)))) for _ in range(chance.choice((1, 1, 2, 3)))]
    return chance.choice(("", "", "!", "/")) + "/".join(parts) + chance.choice(("", "", "", "/", " ", "\r", "\\ "))


def path(chance: random.Random) -> str:
    return "/".join(chance.choices(NAMES, k=chance.choice((1, 2, 2, 3))))


def left_out(ignoring: Ignoring, name: str) -> bool:
    parts = name.encode().split(b"/")
    above = [b"/".join(parts[:end]) for end in range(1, len(parts))]
    return any(ignoring.leaves_out(each, folder=True) for each in above) or ignoring.leaves_out(
        name.encode(), folder=False
    )


def test_git_says_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    asked = ignored = 0
    git(tmp_path, "init", "-q")
    for turn in range(150):
        files = {
            where: "\n".join(line(chance) for _ in range(chance.randrange(1, 6))).encode() + chance.choice((b"\n", b""))
            for where in (".gitignore", "a/.gitignore", "a/b/.gitignore")
            if where == ".gitignore" or chance.random() < 0.4
        }
        if turn == 0:
            files = {".gitignore": b"/b[!x]a\n/c[+-9]b\n"}  # no class holds a slash
        for where in (".gitignore", "a/.gitignore", "a/b/.gitignore"):
            (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / where).write_bytes(files.get(where, b""))
        names = sorted(({path(chance) for _ in range(60)} | {"b/a", "c/b", "bba"}) - {"a", "a/b"})  # those are folders
        said = subprocess.run(
            ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join(names).encode(),
            capture_output=True,
            check=False,
            env={"PATH": PATH, "HOME": "/nonexistent"},
        )
        assert said.returncode in (0, 1), said.stderr
        theirs = set(said.stdout.decode().split("\0")) - {""}
        ignoring = Ignoring({where.encode(): data for where, data in files.items()})
        ours = {name for name in names if left_out(ignoring, name)}
        assert ours == theirs, (files, ours ^ theirs)
        asked, ignored = asked + len(names), ignored + len(theirs)
    assert asked > 5_000
    assert 0.1 < ignored / asked < 0.9
