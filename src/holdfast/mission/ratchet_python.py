"""Two versions of a file of tests: what became of each test. Adding is free."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from holdfast.facts.task import Violation
from holdfast.mission.ratchet_cases import (
    CALMS,
    Case,
    cases,
    dump,
    exits,
    is_skip,
    last_name,
    parsed,
    skips,
    without_docstring,
)
from holdfast.mission.ratchet_strength import broad, certain, count, is_empty, loosened, messages
from holdfast.mission.ratchet_surroundings import surroundings

Found = tuple[str, str]
"""A rule and the words on what breaks it."""

Elsewhere = Callable[[Case], bool]

_PUSHY = frozenset({"setattr", "delattr", "exec", "eval", "patch", "monkeypatch", "mock", "__dict__", "__setattr__"})


def compared(path: str, old: bytes, new: bytes, used: frozenset[str], elsewhere: Elsewhere) -> list[Violation]:
    """What a change of a file of tests breaks.

    `used` are the names of fixtures that tests ask for anywhere; `elsewhere` says that another file has the same test.
    """
    before, after = parsed(old), parsed(new)
    if after is None:
        return [Violation("test_deleted", path, "it is no Python any more: none of its tests is found")]
    if before is None:
        return [Violation("test_edited", path, "it is Python now, and was none: its tests cannot be compared")]
    if ast.dump(before) == ast.dump(after):
        return []
    was, now = cases(before), cases(after)
    found = [*_gone(was, now, _loose(after, now), elsewhere)]
    for name, case in was.items():
        if name in now:
            found += [(rule, f"{name} {words}") for rule, words in _changed(case, now[name])]
    found += surroundings(before, after, used, path)
    return [Violation(rule, path, words) for rule, words in dict.fromkeys(found)]


def _loose(tree: ast.Module, known: dict[str, Case]) -> frozenset[str]:
    """The bodies of functions that are no tests."""
    tests = {id(case.node) for case in known.values() if case.collected}
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(dump(without_docstring(each.body)) for each in functions if id(each) not in tests)


def _gone(was: dict[str, Case], now: dict[str, Case], loose: frozenset[str], elsewhere: Elsewhere) -> Iterator[Found]:
    new = [case for name, case in now.items() if name not in was]
    bodies = {id(case): case.body for case in new}
    for name, case in was.items():
        if not case.collected or (name in now and now[name].collected):
            continue
        body = case.body
        same = [each for each in new if bodies[id(each)] == body]
        called = [each for each in new if each.collected and each.node.name == case.node.name]
        moved = [each for each in same if each.collected]
        if moved:
            yield "test_moved", f"{name} is called {moved[0].name} now"
        elif name in now or body in loose:
            yield "test_renamed", f"{name} is still there, where it is not collected"
        elif elsewhere(case):
            yield "test_moved", f"{name} is in another file now"
        elif called:
            yield "test_moved", f"{name} is {called[0].name} now"
            yield from ((rule, f"{name} {words}") for rule, words in _changed(case, called[0]))
        else:
            yield "test_deleted", f"{name} is gone"


def _changed(old: Case, new: Case) -> Iterator[Found]:
    """What became of a test that is still there, in words that follow its name."""
    guards = set(new.guards) - set(old.guards)
    if any(guard.startswith("Constant(value=0") or "Constant(value=False" in guard for guard in guards):
        yield "test_deleted", "is behind a condition that never holds"
    elif any("TYPE_CHECKING" in guard for guard in guards):
        yield "test_deleted", "is behind a condition that never holds"
    elif guards:
        yield "test_skipped", "is defined under another condition"
    yield from _marks(old, new)
    yield from _parameters(old, new)
    if old.body != new.body:
        yield from _body(old.statements, new.statements)
    if old.arguments != new.arguments:
        yield "test_edited", "takes other arguments"
    if type(old.node) is not type(new.node):
        yield "test_edited", "is a coroutine now, or was one"


def _marks(old: Case, new: Case) -> Iterator[Found]:
    had, has = Counter(map(ast.dump, old.marks)), Counter(map(ast.dump, new.marks))
    added = [mark for mark in new.marks if ast.dump(mark) in has - had]
    kinds = {_kind(mark) for mark in old.marks if ast.dump(mark) in had - has}
    for mark in added:
        words, name = ast.unparse(mark), _kind(mark)
        if is_skip(mark) and name in kinds and not _holds(mark):
            yield "test_edited", f"is marked under another condition: {words}"
        elif is_skip(mark):
            yield "test_skipped", f"is marked {words}"
        elif name in CALMS:
            yield "test_weakened", f"is marked {words}"
        elif "timeout" in name:
            yield "timeout_changed", f"is marked {words}"
        elif name != "parametrize":
            yield "test_edited", f"is marked {words}"
    gone = [mark for mark in old.marks if ast.dump(mark) in had - has and not is_skip(mark)]
    if gone and not added:
        yield "test_edited", f"is no longer marked {ast.unparse(gone[0])}"


def _kind(mark: ast.expr) -> str:
    return last_name(mark.func if isinstance(mark, ast.Call) else mark)


def _holds(mark: ast.expr) -> bool:
    """Whether a mark is there in any case: it has no condition, or one that can be seen to hold."""
    given = mark.args[:1] if isinstance(mark, ast.Call) else []
    return not given or certain(given[0])


def _parameters(old: Case, new: Case) -> Iterator[Found]:
    for names, values in old.parameters.items():
        if names not in new.parameters:
            similar = [key for key in new.parameters if key not in old.parameters]
            rule = "test_edited" if similar else "parametrization_reduced"
            yield rule, "is parametrized otherwise" if similar else "is no longer parametrized"
            continue
        now = new.parameters[names]
        if values is None or now is None:
            if values is not now:
                yield "test_edited", "is parametrized otherwise"
            continue
        missing = Counter(values) - Counter(now)
        if missing and len(now) < len(values):
            yield "parametrization_reduced", f"has {len(now)} cases and had {len(values)}"
        elif missing:
            yield "test_edited", f"has {sum(missing.values())} of its cases changed"
        if any(each in new.marked_parameters and each not in old.marked_parameters for each in values):
            yield "test_skipped", "has a case that is marked now"
    if any(names not in old.parameters for names in new.parameters) and not old.parameters:
        yield "test_edited", "is parametrized now"


def _body(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Iterator[Found]:
    if is_empty(new) and not is_empty(old):
        yield "test_emptied", "does nothing any more"
        return
    if exits(new) > exits(old):
        yield "exit_trick", "ends the run by itself"
    if skips(new) > skips(old):
        yield "test_skipped", "skips itself"
        return
    said, says = count(old), count(new)
    if says < said:
        yield "test_weakened", f"has {says} assertions that can fail, and had {said}"
    elif loosened(old, new):
        yield "test_weakened", f"no longer says what {loosened(old, new)} is"
    elif broad(new) > broad(old):
        yield "test_weakened", "expects any error where it expected a certain one"
    elif messages(new) < messages(old) and says <= said:
        yield "test_weakened", "expects an error with any message"
    elif not _only_more(old, new):
        yield "test_edited", _words(old, new)


def _only_more(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> bool:
    """Whether statements were only added that cannot touch what the old ones say: assertions anywhere, and anything
    at the end that neither skips nor exits.
    """
    at = 0
    for index, node in enumerate(new):
        if at < len(old) and ast.dump(node) == ast.dump(old[at]):
            at += 1
            continue
        last = at == len(old) and not any(isinstance(each, ast.Return | ast.Raise) for each in old)
        quiet = not skips([node]) and not exits([node])
        if last and quiet and index >= len(old):
            continue
        if not _is_assertion(node):
            return False
    return at == len(old)


def _is_assertion(node: ast.stmt) -> bool:
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if not isinstance(node, ast.Assert) and not called:
        return False
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        if not last_name(node.value.func).startswith("assert"):
            return False
    for each in ast.walk(node):
        if isinstance(each, ast.NamedExpr | ast.Await | ast.Yield | ast.Lambda):
            return False
        if isinstance(each, ast.Name | ast.Attribute) and last_name(each) in _PUSHY:
            return False
    return True


def _words(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> str:
    return "expects other values" if _masked(old) == _masked(new) else "is changed"


def _masked(body: Sequence[ast.stmt]) -> str:
    class Mask(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant(value=0)

    copies = [ast.parse(ast.unparse(node)).body[0] for node in body]
    return dump([Mask().visit(each) for each in copies])
