"""The project's own files, parsed once, for the tests of this folder."""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "holdfast"
BOX = PACKAGE / "hands" / "box"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that is in version control, or would be with the next commit of all."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    return tuple(sorted({ROOT / name for name in names if name and (ROOT / name).is_file()}))


def python_files(*folders: str) -> list[Path]:
    """The Python files below these folders of the project."""
    return [file for file in tracked() if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in folders]


@cache
def tree(file: Path) -> ast.Module:
    """The parsed file. Parsed trees are cached and frozen, so that no garbage collection walks them."""
    gc.disable()
    parsed = ast.parse(file.read_text(), filename=str(file))
    gc.freeze()
    gc.enable()
    return parsed


def short(file: Path) -> str:
    """The path as people write it."""
    return file.relative_to(ROOT).as_posix()


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Every node of the parsed file."""
    return tuple(ast.walk(tree(file)))


def functions(file: Path) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    for node in nodes(file):
        if isinstance(node, Function):
            yield node


def length(function: Function) -> int:
    """Lines from `def` to the last statement, the docstring counted."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def module_name(file: Path) -> str:
    """`holdfast.log.base` for src/holdfast/log/base.py."""
    parts = file.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    """Module name → file, of the whole package."""
    return {module_name(file): file for file in python_files("src")}


def imports(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module that is imported somewhere below `node`, with the line.

    `from a import b` gives both `a` and `a.b`, since `b` may be a module.
    """
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield alias.name, child.lineno
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module, child.lineno
            for alias in child.names:
                yield f"{child.module}.{alias.name}", child.lineno


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a plain or dotted name: `("time.sleep", node)`."""
    for node in nodes(file):
        if isinstance(node, ast.Call):
            try:
                name = ast.unparse(node.func)
            except RecursionError:  # a very long chain is no plain name
                continue
            yield name, node


def none_of(wrong: list[str], why: str = "") -> None:
    """Fail with every line of `wrong`, in full."""
    if wrong:
        pytest.fail("\n".join([why, *wrong] if why else wrong), pytrace=False)
