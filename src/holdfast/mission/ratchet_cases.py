"""Tests as syntax: what pytest would collect of a file, as far as that can be told without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

SKIPS = frozenset({"skip", "skipif", "xfail", "skipIf", "skipUnless", "expectedFailure", "SkipTest", "importorskip"})
"""Marks and calls after which a failure is none."""

CALMS = frozenset({"flaky", "rerun", "reruns", "retry"})
"""Marks after which some failures are none."""


class Case(msgspec.Struct, frozen=True):
    """One test function. `name` has its classes, joined by `::`.

    `marks` are decorators that are not about parameters, its classes' included; `parameters` are the values of each
    parametrization by its argument names, None when they are computed. `guards` are the conditions that it is defined
    under. `collected` says that pytest finds it under this name in a file of tests.
    """

    name: str
    node: FunctionNode
    marks: tuple[ast.expr, ...]
    parameters: dict[str, tuple[str, ...] | None]
    marked_parameters: frozenset[str]
    guards: tuple[str, ...]
    collected: bool

    @property
    def statements(self) -> list[ast.stmt]:
        """Its body without a docstring."""
        return without_docstring(self.node.body)

    @property
    def body(self) -> str:
        """Its body as a text to compare."""
        return dump(self.statements)

    @property
    def arguments(self) -> str:
        """Its signature as a text to compare."""
        return ast.dump(self.node.args)


@lru_cache(maxsize=512)
def parsed(content: bytes) -> ast.Module | None:
    """The syntax of a file, not to be changed; None when it is none."""
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def dump(nodes: Sequence[ast.AST]) -> str:
    """Nodes as a text in which places and comments do not count."""
    return "\n".join(ast.dump(node) for node in nodes)


def without_docstring(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A body without its docstring, unless that has examples, which may be run."""
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return list(body) if ">>>" in first.value.value else list(body[1:])
    return list(body)


def cases(tree: ast.Module) -> dict[str, Case]:
    """The tests of a module by name. Of several with one name the last counts, as it does when it is imported."""
    marks = tuple(_module_marks(tree))
    found: dict[str, Case] = {}
    for case in _walk(tree.body, "", marks, (), collected=True):
        found.pop(case.name, None)
        found[case.name] = case
    for name in _deleted(tree):
        for known in [each for each in found if each == name or each.startswith(f"{name}::")]:
            del found[known]
    return found


def _module_marks(tree: ast.Module) -> Iterator[ast.expr]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(each, ast.Name) and each.id == "pytestmark" for each in targets):
            assert isinstance(node, ast.Assign)
            yield from node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]


def _deleted(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Delete):
            yield from (ast.unparse(each) for each in node.targets)


def _walk(
    body: Sequence[ast.stmt], owner: str, marks: tuple[ast.expr, ...], guards: tuple[str, ...], *, collected: bool
) -> Iterator[Case]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test"):
                yield _case(node, owner, marks, guards, collected=collected)
        elif isinstance(node, ast.ClassDef):
            inside = (*marks, *node.decorator_list, *_module_marks(ast.Module(node.body, [])))
            yield from _walk(
                node.body, f"{owner}{node.name}::", inside, guards, collected=collected and _is_collected(node)
            )
        elif isinstance(node, ast.If):
            yield from _walk(node.body, owner, marks, (*guards, ast.dump(node.test)), collected=collected)
            yield from _walk(node.orelse, owner, marks, (*guards, f"not {ast.dump(node.test)}"), collected=collected)
        elif isinstance(node, ast.Try | ast.With):
            yield from _walk(node.body, owner, marks, (*guards, type(node).__name__), collected=collected)


def _is_collected(node: ast.ClassDef) -> bool:
    """A class of tests, or one that others may be made of."""
    bases = [ast.unparse(base) for base in node.bases]
    mixed_in = node.name.endswith(("Mixin", "Base")) or node.name.startswith(("Base", "_"))
    return node.name.startswith("Test") or any("Test" in base for base in bases) or mixed_in


def _case(
    node: FunctionNode, owner: str, marks: tuple[ast.expr, ...], guards: tuple[str, ...], *, collected: bool
) -> Case:
    parameters: dict[str, tuple[str, ...] | None] = {}
    marked: set[str] = set()
    others: list[ast.expr] = []
    for mark in (*marks, *node.decorator_list):
        if not (isinstance(mark, ast.Call) and last_name(mark.func) == "parametrize" and mark.args):
            others.append(mark)
            continue
        values = next((each.value for each in mark.keywords if each.arg == "argvalues"), None)
        given = mark.args[1] if len(mark.args) > 1 else values
        name = ast.dump(mark.args[0])
        if isinstance(given, ast.List | ast.Tuple | ast.Set):
            parameters[name] = tuple(_value(each) for each in given.elts)
            marked |= {_value(each) for each in given.elts if _is_marked(each)}
        else:
            parameters[name] = None
            others.append(mark)
    return Case(
        name=f"{owner}{node.name}",
        node=node,
        marks=tuple(others),
        parameters=parameters,
        marked_parameters=frozenset(marked),
        guards=guards,
        collected=collected,
    )


def _value(node: ast.expr) -> str:
    """A case of a parametrization, whether it is written as `pytest.param` or not; marks and ids do not count."""
    if isinstance(node, ast.Call) and last_name(node.func) == "param":
        plain = node.args[0] if len(node.args) == 1 else ast.Tuple(node.args, ast.Load())
        return ast.dump(plain)
    return ast.dump(node)


def _is_marked(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and last_name(node.func) == "param"):
        return False
    return any(is_skip(each.value) for each in node.keywords if each.arg == "marks")


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, empty for what is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_skip(node: ast.AST) -> bool:
    """Whether a mark, or one in it, makes a failure none."""
    return any(last_name(each) in SKIPS for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))


def skips(nodes: Sequence[ast.stmt]) -> int:
    """How many places in statements skip the test that they are in."""
    count = 0
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and (last_name(node.func) in SKIPS or last_name(node.func) == "skipTest"):
                count += 1
            elif isinstance(node, ast.Raise) and node.exc is not None and last_name(node.exc) == "SkipTest":
                count += 1
    return count


def exits(nodes: Sequence[ast.AST]) -> int:
    """How many places end the process or the whole run."""
    count = 0
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                zero = not node.args or (isinstance(node.args[0], ast.Constant) and node.args[0].value in (0, None))
                count += name in ("os._exit", "_exit", "pytest.exit", "os.abort", "os.kill", "signal.raise_signal")
                count += name in ("sys.exit", "exit", "quit") and zero
            elif isinstance(node, ast.Raise) and node.exc is not None:
                raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                count += last_name(raised) == "SystemExit"
    return count
