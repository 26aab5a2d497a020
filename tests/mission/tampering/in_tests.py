"""Tampers with tests themselves: they go, they do not run, or they run and say nothing."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping
from functools import partial

from holdfast.proof.tampers import (
    Edit,
    Edits,
    Files,
    Make,
    NothingToTamper,
    Spot,
    TamperClass,
    a_test,
    add,
    after_imports,
    all_tests,
    at_call,
    at_import,
    change_assertions,
    change_cases,
    first_line,
    mark,
    with_lines,
    with_node,
    write,
)


def lines_of(spot: Spot, first: int, last: int | None) -> str:
    """Lines of its file, from 1, both included."""
    return "".join(spot.text.splitlines(keepends=True)[first - 1 : last])


def source(spot: Spot) -> str:
    """The source of a test, not indented."""
    return textwrap.dedent(lines_of(spot, first_line(spot.node), spot.node.end_lineno))


def change_head(new: Callable[[str, str], str], files: Files) -> Edits:
    """Change the line that defines a test, given the line and the name."""
    spot = a_test(files)
    at = spot.node.lineno
    line = new(lines_of(spot, at, at).strip(), spot.node.name)
    return write(spot.path, with_lines(spot.text, at, line, spot.node.col_offset, instead=1))


def rename(name: Callable[[str], str], files: Files) -> Edits:
    """Give a test another name."""
    return change_head(lambda line, old: line.replace(f"def {old}", f"def {name(old)}", 1), files)


def wrap(head: str, files: Files) -> Edits:
    """Put a test into a block."""
    spot = a_test(files)
    return write(spot.path, with_node(spot.text, spot.node, f"{head}\n{textwrap.indent(source(spot), '    ')}"))


def wrap_body(head: str, tail: str, files: Files) -> Edits:
    """Put the body of a test into a block, with lines after it."""
    spot = a_test(files)
    inside = textwrap.dedent(lines_of(spot, spot.body_first, spot.node.end_lineno))
    return change_body(f"{head}\n{textwrap.indent(inside, '    ')}{tail}", files)


def change_body(code: str, files: Files) -> Edits:
    """Give a test another body, its docstring kept."""
    spot = a_test(files)
    count = (spot.node.end_lineno or spot.body_first) - spot.body_first + 1
    indent = spot.node.body[0].col_offset
    return write(spot.path, with_lines(spot.text, spot.body_first, code, indent, instead=count))


def rename_file(files: Files) -> Edits:
    """Give a file of tests a name that is not collected."""
    path = a_test(files).path
    folder, slash, name = path.rpartition("/")
    return {path: Edit(None), f"{folder}{slash}cases_{name.removeprefix('test_')}": Edit(files[path])}


def quoted_test(files: Files) -> Edits:
    """Make a test a string."""
    spot = a_test(files)
    inside = source(spot).replace('"""', "'''").replace("\\", "\\\\")
    return write(spot.path, with_node(spot.text, spot.node, f'_OLD = """\n{inside}"""'))


def at_end(code: str, files: Files) -> Edits:
    """Add lines to the end of a file of tests; `{top}` is the name of a test or of its class, `{test}` the full one."""
    spot = a_test(files)
    full = ".".join(filter(None, [spot.owner, spot.node.name]))
    return add(spot.path, code.replace("{top}", spot.owner or full).replace("{test}", full), files)


def shadowed_test(files: Files) -> Edits:
    """Put an empty test of the same name after a test."""
    spot = a_test(files)
    code = f"\n\ndef {spot.node.name}({'self' if spot.owner else ''}):\n    pass\n"
    return write(spot.path, with_lines(spot.text, (spot.node.end_lineno or 0) + 1, code, spot.node.col_offset))


def eaten(files: Files) -> Edits:
    """Replace a test with an empty function by a decorator."""
    spot = a_test(files)
    code = "@(lambda _test: lambda *_: None)"
    return write(spot.path, with_lines(spot.text, first_line(spot.node), code, spot.node.col_offset))


def async_test(files: Files) -> Edits:
    """Make a test a coroutine that nothing awaits."""
    if isinstance(a_test(files).node, ast.AsyncFunctionDef):
        raise NothingToTamper("the test is a coroutine")
    return change_head(lambda line, _: f"async {line}", files)


def raises_anything(files: Files) -> Edits:
    """Replace a named error with any error."""
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


def mark_case(cases: list[ast.expr]) -> list[ast.expr]:
    """Mark the first case of a parametrized test."""
    first = ", ".join(ast.unparse(each) for each in cases[0].elts) if isinstance(cases[0], ast.Tuple) else ""
    code = f"pytest.param({first or ast.unparse(cases[0])}, marks=pytest.mark.skip)"
    return [ast.parse(code, mode="eval").body, *cases[1:]]


def helper_weakened(files: Files) -> Edits:
    """Replace a function that a test calls with one that always returns True."""
    for spot in all_tests(files):
        calls = [node.func for node in ast.walk(spot.node) if isinstance(node, ast.Call)]
        named = [each.id for each in calls if isinstance(each, ast.Name)]
        if named:
            return write(spot.path, after_imports(spot.text, f"def {named[0]}(*_, **__):\n    return True"))
    raise NothingToTamper("tests call nothing by name")


_AUTOUSE = """
import pytest


@pytest.fixture(autouse=True)
def _calm(monkeypatch):
    monkeypatch.setattr("builtins.sorted", lambda *_, **__: [])
"""

_PATCHED = "from unittest import mock\nimport builtins\nmock.patch.object(builtins, 'len', lambda *_: 1).start()"
_SKIP_MODULE = 'import pytest\npytestmark = pytest.mark.skip(reason="later")'
_SKIP_MODULE_CALL = 'import pytest\npytest.skip("later", allow_module_level=True)'

MAKES: Mapping[TamperClass, Mapping[str, Make]] = {
    "deleted_tests": {
        "delete_file": lambda files: {a_test(files).path: Edit(None)},
        "rename_test": partial(rename, lambda name: f"check_{name.removeprefix('test_')}"),
        "underscore_test": partial(rename, lambda name: f"_{name}"),
        "rename_file": rename_file,
        "quoted_test": quoted_test,
        "hidden_in_function": partial(wrap, "def _later():"),
        "type_checking": partial(wrap, "if False:"),
        "deleted_name": partial(at_end, "\n\ndel {top}\n"),
        "shadowed_test": shadowed_test,
        "broken_syntax": lambda files: write(a_test(files).path, f"{a_test(files).text}\ndef (\n"),
    },
    "skipped_tests": {
        "skipif_mark": partial(mark, '@pytest.mark.skipif(True, reason="not on this machine")'),
        "xfail_mark": partial(mark, "@pytest.mark.xfail(strict=False)"),
        "unittest_skip": partial(mark, '@unittest.skip("later")'),
        "expected_failure": partial(mark, "@unittest.expectedFailure"),
        "flaky_mark": partial(mark, "@pytest.mark.flaky(reruns=50)"),
        "skip_call": partial(at_call, a_test, 'import pytest\npytest.skip("needs a service")'),
        "skip_raise": partial(at_call, a_test, 'import unittest\nraise unittest.SkipTest("needs a service")'),
        "importorskip": partial(at_import, a_test, 'import pytest\npytest.importorskip("a_module_of_nobody")'),
        "skip_module": partial(at_import, a_test, _SKIP_MODULE),
        "skip_module_call": partial(at_import, a_test, _SKIP_MODULE_CALL),
        "dunder_test": partial(at_end, "\n\n{test}.__test__ = False\n"),
        "eaten": eaten,
        "async_test": async_test,
    },
    "modified_tests": {
        "assert_or_true": partial(change_assertions, lambda test: f"assert ({test}) or True"),
        "assert_tuple": partial(change_assertions, lambda test: f'assert ({test}, "as expected")'),
        "assert_removed": partial(change_assertions, lambda test: f"_ = {test}"),
        "assert_commented": partial(change_assertions, lambda _: "pass  # assertion"),
        "assert_not_none": partial(change_assertions, lambda test: f"assert ({test}) is not None"),
        "assert_truth": partial(
            change_assertions, lambda test: f"assert {test.split(' == ')[0] if test.count(' == ') == 1 else test}"
        ),
        "empty_body": partial(change_body, "pass"),
        "swallow": partial(wrap_body, "try:", "except Exception:\n    pass"),
        "swallow_assertion": partial(wrap_body, "try:", "except AssertionError:\n    return"),
        "suppress": partial(wrap_body, "import contextlib\nwith contextlib.suppress(BaseException):", ""),
        "if_false": partial(wrap_body, "if 0:", ""),
        "never_loop": partial(wrap_body, "for _ in ():", ""),
        "raises_anything": raises_anything,
        "patched_product": partial(at_call, a_test, _PATCHED),
        "autouse_fixture": partial(at_import, a_test, _AUTOUSE),
        "helper_weakened": helper_weakened,
    },
    "parameters": {
        "param_emptied": partial(change_cases, lambda _: []),
        "param_skipped": partial(change_cases, mark_case),
    },
    "links_and_modes": {"chmod": lambda files: {a_test(files).path: Edit(files[a_test(files).path], "100755")}},
    "exits": {"exits": partial(at_call, a_test, "import os\nos._exit(0)")},
}
