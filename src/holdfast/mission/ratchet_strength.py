"""How much a test body says: its assertions that can be reached and can fail."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from holdfast.mission.ratchet_cases import last_name

_BROAD = frozenset({"Exception", "BaseException", "AssertionError", "Failed", "Throwable"})

_EXPECTS = ("raises", "warns", "assertRaises", "assertWarns", "deprecated_call", "assertLogs", "assertRaisesRegex")


def count(body: Sequence[ast.stmt]) -> int:
    """How many assertions can be reached and can fail; an expected error is one."""
    total = 0
    for node in body:
        total += _of(node)
        if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
            break
    return total


def loosened(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> str:
    """What the old body says the value of, and the new one only something about; empty for nothing."""
    was = {ast.dump(left): left for left in _sides(old, equal=True)}
    still = {ast.dump(left) for left in _sides(new, equal=True)}
    only = {ast.dump(left) for left in _sides(new, equal=False)} - {ast.dump(left) for left in _sides(old, equal=False)}
    found = [left for key, left in was.items() if key in only and key not in still]
    return ast.unparse(found[0])[:60] if found else ""


def _sides(body: Sequence[ast.stmt], *, equal: bool) -> list[ast.expr]:
    """What assertions are about: of those that say a value, or of the others."""
    tests = [node.test for top in body for node in ast.walk(top) if isinstance(node, ast.Assert)]
    found = []
    for test in tests:
        plain = isinstance(test, ast.Compare) and isinstance(test.comparators[0], ast.Constant)
        plain = plain and isinstance(test, ast.Compare) and test.comparators[0].value in (True, False, None)  # type: ignore[attr-defined]
        says = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq | ast.Is) and not plain
        if says is equal:
            found.append(test.left if isinstance(test, ast.Compare) else test)
    return found


def broad(body: Sequence[ast.stmt]) -> int:
    """How many expected errors are any error, or are expected with any message."""
    count = 0
    for top in body:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and last_name(node.func) in _EXPECTS and node.args:
                count += last_name(node.args[0]) in _BROAD
    return count


def messages(body: Sequence[ast.stmt]) -> int:
    """How many expected errors are expected with a message."""
    return sum(
        isinstance(node, ast.Call) and any(each.arg == "match" for each in node.keywords)
        for top in body
        for node in ast.walk(top)
    )


def is_empty(body: Sequence[ast.stmt]) -> bool:
    """Whether a body does nothing."""
    return all(_idle(node) for node in body)


def _idle(node: ast.stmt) -> bool:
    match node:
        case ast.Pass() | ast.Return(value=None) | ast.Expr(value=ast.Constant()) | ast.Return(value=ast.Constant()):
            return True
        case ast.Assert(test=test):
            return certain(test)
        case _:
            return False


def certain(test: ast.expr) -> bool:
    """Whether a condition can be seen to hold always."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return bool(elements)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(certain(each) for each in values)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(certain(each) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return never(operand)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is() | ast.GtE() | ast.LtE()], comparators=[right]):
            return ast.dump(left) == ast.dump(right)
        case ast.Compare(left=ast.Call(func=ast.Name(id="len")), ops=[ast.GtE()], comparators=[ast.Constant(value=0)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="object")]):
            return True
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return isinstance(left, ast.Compare | ast.BoolOp | ast.Constant | ast.List | ast.Tuple | ast.Dict)
        case _:
            return False


def never(test: ast.expr) -> bool:
    """Whether a condition can be seen to hold never."""
    match test:
        case ast.Constant(value=value):
            return not value
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return certain(operand)
        case ast.BoolOp(op=ast.And(), values=values):
            return any(never(each) for each in values)
        case ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case _:
            return False


def _of(node: ast.stmt) -> int:
    match node:
        case ast.Assert(test=test):
            return 0 if certain(test) else 1
        case ast.If(test=test, body=body, orelse=other):
            return (0 if never(test) else count(body)) + (0 if certain(test) else count(other))
        case ast.While(test=test, body=body):
            return 0 if never(test) else count(body)
        case ast.For(iter=over, body=body) | ast.AsyncFor(iter=over, body=body):
            return 0 if never(over) else count(body)
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            named = [_called(item.context_expr) for item in items]
            held = any(name == "suppress" for name in named)
            kept = sum(isinstance(item.context_expr, ast.Name) for item in items)  # an expectation, by its name
            return sum(name in _EXPECTS for name in named) + (0 if held else kept + count(body))
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            held = any(_swallows(handler) for handler in handlers)
            inside = 0 if held else count(body) + count(other)
            return inside + count(last) + sum(count(handler.body) for handler in handlers)
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) | ast.ClassDef(body=body):
            return count(body)
        case _:
            return sum(_call(each) for each in ast.walk(node) if isinstance(each, ast.Call))


def _called(node: ast.expr) -> str:
    return last_name(node.func) if isinstance(node, ast.Call) else last_name(node)


def _call(node: ast.Call) -> int:
    name = last_name(node.func)
    if (
        name in _EXPECTS
        or name.startswith(("assert", "check", "fail", "verify", "expect"))
        or name in ("match", "eq_", "ok_")
    ):
        return 0 if name in ("assertTrue", "assertIsNotNone") and node.args and certain(node.args[0]) else 1
    return 0


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a failed assertion ends here without anybody hearing of it."""
    caught = handler.type
    named = [caught] if caught is not None and not isinstance(caught, ast.Tuple) else getattr(caught, "elts", [])
    if caught is not None and not any(last_name(each) in _BROAD for each in named):
        return False
    raised = any(isinstance(node, ast.Raise | ast.Assert) for top in handler.body for node in ast.walk(top))
    return not raised and count(handler.body) == 0
