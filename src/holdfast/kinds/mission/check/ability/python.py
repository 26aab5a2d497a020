"""Canaries and flips in files of Python tests."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef

_CALM = ("skip", "xfail", "expectedFailure", "flaky", "importorskip")
_OPPOSITES = {
    "assertTrue": "assertFalse", "assertIn": "assertNotIn", "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone", "assertIsInstance": "assertNotIsInstance",
}  # fmt: skip
_OPPOSITES |= {opposite: name for name, opposite in _OPPOSITES.items()}


class Case(NamedTuple):
    """Test in a file: its name after those of its classes, and its place in the syntax tree."""

    name: str
    node: Function
    siblings: list[ast.stmt]
    classes: tuple[ast.ClassDef, ...]


def parsed(data: bytes) -> ast.Module | None:
    """Parse a file to a syntax tree that the caller may modify; None if it cannot be parsed."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def cases(tree: ast.Module, prefixes: Sequence[str] = ("test",), only_classes: bool = False) -> list[Case]:
    """Return the tests of a file that can be recognized without running it, in order."""
    return [each for each in _cases(tree.body, (), tuple(prefixes)) if each.classes or not only_classes]


def _cases(body: list[ast.stmt], classes: tuple[ast.ClassDef, ...], prefixes: tuple[str, ...]) -> Iterator[Case]:
    for node in body:
        if isinstance(node, Function) and node.name.startswith(prefixes):
            yield Case("::".join([*(each.name for each in classes), node.name]), node, body, classes)
        elif isinstance(node, ast.ClassDef) and (
            node.name.startswith("Test") or any(_last(base).endswith("TestCase") for base in node.bases)
        ):
            yield from _cases(node.body, (*classes, node), prefixes)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_under(name: str, chosen: Sequence[str]) -> bool:
    """Return True if a test is among the chosen ones; an empty choice means all."""
    plain = [each.partition("[")[0] for each in chosen]
    return not all(plain) or not plain or any(name == each or name.startswith(f"{each}::") for each in plain)


# --- canaries --------------------------------------------------------------------------------------


def with_canaries(tree: ast.Module, beside: Sequence[Case], word: str, needed: Sequence[str], *, marks: bool) -> bytes:
    """Add a failing test `NAME_word` beside each of those tests.

    If the file's code cannot be executed, the canaries and the `needed` tests are still defined, so that a runner can
    be probed before there is a product.
    """
    names = []
    for case in beside:
        canary = ast.parse(f"def {case.node.name}_{word}(*_): raise AssertionError('{word}')").body[0]
        assert isinstance(canary, ast.FunctionDef)
        if marks:
            texts = ((each, ast.unparse(each)) for each in case.node.decorator_list)
            special = ("parametrize", "usefixtures", "filterwarn", *_CALM)
            plain = [each for each, text in texts if "mark." in text and not any(word in text for word in special)]
            canary.decorator_list = plain
        case.siblings.insert(case.siblings.index(case.node) + 1, canary)
        names.append((f"{case.name}_{word}", bool(case.classes and case.classes[0].bases)))
    derived = {node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.bases}
    names += [(name.partition("[")[0], name.partition("::")[0] in derived) for name in needed if name]
    head = 0
    for node in tree.body:
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not future and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            break
        head += 1
    otherwise = _skeleton(names, word)
    caught = ast.ExceptHandler(type=ast.Name("Exception"), name=None, body=otherwise)
    rest = tree.body[head:] or [ast.Pass()]
    tree.body[head:] = [ast.Try(body=rest, handlers=[caught], orelse=[], finalbody=[])]
    return unparsed(ast.fix_missing_locations(tree))


def unparsed(tree: ast.Module) -> bytes:
    """Return the source of a syntax tree, as bytes."""
    return ast.unparse(tree).encode()


def tolerant(tree: ast.Module) -> bytes | None:
    """Return a file in which imports may fail; None if it imports nothing."""
    head = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) and node not in head]
    caught = [ast.ExceptHandler(type=ast.Name("Exception"), name=None, body=[ast.Pass()])]
    for node in imports:
        tree.body[tree.body.index(node)] = ast.Try(body=[node], handlers=caught, orelse=[], finalbody=[])
    return unparsed(ast.fix_missing_locations(tree)) if imports else None


def _skeleton(names: Sequence[tuple[str, bool]], word: str) -> list[ast.stmt]:
    """Build failing tests with these names, in classes with these names."""
    top: list[ast.stmt] = list(ast.parse("import unittest").body)
    made: dict[str, list[ast.stmt]] = {"": top}
    for name, unit in dict(names).items():
        *classes, last = name.split("::")
        path, body = "", top
        for each in classes:
            path = f"{path}::{each}"
            if path not in made:
                node = ast.parse(f"class {each}({'unittest.TestCase' if unit else ''}): held = 1").body[0]
                assert isinstance(node, ast.ClassDef)
                body.append(node)
                made[path] = node.body
            body = made[path]
        body += ast.parse(f"def {last}(*_): raise AssertionError('{word}')").body
    return top


# --- flips -----------------------------------------------------------------------------------------


def flipped(tree: ast.Module, chosen: Sequence[str], word: str, most: int) -> list[str]:
    """Replace expectations of tests with wrong ones, in place; return the tests that can no longer pass.

    Only an expectation that a test always reaches is replaced, and only one of each test. The form stays, so the
    product is called in the same way. The wrong value is alternately a near one and one that another test expects: a
    product that compares equal to all usual values agrees with one of them.
    """
    if any("skip" in text or "xfail" in text for text in map(ast.unparse, _loose(tree.body))):
        return []
    found = cases(tree)
    count = Counter(case.name for case in found)
    known = [value for case in found for each in ast.walk(case.node) for value in _expected(each)]
    turned: list[str] = []
    for case in found:
        if len(turned) < most and count[case.name] == 1 and is_under(case.name, chosen) and _is_steady(case):
            if _turn(case.node, Wrong(word, len(turned) + sum(word.encode()), known)):
                turned.append(case.name)
    ast.fix_missing_locations(tree)
    return turned


class Wrong(NamedTuple):
    """Generator of wrong expectations: `turn` selects the kind, `known` are the expected values of all tests."""

    word: str
    turn: int
    known: list[object]

    def instead(self, value: object) -> ast.expr:
        """Return a value that differs from this one."""
        other = next((each for each in self.known if each != value and not isinstance(each, bool)), None)
        ways = [each for each in (_near(value), other) if each is not None and each != value]
        if not ways:
            return ast.parse(repr(_strange(value, self.word)), mode="eval").body
        return ast.parse(repr(ways[self.turn % len(ways)]), mode="eval").body


def _loose(body: list[ast.stmt]) -> list[ast.stmt]:
    return [node for node in body if not isinstance(node, Function | ast.ClassDef | ast.Import | ast.ImportFrom)]


def _is_steady(case: Case) -> bool:
    """Return True if any failed assertion fails the test: it is not skipped, rerun, or expected to fail."""
    decorators = [*case.node.decorator_list, *(each for node in case.classes for each in node.decorator_list)]
    texts = [
        ast.unparse(each) for each in (*decorators, *(each for node in case.classes for each in _loose(node.body)))
    ]
    marked = all("mark." in ast.unparse(each) or "patch" in ast.unparse(each) for each in decorators)
    names = {_last(each) for each in ast.walk(case.node) if isinstance(each, ast.Name | ast.Attribute)}
    return marked and not any(calm in text for calm in _CALM for text in [*texts, *names])


def _turn(function: Function, wrong: Wrong) -> bool:
    ends = (ast.Return, ast.Yield, ast.YieldFrom)
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function)):
        return False
    camel = {
        target.id
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and _is_camel(each.value)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for node in function.body:
        if isinstance(node, ast.Assert):
            node.test, node.msg = _contrary(node.test, wrong, camel), None
            return True
        if _turned_call(node, wrong, camel):
            return True
        if any(isinstance(each, ends) for each in ast.walk(node)):
            return False
    return False


_ASKS = re.compile(r"(check|verify|ensure|assert|expect)?_?(same|equals?|eq|is|value|result|output)|check|verify")


def _turned_call(node: ast.stmt, wrong: Wrong, camel: set[str]) -> bool:
    """Invert `self.assertEqual` and the like, and calls of helpers that compare the result of a call with a literal."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or call.keywords or any(isinstance(each, ast.Starred) for each in call.args):
        return False
    name, given = _last(call.func), call.args
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        if name in ("assertEqual", "assertEquals") and len(given) >= 2:
            given[:2] = _apart(given[0], given[1], wrong, camel)
            return True
        if name in _OPPOSITES:
            call.func.attr = _OPPOSITES[name]
            return True
        return False
    if (
        len(given) != 2
        or not _ASKS.fullmatch(name)
        or not any(isinstance(each, ast.Call) for each in ast.walk(given[0]))
    ):
        return False
    for value in _literal(given[1]):
        given[1] = wrong.instead(value)
        return True
    return False


def _contrary(test: ast.expr, wrong: Wrong, camel: set[str]) -> ast.expr:
    """Build an expression that is false if `test` is true, unless a compared object equals everything."""
    equal = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)
    names = {_last(each) for each in ast.walk(test) if isinstance(each, ast.Name | ast.Attribute)}
    special = names & {"ANY", "approx"} or any(isinstance(each, ast.NamedExpr) for each in ast.walk(test))
    if not equal or special:
        return ast.UnaryOp(ast.Not(), test)
    assert isinstance(test, ast.Compare)
    left, right = _apart(test.left, test.comparators[0], wrong, camel)
    return ast.Compare(left, [ast.Eq()], [right])


def _apart(left: ast.expr, right: ast.expr, wrong: Wrong, camel: set[str]) -> list[ast.expr]:
    """Return two sides that differ if these are equal: a changed literal, or an unrelated value on the right."""
    sides = [left, right]
    at = 0 if list(_literal(left)) and not list(_literal(right)) else 1
    other = sides[1 - at]
    if _is_camel(other) or (isinstance(other, ast.Name) and other.id in camel):
        sides[at] = ast.parse("type('Nothing', (), {})()", mode="eval").body
        return sides
    values = list(_literal(sides[at]))
    sides[at] = wrong.instead(values[0]) if values else ast.Constant(wrong.word)
    return sides


def _is_camel(node: ast.expr) -> bool:
    """Return True for a class, or a call of one, whose objects may define their own equality."""
    name = _last(node.func) if isinstance(node, ast.Call) else _last(node)
    return name[:1].isupper()


def _literal(node: ast.expr) -> Iterator[object]:
    try:
        yield ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return


def _expected(node: ast.AST) -> Iterator[object]:
    """Return the plain values that a test compares with."""
    given: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        given = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and (
        _last(node.func).startswith("assertEqual") or _ASKS.fullmatch(_last(node.func))
    ):
        given = node.args[1:2]
    for each in given:
        yield from (value for value in _literal(each) if isinstance(value, int | float | str))


def _strange(value: object, word: str) -> object:
    """Return a value that no honest product returns, of the same type if possible."""
    if isinstance(value, str):
        return value + word
    if isinstance(value, bytes):
        return value + word.encode()
    if isinstance(value, list):
        return [*value, word]
    if isinstance(value, tuple):
        return (*value, word)
    return {**value, word: word} if isinstance(value, dict) else word


def _near(value: object) -> object:
    """Return a value close to this one, or None."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) + 1) if value and value[-1].isalnum() else None
    if isinstance(value, list | tuple) and value and _near(value[-1]) is not None:
        return type(value)([*value[:-1], _near(value[-1])])
    return None
