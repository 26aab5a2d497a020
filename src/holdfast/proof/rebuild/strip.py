"""Strip the function bodies of a module by source position, so that every other byte stays the same."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.errors import UsageError

STUB = "raise NotImplementedError"
"""Replacement of a body."""


class Block(msgspec.Struct, frozen=True):
    """Piece of a module to be restored by one edit.

    Usually one function; several neighbors if a single one is ambiguous. `stub` and `true` are whole lines without the
    last newline. Each occurs exactly once in its file, whichever other blocks are restored; `line` is the first line
    of `stub`, from 1, in the stripped file.
    """

    file: str
    functions: tuple[str, ...]
    line: int
    stub: str
    true: str


class Module(msgspec.Struct, frozen=True):
    """Stripped module: its path, the SHA-256 (hex) of the true and the stripped file, and the true size."""

    file: str
    true_sha256: str
    stripped_sha256: str
    lines: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """Missing parts of a workspace, with their true text.

    `tests` are pytest's paths for the whole suite, `quick_tests` those of the tests closest to the stripped modules.
    """

    library: str
    modules: tuple[Module, ...]
    blocks: tuple[Block, ...]
    tests: tuple[str, ...]
    quick_tests: tuple[str, ...]

    def functions(self) -> tuple[str, ...]:
        """Qualified names of all stripped functions, in file order."""
        return tuple(name for block in self.blocks for name in block.functions)


class _Span(msgspec.Struct):
    """Function as half-open line indices, before and after: from `def` to the end of the body."""

    name: str
    true: tuple[int, int]
    stub: tuple[int, int]
    lines: list[bytes]


class _Cut(msgspec.Struct):
    """Neighboring functions that become a block, with the number of context lines above them."""

    names: tuple[str, ...]
    true: tuple[int, int]
    stub: tuple[int, int]


def strip(file: str, data: bytes) -> tuple[bytes, Module, tuple[Block, ...]]:
    """Strip a module; return its text and the blocks to restore. Raises `UsageError` if it cannot be stripped.

    Signatures, decorators, docstrings, and everything between functions stay. Overloads, abstract methods, protocols,
    and empty bodies (`...`, `pass`) are unchanged.
    """
    true_lines = _lines(file, data)
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file} does not parse as Python: {error}") from error
    spans = _spans(tree, true_lines)
    if not spans:
        raise UsageError(f"{file} has no function with a body to take out; choose another module")
    stripped_lines = _stripped(true_lines, spans)
    stripped = b"".join(stripped_lines)
    blocks = _blocks(file, true_lines, stripped_lines, spans)
    digests = hashlib.sha256(data).hexdigest(), hashlib.sha256(stripped).hexdigest()
    return stripped, Module(file, *digests, len(true_lines), len(data)), blocks


def function_names(data: bytes) -> tuple[str, ...]:
    """Return plain names of the functions that `strip` would strip; none if it cannot."""
    try:
        lines = _lines("", data)
        return tuple(span.name.rsplit(".", 1)[-1] for span in _spans(ast.parse(data), lines))
    except (UsageError, SyntaxError, ValueError):
        return ()


def _lines(file: str, data: bytes) -> list[bytes]:
    # Edits work on text: anything but plain UTF-8 with newlines would not be restored byte for byte.
    if b"\r" in data or b"\x0c" in data or data.startswith(b"\xef\xbb\xbf"):
        raise UsageError(f"{file} has carriage returns, form feeds or a byte order mark; choose another module")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8; choose another module") from error
    return data.splitlines(keepends=True)


def _spans(tree: ast.Module, lines: list[bytes]) -> list[_Span]:
    spans: list[_Span] = []
    shift = 0
    for name, node in _functions(tree.body, "", protocol=False):
        body = _body(node)
        if not body:
            continue
        first, last = body[0], body[-1]
        assert last.end_lineno is not None
        end = last.end_lineno
        start, replacement = _replacement(node, first, last, lines)
        head = node.lineno - 1
        kept = lines[head:start] + replacement
        spans.append(_Span(name, (head, end), (head + shift, head + shift + len(kept)), kept))
        shift += len(kept) - (end - head)
    return spans


AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(body: Sequence[ast.stmt], prefix: str, *, protocol: bool) -> Iterator[tuple[str, AnyFunction]]:
    for node in body:
        if isinstance(node, AnyFunction):
            if not protocol and not _declares_only(node):
                yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            inner = any(_last_name(base) == "Protocol" for base in node.bases)
            yield from _functions(node.body, f"{prefix}{node.name}.", protocol=inner)
        else:
            for part in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(node, part, []), prefix, protocol=protocol)
            for handler in getattr(node, "handlers", []):
                yield from _functions(handler.body, prefix, protocol=protocol)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript | ast.Call):
        return _last_name(node.value if isinstance(node, ast.Subscript) else node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _declares_only(node: AnyFunction) -> bool:
    names = {_last_name(decorator) for decorator in node.decorator_list}
    return bool(names & {"overload", "abstractmethod", "abstractproperty"})


def _body(node: AnyFunction) -> list[ast.stmt]:
    """Return the statements to remove; none if the body is empty."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    if all(_says_nothing(statement) for statement in body):
        return []
    return list(body)


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    is_dots = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_dots or isinstance(statement, ast.Pass)


def _replacement(node: AnyFunction, first: ast.stmt, last: ast.stmt, lines: list[bytes]) -> tuple[int, list[bytes]]:
    """Return the first line of the body, and the lines that replace it."""
    start = min([first.lineno, *(item.lineno for item in getattr(first, "decorator_list", []))]) - 1
    before = lines[start][: first.col_offset]
    if before.strip():
        # `def f(self): return 1`: signature (or docstring) and body share a line.
        assert last.end_lineno is not None
        after = lines[last.end_lineno - 1][last.end_col_offset or 0 :]
        return start, [before + STUB.encode() + after]
    top = node.lineno if node.body[0] is first else node.body[0].end_lineno or 0
    while start > top and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith(b"#")):
        # Comments above the first statement belong to the body.
        start -= 1
    newline = b"\n" if lines[(last.end_lineno or 0) - 1].endswith(b"\n") else b""
    return start, [before + STUB.encode() + newline]


def _stripped(lines: list[bytes], spans: list[_Span]) -> list[bytes]:
    out: list[bytes] = []
    done = 0
    for span in spans:
        out += lines[done : span.true[0]] + span.lines
        done = span.true[1]
    return out + lines[done:]


def _blocks(file: str, true: list[bytes], stripped: list[bytes], spans: list[_Span]) -> tuple[Block, ...]:
    cuts: list[_Cut] = []
    for span in spans:
        cut = _Cut((span.name,), span.true, span.stub)
        while not _stands_alone(true, stripped, cut):
            cut = _wider(file, cuts, cut)
        cuts.append(cut)
    return tuple(
        Block(file, cut.names, cut.stub[0] + 1, _text(stripped, cut.stub), _text(true, cut.true)) for cut in cuts
    )


def _wider(file: str, cuts: list[_Cut], cut: _Cut) -> _Cut:
    """Widen a cut by one line of context; merge it with another cut that has that line."""
    if cuts and cuts[-1].stub[1] == cut.stub[0]:
        above = cuts.pop()
        return _Cut(above.names + cut.names, (above.true[0], cut.true[1]), (above.stub[0], cut.stub[1]))
    if cut.stub[0] == 0:
        raise UsageError(f"the functions of {file} cannot be told apart; choose another module")
    return _Cut(cut.names, (cut.true[0] - 1, cut.true[1]), (cut.stub[0] - 1, cut.stub[1]))


def _text(lines: list[bytes], span: tuple[int, int]) -> str:
    return b"".join(lines[span[0] : span[1]]).decode().removesuffix("\n")


def _stands_alone(true: list[bytes], stripped: list[bytes], cut: _Cut) -> bool:
    """Return True if stub and original occur once each, with all other blocks stripped and with all restored."""
    before, after = _text(stripped, cut.stub), _text(true, cut.true)
    all_true, all_stripped = b"".join(true).decode(), b"".join(stripped).decode()
    restored = b"".join([*stripped[: cut.stub[0]], after.encode() + b"\n", *stripped[cut.stub[1] :]]).decode()
    removed = b"".join([*true[: cut.true[0]], before.encode() + b"\n", *true[cut.true[1] :]]).decode()
    return (
        _count(all_stripped, before) == _count(removed, before) == 1
        and _count(all_true, after) == _count(restored, after) == 1
        and _count(all_true, before) == _count(restored, before) == 0
        and _count(all_stripped, after) == _count(removed, after) == 0
    )


def _count(text: str, part: str) -> int:
    # Overlapping occurrences count too.
    return len(re.findall(f"(?={re.escape(part)})", text))
