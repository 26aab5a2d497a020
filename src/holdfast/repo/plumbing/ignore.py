"""Rules of `.gitignore` files, matched by our own code: no git runs in an agent's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

NAME = b".gitignore"
_MAX_BYTES = 1 << 20
_MAX_LINES = 10_000

_CLASSES = {
    b"alnum": b"0-9A-Za-z",
    b"alpha": b"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": b"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": b"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb" \t\n\r\f\v",
    b"upper": b"A-Z",
    b"xdigit": b"0-9A-Fa-f",
}


class _Rule(NamedTuple):
    pattern: re.Pattern[bytes]
    by_name: bool
    folders_only: bool
    negative: bool


BY_PRODUCTS = b"""
__pycache__/
*.py[co]
*.egg-info/
*.egg-link
.eggs/
.pytest_cache/
.mypy_cache/
.ruff_cache/
.hypothesis/
.ipynb_checkpoints/
.tox/
.nox/
.venv/
.coverage
.coverage.*
!.coveragerc
coverage.xml
htmlcov/
.nyc_output/
lcov.info
node_modules/
.eslintcache
*.tsbuildinfo
.parcel-cache/
.gradle/
build/bdist.*/
build/lib/
dist/*.whl
dist/*.tar.gz
target/debug/
target/release/
CMakeFiles/
CMakeCache.txt
*.o
*.obj
*.class
*.gcda
*.gcno
*.profraw
nohup.out
.DS_Store
Thumbs.db
*.sw[op]
*~
.#*
.idea/
*.orig
*.rej
"""
"""By-products of tools, as a `.gitignore`: caches, compiled code, build output, coverage, editor files."""


class Ignoring:
    """The rules of one tree. `files` are its `.gitignore` files: path of the file → its bytes.

    `last` are rules that apply where none of the files has a matching rule.
    """

    def __init__(self, files: Mapping[bytes, bytes], last: bytes = b"") -> None:
        self._rules = {path[: -len(NAME)]: _read(data) for path, data in files.items()}
        self._last = _read(last)

    def leaves_out(self, path: bytes, *, folder: bool) -> bool:
        """True if the rules match this path; ignored folders above it are not considered.

        The nearest file with a matching rule decides, and in it the last matching line.
        """
        at = path.rpartition(b"/")[0]
        while True:
            base = at + b"/" if at else b""
            for rule in reversed(self._rules.get(base, ())):
                if (folder or not rule.folders_only) and _fits(rule, path[len(base) :]):
                    return not rule.negative
            if not at:
                break
            at = at.rpartition(b"/")[0]
        for rule in reversed(self._last):
            if (folder or not rule.folders_only) and _fits(rule, path):
                return not rule.negative
        return False

    def leaves_out_below(self, path: bytes) -> bool:
        """True if the rules ignore this file, or a folder that contains it."""
        folder = path.rpartition(b"/")[0]
        while folder:
            if self.leaves_out(folder, folder=True):
                return True
            folder = folder.rpartition(b"/")[0]
        return self.leaves_out(path.rstrip(b"/"), folder=path.endswith(b"/"))


def _fits(rule: _Rule, path: bytes) -> bool:
    return rule.pattern.fullmatch(path.rpartition(b"/")[2] if rule.by_name else path) is not None


def _read(data: bytes) -> Sequence[_Rule]:
    lines = data[:_MAX_BYTES].removeprefix(b"\xef\xbb\xbf").split(b"\n")[:_MAX_LINES]
    return [rule for rule in map(_rule, lines) if rule is not None]


def _rule(line: bytes) -> _Rule | None:
    line = _trimmed(line.removesuffix(b"\r"))
    if not line or line.startswith(b"#"):
        return None
    negative = line.startswith(b"!")
    line = line[negative:]
    folders_only = line.endswith(b"/")
    line = line[: len(line) - folders_only]
    by_name = b"/" not in line
    text = _translated(line.removeprefix(b"/"))
    if not line or text is None:
        return None
    try:
        return _Rule(re.compile(text, re.DOTALL), by_name, folders_only, negative)
    except re.error:
        return None


def _trimmed(line: bytes) -> bytes:
    """Strip trailing spaces unless a backslash precedes them."""
    end = len(line)
    while end and line[end - 1 : end] == b" ":
        backslashes = len(line[: end - 1]) - len(line[: end - 1].rstrip(b"\\"))
        if backslashes % 2:
            break
        end -= 1
    return line[:end]


def _translated(glob: bytes) -> bytes | None:
    """Translate a pattern to an expression for the whole path; None for one that never matches."""
    out, at = b"", 0
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"\\":
            if at + 1 == len(glob):
                return None
            out += re.escape(glob[at + 1 : at + 2])
            at += 2
        elif char == b"*":
            piece, at = _stars(glob, at)
            out += piece
        elif char == b"[":
            inside = _bracket(glob, at)
            if inside is None:
                return None
            out += inside[0]
            at = inside[1]
        else:
            out += b"[^/]" if char == b"?" else re.escape(char)
            at += 1
    return out


def _stars(glob: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    opens = at == 0 or glob[at - 1 : at] == b"/"
    if end - at >= 2 and opens and end == len(glob):
        return b".*", end
    if end - at >= 2 and opens and glob[end : end + 1] == b"/":
        return b"(?:.*/)?", end + 1
    return b"[^/]*", end


def _bracket(glob: bytes, start: int) -> tuple[bytes, int] | None:
    """Translate a character class, which never includes a slash; returns it and its end, or None if unclosed."""
    at = start + 1
    negative = glob[at : at + 1] in (b"!", b"^")
    at += negative
    inside, first = b"", True
    while first or glob[at : at + 1] != b"]":
        first = False
        if at >= len(glob):
            return None
        named = re.compile(rb"\[:([a-z]+):\]").match(glob, at)
        if named:
            if named[1] not in _CLASSES:
                return None
            inside += _CLASSES[named[1]]
            at = named.end()
            continue
        low, at = _one(glob, at)
        if glob[at : at + 1] == b"-" and glob[at + 1 : at + 2] not in (b"", b"]"):
            high, at = _one(glob, at + 1)
            inside += b"%b-%b" % (_hex(low), _hex(high)) if low <= high else b""
        else:
            inside += _hex(low)
    if not inside:
        return (b"[^/]" if negative else b"(?!)"), at + 1
    return (b"(?!/)[%b%b]" % (b"^" if negative else b"", inside)), at + 1


def _one(glob: bytes, at: int) -> tuple[bytes, int]:
    at += glob[at : at + 1] == b"\\"
    return glob[at : at + 1], at + 1


def _hex(char: bytes) -> bytes:
    return b"\\x%02x" % (char[0] if char else 0)
