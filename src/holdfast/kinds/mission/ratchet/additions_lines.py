"""Whether a file of tests in a language with brackets is only more than it was: by lines, without knowing it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

BRACES = (
    ".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".go", ".rs", ".java", ".kt", ".c", ".h", ".cc", ".cpp", ".hpp",
    ".cs", ".php", ".swift", ".scala",
)  # fmt: skip
"""Files in which brackets say what belongs together."""

_MAIN = re.compile(r"\bmain\s*\(")

_DEFINES = re.compile(
    r"(?:export|default|async|public|private|internal|static|extern|inline|final|pub|const|unsafe|override)?\s*"
    r"(?:['\"]|(?:\w+\.)?(?:it|test|describe|context|suite|specify)\b[\w.]*\(|(?:func|function|fn|fun|def|class|struct|enum"
    r"|interface|type|const|let|var|val|import|use|using|typedef|union|impl|mod|namespace|void|bool|int|char|double|float|long|unsigned"
    r"|size_t|static|u?int\d+_t)\b|[A-Z][A-Z_]+\(|#\s*include\b|@\w|#\[|//|/\*|\*|[})\]])"
)

_CALL = re.compile(r"\w+\([^()]*\);?$")

_PAIRS = {"(": ")", "[": "]", "{": "}"}

_GROUPS = re.compile(r"\b(?:describe|context|suite|class|interface|module|mod|namespace|impl|extern)\b|\bmain\s*\(")

_TABLE = re.compile(r"[=:(]\s*[{\[]$|\}\s*[{\[]$|\]\w*[\w.*{}]*\s*\{$|\[$")

_IMPORTS = re.compile(r"^\s*(?:import|export|from|use|using|require|const|#\s*include)\b.*")

_LOUD = re.compile(
    r"\b(?:x|f)?(?:it|test|describe|suite|context)\s*\.\s*(?:only|skip|todo|failing)|\b(?:xit|xtest|xdescribe|fit|fdescribe)\("
    r"|\b(?:before|after)(?:Each|All)?\s*\(|\bTestMain\b|\bfunc\s+init\(|\bos\.Exit|process\.exit|\b_?[eE]xit\s*\(|\babort\("
    r"|^\s*#\s*(?:define|undef|if|ifdef|ifndef|else|endif|pragma)|\b(?:jest|vi)\.(?:mock|setTimeout)|\bglobal(?:This)?\b"
    r"|\bexpect\.extend|\b[tb]\.Skip|\bprototype\b|@(?:Ignore|Disabled|Before|After)|#\[ignore|^\s*//(?:go:|\s*\+build)",
    re.MULTILINE,
)


def lines_problem(old: str, new: str) -> str:
    """Why a text is not only more than it was, in words; empty when it is."""
    was, now = [line.rstrip() for line in old.splitlines()], [line.rstrip() for line in new.splitlines()]
    blocks = difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes()
    for kind, i1, i2, j1, j2 in blocks:
        if kind == "equal":
            continue
        if kind == "delete" and any(line.strip() for line in was[i1:i2]):
            return f"`{was[i1].strip()[:80]}` is gone"
        if kind == "replace" and not _wider(was[i1:i2], now[j1:j2]):
            return f"`{was[i1].strip()[:80]}` is changed"
        problem = "" if kind != "insert" else _inserted(now, j1, j2)
        if problem:
            return problem
    return ""


def in_order(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether all of the old is in the new, in that order."""
    rest = iter(new)
    return all(any(each == other for other in rest) for each in old)


def _wider(was: Sequence[str], now: Sequence[str]) -> bool:
    """Whether lines that import only import more."""
    if not all(_IMPORTS.match(line) for line in was) or _LOUD.search("\n".join(now)):
        return False
    tokens = [re.findall(r"\w+|[^\w\s]", "\n".join(lines)) for lines in (was, now)]
    return in_order(*tokens) and all(_IMPORTS.match(line) or not line.strip() for line in now)


def _inserted(lines: Sequence[str], start: int, end: int) -> str:
    """Why lines that are new are no cases of their own."""
    start, end = _slid(lines, start, end)
    block = lines[start:end]
    first = next((line.strip() for line in block if line.strip()), "")
    if not first:
        return ""
    if _depths(block) is None:
        return f"`{first[:80]}` opens or closes something that was there"
    if _LOUD.search("\n".join(block)):
        return f"`{first[:80]}` changes how the other tests run"
    around = _openers(lines[:start])
    if not around or all(_GROUPS.search(each) for each in around):
        loose = _loose(block, calls=bool(around) and _MAIN.search(around[-1]) is not None)
        return f"`{loose[:80]}` is no definition" if loose else ""
    if around[-1].lstrip().startswith("import") and all(
        re.match(r"\s*[\w.]*\s*\"[^\"]+\"$|\s*$", line) for line in block
    ):
        return ""
    if (_TABLE.search(around[-1]) and block[-1].rstrip().endswith((",", "{", "[", "("))) or _is_rows(block, around[-1]):
        return ""
    return f"`{first[:80]}` is new in `{around[-1].strip()[:60]}`"


def _loose(block: Sequence[str], *, calls: bool) -> str:
    """The first statement of a block that defines nothing; `calls` are fine in a main function."""
    for at, line in enumerate(block):
        if line.strip() and not _openers(block[:at]) and not _DEFINES.match(line.strip()):
            if not (calls and _CALL.match(line.strip())):
                return line.strip()
    return ""


def _slid(lines: Sequence[str], start: int, end: int) -> tuple[int, int]:
    """The same insertion where its brackets are its own: of equal lines a comparison takes any."""
    for step in (0, -1, 1):
        first, last = start, end
        while _depths(lines[first:last]) is None and step:
            at, other = (first - 1, last - 1) if step < 0 else (first, last)
            if at < 0 or other >= len(lines) or lines[at] != lines[other]:
                break
            first, last = first + step, last + step
        if _depths(lines[first:last]) is not None:
            return first, last
    return start, end


def _is_rows(block: Sequence[str], opener: str) -> bool:
    filled = [line.strip() for line in block if line.strip()]
    return bool(_TABLE.search(opener)) and filled[-1].endswith(",") and filled[0][:1] in "{[(\"'`&.-0123456789"


def _depths(lines: Sequence[str]) -> list[str] | None:
    """The lines that leave a bracket open; None when one is closed that was not opened, or one stays open."""
    left = _openers(lines, strict=True)
    return None if left else []


def _openers(lines: Sequence[str], *, strict: bool = False) -> list[str]:
    """The lines that opened the brackets which are open at the end, the outermost first."""
    stack: list[tuple[str, str]] = []
    for line in lines:
        for char in _bare(line):
            if char in _PAIRS:
                stack.append((char, line))
            elif char in _PAIRS.values():
                if stack:
                    stack.pop()
                elif strict:
                    return [line]
    return list(dict.fromkeys(line for _, line in stack))


def _bare(line: str) -> str:
    """A line without what stands in quotes and comments."""
    line = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`", "", line)
    return re.sub(r"//.*|/\*.*?\*/", "", line)
