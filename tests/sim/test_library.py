"""Libraries with a hole: fetched without being run, stripped by position, put together for the judge."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CannotRunSafely, HoldfastError, UsageError
from holdfast.sim.library import (
    DEFAULT_LIBRARY,
    KNOWN,
    Library,
    SuiteCounts,
    clean_copy,
    install_test_dependencies,
    open_library,
    parse_counts,
    parse_pin,
    prepare_workspace,
    read_plain,
    restored,
    suite_command,
)
from holdfast.sim.library_strip import STUB, strip
from holdfast.sim.library_tree import layout, permissive_licence, read_archive, suite_requirements, write_tree
from tests.sim.made_library import FILES, MODULE, STRIPPED_NAMES, write_sdist

PYTHON = sys.executable


def only_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the only package index."""
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only package index of the test."""
    return only_index(tmp_path / "index", monkeypatch)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The made library, fetched once."""
    folder = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as monkeypatch:
        write_sdist(only_index(folder / "index", monkeypatch))
        return open_library("made==1.2.3", folder / "cache", python=PYTHON)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- stripping ---


def test_the_bodies_are_gone_and_everything_else_is_as_it_was() -> None:
    stripped, module, blocks = strip("made/shapes.py", MODULE.encode())
    assert {name for block in blocks for name in block.functions} == STRIPPED_NAMES
    assert stripped.decode().count(STUB) == len(STRIPPED_NAMES) + 1  # the setter's own
    assert module.true_sha256 == hashlib.sha256(MODULE.encode()).hexdigest()
    assert module.stripped_sha256 == hashlib.sha256(stripped).hexdigest()
    before, after = ast.parse(MODULE), ast.parse(stripped)
    assert _signatures(before) == _signatures(after)
    kept = [line for line in MODULE.split("\n") if line.startswith(("import", "from", "class", "    @", "    sides"))]
    assert [line for line in stripped.decode().split("\n") if line in kept] == kept


def _signatures(tree: ast.Module) -> list[tuple[str, str, str | None, int]]:
    nested = {"compute"}
    return [
        (node.name, ast.unparse(node.args), ast.get_docstring(node), len(node.decorator_list))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in nested
    ]


def test_what_declares_only_is_left_alone() -> None:
    stripped, _, _ = strip("shapes.py", MODULE.encode())
    for text in (
        "    def size(self) -> int: ...\n\n    def half(self) -> int:\n        return self.size() // 2\n",
        "    @abstractmethod\n    def area(self) -> int:\n        return self.side\n",
        "    def grow(self, by: int) -> int: ...\n    @overload\n",
        '        raise NotImplementedError("names are fixed")\n',
        "        def nothing(self) -> None:\n            pass\n",
    ):
        assert text in stripped.decode()


@pytest.mark.parametrize(
    ("true", "stub"),
    [
        ("def f(): return 1\n", f"def f(): {STUB}\n"),
        ("def f(): x = 1; return x\n", f"def f(): {STUB}\n"),
        ("def f():\n    # why\n\n    return 1\n", f"def f():\n    {STUB}\n"),
        ("def f():  # why\n    return 1  # so\n\n\nx = 2\n", f"def f():  # why\n    {STUB}\n\n\nx = 2\n"),
        (
            'def f():\n    """Doc.\n    # no comment"""\n    return 1\n',
            f'def f():\n    """Doc.\n    # no comment"""\n    {STUB}\n',
        ),
        ('def f():\n    "Doc."; return 1\n', f'def f():\n    "Doc."; {STUB}\n'),
        ("def f():\n\treturn 1\n", f"def f():\n\t{STUB}\n"),
        ("def f():\n    return 'ü', '''\nx\n'''\n", f"def f():\n    {STUB}\n"),
        ("def f():\n    @g\n    def h(): pass\n    return h", f"def f():\n    {STUB}"),
        ("async def f():\n    await g()\n", f"async def f():\n    {STUB}\n"),
        ("def f(): return (1,\n    2); x = 3  # so\n", f"def f(): {STUB}  # so\n"),
        (
            "try:\n    def f():\n        return 1\nexcept E:\n    def g():\n        return 1\n",
            f"try:\n    def f():\n        {STUB}\nexcept E:\n    def g():\n        {STUB}\n",
        ),
    ],
)
def test_shapes_of_bodies(true: str, stub: str) -> None:
    stripped, _, blocks = strip("f.py", true.encode())
    assert stripped.decode() == stub
    text = stub
    for block in blocks:
        assert text.count(block.stub) == 1
        text = text.replace(block.stub, block.true)
    assert text == true


@given(order=st.permutations(range(len(strip("m.py", MODULE.encode())[2]))))
def test_blocks_come_back_in_any_order_each_found_exactly_once(order: list[int]) -> None:
    stripped, _, blocks = strip("m.py", MODULE.encode())
    text = stripped.decode()
    for index in order:
        block = blocks[index]
        assert text.count(block.stub) == 1
        assert text.count(block.true) == 0
        text = text.replace(block.stub, block.true)
        assert text.count(block.true) == 1
    assert text == MODULE


def test_neighbours_that_look_alike_become_one_block_and_lines_are_told() -> None:
    stripped, _, blocks = strip("m.py", MODULE.encode())
    assert any(len(block.functions) > 1 for block in blocks)
    lines = stripped.decode().split("\n")
    for block in blocks:
        height = block.stub.count("\n") + 1
        assert "\n".join(lines[block.line - 1 : block.line - 1 + height]) == block.stub


@pytest.mark.parametrize(
    "data",
    [
        b"x = 1\n",
        b"def f(): ...\n",
        b"def f(:\n",
        b"def f():\r\n    return 1\r\n",
        b"\xef\xbb\xbfdef f(): return 1\n",
        b"# coding: latin-1\ndef f(): return '\xe4'\n",
        b"def f():\n    return 1\0\n",
    ],
)
def test_a_module_that_would_not_come_back_byte_for_byte_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"f\.py"):
        strip("f.py", data)


# --- the archive ---


def test_only_plain_files_inside_the_archive_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "x-1.tar.gz"
    with tarfile.open(path, "w:gz") as tar:

        def put(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, 2 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"ok") if kind == tarfile.REGTYPE else None)

        put("x-1/good.py")
        put("x-1/deep/good.py")
        put("x-1", tarfile.DIRTYPE)
        put("x-1/link", tarfile.SYMTYPE, "/etc/passwd")
        put("x-1/hard", tarfile.LNKTYPE, "x-1/good.py")
        put("x-1/pipe", tarfile.FIFOTYPE)
        put("x-1/../../up.py")
        put("/x-1/absolute.py")
        put("x-1/.git/config")
        put("x-1/__pycache__/good.pyc")
        put("x-1/other.pyc")
        put("top.py")
    assert set(read_archive(path)) == {"good.py", "deep/good.py"}


def test_a_broken_archive_is_named(tmp_path: Path, index: Path) -> None:
    whole = write_sdist(index).read_bytes()
    for name, data in (("empty", b""), ("words", b"no archive"), ("cut", whole[: len(whole) // 2])):
        path = tmp_path / f"{name}.tar.gz"
        path.write_bytes(data)
        with pytest.raises(UsageError, match=name):
            read_archive(path)


def test_permissions_do_not_depend_on_the_umask(library: Library, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        prepare_workspace(library, tmp_path / "ws")
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "ws").rglob("*")}
    assert (modes["tests"], modes["data"], modes["shapes.py"], modes["run.sh"]) == (0o755, 0o755, 0o644, 0o755)
    assert (tmp_path / "ws").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("licence", "good"),
    [
        ("License-Expression: MIT", True),
        ("License-Expression: (MIT OR Apache-2.0) AND BSD-3-Clause", True),
        ("License-Expression: MIT AND GPL-3.0-only", False),
        ("License-Expression: Apache-2.0 WITH LLVM-exception", False),
        ("Classifier: License :: OSI Approved :: BSD License", True),
        ("Classifier: License :: OSI Approved\nLicense: BSD", True),
        ("Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)", False),
        ("Classifier: License :: OSI Approved :: MIT License\nClassifier: License :: Other/Proprietary License", False),
        ("License: MIT License", True),
        ("License: Apache License, Version 2.0", True),
        ("License: proprietary", False),
        ("Summary: nothing said", False),
    ],
)
def test_only_permissive_licences(licence: str, good: bool, tmp_path: Path) -> None:
    info = FILES["PKG-INFO"].replace("License-Expression: MIT", licence)
    tree = read_archive(write_sdist(tmp_path, {**FILES, "PKG-INFO": info}))
    if good:
        assert permissive_licence(tree)
    else:
        with pytest.raises(UsageError, match="only permissive"):
            permissive_licence(tree)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("The MIT License\n\nPermission is hereby granted, free\nof charge, to any person obtaining a copy", True),
        ("GNU GENERAL PUBLIC LICENSE Version 3", False),
        ("Permission is hereby granted, free of charge, to any person obtaining a copy ... GNU", False),
    ],
)
def test_the_licence_file_speaks_where_the_metadata_is_silent(text: str, good: bool, tmp_path: Path) -> None:
    info = FILES["PKG-INFO"].replace("License-Expression: MIT\n", "")
    tree = read_archive(write_sdist(tmp_path, {**FILES, "PKG-INFO": info, "LICENSE.txt": text}))
    if good:
        assert permissive_licence(tree) == "MIT"
    else:
        with pytest.raises(UsageError, match="only permissive"):
            permissive_licence(tree)


def test_where_things_are(tmp_path: Path) -> None:
    tree = read_archive(write_sdist(tmp_path))
    flat = layout(tree, "made")
    assert (flat.import_root, flat.tests_root) == (".", "tests")
    assert flat.modules == ("made/__init__.py", "made/shapes.py")
    assert (
        layout({path.replace("made/", "src/made/"): file for path, file in tree.items()}, "Made").import_root == "src"
    )
    inner = layout(
        {path.replace("tests/", "made/tests/"): file for path, file in tree.items()}, "py-made".removeprefix("py-")
    )
    assert (inner.tests_root, inner.modules) == ("made/tests", ("made/__init__.py", "made/shapes.py"))
    single = layout({"made.py": tree["made/shapes.py"], "tests/test_made.py": tree["tests/test_shapes.py"]}, "made")
    assert single.modules == ("made.py",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tests/test_shapes.py": None}, "no pytest suite"),
        ({"made/__init__.py": None}, "no package 'made'"),
        ({"made/fast.pyx": "x"}, r"not pure Python \(made/fast\.pyx\)"),
        ({"PKG-INFO": None}, "no PKG-INFO"),
        ({"made/shapes.py": "x = 1\n"}, "no module of this library"),
    ],
)
def test_a_library_that_cannot_be_worked_on_is_refused(
    changes: dict[str, str | None], says: str, index: Path, tmp_path: Path
) -> None:
    files = {path: text for path, text in {**FILES, **changes}.items() if text is not None}
    write_sdist(index, files)
    with pytest.raises(UsageError, match=says):
        open_library("made==1.2.3", tmp_path / "cache", python=PYTHON)


def test_requirements_of_the_suite_are_read_from_the_metadata(tmp_path: Path) -> None:
    tree = read_archive(write_sdist(tmp_path))
    assert suite_requirements(tree) == (
        "pytest",
        "helper>=1",
        "tool",
        'other ; python_version < "4"',
        "grouped>=2",
        "included",
    )


# --- fetching ---

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


# --- workspaces and clean copies ---


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


# --- test dependencies ---


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


# --- running the suite ---


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
