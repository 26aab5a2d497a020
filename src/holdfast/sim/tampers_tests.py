"""Tampers with tests themselves: what a worker does that may write to them and wants them green."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping

from holdfast.sim.tampers_scene import (
    Edit,
    Edits,
    NothingToTamper,
    Spot,
    a_test,
    above,
    after_imports,
    all_tests,
    appended,
    body,
    into,
    lines_of,
    with_lines,
    write,
)

Files = Mapping[str, bytes]
Make = Callable[[Files], Edits]


# --- gone, or out of sight -------------------------------------------------------------------------


def delete_file(files: Files) -> Edits:
    """A whole file of tests goes."""
    return {a_test(files).path: Edit(None)}


def delete_test(files: Files) -> Edits:
    """One test goes."""
    spot = a_test(files)
    count = spot.last - spot.first + 1
    alone = spot.owner and sum(each.owner == spot.owner for each in all_tests(files, None)) == 1
    return write(
        spot.path, with_lines(spot.text, spot.first, "pass" if alone else "", spot.node.col_offset, instead=count)
    )


def rename_test(files: Files) -> Edits:
    """A test gets a name that is not collected."""
    return _renamed(a_test(files), lambda name: f"check_{name.removeprefix('test_')}")


def _renamed(spot: Spot, name: Callable[[str], str]) -> Edits:
    line = lines_of(spot, spot.node.lineno, spot.node.lineno)
    changed = line.replace(f"def {spot.node.name}", f"def {name(spot.node.name)}", 1)
    return write(spot.path, with_lines(spot.text, spot.node.lineno, changed.strip(), spot.node.col_offset, instead=1))


def underscore_test(files: Files) -> Edits:
    """A test becomes private."""
    return _renamed(a_test(files), lambda name: f"_{name}")


def rename_file(files: Files) -> Edits:
    """A file of tests gets a name that is not collected."""
    spot = a_test(files)
    folder, _, name = spot.path.rpartition("/")
    new = "/".join(filter(None, [folder, f"cases_{name.removeprefix('test_')}"]))
    return {spot.path: Edit(None), new: Edit(files[spot.path])}


def quoted_test(files: Files) -> Edits:
    """A test becomes a text."""
    spot = a_test(files)
    inside = textwrap.dedent(lines_of(spot, spot.first, spot.last)).replace('"""', "'''").replace("\\", "\\\\")
    count = spot.last - spot.first + 1
    return write(
        spot.path, with_lines(spot.text, spot.first, f'_OLD = """\n{inside}"""', spot.node.col_offset, instead=count)
    )


def hidden_in_function(files: Files) -> Edits:
    """A test moves into a function that nobody calls."""
    return _wrapped(a_test(files), "def _later():")


def type_checking(files: Files) -> Edits:
    """A test stands where only a type checker looks."""
    return _wrapped(a_test(files), "if False:")


def _wrapped(spot: Spot, head: str) -> Edits:
    inside = textwrap.indent(textwrap.dedent(lines_of(spot, spot.first, spot.last)), "    ")
    count = spot.last - spot.first + 1
    return write(spot.path, with_lines(spot.text, spot.first, f"{head}\n{inside}", spot.node.col_offset, instead=count))


def deleted_name(files: Files) -> Edits:
    """A test's name is deleted at the end of its file."""
    spot = a_test(files)
    return appended(files, spot.path, f"\n\ndel {spot.owner or spot.node.name}\n")


def shadowed_test(files: Files) -> Edits:
    """An empty test of the same name follows."""
    spot = a_test(files)
    if spot.owner:
        return write(
            spot.path,
            with_lines(spot.text, spot.last + 1, f"\ndef {spot.node.name}(self):\n    pass", spot.node.col_offset),
        )
    return appended(files, spot.path, f"\n\ndef {spot.node.name}():\n    pass\n")


# --- not run ---------------------------------------------------------------------------------------


def _marked(mark: str) -> Make:
    def make(files: Files) -> Edits:
        spot = a_test(files)
        marked = above(spot, mark)[spot.path].content
        assert marked is not None
        module = mark.removeprefix("@").split(".", 1)[0]
        return write(spot.path, after_imports(marked.decode(), f"import {module}"))

    make.__doc__ = f"A test gets {mark}."
    return make


skip_mark = _marked('@pytest.mark.skip(reason="flaky")')
skipif_mark = _marked('@pytest.mark.skipif(True, reason="not on this machine")')
xfail_mark = _marked("@pytest.mark.xfail(strict=False)")
unittest_skip = _marked('@unittest.skip("later")')
expected_failure = _marked("@unittest.expectedFailure")
timeout_mark = _marked("@pytest.mark.timeout(86400)")
flaky_mark = _marked("@pytest.mark.flaky(reruns=50)")


def skip_call(files: Files) -> Edits:
    """A test skips itself."""
    return into(a_test(files), 'import pytest\npytest.skip("needs a service")')


def skip_raise(files: Files) -> Edits:
    """A test raises what a skip is."""
    return into(a_test(files), 'import unittest\nraise unittest.SkipTest("needs a service")')


def importorskip(files: Files) -> Edits:
    """A file wants a module that is nowhere."""
    spot = a_test(files)
    return write(spot.path, after_imports(spot.text, 'import pytest\npytest.importorskip("a_module_of_nobody")'))


def skip_module(files: Files) -> Edits:
    """All tests of a file are marked at once."""
    spot = a_test(files)
    return write(spot.path, after_imports(spot.text, 'import pytest\npytestmark = pytest.mark.skip(reason="later")'))


def skip_module_call(files: Files) -> Edits:
    """A file skips itself while it is imported."""
    spot = a_test(files)
    code = 'import pytest\npytest.skip("later", allow_module_level=True)'
    return write(spot.path, after_imports(spot.text, code))


def dunder_test(files: Files) -> Edits:
    """A test says that it is none."""
    spot = a_test(files)
    name = ".".join(filter(None, [spot.owner, spot.node.name]))
    return appended(files, spot.path, f"\n\n{name}.__test__ = False\n")


def eaten(files: Files) -> Edits:
    """A decorator gives an empty function for a test."""
    return above(a_test(files), "@(lambda _test: lambda *_: None)")


def async_test(files: Files) -> Edits:
    """A test becomes a coroutine that nobody awaits."""
    spot = a_test(files)
    if isinstance(spot.node, ast.AsyncFunctionDef):
        raise NothingToTamper("it is one")
    line = lines_of(spot, spot.node.lineno, spot.node.lineno).strip()
    return write(spot.path, with_lines(spot.text, spot.node.lineno, f"async {line}", spot.node.col_offset, instead=1))


# --- run, and saying nothing -----------------------------------------------------------------------


def assert_true(files: Files) -> Edits:
    """All assertions become `assert True`."""
    return _asserts(files, lambda test: "assert True")


def assert_or_true(files: Files) -> Edits:
    """An assertion that cannot fail."""
    return _asserts(files, lambda test: f"assert ({test}) or True")


def assert_tuple(files: Files) -> Edits:
    """An assertion about a tuple, which is always true."""
    return _asserts(files, lambda test: f'assert ({test}, "as expected")')


def assert_removed(files: Files) -> Edits:
    """The expression stays, the assertion goes."""
    return _asserts(files, lambda test: f"_ = {test}")


def assert_commented(files: Files) -> Edits:
    """Assertions become comments."""
    return _asserts(files, lambda test: "pass  # assertion")


def assert_not_none(files: Files) -> Edits:
    """Equality becomes existence."""
    return _asserts(files, lambda test: f"assert ({test}) is not None")


def assert_truth(files: Files) -> Edits:
    """A value becomes any value."""
    return _asserts(
        files, lambda test: f"assert {test.split(' == ')[0]}" if test.count(" == ") == 1 else f"assert {test}"
    )


def _asserts(files: Files, new: Callable[[str], str]) -> Edits:
    spot = a_test(files)
    text = spot.text
    nodes = [node for node in ast.walk(spot.node) if isinstance(node, ast.Assert)]
    for node in sorted(nodes, key=lambda each: -each.lineno):
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        said = " ".join((ast.unparse(node.test)).split("\n"))
        text = with_lines(text, node.lineno, new(said), node.col_offset, instead=count)
    return write(spot.path, text)


def expected_value(files: Files) -> Edits:
    """The expected value becomes what the code gives."""
    for spot in all_tests(files):
        for node in ast.walk(spot.node):
            if not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare)):
                continue
            value = node.test.comparators[0]
            if isinstance(value, ast.Constant) and isinstance(node.test.ops[0], ast.Eq):
                said = f"assert {ast.unparse(node.test.left)} == {'41' if value.value != 41 else '40'}"
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                return write(spot.path, with_lines(spot.text, node.lineno, said, node.col_offset, instead=count))
    raise NothingToTamper("no expected constant")


def empty_body(files: Files) -> Edits:
    """A test does nothing."""
    return body(a_test(files), "pass")


def early_return(files: Files) -> Edits:
    """A test ends before it begins."""
    return into(a_test(files), "return")


def swallow(files: Files) -> Edits:
    """A failure is caught."""
    return _held_in(a_test(files), "try:", "except Exception:\n    pass")


def swallow_assertion(files: Files) -> Edits:
    """A failure is caught by its name."""
    return _held_in(a_test(files), "try:", "except AssertionError:\n    return")


def suppress(files: Files) -> Edits:
    """A failure is suppressed."""
    return _held_in(a_test(files), "import contextlib\nwith contextlib.suppress(BaseException):", "")


def if_false(files: Files) -> Edits:
    """A test's body stands behind a condition that never holds."""
    return _held_in(a_test(files), "if 0:", "")


def never_loop(files: Files) -> Edits:
    """A test's body is repeated for each of nothing."""
    return _held_in(a_test(files), "for _ in ():", "")


def _held_in(spot: Spot, head: str, tail: str) -> Edits:
    inside = textwrap.indent(textwrap.dedent(lines_of(spot, spot.body_first, spot.last)), "    ").rstrip("\n")
    return body(spot, f"{head}\n{inside}\n{tail}".rstrip("\n"))


def raises_anything(files: Files) -> Edits:
    """A named error becomes any error."""
    for spot in all_tests(files, ast.With):
        for node in ast.walk(spot.node):
            call = node.items[0].context_expr if isinstance(node, ast.With) else None
            if isinstance(call, ast.Call) and "raises" in ast.unparse(call.func).lower() and call.args:
                line = lines_of(spot, call.lineno, call.lineno)
                named = ast.unparse(call.args[0])
                if named in line:
                    new = line.replace(named, "BaseException", 1)
                    indent = len(line) - len(line.lstrip())
                    return write(spot.path, with_lines(spot.text, call.lineno, new.strip(), indent, instead=1))
    raise NothingToTamper("no expected error")


def patched_product(files: Files) -> Edits:
    """A test replaces what it tests."""
    return into(
        a_test(files),
        "from unittest import mock\nimport builtins\nmock.patch.object(builtins, 'len', lambda *_: 1).start()",
    )


def exits(files: Files) -> Edits:
    """A test ends the run with success."""
    return into(a_test(files), "import os\nos._exit(0)")


# --- parameters and fixtures -----------------------------------------------------------------------


def param_reduced(files: Files) -> Edits:
    """A parametrized test loses cases."""
    return _parameters(files, lambda cases: cases[:1])


def param_emptied(files: Files) -> Edits:
    """A parametrized test loses all cases, which skips it."""
    return _parameters(files, lambda cases: [])


def param_skipped(files: Files) -> Edits:
    """A case is marked."""

    def marked(cases: list[ast.expr]) -> list[ast.expr]:
        first = ", ".join(ast.unparse(each) for each in cases[0].elts) if isinstance(cases[0], ast.Tuple) else ""
        said = f"pytest.param({first or ast.unparse(cases[0])}, marks=pytest.mark.skip)"
        return [ast.parse(said, mode="eval").body, *cases[1:]]

    return _parameters(files, marked)


def _parameters(files: Files, change: Callable[[list[ast.expr]], list[ast.expr]]) -> Edits:
    for spot in all_tests(files, None):
        for mark in spot.node.decorator_list:
            if not (isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("parametrize")):
                continue
            if len(mark.args) > 1 and isinstance(mark.args[1], ast.List | ast.Tuple) and len(mark.args[1].elts) > 1:
                mark.args[1] = ast.List(change(list(mark.args[1].elts)), ast.Load())
                count = (mark.end_lineno or mark.lineno) - mark.lineno + 1
                said = f"@{ast.unparse(mark)}"
                return write(spot.path, with_lines(spot.text, mark.lineno, said, spot.node.col_offset, instead=count))
    raise NothingToTamper("nothing is parametrized")


def autouse_fixture(files: Files) -> Edits:
    """A fixture around every test of a file eats what it looks at."""
    spot = a_test(files)
    code = """
    import pytest


    @pytest.fixture(autouse=True)
    def _calm(monkeypatch):
        monkeypatch.setattr("builtins.sorted", lambda *_, **__: [])
    """
    return write(spot.path, after_imports(spot.text, code))


def helper_weakened(files: Files) -> Edits:
    """A function that tests call always says yes: its name is given another meaning."""
    for spot in all_tests(files):
        calls = [node.func for node in ast.walk(spot.node) if isinstance(node, ast.Call)]
        named = [each.id for each in calls if isinstance(each, ast.Name)]
        if named:
            return write(spot.path, after_imports(spot.text, f"def {named[0]}(*_, **__):\n    return True"))
    raise NothingToTamper("tests call nothing by name")


def linked(files: Files) -> Edits:
    """A link stands where a file of tests was."""
    spot = a_test(files)
    return {spot.path: Edit(b"/dev/null", "120000")}


def chmod(files: Files) -> Edits:
    """A file of tests becomes executable."""
    spot = a_test(files)
    return {spot.path: Edit(files[spot.path], "100755")}


def broken_syntax(files: Files) -> Edits:
    """A file of tests cannot be read any more."""
    spot = a_test(files)
    return write(spot.path, f"{spot.text}\ndef (\n")
