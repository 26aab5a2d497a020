"""Source distribution as plain data: files, layout, license, and requirements, without running anything.

Archives are not trusted: only regular files are read, within limits; links, devices, and paths that lead outside are
ignored.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import BytesParser
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from holdfast.errors import UsageError

FILES_MAX = 20_000
BYTES_MAX = 256 * 1024 * 1024
"""Size and file limits; a larger archive is refused."""

PERMISSIVE = frozenset(
    {
        "0BSD",
        "APACHE-2.0",
        "BSD-2-CLAUSE",
        "BSD-3-CLAUSE",
        "ISC",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "PYTHON-2.0",
        "UNLICENSE",
        "ZLIB",
    }
)
"""SPDX identifiers (upper case) of accepted licenses."""

_CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}

_SPELLINGS = {
    "APACHE": "APACHE-2.0",
    "APACHE 2.0": "APACHE-2.0",
    "APACHE LICENSE 2.0": "APACHE-2.0",
    "APACHE LICENSE, VERSION 2.0": "APACHE-2.0",
    "BSD": "BSD-3-CLAUSE",
    "BSD 3-CLAUSE": "BSD-3-CLAUSE",
    "PSF": "PSF-2.0",
}

_PHRASES = {
    "MIT": "Permission is hereby granted, free of charge, to any person obtaining a copy",
    "BSD-3-Clause": "Redistribution and use in source and binary forms, with or without modification",
    "ISC": "Permission to use, copy, modify, and/or distribute this software for any purpose",
    "Apache-2.0": "Apache License Version 2.0",
    "Unlicense": "This is free and unencumbered software released into the public domain",
}

_COMPILED = (".c", ".cc", ".cpp", ".f90", ".pyd", ".pyx", ".rs", ".so")

_TEST_LIST = re.compile(r"^(?:requirements[-_/]tests?|tests?[-_]requirements|tests?/requirements)\.txt$")
"""Files that list the requirements of a suite."""

_TEST_GROUPS = ("test", "tests", "testing")


class SourceFile(msgspec.Struct, frozen=True):
    """File of the distribution."""

    data: bytes
    executable: bool = False


Tree = Mapping[str, SourceFile]
"""Path inside the distribution, with `/` and without its top folder → file."""


class Layout(msgspec.Struct, frozen=True):
    """Locations of package and tests. Paths are those of the tree; `import_root` is `.` or `src`."""

    import_root: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    tests_root: str


def read_archive(archive: Path) -> dict[str, SourceFile]:
    """Read the tree of a `.tar.gz` source distribution. Raises `UsageError` if it is not one."""
    files: dict[str, SourceFile] = {}
    total = 0
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = _inner_path(member)
                if path is None:
                    continue
                total += member.size
                if len(files) >= FILES_MAX or total > BYTES_MAX:
                    raise UsageError(f"{archive.name} unpacks to more than {FILES_MAX} files or {BYTES_MAX} bytes")
                content = tar.extractfile(member)
                assert content is not None
                files[path] = SourceFile(content.read(), bool(member.mode & 0o100))
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise UsageError(
            f"{archive} is not a whole .tar.gz archive: {error}. Delete it and it is fetched again"
        ) from error
    if not files:
        raise UsageError(f"{archive.name} has no files; a source distribution has them in one folder")
    return files


def _inner_path(member: tarfile.TarInfo) -> str | None:
    parts = PurePosixPath(member.name).parts
    if not member.isreg() or len(parts) < 2 or member.name.startswith("/"):
        return None
    inner = parts[1:]
    unwanted = {"..", ".git", "__pycache__"}
    if unwanted & set(parts) or any("\\" in part or "\0" in part for part in parts):
        return None
    return None if inner[-1].endswith(".pyc") else "/".join(inner)


def write_tree(tree: Tree, dest: Path) -> None:
    """Write the tree into the new or empty folder `dest`, readable by all, writable by its owner.

    Raises `UsageError` if `dest` is not empty.
    """
    dest.mkdir(mode=0o755, parents=True, exist_ok=True)
    if any(dest.iterdir()):
        raise UsageError(f"{dest} is not empty; name a folder that does not exist yet")
    os.chmod(dest, 0o755)
    made = {dest}
    for path, file in tree.items():
        target = dest.joinpath(*path.split("/"))
        for folder in reversed(target.relative_to(dest).parents):
            if dest / folder not in made:
                (dest / folder).mkdir()
                # The umask of this process must not limit the hands' read access.
                os.chmod(dest / folder, 0o755)
                made.add(dest / folder)
        with open(target, "xb") as out:
            out.write(file.data)
            os.fchmod(out.fileno(), 0o755 if file.executable else 0o644)


def metadata(tree: Tree) -> Message:
    """Return the distribution's `PKG-INFO`. Raises `UsageError` if it has none."""
    if "PKG-INFO" not in tree:
        raise UsageError("the archive has no PKG-INFO: it is not a source distribution")
    return BytesParser().parse(io.BytesIO(tree["PKG-INFO"].data), headersonly=True)


def permissive_licence(tree: Tree) -> str:
    """Return the license that the distribution states. Raises `UsageError` unless it is a permissive one."""
    info = metadata(tree)
    stated = str(info.get("License-Expression") or "").strip()
    lines = [str(line).rsplit(" :: ", 1)[-1] for line in info.get_all("Classifier", []) if "License ::" in line]
    classified = [line for line in lines if line != "OSI Approved"]
    if not stated and classified:
        stated = " AND ".join(_CLASSIFIERS.get(name, name) for name in classified)
    if not stated:
        stated = str(info.get("License") or "").strip().partition("\n")[0] or _recognised(tree)
    names = [name for name in re.split(r"\s+(?:AND|OR)\s+|[()]", stated) if name.strip()]
    if names and all(_spdx(name) in PERMISSIVE for name in names):
        return stated
    raise UsageError(
        f"the licence of this library is {stated or 'not stated'!r}; only permissive ones are taken (MIT, BSD, Apache, "
        "ISC, PSF, Unlicense); a right example is --library tinydb==4.9.0"
    )


def _recognised(tree: Tree) -> str:
    """Return the license that matches the text of the license file; empty if none does."""
    texts = [file.data for path, file in tree.items() if re.fullmatch(r"(?i)licen[cs]e(\.\w+)?", path)]
    words = " ".join(b" ".join(texts).decode(errors="replace").split())
    found = [name for name, phrase in _PHRASES.items() if phrase in words]
    return found[0] if len(found) == 1 and "GNU" not in words else ""


def _spdx(name: str) -> str:
    plain = name.strip().upper().removesuffix(" LICENSE")
    return _SPELLINGS.get(plain, plain)


def layout(tree: Tree, name: str) -> Layout:
    """Locate the package and its tests. Raises `UsageError` unless it is pure Python with a pytest suite."""
    for root in ("", "src/"):
        for package in _package_names(name):
            inside = [path for path in tree if path.startswith(f"{root}{package}/")]
            if f"{root}{package}/__init__.py" in tree:
                return _package_layout(tree, root, inside)
            if f"{root}{package}.py" in tree:
                return _package_layout(tree, root, [f"{root}{package}.py"])
    raise UsageError(
        f"no package {name!r} was found at the top or under src/ of this library; a right example is "
        "--library tinydb==4.9.0"
    )


def _package_names(name: str) -> tuple[str, ...]:
    plain = re.sub(r"[-.]+", "_", name)
    low = plain.lower()
    return tuple(dict.fromkeys((plain, low, low.removeprefix("python_"), low.removeprefix("py"))))


def _package_layout(tree: Tree, root: str, inside: list[str]) -> Layout:
    compiled = [path for path in inside if path.endswith(_COMPILED)]
    if compiled:
        raise UsageError(f"this library is not pure Python ({compiled[0]}); a right example is --library tinydb==4.9.0")
    tests = tuple(sorted(path for path in tree if _is_test(path)))
    if not tests:
        raise UsageError(
            "this library's source distribution has no pytest suite (no test_*.py under a folder named test or "
            "tests); a right example is --library tinydb==4.9.0"
        )
    roots = Counter(_tests_root(path) for path in tests)
    modules = tuple(sorted(path for path in inside if path.endswith(".py") and not _in_tests(path)))
    return Layout(root.rstrip("/") or ".", modules, tests, roots.most_common(1)[0][0])


def _in_tests(path: str) -> bool:
    return any(part in ("test", "tests") for part in path.split("/")[:-1])


def _is_test(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return _in_tests(path) and (bool(re.fullmatch(r"test_.*\.py|.*_test\.py", name)) or name == "tests.py")


def _tests_root(path: str) -> str:
    parts = path.split("/")
    last = next(index for index, part in enumerate(parts) if part in ("test", "tests"))
    return "/".join(parts[: last + 1])


def suite_requirements(tree: Tree) -> tuple[str, ...]:
    """Return requirements of the suite from the metadata: pytest, the library's own, its test extras."""
    wanted = ["pytest"]
    for line in metadata(tree).get_all("Requires-Dist", []):
        wanted += _applicable(str(line))
    wanted += _group_requirements(tree)
    for path in sorted(tree):
        if _TEST_LIST.search(path):
            lines = (line.partition("#")[0].strip() for line in tree[path].data.decode("utf-8", "replace").splitlines())
            wanted += [line for line in lines if line and not line.startswith("-")]
    return tuple(dict.fromkeys(wanted))


def _applicable(line: str) -> Iterator[str]:
    requirement, _, marker = line.partition(";")
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
    if extra is None:
        yield line
    elif extra.group(1).lower() in _TEST_GROUPS:
        rest = re.sub(r"(\s*\band\b\s*)?extra\s*==\s*['\"][^'\"]+['\"](\s*\band\b\s*)?", "", marker).strip()
        yield f"{requirement.strip()} ; {rest}" if rest else requirement.strip()


def _group_requirements(tree: Tree) -> Iterator[str]:
    if "pyproject.toml" not in tree:
        return
    try:
        project: dict[str, Any] = tomllib.loads(tree["pyproject.toml"].data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return
    groups = project.get("dependency-groups", {})
    for group in _TEST_GROUPS:
        yield from _group(groups, group, set())


def _group(groups: dict[str, Any], name: str, seen: set[str]) -> Iterator[str]:
    if name in seen:
        return
    seen.add(name)
    for entry in groups.get(name, []):
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict) and isinstance(entry.get("include-group"), str):
            yield from _group(groups, entry["include-group"], seen)
