"""Canaries and flips in JavaScript and TypeScript test files."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.kinds.mission.check.ability.braces import arguments, end_of, masked, near, on_top

TEST_FILE = re.compile(
    r"(.*[.\-_](test|spec)\.[cm]?[jt]sx?|(.*/)?(__tests__|tests?|spec)/.*\.[cm]?[jt]sx?|(.*/)?test(-.*)?\.[cm]?js)"
)
"""Paths that one of the runners collects as tests."""

_CALL = re.compile(r"(?<![\w.$])(it|test)\s*\(")
_SUITE = re.compile(r"(?<![\w.$])(describe|suite|context)\s*\(")
_API = re.compile(
    rb"^.*\b(?:import|require)\b.*['\"](?:node:test|vitest|@jest/globals|mocha|bun:test)['\"].*$", re.MULTILINE
)
_LOCAL = re.compile(
    r"""(?:import|export)\s*(?:([\w$*{}\s,]+?)\s*from\s*)?['"](\.[^'"]*)['"]|require\(\s*['"](\.[^'"]*)['"]\s*\)"""
)
_BODY = re.compile(r"\s*(?:async\s+)?(?:\(([^()]*)\)\s*=>|[\w$]+\s*=>|function\s*[\w$]*\s*\([^()]*\))\s*\{")
_ASSERTION = re.compile(
    r"(?<![\w.$])(?:expect|assert(?:\.(?:ok|equal|strictEqual|deepEqual|deepStrictEqual))?|\w*(?:[sS]ame|[eE]quals?))\s*\("
)
_PLAIN = re.compile(r"-?\d+(\.\d+)?|'[^'\\\n]*'|\"[^\"\\\n]*\"")
_SAME = re.compile(r"\s*\.\s*(?:toBe|toEqual|toStrictEqual|to\.(?:be\.|deep\.)?(?:equal|eql|equals))\s*\(")
_ENDS = (".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".mts", ".cts", ".json", "/index.js", "/index.ts", "")


class Case(NamedTuple):
    """Test with its name (after those of its suites) and the span of its body."""

    name: str
    start: int
    end: int


def has_tests(data: bytes) -> bool:
    """Return True if a file has tests and none is marked `.only`, so that a canary beside them would run."""
    text = data.decode("utf-8", "replace")
    return _CALL.search(masked(text)) is not None and ".only" not in text


def with_canary(path: str, files: Mapping[str, bytes], title: str) -> bytes:
    """Add a failing test of this title at the end of a file; drop everything else if its imports are missing."""
    data = files[path]
    found = _CALL.search(masked(data.decode("utf-8", "replace")))
    name = found[1] if found else "test"
    canary = f"\n;{name}({json.dumps(title)}, () => {{ throw new Error({json.dumps(title)}); }});\n"
    return (data if resolves(path, files) else bare(data)) + canary.encode()


def bare(data: bytes) -> bytes:
    """Return only the imports of the runner in a test file."""
    return b"\n".join(_API.findall(data)) + b"\n"


def resolves(path: str, files: Mapping[str, bytes]) -> bool:
    """Return True if everything that a file imports from the tree exists."""
    folder = posixpath.dirname(path)
    for names, first, second in _LOCAL.findall(files[path].decode("utf-8", "replace")):
        place = posixpath.normpath(posixpath.join(folder, first or second))
        stems = (place, re.sub(r"\.[cm]?js$", "", place))
        known = next((stem + end for stem in stems for end in _ENDS if stem + end in files), None)
        if known is None:
            return False
        wanted = re.findall(r"[{,]\s*([\w$]+)", names)
        if any(not re.search(rf"\b{re.escape(each)}\b", files[known].decode("utf-8", "replace")) for each in wanted):
            return False
    return True


def cases(text: str, mask: str) -> list[Case]:
    """Return the tests of a file with recognizable titles and bodies."""
    suites = [
        (found.start(), end_of(mask, found.end() - 1), _title(text, found.end())) for found in _SUITE.finditer(mask)
    ]
    found = []
    for call in _CALL.finditer(mask):
        title, given = _title(text, call.end()), arguments(mask, call.end() - 1)
        above = [name for start, end, name in suites if start < call.start() < end]
        body = _BODY.match(mask, given[1][0]) if len(given) == 2 else None
        if title is None or body is None or None in above or (body[1] and "done" in body[1]):
            continue
        start = body.end()
        found.append(Case(" ".join([*filter(None, above), title]), start, end_of(mask, start - 1)))
    return found


def _title(text: str, at: int) -> str | None:
    found = re.compile(r"\s*(['\"`])((?:(?!\1)[^\\\n$])*)\1\s*,").match(text, at)
    return found[2] if found else None


def flipped(data: bytes, word: str, most: int) -> tuple[bytes, list[str]]:
    """Make expectations in a file wrong; return it with the affected tests."""
    text = data.decode("utf-8", "replace")
    mask = masked(text)
    known = cases(text, mask)
    asked = [edit for case in known if (edit := _edit(text, mask, case, Wrong(word, 0, ())))]
    expected = tuple(dict.fromkeys(each for start, end, _ in asked if _is_plain(each := text[start:end].strip())))
    count = Counter(case.name for case in known)
    edits: list[tuple[int, int, str]] = []
    turned: list[str] = []
    for case in known:
        wrong = Wrong(word, len(turned) + sum(word.encode()), expected)
        quiet = ".only" in text or re.search(r"\bskip|\btodo", mask[case.start : case.end])
        edit = None if quiet or count[case.name] > 1 or len(turned) >= most else _edit(text, mask, case, wrong)
        if edit is not None:
            edits.append(edit)
            turned.append(case.name)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text.encode(), turned


def _edit(text: str, mask: str, case: Case, wrong: Wrong) -> tuple[int, int, str] | None:
    """Return an edit that makes the first assertion fail that the test always reaches."""
    top = on_top(mask, case.start, case.end)
    for found in _ASSERTION.finditer(top):
        if re.search(r"\breturn\b", mask[case.start : case.start + found.start()]):
            return None
        opening = case.start + found.end() - 1
        given = arguments(mask, opening)
        name = re.sub(r"\s*\($", "", found[0])
        before = top[: found.start()].rstrip()
        if not given or (before and before[-1] not in ";}\n" and not top[: found.start()].endswith(("\n", " "))):
            continue
        if before.endswith(("=>", "(", "=", "?", "&&", "||", ":", ",")):
            continue
        if name in ("assert", "assert.ok"):
            start, end = given[0]
            return start, end, f"!({text[start:end]})"
        helps = name != "expect" and not name.startswith("assert")
        if helps and not (
            len(given) == 2
            and not re.search(r"[nN]ot|[dD]is|[uU]n", name)
            and "(" in text[slice(*given[0])]
            and _is_plain(text[slice(*given[1])])
        ):
            continue
        if name != "expect":
            return (*given[1], wrong.instead(text[slice(*given[1])])) if len(given) >= 2 else None
        closing = end_of(mask, opening) + 1
        same = _SAME.match(mask, closing)
        if same is not None and len(told := arguments(mask, same.end() - 1)) == 1:
            return (*told[0], wrong.instead(text[slice(*told[0])]))
        if re.match(r"\s*\.\s*to[\w.]", mask[closing:]) and not re.match(r"\s*\.\s*to\w*[sS]napshot", mask[closing:]):
            return closing, closing, ".not"
    return None


def _is_plain(literal: str) -> bool:
    return _PLAIN.fullmatch(literal.strip()) is not None


class Wrong(NamedTuple):
    """Generator of wrong expectations: `turn` selects the kind, `known` are the literals of all tests."""

    word: str
    turn: int
    known: tuple[str, ...]

    def instead(self, literal: str) -> str:
        """Return the source of a value that differs from this one."""
        plain = literal.strip()
        ways = []
        if _is_plain(plain):
            others = (each for each in self.known if each.strip("'\"") != plain.strip("'\""))
            ways = [each for each in (near(plain), next(others, "")) if each]
        return f" {ways[self.turn % len(ways)]}" if ways else f" {json.dumps(f'{plain} {self.word}')}"


def selected(words: Sequence[str], path: str) -> bool:
    """Return True if a runner with these patterns, parts of paths or globs, selects a file."""
    return not words or any(_part(word).search(path) is not None for word in words)


def _part(word: str) -> re.Pattern[str]:
    plain = re.sub(r"^\./", "", word.strip("'\""))
    text = "".join({"*": "[^/]*", "?": "[^/]"}.get(each, re.escape(each)) for each in plain.replace("**/", "\0"))
    return re.compile(text.replace(re.escape("\0"), "(?:.*/)?"))
