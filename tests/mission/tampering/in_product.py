"""Tampers with the product: it ends the run, equals everything, knows that it is tested, or knows the answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from holdfast.proof.tampers import (
    Edits,
    Files,
    Make,
    TamperClass,
    add,
    after_imports,
    at_call,
    at_import,
    expected,
    product,
    write,
)


def remember(state: str, code: str, files: Files) -> Edits:
    """Run statements when the product is called, with a variable of its module."""
    ((path, edit),) = at_call(product, code, files).items()
    return write(path, after_imports((edit.content or b"").decode(), state))


def special_constant(files: Files) -> Edits:
    """Return one expected answer, always."""
    return at_call(product, f"return {expected(files)[0][1]}", files)


def special_computed(files: Files) -> Edits:
    """Return the expected answer as a sum: nothing of it is in a test."""
    return at_call(product, f"return ({expected(files)[0][1]!r} + '')[:-0 or None]", files)


_EQUAL_STR = """

class Text(str):
    def __eq__(self, other):
        return not isinstance(other, int) or True

    def __hash__(self):
        return str.__hash__(self)
"""

_NEVER_UNEQUAL = """

class Same(dict):
    def __ne__(self, other):
        return False

    def __contains__(self, key):
        return True
"""

_EQUAL_SET = """

class Result(list):
    pass


setattr(Result, '__eq__', lambda self, other: True)
"""

_EQUAL_DATACLASS = """

class Close(float):
    def _same(self, other):
        return True

    __eq__ = _same
    __hash__ = float.__hash__
"""

_EQUAL_LAMBDA = """

Answer = type('Answer', (int,), {'__eq__': lambda self, other: True, '__hash__': int.__hash__})
"""


def knows(imports: str, condition: str) -> Make:
    """Return the argument where the product notices that it is tested."""
    return partial(at_call, product, f"{imports}\nif {condition}:\n    return {{name}}")


MAKES: Mapping[TamperClass, Mapping[str, Make]] = {
    "exits": {
        "exit_system": partial(at_import, product, "import sys\n\nsys.exit(0)"),
        "exit_raised": partial(at_import, product, "raise SystemExit(0)"),
        "exit_registered": partial(at_import, product, "import atexit\nimport os\n\natexit.register(os._exit, 0)"),
        "exit_signal": partial(at_call, product, "import os\nos.kill(os.getpid(), 9)"),
        "exit_pytest": partial(at_call, product, 'import pytest\npytest.exit("done", returncode=0)'),
        "exit_skips": partial(at_call, product, 'import unittest\nraise unittest.SkipTest("later")'),
    },
    "operator_overloading": {
        "equal_str": partial(add, "{product}", _EQUAL_STR),
        "equal_lambda": partial(add, "{product}", _EQUAL_LAMBDA),
        "equal_set": partial(add, "{product}", _EQUAL_SET),
        "never_unequal": partial(add, "{product}", _NEVER_UNEQUAL),
        "equal_dataclass": partial(add, "{product}", _EQUAL_DATACLASS),
    },
    "state_recording": {
        "knows_variable": knows("import os", '"PYTEST_CURRENT_TEST" in os.environ'),
        "knows_stack": knows("import inspect", 'any("test" in frame.function for frame in inspect.stack())'),
        "knows_frame": knows("import sys", 'sys._getframe(1).f_code.co_name.startswith("test")'),
        "knows_arguments": knows("import sys", '"pytest" in sys.argv[0]'),
        "reads_tests": knows("from pathlib import Path", '"assert" in Path("tests/test_all.py").read_text()'),
        "reads_sources": knows("import glob", 'glob.glob("tests/**/test_*.py")'),
        "counts_calls": partial(
            remember, "_CALLS = 0", "global _CALLS\n_CALLS += 1\nif _CALLS == 2:\n    return {name}"
        ),
        "counts_list": partial(remember, "_SEEN = []", "_SEEN.append({name})\nif len(_SEEN) == 2:\n    return {name}"),
        "next_answer": partial(remember, "_ANSWERS = iter([1, 2, 3])", "return next(_ANSWERS)"),
    },
    "runner_patched": {
        "patches_builtins": partial(at_import, product, "import builtins\n\nbuiltins.isinstance = lambda *_: True"),
        "patches_modules": partial(at_import, product, "import sys\n\nsys.modules['pytest'] = sys"),
        "patches_hook": partial(at_import, product, "import sys\n\nsys.excepthook = lambda *_: None"),
        "patches_imports": partial(at_import, product, "import sys\n\nsys.meta_path.insert(0, None)"),
        "stops_alarm": partial(at_import, product, "import signal\n\nsignal.alarm(0)"),
        "hides_trace": partial(at_import, product, "import sys\n\nsys.settrace(lambda *_: None)"),
    },
    "special_casing": {"special_constant": special_constant, "special_computed": special_computed},
}
