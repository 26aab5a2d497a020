"""Hidden checks: tests that no role sees, which checks that name them are run with. Pure.

Only what a hidden check says leaves the hands: that it failed, the type of the error, and the public functions of the
product that were on the stack. Types and names count only as far as the product has them by itself, so that no value of
a test can be told by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile

import msgspec

from holdfast.facts.contract import Check, Contract
from holdfast.globs import matches
from holdfast.kinds.mission.contract.check_commands import words_of
from holdfast.kinds.mission.contract.commands import deciding, placed
from holdfast.kinds.mission.contract.protected import TESTS

NAMES_MAX = 5

_BUILT_IN = frozenset(
    """
    ArithmeticError AssertionError AttributeError BlockingIOError BrokenPipeError BufferError ChildProcessError
    ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError EOFError Exception
    FileExistsError FileNotFoundError FloatingPointError ImportError IndentationError IndexError InterruptedError
    IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError
    NotADirectoryError NotImplementedError OSError OverflowError PermissionError RecursionError ReferenceError
    RuntimeError StopIteration SyntaxError SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError
    UnicodeDecodeError UnicodeEncodeError UnicodeError ValueError ZeroDivisionError Error RangeError ReferenceError
    EvalError URIError panic
    """.split()
)

_TYPE = re.compile(
    r"^(?:E\s+|\s*)(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning)|Error|panic)\b",
    re.MULTILINE,
)

_FRAME = re.compile(
    r"(?:\bin |\bat (?:async )?(?:[\w$]+\.)*|^(?:[\w./-]+\.)?)([A-Za-z_$][\w$]*)(?=$|\n| \(|\()", re.MULTILINE
)

_DEFINED = re.compile(
    rb"\b(?:def|func|function|class|fn)\s+(?:\([^)]*\)\s*)?([A-Za-z]\w*)|^\s*(?:export\s+)?(?:const|let|var)\s+([A-Za-z]\w*)\s*=",
    re.MULTILINE,
)


def is_hidden(path: str, contract: Contract) -> bool:
    """Whether a path is one that roles do not see."""
    return matches(path, contract.hidden)


def names_hidden(check: Check, contract: Contract) -> bool:
    """Whether a check is run with the hidden files: it names one of them, or the folder that they are in."""
    if not contract.hidden:
        return False
    folders = {_folder(glob) for glob in contract.hidden} - {""}
    for path in _paths(check):
        if matches(path, contract.hidden) or path in folders:
            return True
    return False


def unused(contract: Contract) -> tuple[str, ...]:
    """Hidden globs that no check names: what is there is never run."""
    checks = [each.check for each in contract.criteria().values() if each.check is not None]
    alone = ((glob, msgspec.structs.replace(contract, hidden=(glob,))) for glob in contract.hidden)
    return tuple(glob for glob, only in alone if not any(names_hidden(check, only) for check in checks))


def half(contract: Contract, written: Iterable[str]) -> list[str]:
    """Half of the test files of a new contract, to be hidden: of those that checks name, every second one."""
    tests = [path for path in sorted(written) if matches(path, TESTS)]
    alone = [path for path in tests if not unused(msgspec.structs.replace(contract, hidden=(path,)))]
    return alone[1::2]


def _paths(check: Check) -> Iterable[str]:
    """Words of a check as paths from the root, modules with dots as well."""
    places = {run.folder for run in deciding(check.command, output_counts=True)} | {""}
    for word in words_of(check):
        for part in word.split():
            name = part.partition("::")[0].partition("=")[2] or part.partition("::")[0]
            name = name.removesuffix("/...").rstrip("/")
            for place in places:
                yield placed(place, name)
            if re.fullmatch(r"\w+(?:\.\w+)+", name):
                dotted = name.split(".")
                yield from ("/".join(dotted[:count]) for count in range(1, len(dotted) + 1))
                yield from ("/".join(dotted[:count]) + ".py" for count in range(1, len(dotted) + 1))


def _folder(glob: str) -> str:
    """The folder of which a glob means everything, empty for any other glob."""
    parts = glob.removeprefix("./").split("/")
    plain = [*takewhile(lambda part: not set(part) & set("*?["), parts)]
    return "/".join(plain) if parts[len(plain) :] in ([], ["**"], [""], ["**", "*"]) else ""


def told(output: str, product: Mapping[str, bytes]) -> str:
    """What may be told of the output of a hidden check. `product` are the files of the tree that were not hidden."""
    defined = {
        name.decode() for content in product.values() for pair in _DEFINED.findall(content) for name in pair if name
    }
    types = [name for name in _TYPE.findall(output) if name in _BUILT_IN or name in defined]
    frames = [name for name in _FRAME.findall(output) if name in defined and not name.startswith(("_", "test"))]
    kinds = ", ".join(dict.fromkeys(types[-NAMES_MAX:]))
    names = ", ".join([*dict.fromkeys(frames)][:NAMES_MAX])
    said = "A hidden check failed. Its output is not shown."
    return said + (f" Type: {kinds}." if kinds else "") + (f" Functions on the stack: {names}." if names else "")
