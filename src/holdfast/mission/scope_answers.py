"""Answers that product code seems to have from the tests: a guess, which is listed and never refused.

Special-casing touches no protected file and may look like any other code. Seen is what uses the very values of an
assertion: a condition on a value that a test gives, with the value that it expects as answer; a table of such pairs; a
function that does nothing but give an expected value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from holdfast.mission.pristine import is_test_file
from holdfast.mission.ratchet_cases import FunctionNode, dump, parsed, without_docstring

Pairs = frozenset[tuple[str, str]]


def expected(files: Mapping[str, bytes]) -> tuple[Pairs, frozenset[str]]:
    """Pairs of a value that occurs in an assertion and the value that it expects; and all telling expected values."""
    pairs: set[tuple[str, str]] = set()
    wanted: set[str] = set()
    for path, content in files.items():
        tree = parsed(content) if is_test_file(path) else None
        for node in ast.walk(tree) if tree is not None else ():
            sides = _sides(node)
            if sides is None:
                continue
            for left, right in (sides, sides[::-1]):
                if isinstance(right, ast.Constant):
                    given = {repr(each.value) for each in ast.walk(left) if isinstance(each, ast.Constant)}
                    pairs |= {(value, repr(right.value)) for value in given if value != repr(right.value)}
                    wanted |= {repr(right.value)} if _is_telling(right.value) else set()
    return frozenset(pairs), frozenset(wanted)


def _sides(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    match node:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            return left, right
        case ast.Call(func=ast.Attribute(attr="assertEqual" | "assertIs"), args=[left, right, *_]):
            return left, right
        case _:
            return None


def _is_telling(value: object) -> bool:
    """Whether a value would hardly be in the code by chance."""
    if isinstance(value, str | bytes):
        return len(value) >= 4
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= 10


def special(path: str, old: bytes | None, new: bytes, known: tuple[Pairs, frozenset[str]]) -> list[str]:
    """Functions of a file that seem to know answers, in words; those that were there before are left out."""
    after, before = parsed(new), parsed(old) if old is not None else None
    if after is None:
        return []
    were = {dump([node]) for node in ast.walk(before) if _is_function(node)} if before is not None else set()
    found = []
    for node in ast.walk(after):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and dump([node]) not in were:
            count = sum(pair in known[0] for pair in dict.fromkeys(_answers(node)))
            if count >= 2 or _is_constant(node, known[1]):
                found.append(f"{path}: {node.name} seems to give answers that tests expect; a judge should look")
    return found


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_constant(node: FunctionNode, wanted: frozenset[str]) -> bool:
    """Takes arguments, and begins with an answer that a test expects."""
    body = without_docstring(node.body)
    taken = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
    match body[0] if body else None:
        case ast.Return(value=ast.Constant(value=value)):
            return bool(taken) and repr(value) in wanted
        case _:
            return False


def _answers(node: FunctionNode) -> Iterator[tuple[str, str]]:
    """Pairs of a value that is asked for and the value that is the answer."""
    for each in ast.walk(node):
        match each:
            case ast.If(
                test=ast.Compare(ops=[ast.Eq()]) as test, body=[ast.Return(value=ast.Constant(value=value)), *_]
            ):
                for side in (test.left, *test.comparators):
                    if isinstance(side, ast.Constant):
                        yield repr(side.value), repr(value)
            case ast.IfExp(test=ast.Compare(ops=[ast.Eq()]) as test, body=ast.Constant(value=value)):
                for side in (test.left, *test.comparators):
                    if isinstance(side, ast.Constant):
                        yield repr(side.value), repr(value)
            case ast.match_case(
                pattern=ast.MatchValue(value=ast.Constant(value=given)),
                body=[ast.Return(value=ast.Constant(value=value)), *_],
            ):
                yield repr(given), repr(value)
            case ast.Dict(keys=keys, values=values):
                for key, answer in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(answer, ast.Constant):
                        yield repr(key.value), repr(answer.value)
