"""Libraries and test dependencies are fetched, and nothing of them is run."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.proof.rebuild.library import (
    DEFAULT_LIBRARY,
    KNOWN,
    Library,
    clean_copy,
    install_test_dependencies,
    open_library,
    parse_pin,
    prepare_workspace,
)
from tests.proof.made_library import FILES, write_sdist

PYTHON = sys.executable


TRAP = "import pathlib; pathlib.Path(r'{marker}').touch()\n"


def test_fetching_executes_nothing_of_the_package(index: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    trap = TRAP.format(marker=marker)
    traps = {
        "setup.py": trap,
        "backend.py": trap,
        "made/__init__.py": trap,
        "conftest.py": trap,
        "sitecustomize.py": trap,
    }
    write_sdist(index, {**FILES, **traps})
    library = open_library("made==1.2.3", tmp_path / "cache", python=PYTHON)
    prepare_workspace(library, tmp_path / "ws")
    clean_copy(library, tmp_path / "ws", tmp_path / "clean")
    assert not marker.exists()
    # The trap is live: pip's own download springs it.
    subprocess.run(
        [PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "made==1.2.3"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    assert marker.exists()


def test_the_archive_is_kept_by_its_digest_and_a_damaged_one_fetched_again(index: Path, tmp_path: Path) -> None:
    source = write_sdist(index)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    cache = tmp_path / "cache"
    library = open_library("made==1.2.3", cache, python=PYTHON)
    assert (library.sha256, library.archive.name) == (sha256, f"made-1.2.3.{sha256}.tar.gz")
    library.archive.write_bytes(b"damaged")
    assert open_library("made==1.2.3", cache, python=PYTHON).sha256 == sha256
    assert hashlib.sha256(library.archive.read_bytes()).hexdigest() == sha256
    source.unlink()
    again = open_library("made==1.2.3", cache, python="/nonexistent/python")
    assert again.sha256 == sha256
    assert sorted(path.name for path in (cache / "sdists").iterdir()) == [library.archive.name]


def test_a_known_version_with_other_bytes_is_thrown_away(index: Path, tmp_path: Path) -> None:
    name, version = parse_pin(DEFAULT_LIBRARY)
    write_sdist(index, name=name, version=version)
    with pytest.raises(CannotRunSafely, match=f"not the known {KNOWN[DEFAULT_LIBRARY].sha256}") as caught:
        open_library(DEFAULT_LIBRARY, tmp_path / "cache", python=PYTHON)
    assert caught.value.exit_code == 5
    assert list((tmp_path / "cache" / "sdists").iterdir()) == []


@pytest.mark.parametrize("pin", ["", "made", "made=1", "made==", "==1", "made>=1", "made==1 x", "-e==1", "../x==1"])
def test_a_pin_is_name_and_version(pin: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--library {DEFAULT_LIBRARY}"):
        open_library(pin, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_said(index: Path, tmp_path: Path) -> None:
    write_sdist(index)
    write_sdist(index, version="1.10.0")
    with pytest.raises(UsageError, match=r"distribution \(\.tar\.gz\) of made 9; the newest are 1\.10\.0, 1\.2\.3"):
        open_library("made==9", tmp_path / "cache", python=PYTHON)
    with pytest.raises(UsageError, match="named 'absent'"):
        open_library("absent==1", tmp_path / "cache", python=PYTHON)
    with pytest.raises(UsageError, match=r"has no module 'x\.py'; it has made/__init__\.py, made/shapes\.py"):
        open_library("made==1.2.3", tmp_path / "cache", python=PYTHON, module="x.py")


def test_an_index_that_does_not_answer_is_no_fault_of_the_user(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "0")
    # Nothing listens on the discard port of this machine.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(CannotRunSafely, match=r"made 1\.2\.3 could not be fetched: .*127\.0\.0\.1"):
        open_library("made==1.2.3", tmp_path / "cache", python=PYTHON)


def test_an_interpreter_that_is_not_there_is_named(library: Library, tmp_path: Path) -> None:
    with pytest.raises(CannotRunSafely, match="/nonexistent/python"):
        install_test_dependencies(library, tmp_path / "cache", python="/nonexistent/python")


def write_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text.encode())}\n"
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


def test_dependencies_come_from_wheels_once_and_anyone_may_read_them(
    library: Library, index: Path, tmp_path: Path
) -> None:
    write_wheel(index, "helper", "1.0", "Requires-Dist: deeper\n")
    write_wheel(index, "deeper", "2.0")
    needs = msgspec.structs.replace(library, requirements=("helper",))
    old = os.umask(0o077)
    try:
        folder = install_test_dependencies(needs, tmp_path / "cache", python=PYTHON)
    finally:
        os.umask(old)
    assert folder.parent == tmp_path / "cache" / "testdeps"
    script = "import helper, deeper, importlib.metadata as m; print(helper.VERSION, deeper.VERSION, m.version('made'))"
    done = subprocess.run([PYTHON, "-c", script], env={"PYTHONPATH": str(folder)}, capture_output=True, check=True)
    assert done.stdout == b"1.0 2.0 1.2.3\n"
    for path in [tmp_path / "cache", folder.parent, folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o044 == 0o044, path
    for wheel in index.glob("*.whl"):
        wheel.unlink()
    assert install_test_dependencies(needs, tmp_path / "cache", python=PYTHON) == folder
    other = msgspec.structs.replace(needs, requirements=("helper", "deeper"))
    with pytest.raises(CannotRunSafely, match="helper, deeper could not be installed from wheels"):
        install_test_dependencies(other, tmp_path / "cache", python=PYTHON)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_dependency_without_a_wheel_is_refused_and_never_built(library: Library, index: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    trap = TRAP.format(marker=marker)
    info = "Metadata-Version: 2.1\nName: sourceonly\nVersion: 1\n"
    write_sdist(
        index, {"PKG-INFO": info, "pyproject.toml": FILES["pyproject.toml"], "backend.py": trap}, "sourceonly", "1"
    )
    needs = msgspec.structs.replace(library, requirements=("sourceonly",))
    with pytest.raises(CannotRunSafely, match="sourceonly"):
        install_test_dependencies(needs, tmp_path / "cache", python=PYTHON)
    assert not marker.exists()
    assert list((tmp_path / "cache" / "testdeps").iterdir()) == []
