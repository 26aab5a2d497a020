"""The scripts around the project: what they do on a machine that lacks something."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.source import ROOT

BASICS = ("sh", "bash", "dirname", "cat", "cut", "tail", "grep", "tee", "mktemp", "rm", "make", "flock", "env", "git")


def copy_of(script: str, folder: Path) -> Path:
    """The script in a project of its own, so that the real .venv is left alone."""
    target = folder / "project" / script
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / script, target)
    return target


def machine(folder: Path, uid: int, **commands: str) -> dict[str, str]:
    """The environment of a machine with few commands, some of them ours."""
    place = folder / "bin"
    place.mkdir()
    for name in BASICS:
        if found := shutil.which(name):
            (place / name).symlink_to(found)
    for name, text in {"id": f"echo {uid}", **commands}.items():
        (place / name.replace("_", "-")).write_text(f"#!/bin/sh\n{text}\n")
        (place / name.replace("_", "-")).chmod(0o755)
    return {"PATH": str(place), "HOME": str(folder)}


def run(script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run it from another folder, with nothing to read."""
    return subprocess.run(
        [script], env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_setup_names_the_command_when_it_may_not_install(tmp_path: Path) -> None:
    done = run(copy_of("scripts/setup", tmp_path), machine(tmp_path, uid=1000))
    assert done.returncode == 5
    assert "sudo apt-get update && sudo apt-get install -y bubblewrap" in done.stderr
    assert not (tmp_path / "project" / ".venv").exists()


def test_setup_names_the_command_of_another_system(tmp_path: Path) -> None:
    done = run(copy_of("scripts/setup", tmp_path), machine(tmp_path, uid=1000, dnf="exit 0"))
    assert done.returncode == 5
    assert "sudo dnf install -y bubblewrap" in done.stderr


def test_setup_says_so_when_the_installation_fails(tmp_path: Path) -> None:
    broken = "echo the mirror is away; exit 100"
    done = run(copy_of("scripts/setup", tmp_path), machine(tmp_path, uid=0, apt_get=broken))
    assert done.returncode == 5
    assert "the mirror is away" in done.stderr
    assert "could not install bubblewrap" in done.stderr


def test_setup_installs_what_is_missing_and_only_that(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    apt = f'echo "$@" >> {noted}; case "$1" in update) exit 0;; esac; exit 100'
    run(copy_of("scripts/setup", tmp_path), machine(tmp_path, uid=0, apt_get=apt, strace="exit 0"))
    update, install = noted.read_text().splitlines()
    assert update.startswith("update")
    assert install.split()[install.split().index("--no-install-recommends") + 1 :][0] == "bubblewrap"
    assert "strace" not in install
    assert " git" not in install


def test_programs_of_tests_that_cannot_be_had_are_named_once(tmp_path: Path) -> None:
    script, noted = copy_of("scripts/test_programs", tmp_path), tmp_path / "noted"
    here = machine(tmp_path, uid=1000, apt_get=f'echo "$@" >> {noted}; exit 100', mkdir='exec /bin/mkdir "$@"')
    done = run(script, here)
    assert (done.returncode, done.stdout) == (0, "")
    for name in ("chromium", "nginx", "axe-core"):
        assert f"tests: {name}" in done.stderr
    assert "install" not in noted.read_text(), "only root may install"
    assert run(script, here).stderr == ""


def test_programs_of_tests_are_installed_where_they_may_be(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    here = machine(tmp_path, uid=0, apt_get=f'echo "$@" >> {noted}', mkdir='exec /bin/mkdir "$@"', nginx="exit 0")
    done = run(copy_of("scripts/test_programs", tmp_path), here)
    assert done.returncode == 0
    calls = noted.read_text().splitlines()
    assert [line.split()[0] for line in calls[:2]] == ["update", "install"]
    assert calls[1].split()[-2:] == ["chromium", "fonts-dejavu-core"]
    assert {line.split()[0] for line in calls[2:]} <= {"update", "download"}, "what would start a server is unpacked"
    assert "nginx" not in done.stderr


@pytest.mark.parametrize(
    ("tests", "good"),
    [
        ("echo '=== 3 passed in 0.10s ==='", True),
        ("echo '=== 3 passed, 1 skipped in 0.10s ==='", True),
        ("echo '=== no tests ran in 0.01s ==='", False),
        ("echo '=== 3 deselected in 0.01s ==='", False),
        ("echo '=== 1 failed, 3 passed in 0.10s ==='; exit 1", False),
        ("true", False),
    ],
)
def test_ci_passes_only_on_tests_that_ran(tests: str, good: bool, tmp_path: Path) -> None:
    script = copy_of(".ci/run", tmp_path)
    (tmp_path / "project" / "Makefile").write_text(f"check:\n\t@echo checked\ntest:\n\t@{tests}\n")
    done = run(script, dict(os.environ))
    assert (done.returncode == 0) is good
    assert "checked" in done.stdout


def test_ci_stops_at_a_failed_check(tmp_path: Path) -> None:
    script = copy_of(".ci/run", tmp_path)
    (tmp_path / "project" / "Makefile").write_text("check:\n\t@exit 1\ntest:\n\t@echo 3 passed\n")
    done = run(script, dict(os.environ))
    assert done.returncode != 0
    assert "passed" not in done.stdout


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    for target in ("setup", "demo", "test", "check", "bench", "faults", "docs"):
        assert f"make {target} " in done.stdout


def test_each_defect_can_be_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    defects = importlib.import_module("defects")
    assert len(set(defects.where(ROOT, defects.DEFECTS))) > 20
    with pytest.raises(LookupError, match="'import' does not occur exactly once"):
        defects.where(ROOT, [defects.Defect("log", "import", "")])
