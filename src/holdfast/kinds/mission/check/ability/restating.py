"""Restated copies of judging files: other names, lines, and forms of expected values, same meaning. Pure.

A correct product passes them too. One that recognizes the text, the lines, or the variables of its judge does not.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate

from holdfast.kinds.mission.check.ability.python import parsed

_AT_THE_END = {
    ".js": "function {name}() {{ return {value}; }}",  # hoisted, and jest lets a mock use this name
    ".go": "const {name} = {value}",
}
_AT_THE_TOP = {".c": "#define {name} {value}"}
_LIKE = {".cjs": ".js", ".mjs": ".js"} | dict.fromkeys((".cc", ".cpp", ".cxx", ".h", ".hpp"), ".c")


def braces(path: str, kind: str, text: str, spans: Sequence[tuple[int, int]], word: str) -> str:
    """Name expected values (`spans`, the last first) elsewhere where the language allows it, and move the lines."""
    like = _LIKE.get(kind, kind)
    top, end = _AT_THE_TOP.get(like), _AT_THE_END.get(like)
    lines: list[str] = []
    for number, (start, stop) in enumerate(spans):
        name = f"mock{word}{zlib.crc32(path.encode()):x}_{number}"
        value, used = text[start:stop], name + "()" * (like == ".js")
        lines += [(top or end or "").format(name=name, value=value)] if top or end else []
        text = text[:start] + (used if top or end else f"({value})") + text[stop:]
    added = "".join(f"{line}\n" for line in lines)
    return _lower(f"{added}{text}" if top else f"{text}\n{added}" if end and added else text, word)


def shell(path: str, kind: str, text: str, spans: Sequence[tuple[int, int]], word: str) -> str:
    """Add an empty text to expected words (`spans`, the last first), and move the lines."""
    for start, stop in spans:
        recipe = kind != ".mk" or text[text.rfind("\n", 0, start) + 1] == "\t"
        if recipe and re.fullmatch(r"""[\w.:/+-]+|"[^"]*"|'[^']*'""", text[start:stop]):
            text = f'{text[:stop]}""{text[stop:]}'
    return _lower(text, word)


def _lower(text: str, word: str) -> str:
    return text if text.startswith(("#!", "<?")) else "\n" * (1 + sum(word.encode()) % 5) + text


# --- Python ------------------------------------------------------------------------------------------------


def python(data: bytes, word: str, *, program: bool) -> bytes | None:
    """Compute the values that a file compares with, and rename the variables of a `program`. Lines stay."""
    tree = parsed(data)
    if tree is None or data.startswith(b"\xef\xbb\xbf"):
        return None
    nodes = list(_outside_texts(tree))
    edits: dict[ast.expr, str] = {each: _computed(each.value) for node in nodes for each in _compared(node)}
    kept = _other_roles(tree) if program else set()
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own = {name for name in stored - kept if program and name.islower() and not name.startswith(("_", "test"))}
    edits |= {node: f"{node.id}_{word}" for node in nodes if isinstance(node, ast.Name) and node.id in own}
    starts = [0, *accumulate(map(len, data.splitlines(keepends=True)))]
    for node in sorted(edits, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        data = data[:start] + edits[node].encode() + data[end:]
    return data if edits and parsed(data) is not None else None


def _outside_texts(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes whose positions are known, which before Python 3.12 excludes those in f-strings."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.JoinedStr)]


def _compared(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the literals that are compared, or given to a helper."""
    given: list[ast.expr] = []
    if isinstance(node, ast.Compare) and all(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
        given = [node.left, *node.comparators]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        given = node.value.args
    while given:
        each = given.pop()
        if isinstance(each, ast.List | ast.Tuple | ast.Set):
            given += each.elts
        elif isinstance(each, ast.Dict):
            given += each.values
        elif isinstance(each, ast.Constant) and (
            type(each.value) in (float, str) or (type(each.value) is int and each.value.bit_length() < 64)
        ):
            yield each


def _computed(value: object) -> str:
    if isinstance(value, str):
        half = len(value) // 2
        return f"''.join(({value[:half]!a}, {value[half:]!a}))"
    return f"{type(value).__name__}('{value}')"


def _other_roles(tree: ast.Module) -> set[str]:
    """Return the words of a file that are more than variables: they stay, since others may use them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.JoinedStr):
            found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        for value in vars(node).values() if not isinstance(node, ast.Name) else ():
            texts = value if isinstance(value, list) else [value]
            found |= {each for text in texts if isinstance(text, str) for each in re.findall(r"\w+", text)}
    looks = {"locals", "globals", "vars", "eval", "exec"}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | names if names & looks else found
