"""Real library with one stripped module: fetched, verified, stripped, and reassembled for the judge.

    library = open_library("tinydb==4.9.0", cache)         the pinned source distribution, as data
    dependencies = install_test_dependencies(library, cache)
    manifest = prepare_workspace(library, workspace)        the agent's files; the manifest is kept from it
    clean_copy(library, workspace, elsewhere)               where the judge runs the tests

No code of the library is executed here, and none of it is kept in this repository.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.errors import CannotRunSafely, HoldfastError, UsageError
from holdfast.proof.rebuild.find_pip import find_pip
from holdfast.proof.rebuild.strip import Manifest, function_names, strip
from holdfast.proof.rebuild.tree import (
    Layout,
    SourceFile,
    Tree,
    layout,
    permissive_licence,
    read_archive,
    suite_requirements,
    write_tree,
)

DEFAULT_LIBRARY = "tinydb==4.9.0"
"""Default library of the demo."""

PYTHON = "/usr/bin/python3"
"""Interpreter that the hands run: the system's own."""

TESTDEPS_INSIDE = "/opt/testdeps"
"""Folder of the test dependencies inside the hands."""

MODULE_BYTES_MAX = 4 * 1024 * 1024
"""A larger file is not copied from a workspace."""


class Known(msgspec.Struct, frozen=True):
    """Pinned version: `sha256` is hex, over its source distribution.

    `tests_passed` is the number of tests of its suite that pass if nothing is missing.
    """

    sha256: str
    module: str
    requirements: tuple[str, ...]
    tests_passed: int


_PYTEST = "pytest>=8,<10"

KNOWN: dict[str, Known] = {
    "tinydb==4.9.0": Known(
        "6928b1fa785186bda7952a0ba05aaeedc883ede565ca9c7d608de44e5e75de70",
        "tinydb/queries.py",
        (_PYTEST, "pyyaml>=6,<7"),
        219,
    ),
    "cachetools==8.0.0": Known(
        "5ed01bd676800d51f0025605e4fd8ad0891550513e7b0a4c3da478463764e5c3",
        "src/cachetools/__init__.py",
        (_PYTEST,),
        416,
    ),
    "voluptuous==0.16.0": Known(
        "006535e22fed944aec17bef6e8725472476194743c87bd233e912eb463f8ff05",
        "voluptuous/validators.py",
        (_PYTEST,),
        167,
    ),
    "sqlparse==0.6.1": Known(
        "ca722573f848ff2d30e40ea30f53a104b7dea7635ea9285891263eb2c58fb6e7",
        "sqlparse/sql.py",
        (_PYTEST,),
        537,
    ),
    "marshmallow==4.4.0": Known(
        "9e6ffa8511012ca89732324c1c253efd7b4d35632dcbdf80aa793fe01804af3e",
        "src/marshmallow/fields.py",
        (_PYTEST, "simplejson>=3,<5"),
        1192,
    ),
    "jinja2==3.1.6": Known(
        "0137fb05990d35f1275a587e9aee6d56da821fc83491a0fb838183be43f66d6d",
        "src/jinja2/runtime.py",
        (_PYTEST, "markupsafe>=2,<4", "trio>=0.25,<1"),
        909,
    ),
}
"""Pinned source distributions. Digests of others are taken from the index once and kept."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """Library as data. `sha256` is of its archive; `requirements` are those of its test suite."""

    pin: str
    name: str
    version: str
    archive: Path
    sha256: str
    licence: str
    tree: Tree
    layout: Layout
    module: str
    requirements: tuple[str, ...]
    tests_passed: int | None = None


def parse_pin(text: str) -> tuple[str, str]:
    """Parse `NAME==VERSION` into name and version. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.!+_-]*)", text.strip())
    if match is None:
        raise UsageError(f"--library wants NAME==VERSION, not {text!r}; a right one is --library {DEFAULT_LIBRARY}")
    return match.group(1), match.group(2)


def open_library(
    pin: str,
    cache: Path,
    *,
    python: str = PYTHON,
    module: str = "",
    more_requirements: Sequence[str] = (),
) -> Library:
    """Open the library `NAME==VERSION` from the folder `cache` or, the first time, from the package index.

    `module` is the path of the file to strip in the distribution; empty for the best one. Raises `UsageError` for an
    unsuitable library and `CannotRunSafely` if it cannot be fetched.
    """
    name, version = parse_pin(pin)
    known = KNOWN.get(f"{name.lower()}=={version}")
    archive, sha256 = _archive(name, version, cache, python, known)
    tree = read_archive(archive)
    licence = permissive_licence(tree)
    places = layout(tree, name)
    chosen = module or (known.module if known else "") or _best_module(tree, places)
    if chosen not in places.modules:
        raise UsageError(f"{pin} has no module {chosen!r}; it has {', '.join(places.modules)}")
    requirements = known.requirements if known else suite_requirements(tree)
    return Library(
        pin=f"{name}=={version}",
        name=name,
        version=version,
        archive=archive,
        sha256=sha256,
        licence=licence,
        tree=tree,
        layout=places,
        module=chosen,
        requirements=tuple(dict.fromkeys((*requirements, *more_requirements))),
        tests_passed=known.tests_passed if known else None,
    )


def _archive(name: str, version: str, cache: Path, python: str, known: Known | None) -> tuple[Path, str]:
    folder = _open_folder(cache, "sdists")
    pattern = f"{name.lower()}-{version}.{known.sha256 if known else '?' * 64}.tar.gz"
    for path in sorted(folder.glob(pattern)):
        sha256 = path.name.removesuffix(".tar.gz").rsplit(".", 1)[-1]
        # The digest is the name, so a damaged file is fetched again.
        if _sha256(path) == sha256:
            return path, sha256
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        fetched = find_pip(python).fetch(name, version, Path(scratch))
        if known and fetched.sha256 != known.sha256:
            raise CannotRunSafely(
                f"the source distribution of {name} {version} that the index served has SHA-256 {fetched.sha256}, "
                f"not the known {known.sha256}; it was thrown away. Ask who runs the index"
            )
        path = folder / f"{name.lower()}-{version}.{fetched.sha256}.tar.gz"
        os.chmod(fetched.path, 0o644)
        os.replace(fetched.path, path)
    return path, fetched.sha256


def _open_folder(cache: Path, name: str) -> Path:
    for folder in (cache, cache / name):
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o755)
    return cache / name


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _best_module(tree: Tree, places: Layout) -> str:
    """Return the module with the most functions that the tests mention by name."""
    words = {word for path in places.tests for word in re.findall(rb"\w+", tree[path].data)}
    scores: list[tuple[int, str]] = []
    for path in places.modules:
        names = function_names(tree[path].data)
        scores.append((sum(name.encode() in words for name in names), path))
    score, path = max(scores, default=(0, ""))
    if not score:
        raise UsageError(
            f"no module of this library has functions that its tests name; a right example is --library "
            f"{DEFAULT_LIBRARY}"
        )
    return path


def prepare_workspace(library: Library, dest: Path) -> Manifest:
    """Write the library without the bodies of one module into the new or empty folder `dest`.

    The manifest is for the oracle and for reports; it must not be where the agent can read it. Raises `UsageError` if
    `dest` is not empty or the module cannot be stripped.
    """
    stripped, module, blocks = strip(library.module, library.tree[library.module].data)
    write_tree({**library.tree, library.module: SourceFile(stripped)}, dest)
    tests = (library.layout.tests_root,)
    return Manifest(library.pin, (module,), blocks, tests, _quick_tests(library))


def _quick_tests(library: Library) -> tuple[str, ...]:
    """Return the test file named after the stripped module, else the one that names most of its functions."""
    stem = library.module.rsplit("/", 1)[-1].removesuffix(".py").rstrip("s")
    named = [path for path in library.layout.tests if stem in path.rsplit("/", 1)[-1]]
    if named:
        return (min(named, key=lambda path: (len(path), path)),)
    names = {name.encode() for name in function_names(library.tree[library.module].data)}

    def mentions(path: str) -> tuple[int, str]:
        return len(names & set(re.findall(rb"\w+", library.tree[path].data))), path

    return (max(library.layout.tests, key=mentions),)


def clean_copy(library: Library, workspace: Path, dest: Path) -> tuple[str, ...]:
    """Write the published tree with the module of `workspace` into `dest`, for the judge.

    Return the copied paths. The module is taken as plain data: raises `HoldfastError` if it is missing, a link, not a
    regular file, or too large, and `UsageError` if `dest` is not empty.
    """
    data = read_plain(workspace, library.module)
    write_tree({**library.tree, library.module: SourceFile(data)}, dest)
    return (library.module,)


def read_plain(folder: Path, path: str) -> bytes:
    """Read a regular file below `folder` without following any link.

    Raises `HoldfastError` if the path is anything else.
    """
    *parents, name = path.split("/")
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for parent in parents:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            opened.append(os.open(parent, flags, dir_fd=opened[-1]))
        # O_NONBLOCK: opening a pipe must not wait for a writer.
        opened.append(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_size > MODULE_BYTES_MAX:
            raise HoldfastError(f"{path} in {folder} is not a regular file of moderate size; it was not taken")
        with os.fdopen(opened.pop(), "rb") as file:
            return file.read(MODULE_BYTES_MAX)
    except OSError as error:
        raise HoldfastError(f"{path} in {folder} could not be taken: {error.strerror}; nothing was copied") from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def restored(manifest: Manifest, workspace: Path) -> tuple[str, ...]:
    """Return the stripped modules that equal the published ones byte for byte in `workspace`."""
    return tuple(module.file for module in manifest.modules if _is_true(workspace, module.file, module.true_sha256))


def _is_true(workspace: Path, file: str, sha256: str) -> bool:
    try:
        return hashlib.sha256(read_plain(workspace, file)).hexdigest() == sha256
    except HoldfastError:
        return False


def install_test_dependencies(library: Library, cache: Path, *, python: str = PYTHON) -> Path:
    """Return a folder, readable by all, with everything that the library's suite imports, for `python`.

    It is made from wheels alone, once for each set of requirements and interpreter, and mounted read-only into the
    hands. Raises `CannotRunSafely`.
    """
    identity = "\n".join((interpreter_of(python), library.pin, library.sha256, *library.requirements))
    folder = _open_folder(cache, "testdeps")
    target = folder / hashlib.sha256(identity.encode()).hexdigest()[:32]
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        find_pip(python).install(library.requirements, made)
        _announce(library, made)
        compile_modules(made, python)
        _readable_by_all(made)
        try:
            os.rename(made, target)
        except OSError:
            # Another process was first, with the same result.
            if not target.is_dir():
                raise
    return target


def compile_modules(folder: Path, python: str) -> None:
    """Write bytecode beside the modules: in hands the folder is read-only, and each run would compile all of it."""
    command = [python, "-I", "-m", "compileall", "-qq", str(folder)]
    subprocess.run(command, check=False, umask=0o022)  # a file in an older Python stays unchanged


def interpreter_of(python: str) -> str:
    """Return the tag and platform of an interpreter. Raises `CannotRunSafely` if it does not run."""
    script = "import sys, sysconfig; print(sys.implementation.cache_tag, sysconfig.get_platform())"
    try:
        done = subprocess.run([python, "-I", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotRunSafely(
            f"{python} does not run: {error}. Install it (`apt-get install python3`) and try again"
        ) from error
    return done.stdout.strip()


def _announce(library: Library, folder: Path) -> None:
    """Let `importlib.metadata` find the library, which runs from its sources and is never installed."""
    info = folder / f"{re.sub(r'[-_.]+', '_', library.name).lower()}-{library.version}.dist-info"
    shutil.rmtree(info, ignore_errors=True)
    info.mkdir()
    (info / "METADATA").write_bytes(library.tree["PKG-INFO"].data)


def _readable_by_all(folder: Path) -> None:
    for root, _, files in os.walk(folder):
        os.chmod(root, 0o755)
        for name in files:
            path = Path(root) / name
            os.chmod(path, stat.S_IMODE(path.stat().st_mode) | 0o444)


def suite_command(
    library: Library, paths: Sequence[str] = (), *, dependencies: str = TESTDEPS_INSIDE, python: str = PYTHON
) -> str:
    """Return the shell command that runs the suite, or the part of it in `paths`, from the library's top folder.

    `dependencies` is the path of the folder of `install_test_dependencies` as the command sees it.
    """
    prefix = suite_prefix(library, dependencies=dependencies, python=python)
    return f"{prefix} {shlex.join(paths or (library.layout.tests_root,))}"


def suite_prefix(library: Library, *, dependencies: str = TESTDEPS_INSIDE, python: str = PYTHON) -> str:
    """Return the same command without the paths of the tests."""
    source = "$PWD" if library.layout.import_root == "." else f"$PWD/{library.layout.import_root}"
    # The project's own options (coverage, style checks) need more plugins and are not its tests.
    return (
        f'PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="{source}":{shlex.quote(dependencies)} {shlex.quote(python)} '
        "-m pytest -q -p no:cacheprovider -o addopts="
    )


class SuiteCounts(msgspec.Struct, frozen=True):
    """Counts in the last line of a pytest run; all 0 without one."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0


def parse_counts(output: str) -> SuiteCounts:
    """Parse pytest's closing line in `output`, for reports; the exit status shows whether the run passed."""
    for line in reversed(output.splitlines()):
        found = dict((word.rstrip("s"), int(count)) for count, word in re.findall(r"(\d+) ([a-z]+)", line))
        if found.keys() & {"passed", "failed", "error"} and " in " in line:
            return SuiteCounts(*(found.get(word, 0) for word in ("passed", "failed", "error", "skipped")))
    return SuiteCounts()
