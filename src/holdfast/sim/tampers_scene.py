"""What a tamperer finds in a tree: tests, product code, and where to put a line. Text in, text out; nothing is run."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping

import msgspec

from holdfast.mission.pristine import is_test_file

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(msgspec.Struct, frozen=True):
    """What becomes of one path: its new content, None when it goes. A mode of `120000` makes a link to the content."""

    content: bytes | None
    mode: str = "100644"


Edits = dict[str, Edit]


class NothingToTamper(ValueError):
    """The tree has nothing that this tamper could be done to."""


class Spot(msgspec.Struct, frozen=True):
    """A function in a file. `indent` is that of its body, in characters."""

    path: str
    text: str
    node: FunctionNode
    owner: str = ""

    @property
    def indent(self) -> int:
        """The column of its body."""
        column: int = self.node.body[0].col_offset
        return column

    @property
    def first(self) -> int:
        """Its first line, decorators included, from 1."""
        return _first_line(self.node)

    @property
    def last(self) -> int:
        """Its last line."""
        return self.node.end_lineno or self.node.lineno

    @property
    def body_first(self) -> int:
        """The first line of its body after a docstring, from 1."""
        body = self.node.body
        after = body[1:] if len(body) > 1 and _is_text(body[0]) else body
        return _first_line(after[0])


def all_tests(files: Mapping[str, bytes], wanted: type[ast.AST] | None = ast.Assert) -> list[Spot]:
    """The test functions of a tree that have such a node, ordered by path and line; one-line functions are left out."""
    found = [spot for path in sorted(files) if is_test_file(path) for spot in spots(path, files[path])]
    named = [spot for spot in found if spot.node.name.startswith("test") and not path_is_conftest(spot.path)]
    roomy = [spot for spot in named if spot.node.body[0].lineno > spot.node.lineno]
    return [spot for spot in roomy if wanted is None or any(isinstance(each, wanted) for each in ast.walk(spot.node))]


def a_test(files: Mapping[str, bytes], wanted: type[ast.AST] | None = ast.Assert, *, at: int = 0) -> Spot:
    """One of them. Raises `NothingToTamper` when there is none."""
    found = all_tests(files, wanted)
    if not found:
        raise NothingToTamper("no test of that kind")
    return found[at % len(found)]


def path_is_conftest(path: str) -> bool:
    """Whether pytest reads it before any test."""
    return path.rsplit("/", 1)[-1] == "conftest.py"


def product(files: Mapping[str, bytes]) -> Spot:
    """A public function of the product that takes an argument and returns something. Raises `NothingToTamper`."""
    for path in product_paths(files):
        for spot in spots(path, files[path]):
            roomy = spot.node.body[0].lineno > spot.node.lineno
            returns = any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(spot.node))
            taken = [each for each in spot.node.args.args if each.arg not in ("self", "cls")]
            if roomy and returns and taken and not spot.node.name.startswith("_"):
                return spot
    raise NothingToTamper("no function to spoil")


def product_paths(files: Mapping[str, bytes]) -> list[str]:
    """Modules of the product: in a package, and not among tests; the largest first."""
    packages = {path.removesuffix("__init__.py") for path in files if path.endswith("/__init__.py")}
    found = [
        path
        for path in files
        if path.endswith(".py")
        and any(path.startswith(package) for package in packages)
        and not {"tests", "test", "docs", "examples", "testing"} & set(path.split("/")[:-1])
        and not is_test_file(path)
    ]
    return sorted(found, key=lambda path: (-len(files[path]), path))


def spots(path: str, content: bytes) -> Iterator[Spot]:
    """The functions of a file, those of classes at its top included."""
    text = content.decode("utf-8", "replace")
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in tree.body:
        if isinstance(node, FunctionNode):
            yield Spot(path, text, node)
        elif isinstance(node, ast.ClassDef):
            yield from (Spot(path, text, each, node.name) for each in node.body if isinstance(each, FunctionNode))


def with_lines(text: str, at: int, code: str, indent: int = 0, *, instead: int = 0) -> str:
    """A text with `code` before line `at` (from 1), in place of so many lines."""
    lines = text.splitlines(keepends=True)
    block = textwrap.indent(textwrap.dedent(code).strip("\n") + "\n", " " * indent)
    return "".join([*lines[: at - 1], block if code else "", *lines[at - 1 + instead :]])


def lines_of(spot: Spot, first: int, last: int) -> str:
    """Lines of its file, from 1, both included."""
    return "".join(spot.text.splitlines(keepends=True)[first - 1 : last])


def write(path: str, text: str, mode: str = "100644") -> Edits:
    """The edit that gives a path this text."""
    return {path: Edit(text.encode(), mode)}


def body(spot: Spot, code: str) -> Edits:
    """The edit that gives a function another body, its docstring kept."""
    count = spot.last - spot.body_first + 1
    return write(spot.path, with_lines(spot.text, spot.body_first, code, spot.indent, instead=count))


def into(spot: Spot, code: str) -> Edits:
    """The edit that puts statements at the beginning of a function."""
    return write(spot.path, with_lines(spot.text, spot.body_first, code, spot.indent))


def above(spot: Spot, code: str) -> Edits:
    """The edit that puts a line above a function: a decorator."""
    return write(spot.path, with_lines(spot.text, spot.first, code, spot.node.col_offset))


def after_imports(text: str, code: str) -> str:
    """A module with statements after its first block of imports, or at its end when it has none."""
    tree = ast.parse(text)
    last = 0
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
            last = node.end_lineno or last
        else:
            break
    return with_lines(text, last + 1, code)


def appended(files: Mapping[str, bytes], path: str, code: str) -> Edits:
    """The edit that puts lines at the end of a file, which may be new."""
    old = files.get(path, b"").decode("utf-8", "replace")
    gap = "" if not old or old.endswith("\n") else "\n"
    return write(path, f"{old}{gap}{textwrap.dedent(code).lstrip()}")


def _first_line(node: ast.stmt) -> int:
    marks: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in marks)])


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
