"""Protected files of a contract, which workers may not change, and hidden tests, which roles do not see. Pure.

By default tests and the configuration of tests and CI are protected. Globs are those of git: `**/` is any number of
folders, including none. Test settings inside shared files (`pyproject.toml`, `package.json`, `setup.cfg`) are compared
by content elsewhere.

Of a failed hidden check only the type of the error and the public functions on the stack leave the sandbox. Types and
names count only if the product itself defines them, so that they cannot carry a value of a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile

import msgspec

from holdfast.facts.mission import Check, Contract
from holdfast.globs import matches
from holdfast.kinds.mission.contract.commands import deciding, placed, words_of

TESTS = (
    *("tests/**", "test/**", "**/tests/**", "**/test/**", "**/__tests__/**", "**/testdata/**"),
    *("**/test_*.py", "**/*_test.py", "**/conftest.py"),
    *("**/*.test.js", "**/*.test.jsx", "**/*.test.ts", "**/*.test.tsx", "**/*.test.mjs", "**/*.test.cjs"),
    *("**/*.spec.js", "**/*.spec.jsx", "**/*.spec.ts", "**/*.spec.tsx", "**/*.spec.mjs", "**/*.spec.cjs"),
    *("**/*_test.go", "**/*_spec.rb", "spec/**"),
)

SETTINGS = (
    *("**/pytest.ini", "**/.pytest.ini", "**/tox.ini", "**/.coveragerc", "noxfile.py"),
    *("**/jest.config.*", "**/vitest.config.*", "**/playwright.config.*", "**/cypress.config.*", "**/karma.conf.*"),
    *("**/.mocharc.*", ".rspec"),
)

CI = (
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".circleci/**", "azure-pipelines.yml"),
    *("Jenkinsfile", ".travis.yml", ".buildkite/**", "bitbucket-pipelines.yml"),
)

MISSION = ("feature_list.json", "prd.json", "mission.toml")

HOOKS = (".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/**")
"""Claude Code settings: these hooks run around the tool calls of the next worker."""

DEFAULT_PROTECTED = (*TESTS, *SETTINGS, *CI, *MISSION, *HOOKS)


def protected(source: str = "", more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the protected globs of a contract that was read from `source`, which names `more` of its own."""
    return tuple(dict.fromkeys([*DEFAULT_PROTECTED, *([source] if source else []), *more]))


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
    """Return True if roles do not see the file."""
    return matches(path, contract.hidden)


def names_hidden(check: Check, contract: Contract) -> bool:
    """Return True if a check names a hidden file or its folder, so that it is run with the hidden files."""
    if not contract.hidden:
        return False
    folders = {_folder(glob) for glob in contract.hidden} - {""}
    return any(matches(path, contract.hidden) or path in folders for path in _paths(check))


def unused(contract: Contract) -> tuple[str, ...]:
    """Return hidden globs that no check names, so their files are never run."""
    checks = [each.check for each in contract.criteria().values() if each.check is not None]
    alone = ((glob, msgspec.structs.replace(contract, hidden=(glob,))) for glob in contract.hidden)
    return tuple(glob for glob, only in alone if not any(names_hidden(check, only) for check in checks))


def half(contract: Contract, written: Iterable[str]) -> list[str]:
    """Return every second test file that checks of a new contract name, to be hidden."""
    tests = [path for path in sorted(written) if matches(path, TESTS)]
    alone = [path for path in tests if not unused(msgspec.structs.replace(contract, hidden=(path,)))]
    return alone[1::2]


def _paths(check: Check) -> Iterable[str]:
    """Yield the words of a check as paths from the root, dotted modules included."""
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
    """Return the folder that a glob covers as a whole; empty for any other glob."""
    parts = glob.removeprefix("./").split("/")
    plain = [*takewhile(lambda part: not set(part) & set("*?["), parts)]
    return "/".join(plain) if parts[len(plain) :] in ([], ["**"], [""], ["**", "*"]) else ""


def disclosed(output: str, product: Mapping[str, bytes]) -> str:
    """Return the disclosable part of a hidden check's output. `product` has the tree's files that are not hidden."""
    defined = {
        name.decode() for content in product.values() for pair in _DEFINED.findall(content) for name in pair if name
    }
    types = [name for name in _TYPE.findall(output) if name in _BUILT_IN or name in defined]
    frames = [name for name in _FRAME.findall(output) if name in defined and not name.startswith(("_", "test"))]
    kinds = ", ".join(dict.fromkeys(types[-NAMES_MAX:]))
    names = ", ".join([*dict.fromkeys(frames)][:NAMES_MAX])
    said = "A hidden check failed. Its output is not shown."
    return said + (f" Type: {kinds}." if kinds else "") + (f" Functions on the stack: {names}." if names else "")
