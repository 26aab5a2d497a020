"""Altered copies of check programs other than test runners: wrong expectations, or a fixed exit status. Pure.

A check by a custom program (`sh tests/run.sh`, `python verify.py`, `make check`) reports no outcomes of tests. Its
comparisons can still be altered: a copy that expects 16 instead of 15 must fail on a correct product. Only literals in
assertions and in comparisons that decide the exit of the program are altered. The same literals are found for copies
that mean the same (`restated`).
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from holdfast.facts.mission import Check
from holdfast.globs import matches
from holdfast.kinds.mission.check import judging
from holdfast.kinds.mission.check.ability import restating
from holdfast.kinds.mission.check.ability.braces import arguments, masked, near
from holdfast.kinds.mission.check.ability.python import parsed, unparsed
from holdfast.kinds.mission.contract.contents import command_line

_SHELL = frozenset({".sh", ".bash", ".mk"})
_BRACES = frozenset(".js .cjs .mjs .ts .c .cc .cpp .cxx .h .hpp .java .rs .go .php .swift .cs .kt".split())
TEXTS = frozenset({".md", ".rst", ".txt"})
"""Suffixes of texts that may contain examples."""
_MAKE = frozenset({"Makefile", "makefile", "GNUmakefile"})

TEST_NAME = re.compile(r"^test_|_test\.|\.(test|spec)\.")
"""Names of test files in any language."""

FILES = 400
"""Most protected files that are read for one check."""

_TEST = """import unittest


class TestEnd(unittest.TestCase):
    def test_end(self):
        self.assertEqual({code}, 0)
"""

_WITH_END = {
    ".py": "raise SystemExit({code})\n",
    ".sh": "exit {code}\n",
    ".js": "process.exit({code});\n",
    ".c": "int main(void) {{ return {code}; }}\n",
}
_SAYING = {".py": "print({said!r})\n", ".sh": "echo '{said}'\n", ".js": "console.log({said!r});\n"}


def read(check: Check, files: Mapping[str, bytes], protected: Sequence[str]) -> list[str]:
    """Return the programs and texts that decide a check: those its command runs, and protected files named there."""
    direct = judging.programs(check, files)
    typed = "\n".join([check.command, *(files[path].decode("utf-8", "replace") for path in sorted(direct))])
    words = {posixpath.normpath(word) for word in re.findall(r"[\w./+-]+", typed)} - {"."}
    named = [path for path in files if matches(path, protected) and not words.isdisjoint(_places(path))][:FILES]
    return sorted(path for path in {*direct, *named} if kind_of(path, files[path]))


def _places(path: str) -> Iterator[str]:
    """Return a path and the folders above it."""
    while path:
        yield path
        path = posixpath.dirname(path)


def kind_of(path: str, data: bytes) -> str:
    """Return the suffix of a file's language; "" if it cannot be altered."""
    name = posixpath.basename(path)
    suffix = posixpath.splitext(name)[1]
    first = data[:100].partition(b"\n")[0]
    if name in _MAKE:
        return ".mk"
    if not suffix and first.startswith(b"#!"):
        suffix = ".py" if b"python" in first else ".js" if b"node" in first else ".sh" if b"sh" in first else ""
    known = suffix == ".py" or suffix in _SHELL or suffix in _BRACES or suffix in TEXTS
    return suffix if known else ""


def altered(
    check: Check, files: Mapping[str, bytes], protected: Sequence[str], own: Sequence[str] = (), word: str = ""
) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
    """Return altered copies of the programs that decide a check, and restated ones. `own` are globs of the product."""
    judges = [path for path in read(check, files, protected) if matches(path, protected) or not matches(path, own)]
    copies = {path: data for path in judges if (data := turned(path, files[path])) is not None}
    direct = judging.programs(check, files)
    same = {path: restated(path, files[path], word, program=path in direct) for path in copies}
    return {**copies}, {path: data for path, data in same.items() if data is not None}


def added(
    checks: Sequence[Check], files: Mapping[str, bytes], base: Collection[str], protected: Sequence[str]
) -> list[str]:
    """Return new test files that no check names, neither directly nor by a new folder."""
    words = {posixpath.normpath(word) for check in checks for word in re.findall(r"[\w./+-]+", command_line(check))}
    old = {place for path in base for place in _places(path)}
    return [
        path
        for path in files
        if path not in base
        and (TEST_NAME.search(posixpath.basename(path)) or matches(path, protected))
        and not any(place in words and place not in old for place in _places(path))
    ]


def turned(path: str, data: bytes) -> bytes | None:
    """Return a copy with altered expectations; None if nothing in it can be altered."""
    kind = kind_of(path, data)
    text = data.decode("utf-8", "surrogateescape")
    if kind == ".py":
        return _python(data)
    found = [span for span in _expected(kind, text) if near(text[slice(*span)])]
    for start, end in found:
        text = text[:start] + near(text[start:end]) + text[end:]
    return text.encode("utf-8", "surrogateescape") if found else None


def restated(path: str, data: bytes, word: str, *, program: bool = False) -> bytes | None:
    """Return a copy with the same meaning and other text, so that only its results can be what they were.

    A correct product cannot tell it from the original. `program` marks a file that is run and not imported. None if
    there is nothing to restate.
    """
    kind = kind_of(path, data)
    if kind == ".py":
        return restating.python(data, word, program=program)
    text = data.decode("utf-8", "surrogateescape")
    if not kind or kind in TEXTS:
        return None
    copy = restating.shell if kind in _SHELL else restating.braces
    return copy(path, kind, text, _expected(kind, text), word).encode("utf-8", "surrogateescape")


def _expected(kind: str, text: str) -> list[tuple[int, int]]:
    """Return the spans of expected values in a file in a language other than Python, the last first."""
    spans: Callable[[str], Iterator[tuple[int, int]]] = (
        _in_shell if kind in _SHELL else _in_examples if kind in TEXTS else _in_braces
    )
    return sorted(set(spans(text)), reverse=True) if kind else []


def ending(path: str, data: bytes, code: int, said: str = "") -> bytes | None:
    """Return a replacement that only exits with `code`; None if there is none for its language.

    `said` is printed for a check that reads a number.
    """
    kind = kind_of(path, data)
    kind = {".bash": ".sh", ".cjs": ".js", ".mjs": ".js", ".ts": ".js"}.get(kind, kind)
    if kind in TEXTS:
        return b"    >>> 1\n    2\n" if code else b"    >>> 1\n    1\n"
    if kind == ".py" and re.match(r"test_|.*_test\.py", posixpath.basename(path)):
        return _TEST.format(code=code).encode()
    if kind not in _WITH_END or (said and kind not in _SAYING):
        return None
    return ((_SAYING[kind].format(said=said) if said else "") + _WITH_END[kind].format(code=code)).encode()


_LITERAL = r"""-?\d+(?:\.\d+)?(?![\w.])|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
_PLAIN = re.compile(rf"\s*({_LITERAL})\s*")
_SAME = re.compile(rf"([!=]==?)\s*({_LITERAL})")
_TRUTHS = frozenset({"0", "1", "-1", "0.0", '""', "''"})
"""Literals that mean success or failure rather than a result."""

# --- C, JavaScript, and similar languages -----------------------------------------------------------------

_ASSERTS = re.compile(r"(?i)(?<!\w)[\w.]*(?:assert|expect|equal|check|same|tobe|_eq|_is)\w*\s*\(")
_JUDGES = re.compile(r"(?i)\b(return|exit|abort|throw|panic|fail\w*|puts|\w*printf|console\.\w+|die)\b|\+\+|\+=")
_OF_THE_LINE = re.compile(r"\b(argc|argv|errno|NULL|nullptr|typeof|platform|process\.)")


def _in_braces(text: str) -> Iterator[tuple[int, int]]:
    mask = masked(text)
    for call in _ASSERTS.finditer(mask):
        given = arguments(mask, call.end() - 1)
        plain = [found.span(1) for span in given[:3] if (found := _PLAIN.fullmatch(text, *span))]
        if len(given) >= 2 or (given and re.search(r"(?i)tobe|equal", call[0])):
            second = [span for span in plain if given[1:2] and given[1][0] <= span[0] < given[1][1]]
            yield from second or plain[:1]
        else:
            yield from (found.span(2) for span in given if (found := _last(_SAME, text, mask, *span)))
    for each in re.finditer(r"\b(?:if|return)\b([^\n;{]*)", mask):
        same = _last(_SAME, text, mask, *each.span(1))
        if same is None or same[2] in _TRUTHS or _OF_THE_LINE.search(text[slice(*each.span(1))]):
            continue
        if each[0].startswith("return") or _JUDGES.search(mask[same.end() : same.end() + 120]):
            yield same.span(2)


def _last(wanted: re.Pattern[str], text: str, mask: str, start: int, end: int) -> re.Match[str] | None:
    """Return the last match whose value is no part of a longer text."""
    found = [each for each in wanted.finditer(text, start, end) if mask[each.start(2)] == text[each.start(2)]]
    return found[-1] if found else None


# --- shells ----------------------------------------------------------------------------------------------

_STATES = re.compile(
    r"\s*@?-?(?:(?P<test>test|\[\[?)|(?P<call>\w*(?:expect|assert|check|same|equal|should)\w*))\s+(?P<rest>.+)", re.I
)
_WORD = re.compile(r""""(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|[^\s"'|&;\]]+""")


def _in_shell(text: str) -> Iterator[tuple[int, int]]:
    """Yield the last words of comparing lines whose failure counts, which excludes conditions of `if`."""
    at = 0
    for line in text.split("\n"):
        stated = _STATES.fullmatch(line)
        if stated is not None and not re.search(r"[^&]&&[^&]|;\s*then|\(\)\s*\{", line):
            quiet = re.sub(r"\$\([^()]*\)|'[^']*'|\"[^\"]*\"", lambda each: "x" * len(each[0]), line)
            end = re.search(r"\s*(\|\||;|\s\]\]?(\s|$)|\s#)", quiet)  # of the comparison
            words = list(_WORD.finditer(line, stated.start("rest"), end.start() if end else len(line)))
            compares = any(word[0] in ("=", "==", "-eq") for word in words)
            last = words[-1] if len(words) > 1 else None
            wanted = stated["call"] or (compares and last is not None and last[0].strip("\"'") not in _TRUTHS)
            if last is not None and wanted:
                yield at + last.start(), at + last.end()
        at += len(line) + 1


# --- examples in texts -----------------------------------------------------------------------------------


def _in_examples(text: str) -> Iterator[tuple[int, int]]:
    """Yield the expected outputs below interactive Python examples."""
    for found in re.finditer(
        r"^([ \t]*)>>> .*\n(?:\1\.\.\. ?.*\n)*((?:\1(?!>>>)[^\s].*(?:\n|\Z))+)", text, re.MULTILINE
    ):
        if "Traceback" not in found[2]:
            yield found.span(2)


# --- Python ----------------------------------------------------------------------------------------------

_NEAR = """
def _near(value):
    if isinstance(value, (bool, type(None))):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "a"
    if isinstance(value, bytes):
        return value + b"a"
    if isinstance(value, (list, tuple)):
        return type(value)((*value, 0)) if type(value) in (list, tuple) else object()
    return {**value, "a": 0} if type(value) is dict else object()
"""
_MACHINE = re.compile(r"__name__|\bargv\b|\bplatform\b|\benviron\b|\bgetenv\b|\bversion_info\b|\.name\b")


def _python(data: bytes) -> bytes | None:
    tree = parsed(data)
    if tree is None:
        return None
    judged = {id(compare): compare for node in ast.walk(tree) for compare in _judged(node)}
    for compare in judged.values():
        wanted = compare.comparators[0]
        compare.comparators[0] = ast.Call(ast.Name("_near", ast.Load()), [wanted], [])
    if not judged:
        return None
    head = 0
    while head < len(tree.body) and (
        (isinstance(node := tree.body[head], ast.ImportFrom) and node.module == "__future__")
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ):
        head += 1
    tree.body[head:head] = ast.parse(_NEAR).body
    return unparsed(ast.fix_missing_locations(tree))


def _judged(node: ast.AST) -> list[ast.Compare]:
    """Return the comparisons in a statement that decide the exit of a program."""
    if isinstance(node, ast.Assert):
        return _compares(node.test, anything=True)
    if isinstance(node, ast.If) and any(_tells(each) for each in (*node.body, *node.orelse)):
        return _compares(node.test)
    if isinstance(node, ast.AugAssign | ast.Return) and node.value is not None:
        return _compares(node.value)
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("exit", "SystemExit", "all", "any"):
        return [each for given in node.args for each in _compares(given)]
    return []


def _compares(test: ast.AST, *, anything: bool = False) -> list[ast.Compare]:
    return [
        each
        for each in ast.walk(test)
        if isinstance(each, ast.Compare)
        and len(each.ops) == 1
        and isinstance(each.ops[0], ast.Eq | ast.NotEq)
        and not _MACHINE.search(ast.unparse(each))
        and (anything or ast.unparse(each.comparators[0]) not in {*_TRUTHS, "None", "True", "False"})
    ]


def _tells(node: ast.stmt) -> bool:
    """Return True if a statement ends the program, or counts or reports an error."""
    if isinstance(node, ast.Raise | ast.AugAssign | ast.Return):
        return True
    call = node.value if isinstance(node, ast.Expr) else None
    name = ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
    return name in ("exit", "_exit", "append", "add", "print", "fail", "error", "write")
