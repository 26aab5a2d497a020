"""Features of calls, results, and messages: small numbers that show similarity without the bodies. Pure.

Cheap by design: the fold computes these for every event, so only a bounded part of a long text is read.
"""

from __future__ import annotations

import re
from struct import pack
from typing import Any
from zlib import crc32

import msgspec

from holdfast.patterns import lazy
from holdfast.session.tools import TOOLS

READS, WAITS, MUTATES, CHECKS, PROSE, KEEPS = 1, 2, 4, 8, 16, 32
"""Flags of a call: changes nothing; waits; changes things; verifies work; writes prose; saves work unchanged (a
commit), which leaves nothing to verify."""

WRITERS = frozenset({"write", "edit"})
"""Tools that change a file."""

WAIT_S = 5.0
"""Minimum length of a sleep that counts as waiting: loops use shorter ones to look busy."""

_ABOUT_MAX = 160
_COMMAND_MAX = 480
_WORDS_MAX = 8
_TOKENS_MAX = 20
_EDGE_LINES = 12
_RESULT_MAX = 12_000
_LINE_MAX = 400
_SKETCH = 6

# --- inputs of calls -----------------------------------------------------------------------------

_APART = str.maketrans({letter: " " for letter in "\t\n\r;&|()<>{}[]'\"`$=,:+!?#%^\\~@"})

# Words for the way of looking, not the object: commands that differ only in these ask for the same thing.
_HOW = frozenset(
    "cat head tail sed less more grep egrep rg ag ack find ls ll tree awk nl bat view open read print echo printf wc "
    "sort uniq xargs cd bash sh zsh sudo env git python python3 py c exec test true false then fi do done if for in "
    "name type f p the a an to of and with o d i e r n l file".split()
)

_SLEEP = lazy(r"\bsleep\s+\$?[\"']?(?:(\d+(?:\.\d+)?)([smhd]?)|[\w{(])")
_WAITING = lazy(
    r"(?:^|[;&|\n]\s*|\b(?:kubectl|docker|gh run|cargo|npm|podman|systemctl|aws|gcloud)\s+)(?:wait|watch)\b"
    r"|--(?:wait|watch|follow)\b|\btail\s+(?:-\w+\s+)*-[fF]\b|\b(?:until|while)\s.*;\s*do\b|inotifywait"
)
_MUTATING = lazy(
    r"(?<![0-9&>])>{1,2}(?!\s*/dev/null|&)|\b(?:sed|perl)\s+-\w*i|\b(?:tee|mv|cp|rm|mkdir|touch|patch|chmod|ln|rmdir|dd)\s"
    r"|\bgit\s+(?:commit|apply|add|checkout|restore|reset|rebase|merge|cherry-pick|revert|stash|rm|mv|push|pull|tag|am)\b"
    r"|\b(?:pip|pip3|uv|npm|yarn|pnpm|cargo|go|apt|apt-get|gem|brew|poetry)\s+(?:\w+\s+)?(?:install|add|remove|uninstall|sync|update|upgrade|get)\b"
    r"|\bcurl\b.*\s-X\s*(?:POST|PUT|PATCH|DELETE)|\b(?:kubectl|terraform)\s+(?:apply|delete)\b|\bcodemod\b|--fix\b|--write\b"
)
_KEEPING = lazy(r"\bgit\s+(?:commit|add|push|tag)\b")
_CHECKING = lazy(
    r"\b(?:pytest|unittest|tox|nox|mypy|pyright|ruff|flake8|pylint|eslint|tsc|vitest|jest|mocha|rspec|phpunit|ctest|gotestsum)\b"
    r"|\b(?:make|just|npm|yarn|pnpm|cargo|go|mvn|gradle|gradlew|mix|bazel|dotnet|swift|rake|zig|npx)\s+(?:-\w+\s+|run\s+)*"
    r"(?:test|tests|check|lint|build|verify|vet|clippy|ci|typecheck)\b|\bpy_compile\b|\bcompileall\b|^\s*make\s*$"
)
# For speed, the patterns are tried only on commands with one of these words; most have none.
_WAIT_WORDS = frozenset("sleep wait watch --wait --watch --follow tail until while inotifywait".split())
_MUTATE_WORDS = frozenset(
    "sed perl tee mv cp rm mkdir touch patch chmod ln rmdir dd git pip pip3 uv npm yarn pnpm cargo go apt apt-get gem "
    "brew poetry curl kubectl terraform codemod --fix --write".split()
)
_CHECK_WORDS = frozenset(
    "pytest unittest tox nox mypy pyright ruff flake8 pylint eslint tsc vitest jest mocha rspec phpunit ctest "
    "gotestsum make just npm yarn pnpm cargo go mvn gradle gradlew ./gradlew mix bazel dotnet swift rake zig npx "
    "py_compile compileall".split()
)
_PROSE = (".md", ".rst", ".txt", ".adoc", ".tex", ".html")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WAITING_TOOL = lazy(r"(?:^|_)(?:sleep|wait|timer|until|poll)(?:_|$)")


def call_digest(name: str, value: dict[str, Any], malformed: str = "") -> int:
    """Digest a call's name and whole input into one number."""
    body = malformed.encode(errors="replace") if malformed else msgspec.json.encode(value, order="deterministic")
    return crc32(body, crc32(name.encode()))


def about(name: str, value: dict[str, Any]) -> tuple[int, ...]:
    """Digest the names and patterns in a call's input, without verbs and options of presentation.

    For `write` and `edit`, the first digest is the file's name. An edit is described by the text that it replaces.
    """
    words: set[int] = set()
    place: tuple[int, ...] = ()
    for key, item in value.items():
        if key in ("timeout_ms", "view_range", "replace_all") or (key == "new_string" and value.get("old_string")):
            continue
        text = item if isinstance(item, str) else str(item)
        for token in text[:_ABOUT_MAX].translate(_APART).split()[:_TOKENS_MAX]:
            if token[0] == "-":
                continue
            word = token if token.startswith("s/") else token.strip("./*").rpartition("/")[2].lower()
            if word and word not in _HOW and not word.isdigit():
                words.add(crc32(word.encode(errors="replace")))
        if key == "file_path" and name in WRITERS:
            place, words = tuple(words)[:1], set()
    words.difference_update(place)
    return tuple(word & 0xFFFF for word in (*place, *sorted(words)[: _WORDS_MAX - len(place)]))


def alike(one: tuple[int, ...], other: tuple[int, ...], at_least: float = 0.5) -> bool:
    """Return True if two samples of words or lines overlap by at least that share of their union."""
    if one == other:
        return True
    if not one or not other:
        return False
    first, second = set(one), set(other)
    return len(first & second) >= at_least * len(first | second)


def flags_of(name: str, value: dict[str, Any]) -> int:
    """Return the flags of a call that follow from its name and input."""
    tool = TOOLS.get(name)
    if tool is not None and tool.read_only:
        return READS
    if name in WRITERS:
        path = value.get("file_path")
        return PROSE if isinstance(path, str) and path.lower().endswith(_PROSE) else 0
    if name != "bash":
        return WAITS if _WAITING_TOOL.search(name) else 0
    command = value.get("command")
    if not isinstance(command, str):
        return 0
    command = command[:_COMMAND_MAX]
    words = set(command.translate(_APART).split())
    flags = 0
    if not words.isdisjoint(_WAIT_WORDS) and _waits(command):
        flags |= WAITS
    if (">" in command or not words.isdisjoint(_MUTATE_WORDS)) and _MUTATING.search(command):
        flags |= MUTATES
        if "git" in words and not _MUTATING.search(_KEEPING.sub(" ", command)):
            flags |= KEEPS
    if not words.isdisjoint(_CHECK_WORDS) and _CHECKING.search(command):
        flags |= CHECKS
    return flags


def _waits(command: str) -> bool:
    total_s = 0.0
    for number, unit in _SLEEP.findall(command):
        if not number:  # a variable: the length is unknown
            return True
        total_s += float(number) * _UNITS[unit]
    return total_s >= WAIT_S or _WAITING.search(command) is not None


# --- results of calls ----------------------------------------------------------------------------

# Parts that differ each time: clock times, durations, dates, long numbers, codes such as hashes, process ids.
_FLEETING = lazy(
    r"\b(?:[0-9]+(?::[0-9]+)+(?:[.,][0-9]+)?|[0-9]{4}-[0-9]{2}[-0-9T]*|[0-9]{7,}|(?=[a-f]*[0-9])[0-9a-f]{6,}\b"
    r"|[0-9][0-9.,]*(?: ?(?:ms|s|secs?|seconds?|mins?|minutes?|us|ns|h|hours?)\b)(?: ago\b)?"
    r"|(?:pid|PID|[Pp]rocess|port)[ =:]+[0-9]+)|(?<=\[)[0-9]{3,}(?=\])"
)
_DIGIT = lazy("[0-9]")
_CODED = lazy(r"\b[a-fA-F]*[0-9][0-9A-Za-z]*")
_GUTTER = "# \t:|→"
"""Characters that line numbers leave at the beginning of a line."""
_NO_DIGITS = str.maketrans("", "", "0123456789")


def result_digests(content: str) -> tuple[int, int, tuple[int, ...]]:
    """Return `(value, shape, sketch)` of a result.

    All are over the set of its lines, so one more equal line changes nothing. `value` leaves out times, durations,
    dates, and long codes; `shape` leaves out every number; `sketch` is a small sample of the lines. In a long result,
    numbers count only in the first and last lines, where summaries are.
    """
    first, middle, last = _lines(content)
    edges = "\n".join(first + last)
    steady, shaped = edges, edges
    if _DIGIT.search(edges):
        steady, shaped = _FLEETING.sub("#", edges), _CODED.sub("#", edges)
    values = {crc32(line.encode(errors="replace")) for line in steady.split("\n")}
    shapes = {crc32(line.lstrip(_GUTTER).encode(errors="replace")) for line in shaped.split("\n")}
    if middle:
        inside = "\n".join(middle).translate(_NO_DIGITS).encode(errors="replace").split(b"\n")
        digests = {crc32(line) for line in inside}
        values |= digests
        shapes |= digests
    lowest = sorted(shapes)
    shape = crc32(pack(f"<{len(lowest)}I", *lowest))
    value = crc32(pack(f"<{len(values)}I", *sorted(values)))
    return value, shape, tuple(line & 0xFFFF for line in lowest[:_SKETCH])


def _lines(content: str) -> tuple[list[str], list[str], list[str]]:
    if len(content) > _RESULT_MAX:
        half = _RESULT_MAX // 2
        content = f"{content[:half].rpartition(chr(10))[0]}\n{content[-half:].partition(chr(10))[2]}"
    lines = [line for line in content.split("\n") if line]
    if len(lines) <= 2 * _EDGE_LINES:
        return [line[:_LINE_MAX] for line in lines], [], []
    first, last = lines[:_EDGE_LINES], lines[-_EDGE_LINES:]
    return [line[:_LINE_MAX] for line in first], lines[_EDGE_LINES:-_EDGE_LINES], [line[:_LINE_MAX] for line in last]


LIMIT, LEFT, STOP, BRIEF, SKIP, STUB = 1, 2, 4, 8, 16, 32
"""Flags of phrases: mentions a context limit, defers work, stops, cuts short, skips checks, leaves stubs."""

_SCARCE = r"\b(?:limited|remaining|low on|little|few|out of|running short of|save|conserve)\W+(?:\w+\W+){0,2}"
_OPEN_WORK = r"\b(?:remaining|other|outstanding) (?:work|tasks?|items?|steps?|parts?|cases|changes|files|modules)\b"
_LATER = r"\b(?:for later|later on|at a later|another (?:session|time|day)|a future|a later)\b"

# (flag, trigger, pattern): for speed, the pattern is tried only where the lowercased text contains its trigger.
_PHRASES: tuple[tuple[int, str, re.Pattern[str]], ...] = tuple(
    (flag, trigger, lazy(pattern))
    for flag, trigger, pattern in (
        (LIMIT, "context", _SCARCE + "context"),
        (LIMIT, "context", r"context(?: window| limit| budget| space| length)? (?:is|gets?|almost|nearly|will)\b.{0,24}"
                           r"\b(?:limit|full|short|low|out|exceed|end)"),
        (LIMIT, "context", r"\bcontext (?:i have )?left\b|\bcontext (?:does not|doesn't|cannot) (?:allow|hold|fit)"),
        (LIMIT, "token", r"\b(?:limited|remaining|low on|out of|running short of|sav(?:e|ing)|conserv(?:e|ing)|"
                         r"economical with|careful with) (?:my |the )?tokens\b|\btokens are (?:limited|short|few)"),
        (LIMIT, "space", r"\b(?:limited|remaining|running out of) space\b"),
        (LEFT, "rest", r"\bleav(?:e|ing) (?:the )?rest\b"),
        (LEFT, "rest", r"\bthe rest (?:can|could|will|should|of (?:it|this|the work)) (?:be|later|left|remains)"),
        (LEFT, "remain", _OPEN_WORK + r".{0,40}\b(?:left|later|future|follow|another|next session|for you)"),
        (LEFT, "remain", _OPEN_WORK + r" (?:can|could|should|may) be "),
        (LEFT, "left as", r"\bleft (?:as an exercise|to the reader|for (?:a |the )?(?:next|later|another))\b"),
        (LEFT, "follow-up", r"\b(?:in|as|for) (?:a |an )?(?:later |future )?follow-up\b"),
        (LEFT, "later", r"\b(?:leav|do|finish|complet|handl|add|postpon|defer)\w*\b.{0,40}" + _LATER),
        (STOP, "stop", r"\bi(?:'ll| will)? stop (?:here|at this point|now)\b"),
        (STOP, "have to do", r"\b(?:that|this|it) will have to do\b"),
        (STOP, "end here", r"\b(?:i'll|i will|let me) end here\b"),
        (STOP, "wrap", r"\bwrap(?:ping)? (?:this |things |it |everything )?up\b"),
        (STOP, "good", r"\bgood (?:stopping (?:point|place)|(?:point|place) to (?:stop|end|pause))\b"),
        (STOP, "conclude", r"\b(?:i will|i'll|let me|time to) conclude\b"),
        (STOP, "enough for", r"\b(?:that's|is|should be) enough for (?:now|this|today)\b"),
        (BRIEF, "short", r"\b(?:keeping|keep) (?:it|this|things) short\b"),
        (BRIEF, "finali", r"\bfinali[sz]e (?:this |it )?(?:now|quickly|soon)\b"),
        (BRIEF, "brevity", r"\bfor (?:the sake of )?brevity\b"),
        (BRIEF, "in the interest", r"\bin the interests? of (?:time|space|brevity|length)\b"),
        (BRIEF, "brief", r"\b(?:keep|be|make) (?:(?:this|it|things|the rest|everything|the remaining \w+) )?"
                         r"(?:very |more )?brief\b"),
        (BRIEF, "quick", r"\bquickly (?:finish|wrap|finali[sz]e|complete)\w* (?:this|it|up|things|all|the rest)\b"),
        (BRIEF, "simplif", r"\bsimplified (?:version|implementation|form)\b(?! of)"),
        (SKIP, "skip", r"\bskip(?:ping)?\b.{0,30}\b(?:tests?|verif\w+|check\w*|remaining|rest|build|lint\w*)\b"),
        (SKIP, "not run", r"\bso i (?:do|will|did) not run (?:it|this|them)\b"),
        (SKIP, "without running", r"\bwithout running\b"),
        (SKIP, "should work", r"\b(?:this|that|it|everything|which) should work(?: fine| now| as is)?(?:[.!,]|$)"),
        (SKIP, "no need to", r"\bno need to (?:(?:re-?)?(?:run|verify|test)|check (?:it|this|that|again|all))\b"),
        (SKIP, "assum", r"\bassum(?:e|ing)\b.{0,24}\b(?:works?|pass(?:es)?|is fine|are fine|is correct)\b"),
    )
)  # fmt: skip

_STUBS = ("TODO", "FIXME", "placeholder", "Placeholder", "omitted for brevity", "rest of the", "for now")

_HEAD, _TAIL = 160, 340


def text_marks(text: str) -> int:
    """Return the flags of phrases of early wrap-up at the beginning or the end of a message."""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    low = text.lower().replace("’", "'")
    marks = 0
    for flag, trigger, pattern in _PHRASES:
        if not marks & flag and trigger in low and pattern.search(low):
            marks |= flag
    return marks


def stub_marks(name: str, value: dict[str, Any]) -> int:
    """Return STUB when a write or edit adds a placeholder."""
    if name not in ("write", "edit"):
        return 0
    after, before = value.get("new_string") or value.get("content"), value.get("old_string") or ""
    if not isinstance(after, str) or not isinstance(before, str):
        return 0
    return STUB if any(stub in after and stub not in before for stub in _STUBS) else 0
