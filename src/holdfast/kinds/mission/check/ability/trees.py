"""Trees on which nothing works: what a check passes on there, it cannot fail on. Pure.

`hollow`: every function of Python raises, other programs are no programs any more, data is gone. Tests can still be
collected; none that runs the code can pass. `broken`: nothing can even be read. `empty`: nothing but what is protected
is there. A test runner has to fail on the first, anything else on one of the three.
"""

from __future__ import annotations

import ast
import posixpath
from typing import Literal

Kind = Literal["hollow", "broken", "empty"]

KINDS: tuple[Kind, ...] = ("hollow", "broken", "empty")

_CODE = frozenset(
    ".js .jsx .ts .tsx .mjs .cjs .go .rs .java .kt .rb .sh .bash .c .cc .cpp .h .hpp .cs .php .swift .ex .exs .lua .pl "
    ".r .scala .clj .hs .ml .dart .vue .svelte .sql".split()
)
_SETTINGS = frozenset(".toml .cfg .ini .json .yml .yaml .lock .mod .sum .xml .gradle .txt".split())
_NAMED = frozenset({"Makefile", "makefile", "GNUmakefile", "Dockerfile", "Rakefile", "Gemfile", "py.typed"})

GARBAGE = b")( this is no program\n"


def mutant(path: str, data: bytes, kind: Kind) -> bytes | None:
    """What a file that is not protected is in a mutant; None when it is gone there."""
    if kind == "empty":
        return None
    name = posixpath.basename(path)
    suffix = posixpath.splitext(name)[1]
    if suffix in (".py", ".pyi"):
        return hollow(data) if kind == "hollow" else GARBAGE
    if suffix in _CODE or (not suffix and data.startswith(b"#!")):
        return GARBAGE
    if is_settings(path):
        return data if kind == "hollow" or name in _NAMED else GARBAGE
    return None if kind == "hollow" else data


def is_settings(path: str) -> bool:
    """Whether a file configures programs rather than being one."""
    name = posixpath.basename(path)
    return posixpath.splitext(name)[1] in _SETTINGS or name in _NAMED or name.startswith(".")


def hollow(data: bytes) -> bytes:
    """Python with the body of every function replaced by a raise; what cannot be parsed stays as it is."""
    try:
        tree = ast.parse(data)
        return ast.unparse(ast.fix_missing_locations(_Hollow().visit(tree))).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return data


class _Hollow(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [_raise()]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.body = [_raise()]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        node.body = ast.parse("(_ for _ in ()).throw(NotImplementedError)", mode="eval").body
        return node


def _raise() -> ast.stmt:
    return ast.parse("raise NotImplementedError").body[0]
