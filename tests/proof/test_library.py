"""A library with a hole: what the agent gets, what the judge runs, and what its suite says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import CannotRunSafely, HoldfastError, UsageError
from holdfast.proof.rebuild.library import (
    DEFAULT_LIBRARY,
    Library,
    SuiteCounts,
    clean_copy,
    install_test_dependencies,
    open_library,
    parse_counts,
    prepare_workspace,
    read_plain,
    restored,
    suite_command,
)
from holdfast.proof.rebuild.tree import write_tree
from tests.proof.made_library import FILES, MODULE, STRIPPED_NAMES

PYTHON = sys.executable


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_workspace_is_the_published_tree_with_a_hole(library: Library, tmp_path: Path) -> None:
    manifest = prepare_workspace(library, tmp_path / "ws")
    files = files_of(tmp_path / "ws")
    assert library.module == "made/shapes.py"
    assert set(files) == set(FILES)
    assert {path for path, data in files.items() if data != FILES[path].encode()} == {"made/shapes.py"}
    assert set(manifest.functions()) == STRIPPED_NAMES
    assert (manifest.tests, manifest.quick_tests) == (("tests",), ("tests/test_shapes.py",))
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=type(manifest)) == manifest
    assert restored(manifest, tmp_path / "ws") == ()
    (tmp_path / "ws" / library.module).write_text(MODULE)
    assert restored(manifest, tmp_path / "ws") == (library.module,)


def test_nothing_is_written_into_a_folder_that_holds_something(library: Library, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        prepare_workspace(library, tmp_path / "ws")
    assert files_of(tmp_path / "ws") == {"mine": b"mine"}


def test_the_judge_gets_the_work_and_nothing_else_of_the_workspace(library: Library, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    prepare_workspace(library, ws)
    (ws / "made/shapes.py").write_text("# the work\n")
    (ws / "tests/test_shapes.py").write_text("def test_nothing(): pass\n")
    (ws / "conftest.py").write_text("raise SystemExit(0)\n")
    (ws / "made/__init__.py").write_text("")
    assert clean_copy(library, ws, tmp_path / "clean") == ("made/shapes.py",)
    expected = {**{path: text.encode() for path, text in FILES.items()}, "made/shapes.py": b"# the work\n"}
    assert files_of(tmp_path / "clean") == expected


@pytest.mark.parametrize("trick", ["link", "parent", "pipe", "folder", "absent", "huge"])
def test_what_is_no_plain_file_is_not_taken(trick: str, library: Library, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    prepare_workspace(library, ws)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "shapes.py").write_text("secret")
    work = ws / "made/shapes.py"
    work.unlink()
    if trick == "link":
        work.symlink_to(secret / "shapes.py")
    elif trick == "parent":
        (ws / "made").rename(ws / "elsewhere")
        (ws / "made").symlink_to(secret)
    elif trick == "pipe":
        os.mkfifo(work)
    elif trick == "folder":
        work.mkdir()
    elif trick == "huge":
        with open(work, "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(HoldfastError, match=r"made/shapes\.py"):
        clean_copy(library, ws, tmp_path / "clean")
    assert not (tmp_path / "clean").exists()


def test_reading_plain_leaves_no_descriptor_open(library: Library, tmp_path: Path) -> None:
    prepare_workspace(library, tmp_path / "ws")
    before = sorted(os.listdir("/proc/self/fd"))
    read_plain(tmp_path / "ws", "made/shapes.py")
    with pytest.raises(HoldfastError):
        read_plain(tmp_path / "ws", "made/absent.py")
    assert sorted(os.listdir("/proc/self/fd")) == before


def run_suite(library: Library, folder: Path, dependencies: Path | str, python: str) -> tuple[int, SuiteCounts]:
    command = suite_command(library, dependencies=str(dependencies), python=python)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert not list(folder.rglob("__pycache__"))
    assert not (folder / ".pytest_cache").exists()
    return done.returncode, parse_counts(done.stdout)


def test_the_suite_fails_with_the_hole_and_passes_when_it_is_mended(library: Library, tmp_path: Path) -> None:
    ws = tmp_path / "a workspace"
    prepare_workspace(library, ws)
    # The interpreter of these tests has pytest itself.
    assert run_suite(library, ws, tmp_path, PYTHON) == (1, SuiteCounts(failed=2))
    (ws / library.module).write_text(MODULE)
    clean_copy(library, ws, tmp_path / "clean")
    assert run_suite(library, tmp_path / "clean", tmp_path, PYTHON) == (0, SuiteCounts(passed=2))


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("....\n219 passed in 2.33s\n", SuiteCounts(219)),
        ("== 1 failed, 2 passed, 3 skipped, 4 errors in 0.10s ==\n", SuiteCounts(2, 1, 4, 3)),
        ("1 error in 0.08s\n", SuiteCounts(errors=1)),
        ("5 passed in 1s\nno tests ran in 0.01s\n", SuiteCounts(5)),
        ("Killed\n", SuiteCounts()),
        ("", SuiteCounts()),
    ],
)
def test_the_closing_line_is_counted(output: str, counts: SuiteCounts) -> None:
    assert parse_counts(output) == counts


@pytest.mark.faults
def test_tinydb_itself(tmp_path: Path) -> None:
    """The default of the demonstration, from the real index, with its own suite."""
    cache = tmp_path / "cache"
    try:
        library = open_library(DEFAULT_LIBRARY, cache)
        dependencies = install_test_dependencies(library, cache)
    except CannotRunSafely as error:
        pytest.skip(f"tinydb or its test dependencies cannot be had here: {error}")
    ws = tmp_path / "ws"
    manifest = prepare_workspace(library, ws)
    python = "/usr/bin/python3"
    status, counts = run_suite(library, ws, dependencies, python)
    assert (status, counts.passed, counts.failed) == (1, 99, 120)
    text = (ws / library.module).read_text()
    for block in reversed(manifest.blocks):
        assert text.count(block.stub) == 1
        text = text.replace(block.stub, block.true)
    (ws / library.module).write_text(text)
    assert restored(manifest, ws) == (library.module,)
    clean_copy(library, ws, tmp_path / "clean")
    assert run_suite(library, tmp_path / "clean", dependencies, python) == (0, SuiteCounts(library.tests_passed or 0))
    write_tree(library.tree, tmp_path / "published")
    assert files_of(tmp_path / "published") == files_of(tmp_path / "clean")
