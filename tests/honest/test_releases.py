"""Releases as hand-ins, on a small repository with tags; `python -m tests.honest.releases` takes real libraries."""

from __future__ import annotations

from pathlib import Path

from tests.honest.library import BASE
from tests.honest.releases import Counted, is_addition, measure
from tests.repo.repositories import git, made, put

SUITE = "tests/test_knots.py"


async def test_releases_are_counted_and_nothing_honest_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "clones" / "harbor", {path: text.encode() for path, text in BASE.items()})
    git(folder, "tag", "v1.0")
    release(
        folder,
        "v1.1",
        {SUITE: BASE[SUITE] + "\n\ndef test_new():\n    assert bend('a')\n", "src/harbor/cli.py": "x = 1\n"},
    )
    release(
        folder, "v1.10", {SUITE: BASE[SUITE].replace("14", "15"), "src/harbor/cli.py": "import os\n\nos._exit(0)\n"}
    )
    found = await measure(tmp_path / "clones")
    assert found["harbor"] == Counted(
        releases=2, product=2, additions=1, other_tests=1, product_refused=[], additions_refused=[], others_refused=1
    )


def release(folder: Path, tag: str, files: dict[str, str]) -> None:
    put(folder, {path: text.encode() for path, text in files.items()})
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", tag)
    git(folder, "tag", tag)


def test_an_addition_is_told_by_its_lines() -> None:
    old = BASE[SUITE].encode()
    assert is_addition(SUITE, old, old + b"\n\ndef test_new():\n    assert 1\n")
    assert is_addition("tests/test_other.py", None, b"def test_a(): ...\n")
    assert not is_addition(SUITE, old, old.replace(b"14", b"15"))
    assert not is_addition(SUITE, old, old.replace(b"def test_rope", b"@pytest.mark.skip\ndef test_rope"))
    assert not is_addition("tests/conftest.py", None, b"x = 1\n")
