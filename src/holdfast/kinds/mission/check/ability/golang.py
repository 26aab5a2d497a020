"""Canaries and flips in Go test files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from holdfast.kinds.mission.check.ability.braces import end_of, masked, on_top

_TEST = re.compile(r"^func (Test[A-Z_]\w*)\((\w+) \*testing\.T\)\s*\{", re.MULTILINE)
_BUILTIN = frozenset(
    "append cap close complex copy delete imag len make max min new panic print println real recover clear bool byte "
    "error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16 uint32 uint64 uintptr any func if "
    "for switch return range case defer go select".split()
)


def tests(data: bytes) -> list[str]:
    """Return the tests of a file."""
    return [found[1] for found in _TEST.finditer(masked(data.decode("utf-8", "replace")))]


def with_canary(path: str, files: Mapping[str, bytes], name: str) -> bytes:
    """Add a failing test of this name before the other tests of a file, since a panic in one ends the run.

    If the file would not compile yet, the result has nothing else.
    """
    canary = f'func {name}(t *testing.T) {{ t.Fatal("{name}") }}\n\n'.encode()
    if not resolves(path, files):
        return bare(files[path]) + b'\nimport "testing"\n\n' + canary
    data = files[path]
    first = re.search(rb"^func Test", data, re.MULTILINE)
    at = first.start() if first else len(data)
    return data[:at] + (b"" if first else b"\n") + canary + data[at:]


def bare(data: bytes) -> bytes:
    """Return the package clause of a file."""
    found = re.search(rb"^package \w+", data, re.MULTILINE)
    return (found[0] if found else b"package main") + b"\n"


def resolves(path: str, files: Mapping[str, bytes]) -> bool:
    """Return True if all functions that a file calls are defined in its package, judged by name."""
    folder = posixpath.dirname(path)
    own = [data for each, data in files.items() if posixpath.dirname(each) == folder and each.endswith(".go")]
    known = b"\n".join(own).decode("utf-8", "replace")
    mask = masked(files[path].decode("utf-8", "replace"))
    package = re.search(r"^package (\w+?)_test\b", mask, re.MULTILINE)
    called = set(re.findall(r"(?<![\w.])(\w+)\(", re.sub(r"func (\([^)]*\) )?\w+\(", "(", mask)))
    if package:
        called |= set(re.findall(rf"(?<![\w.]){package[1]}\.(\w+)", mask))
    defined = set(
        re.findall(
            r"(?:func(?: \([^)]*\))?|type|var|const) +(\w+)|(\w+)(?:, *\w+)* *:?=|^\s+(\w+) ", known, re.MULTILINE
        ).__iter__()
    )
    names = {name for each in defined for name in each if name}
    return called <= names | _BUILTIN


def flipped(data: bytes, most: int) -> tuple[bytes, list[str]]:
    """Invert conditions in a file; return it with the affected tests."""
    text = data.decode("utf-8", "replace")
    mask = masked(text)
    turned: list[str] = []
    edits: list[int] = []
    for found in _TEST.finditer(mask):
        start, end = found.end(), end_of(mask, found.end() - 1)
        top, body = on_top(mask, start, end), mask[start:end]
        if len(turned) >= most or re.search(r"\.Skip|\.Parallel\(", body):
            continue
        for each in re.finditer(r"^\s*if ([^\n{}&|]*?)(!=)([^\n{}&|!]*)\{", top, re.MULTILINE):
            inner = mask[start + each.end() : end_of(mask, start + each.end() - 1)]
            early = re.search(r"\breturn\b", body[: each.start()])
            if not early and re.match(rf"\s*{found[2]}\.(Error|Fatal)f?\(", inner):
                edits.append(start + each.start(2))
                turned.append(found[1])
                break
    for at in reversed(edits):
        text = f"{text[:at]}=={text[at + 2 :]}"
    return text.encode(), turned
