"""`holdfast demo --cluster`: real workers on a real PostgreSQL, one of them killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.app.terminal import Type, typed

HERE = shutil.which("initdb") or sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.mark.skipif(not HERE, reason="the programs of PostgreSQL are not installed: apt install postgresql")
def test_workers_share_a_log_and_one_of_them_is_killed() -> None:
    said = typed("demo", "--cluster", "2", "--json").went()
    result = json.loads(said.out.splitlines()[-1])
    assert result["ok"]
    assert (result["sessions"], result["done"], result["right"]) == (4, 4, 4)
    assert result["killed_with"] >= 1
    assert result["verifies"]
    assert any("killed" in line for line in said.err.splitlines())


@pytest.mark.parametrize("words", [("--cluster", "1"), ("--cluster", "3", "--mission"), ("--cluster", "99")])
def test_a_wrong_cluster_starts_nothing(type: Type, words: tuple[str, ...]) -> None:
    type("demo", *words).refused(2, "--cluster")


def test_a_folder_with_files_is_not_used(type: Type, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    type("demo", "--cluster", "2", "--keep", tmp_path).refused(2, "is not empty")
    assert [each.name for each in tmp_path.iterdir() if each.name == "mine"] == ["mine"]
