"""Detection of test files that were only extended: new cases, and nothing that affects the old ones. Pure.

Python is compared as syntax, other languages by lines and brackets (`lines_problem`). Every old statement must remain;
each new one must be a separate definition or a case in a table. Any other change needs a user's approval.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

REMOVED = " was removed"
"""End of the message about a removed test."""

_AROUND = re.compile(r"pytest|setup|setUp|teardown|tearDown|asyncSetUp|asyncTearDown|load_tests$|collect_|__")
"""Names that a runner looks up and that affect other tests."""


@lru_cache(maxsize=256)
def parsed(content: bytes) -> ast.Module | None:
    """Parse a Python file; None if it cannot be parsed. The tree is cached and must not be modified."""
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def only_more(path: str, old: bytes, new: bytes, used: Collection[str] = ()) -> str:
    """Explain why a file was not only extended; empty if it was. `used` are the names of fixtures in use."""
    if not path.endswith(".py"):
        if not path.endswith(BRACES):
            return "it changed, and files of this type cannot be compared"
        return lines_problem(old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
    before, after = parsed(old), parsed(new)
    if before is None or after is None:
        return "it cannot be parsed as Python"
    gone = sorted(_tests(before) - _tests(after))
    if gone:
        return f"{gone[0]}{REMOVED}"
    taken = _names(before) | set(used)
    early = path.rsplit("/", 1)[-1] == "conftest.py"  # loaded before any test, so calls at import count
    known = {ast.dump(node) for node in before.body}
    running = next((node for node in after.body if early and _runs(node) and ast.dump(node) not in known), None)
    problem = "" if running is None else f"{_called(running)} runs at import"
    return next(_block(before.body, after.body, taken, ""), problem)


def _runs(node: ast.AST) -> bool:
    """Return True if evaluating a definition calls anything other than `fixture`."""
    parts: list[ast.AST]
    if isinstance(node, FunctionNode):
        marks = [each for each in node.decorator_list if last_name(getattr(each, "func", each)) != "fixture"]
        parts = [*marks, *node.args.defaults, *(each for each in node.args.kw_defaults if each)]
    elif isinstance(node, ast.ClassDef):
        parts = [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
        return any(_runs(each) for each in (*parts, *node.body))
    else:
        parts = [node]
    return any(isinstance(each, ast.Call) for part in parts for each in ast.walk(part))


def fixtures_asked_for(content: bytes) -> frozenset[str]:
    """Return names of fixtures that a test file uses: arguments of its functions and those in `usefixtures`."""
    tree = parsed(content)
    nodes = list(ast.walk(tree)) if tree is not None else []
    asked = {
        each.value
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) == "usefixtures"
        for each in node.args
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    return frozenset(asked | {node.arg for node in nodes if isinstance(node, ast.arg)})


def _tests(tree: ast.Module) -> set[str]:
    """Return names of the tests of a module, with their classes."""
    found = set()
    for node in tree.body:
        inside = [(node.name, each) for each in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        for owner, each in inside:
            if isinstance(each, FunctionNode) and each.name.startswith("test"):
                found.add(f"{owner}::{each.name}" if owner else each.name)
    return found


def _names(tree: ast.AST) -> set[str]:
    """Return every name in a module: a new definition of one of them could affect existing code."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, FunctionNode | ast.ClassDef):
            found.add(node.name)
    return found


def _block(before: Sequence[ast.stmt], after: Sequence[ast.stmt], taken: set[str], owner: str) -> Iterator[str]:
    """Yield the changes of a module or class that are not pure additions. Definitions may be reordered."""
    named = [node for node in after if isinstance(node, FunctionNode | ast.ClassDef)]
    rest = [node for node in after if node not in named]
    for node in before:
        left = named if isinstance(node, FunctionNode | ast.ClassDef) else rest
        at = next((index for index, other in enumerate(left) if _same(node, other, taken, owner)), None)
        if at is None:
            yield f"{_called(node)} was changed or deleted"
            return
        for other in left[:at] if left is rest else ():
            yield from _new(other, taken, owner)
        del left[0 if left is rest else at : at + 1]
    for other in (*named, *rest):
        yield from _new(other, taken, owner)


def _same(old: ast.stmt, new: ast.stmt, taken: set[str], owner: str) -> bool:
    """Return True if a statement is unchanged or only extended."""
    if ast.dump(old) == ast.dump(new):
        return True
    if isinstance(old, FunctionNode) and isinstance(new, FunctionNode):
        old, new = _plain(old), _plain(new)
    if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef) and old.name == new.name:
        heads = [
            ast.dump(ast.ClassDef(each.name, each.bases, each.keywords, [], each.decorator_list)) for each in (old, new)
        ]
        return heads[0] == heads[1] and not any(_block(old.body, new.body, taken, old.name))
    if isinstance(old, ast.ImportFrom) and isinstance(new, ast.ImportFrom):
        more = {ast.dump(each) for each in old.names} <= {ast.dump(each) for each in new.names}
        fresh = {each.asname or each.name for each in new.names} - {each.asname or each.name for each in old.names}
        return more and (old.module, old.level) == (new.module, new.level) and not fresh & (taken | {"*"})
    if isinstance(old, FunctionNode) and isinstance(new, FunctionNode) and old.name == new.name:
        signatures = [ast.dump(type(each)(each.name, each.args, [], [], each.returns)) for each in (old, new)]
        return signatures[0] == signatures[1] and _marks(old, new) and _only_asserts(old, new)
    if isinstance(old, ast.Assign | ast.AnnAssign) and type(old) is type(new) and not owner:
        return old.value is not None and _extended(old, new, old.value, new.value)
    return False


def _extended(old: ast.AST, new: ast.AST, was: ast.AST, now: ast.AST | None) -> bool:
    """Return True if a table only has more rows."""
    if now is None or type(was) is not type(now):
        return False
    if isinstance(was, ast.Dict) and isinstance(now, ast.Dict):
        pairs = [
            [f"{each and ast.dump(each)}:{ast.dump(value)}" for each, value in zip(d.keys, d.values, strict=True)]
            for d in (was, now)
        ]
        return in_order(*pairs) and _apart(old, was) == _apart(new, now)
    if isinstance(was, ast.List | ast.Tuple | ast.Set) and isinstance(now, ast.List | ast.Tuple | ast.Set):
        rows = [[ast.dump(each) for each in table.elts] for table in (was, now)]
        return in_order(*rows) and _apart(old, was) == _apart(new, now)
    return False


def _apart(whole: ast.AST, part: ast.AST) -> str:
    return ast.dump(whole).replace(ast.dump(part), "…", 1)


def _plain(node: FunctionNode) -> FunctionNode:
    """Return a function without its docstring, unless that has examples."""
    said = ast.get_docstring(node)
    body = node.body[1:] if said is not None and ">>>" not in said else node.body
    return type(node)(node.name, node.args, body, node.decorator_list, node.returns)


def _marks(old: FunctionNode, new: FunctionNode) -> bool:
    """Return True if the decorators of a test are the same, except for more parameters and a removed skip."""
    marks = [ast.dump(each) for each in new.decorator_list]
    skips = ("skip", "skipif", "xfail", "skipIf", "skipUnless", "expectedFailure")
    left = [
        each
        for each in old.decorator_list
        if ast.dump(each) in marks or last_name(getattr(each, "func", each)) not in skips
    ]
    if len(left) != len(new.decorator_list):
        return False
    for was, now in zip(left, new.decorator_list, strict=True):
        if ast.dump(was) == ast.dump(now):
            continue
        if not (isinstance(was, ast.Call) and isinstance(now, ast.Call) and last_name(was.func) == "parametrize"):
            return False
        if not _extended(was, now, *(each.args[1] if len(each.args) > 1 else each for each in (was, now))):
            return False
    return True


def _only_asserts(old: FunctionNode, new: FunctionNode) -> bool:
    """Return True if a function only gained assertions and, if it is a test, statements at its end."""
    rest = list(new.body)
    for node in old.body:
        while rest and ast.dump(rest[0]) != ast.dump(node):
            other = rest.pop(0)
            plain = not any(isinstance(each, ast.NamedExpr | ast.Await | ast.Lambda) for each in ast.walk(other))
            if not isinstance(other, ast.Assert) or not plain:
                return False
        if not rest:
            return False
        rest.pop(0)
    ends = any(isinstance(node, ast.Return | ast.Yield) for each in old.body for node in ast.walk(each))
    return not rest or (not ends and old.name.startswith("test"))


def _called(node: ast.stmt) -> str:
    if isinstance(node, FunctionNode | ast.ClassDef):
        return node.name
    return f"`{ast.unparse(node).splitlines()[0][:80]}`"


def _new(node: ast.stmt, taken: set[str], owner: str) -> Iterator[str]:
    """Explain why a new statement could affect existing code; yield nothing if it is a separate definition."""
    words = _called(node)
    if isinstance(node, ast.Import | ast.ImportFrom) and not owner:
        bound = {(each.asname or each.name).partition(".")[0] for each in node.names}
        if bound & (taken | {"*"}):
            yield f"{words} is imported over a name that the tests use"
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
        return
    if isinstance(node, ast.Try | ast.If) and not owner:
        if all(isinstance(each, ast.Import | ast.ImportFrom | ast.Pass) for each in [*node.body, *node.orelse]):
            return
    names = _bound(node)
    if not names:
        yield f"{words} runs at import"
    elif any(name in taken or _AROUND.match(name) for name in names) and not (owner and names[0].startswith("test")):
        yield f"{words} affects the existing tests"
    elif owner and not names[0].startswith("test"):
        yield f"{words} was added to {owner}"
    elif isinstance(node, FunctionNode) and any(
        word.arg == "autouse" for mark in node.decorator_list for word in getattr(mark, "keywords", ())
    ):
        yield f"the fixture {words} applies to every test"


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a definition or a plain assignment binds."""
    if isinstance(node, FunctionNode | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign) and all(isinstance(each, ast.Name) for each in node.targets):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


BRACES = (
    ".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".go", ".rs", ".java", ".kt", ".c", ".h", ".cc", ".cpp", ".hpp",
    ".cs", ".php", ".swift", ".scala",
)  # fmt: skip
"""Suffixes of languages with braces."""

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
    """Explain why a text was not only extended, by its lines; empty if it was."""
    was, now = [line.rstrip() for line in old.splitlines()], [line.rstrip() for line in new.splitlines()]
    blocks = difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes()
    for kind, i1, i2, j1, j2 in blocks:
        if kind == "equal":
            continue
        if kind == "delete" and any(line.strip() for line in was[i1:i2]):
            return f"`{was[i1].strip()[:80]}`{REMOVED}"
        if kind == "replace" and not _wider(was[i1:i2], now[j1:j2]):
            return f"`{was[i1].strip()[:80]}` was changed"
        problem = "" if kind != "insert" else _inserted(now, j1, j2)
        if problem:
            return problem
    return ""


def in_order(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return True if `old` is a subsequence of `new`."""
    rest = iter(new)
    return all(any(each == other for other in rest) for each in old)


def _wider(was: Sequence[str], now: Sequence[str]) -> bool:
    """Return True if import lines only import more."""
    if not all(_IMPORTS.match(line) for line in was) or _LOUD.search("\n".join(now)):
        return False
    tokens = [re.findall(r"\w+|[^\w\s]", "\n".join(lines)) for lines in (was, now)]
    return in_order(*tokens) and all(_IMPORTS.match(line) or not line.strip() for line in now)


def _inserted(lines: Sequence[str], start: int, end: int) -> str:
    """Explain why inserted lines are not separate cases; empty if they are."""
    start, end = _slid(lines, start, end)
    block = lines[start:end]
    first = next((line.strip() for line in block if line.strip()), "")
    if not first:
        return ""
    if _openers(block, strict=True):
        return f"`{first[:80]}` opens or closes an existing block"
    if _LOUD.search("\n".join(block)):
        return f"`{first[:80]}` affects the other tests"
    around = _openers(lines[:start])
    if not around or all(_GROUPS.search(each) for each in around):
        loose = _loose(block, calls=bool(around) and _MAIN.search(around[-1]) is not None)
        return f"`{loose[:80]}` is not a definition" if loose else ""
    if around[-1].lstrip().startswith("import") and all(
        re.match(r"\s*[\w.]*\s*\"[^\"]+\"$|\s*$", line) for line in block
    ):
        return ""
    if _TABLE.search(around[-1]):
        filled = [line.strip() for line in block if line.strip()]
        rows = filled[-1].endswith(",") and filled[0][:1] in "{[(\"'`&.-0123456789"
        if rows or block[-1].rstrip().endswith((",", "{", "[", "(")):
            return ""
    return f"`{first[:80]}` was added to `{around[-1].strip()[:60]}`"


def _loose(block: Sequence[str], *, calls: bool) -> str:
    """Return the first statement of a block that is not a definition; `calls` allows calls, as in a main function."""
    for at, line in enumerate(block):
        if line.strip() and not _openers(block[:at]) and not _DEFINES.match(line.strip()):
            if not (calls and _CALL.match(line.strip())):
                return line.strip()
    return ""


def _slid(lines: Sequence[str], start: int, end: int) -> tuple[int, int]:
    """Shift an insertion so that its brackets balance: among equal lines, difflib picks any."""
    for step in (0, -1, 1):
        first, last = start, end
        while _openers(lines[first:last], strict=True) and step:
            at, other = (first - 1, last - 1) if step < 0 else (first, last)
            if at < 0 or other >= len(lines) or lines[at] != lines[other]:
                break
            first, last = first + step, last + step
        if not _openers(lines[first:last], strict=True):
            return first, last
    return start, end


def _openers(lines: Sequence[str], *, strict: bool = False) -> list[str]:
    """Lines with the brackets still open at the end, outermost first; `strict` also counts an unmatched closing one."""
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
    """Return a line without strings and comments."""
    line = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`", "", line)
    return re.sub(r"//.*|/\*.*?\*/", "", line)
