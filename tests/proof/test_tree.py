"""What is taken from an archive, and what can be told of it without running any."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.proof.rebuild.library import (
    Library,
    open_library,
    prepare_workspace,
)
from holdfast.proof.rebuild.tree import layout, permissive_licence, read_archive, suite_requirements
from tests.proof.made_library import FILES, write_sdist

PYTHON = sys.executable


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


def test_lists_of_test_requirements_are_read_too(tmp_path: Path) -> None:
    listed = {"requirements-test.txt": "# for the suite\n-r requirements.txt\nlisted>=3  # new\n\n"}
    tree = read_archive(write_sdist(tmp_path, {**FILES, **listed}))
    assert suite_requirements(tree)[-1] == "listed>=3"
