"""What stands around tests in their file: imports, helpers, fixtures, set-up. More of it is free, other is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.mission.ratchet_cases import dump, exits, is_skip, last_name, skips, without_docstring

Found = tuple[str, str]

_SETTING_UP = frozenset({
    "setUp", "tearDown", "setUpClass", "tearDownClass", "setUpModule", "tearDownModule", "asyncSetUp", "asyncTearDown",
    "setup", "teardown", "setup_module", "teardown_module", "setup_class", "teardown_class", "setup_method",
    "teardown_method", "setup_function", "teardown_function", "run", "debug", "skipTest", "fail", "load_tests",
})  # fmt: skip

_COLLECTING = frozenset({"collect_ignore", "collect_ignore_glob", "__test__"})

_RUNNER = frozenset({"pytest", "_pytest", "unittest", "builtins", "sys", "pluggy", "doctest", "warnings", "os"})


class _Block(msgspec.Struct):
    """The statements of a module or class, sorted by what they are. Imports are by the name that they bind."""

    imports: dict[str, str]
    named: dict[str, ast.stmt]
    others: list[ast.stmt]


def surroundings(before: ast.Module, after: ast.Module, used: frozenset[str], path: str) -> list[Found]:
    """What a change of a module's own statements breaks, as rules with words."""
    names = _loaded(before)
    hooks = path.rsplit("/", 1)[-1] == "conftest.py"
    return [*_compare(before.body, after.body, names, used, "", hooks=hooks)]


def fresh(after: ast.Module, used: frozenset[str], path: str) -> list[Found]:
    """What a new file of tests does beyond its own tests: to the runner, while it is imported, to all others."""
    found: list[Found] = []
    if path.rsplit("/", 1)[-1] == "conftest.py":
        found += _compare([], after.body, frozenset(), used, "", hooks=True)
    else:
        block = _block(after.body)
        for node in block.others:
            heavy = [each for each in _statement(node) if each[0] in ("exit_trick", "environment_trick", "test_hook")]
            found += heavy or _reaches(node, block)
        if "pytest_plugins" in block.named:
            found.append(("test_hook", "pytest_plugins changes how tests run"))
    return list(dict.fromkeys(found))


def _reaches(node: ast.stmt, block: _Block) -> list[Found]:
    """A statement that changes something of an imported module while its file is imported: for all tests."""
    words = ast.unparse(node).split("\n", 1)[0][:100]
    root = re.match(r"\w*", _written(node) or "")
    changes = root is not None and root.group() in block.imports and "sys.path" not in words
    calls = [last_name(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)]
    if changes or (isinstance(node, ast.Expr) and {"setattr", "start", "exec", "eval"} & set(calls)):
        return [("test_hook", f"changes what other tests use: {words}")]
    return []


def ended(tree: ast.Module) -> list[Found]:
    """Places in functions of a file of tests that end the whole run, or change the runner itself."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            own = name == "os.kill" and bool(node.args) and "getpid" in ast.unparse(node.args[0])
            if own or name in ("os._exit", "os.abort", "pytest.exit", "signal.raise_signal"):
                found.append(("exit_trick", f"ends the whole run: {ast.unparse(node)[:80]}"))
        elif (target := _written(node)) is not None and re.match(r"(?:_?pytest|unittest|builtins)[.\[]", target):
            found.append(("test_hook", f"changes what all tests use: {target}"))
    return found


def _loaded(tree: ast.AST) -> frozenset[str]:
    """Names that some function or statement uses and gives no value itself, and attributes of `self`."""
    found: set[str] = set()
    for top in [*ast.iter_child_nodes(tree), *(each for each in ast.walk(tree) if isinstance(each, _FUNCTIONS))]:
        inside = list(ast.walk(top))
        own = {node.id for node in inside if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        own |= {node.arg for node in inside if isinstance(node, ast.arg)}
        found |= {node.id for node in inside if isinstance(node, ast.Name)} - own
        found |= {node.attr for node in inside if isinstance(node, ast.Attribute) and _is_self(node.value)}
    return frozenset(found)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, those of imports that are tried or guarded included."""
    for node in body:
        inside = [*getattr(node, "body", []), *getattr(node, "orelse", [])]
        guarded = isinstance(node, ast.If | ast.Try) and inside
        if guarded and all(isinstance(each, ast.Import | ast.ImportFrom) for each in inside):
            yield from inside
        else:
            yield node


def _block(body: Sequence[ast.stmt]) -> _Block:
    block = _Block({}, {}, [])
    for node in _flat(without_docstring(body)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                block.imports[alias.asname or alias.name.split(".", 1)[0]] = alias.name if alias.asname else ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                block.imports[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            block.named[node.name] = node
        else:
            name = _assigned(node)
            if name:
                block.named[name] = node
            else:
                block.others.append(node)
    return block


def _assigned(node: ast.stmt) -> str:
    """The one name that a statement gives a value, empty for any other statement."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _compare(
    before: Sequence[ast.stmt],
    after: Sequence[ast.stmt],
    names: frozenset[str],
    used: frozenset[str],
    owner: str,
    *,
    hooks: bool,
) -> Iterator[Found]:
    old, new = _block(before), _block(after)
    inside = f" in {owner}" if owner else ""
    yield from _imports(old, new, names, inside)
    for name, node in old.named.items():
        if _is_test(node):
            continue
        if name not in new.named:
            yield from _lost(name, node, new, after, inside)
        elif isinstance(node, ast.ClassDef) and isinstance(now := new.named[name], ast.ClassDef):
            yield from _class(node, now, names, used, f"{owner}{name}")
        elif dump([node]) != dump([new.named[name]]):
            yield from _other(name, node, new.named[name], inside, hooks=hooks)
    for name, node in new.named.items():
        if name not in old.named and (hooks or not _is_test(node)):
            yield from _new(name, node, names, used, inside, hooks=hooks)
    kept, known = {dump([node]) for node in new.others}, {dump([node]) for node in old.others}
    yield from (("test_edited", f"a statement is gone{inside}") for node in old.others if dump([node]) not in kept)
    yield from (found for node in new.others if dump([node]) not in known for found in _statement(node))


def _imports(old: _Block, new: _Block, names: frozenset[str], inside: str) -> Iterator[Found]:
    for name, source in new.imports.items():
        if name in old.imports and old.imports[name] != source:
            yield "test_edited", f"{name} is imported from elsewhere{inside}"
        elif name not in old.imports and (name == "*" or name in names):
            yield "test_edited", f"{name} is imported over what the tests use{inside}"


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def is_fixture(node: ast.stmt) -> bool:
    """Whether a function is a fixture."""
    marks: list[ast.expr] = getattr(node, "decorator_list", [])
    return any(last_name(mark.func if isinstance(mark, ast.Call) else mark) == "fixture" for mark in marks)


def _is_autouse(node: ast.stmt) -> bool:
    marks: list[ast.expr] = getattr(node, "decorator_list", [])
    words = [each for mark in marks if isinstance(mark, ast.Call) for each in mark.keywords]
    return is_fixture(node) and any(each.arg == "autouse" for each in words)


def _lost(name: str, node: ast.stmt, new: _Block, after: Sequence[ast.stmt], inside: str) -> Iterator[Found]:
    """Something of a file is gone. What nothing names any more is not missed."""
    if isinstance(node, ast.ClassDef):
        if any(_is_test(each) for each in node.body):
            return  # its tests are told one by one
        if name not in _loaded(ast.Module(list(after), [])):
            return
    if is_fixture(node):
        yield "fixture_edited", f"the fixture {name} is gone{inside}"
    elif name in _SETTING_UP or name.startswith("pytest_"):
        yield "test_edited", f"{name} is gone{inside}"
    elif name in new.imports:
        yield "test_edited", f"{name} is imported now{inside}"


def _class(
    old: ast.ClassDef, new: ast.ClassDef, names: frozenset[str], used: frozenset[str], owner: str
) -> Iterator[Found]:
    if dump([*old.bases, *old.keywords]) != dump([*new.bases, *new.keywords]):
        yield "test_edited", f"{owner} has other bases"
    yield from _compare(old.body, new.body, names, used, f"{owner}.", hooks=False)


def _other(name: str, old: ast.stmt, new: ast.stmt, inside: str, *, hooks: bool) -> Iterator[Found]:
    if name == "pytestmark":
        return  # the marks are told test by test
    if name in _COLLECTING:
        yield "test_skipped", f"{name} is another{inside}"
    elif hooks and name.startswith("pytest_"):
        yield "test_hook", f"the hook {name} is another{inside}"
    elif is_fixture(old) or is_fixture(new):
        yield "fixture_edited", f"the fixture {name} is another{inside}"
    else:
        yield "test_edited", f"{name} is another{inside}"


def _new(
    name: str, node: ast.stmt, names: frozenset[str], used: frozenset[str], inside: str, *, hooks: bool
) -> Iterator[Found]:
    """A name that was not there. It is free as long as nothing that was there could mean it."""
    if name in _COLLECTING:
        yield "test_skipped", f"{name} keeps tests from being collected{inside}"
    elif name == "pytest_plugins" or (name.startswith("pytest_") and hooks):
        yield "test_hook", f"{name} changes how tests run{inside}"
    elif name == "pytestmark":
        return
    elif _is_autouse(node):
        yield "test_hook", f"the fixture {name} comes around every test{inside}"
    elif is_fixture(node) and hooks and name in used:
        yield "fixture_edited", f"the fixture {name} comes before one that tests ask for{inside}"
    elif is_fixture(node):
        return
    elif (name in _SETTING_UP or (name.startswith("__") and inside)) and (inside or name.endswith(("dule", "tests"))):
        yield "test_edited", f"{name} runs around every test{inside}"
    elif name in names:
        yield "test_edited", f"{name} now means something else to the tests{inside}"


def _statement(node: ast.stmt) -> Iterator[Found]:
    """A statement that runs when the file is imported."""
    words = ast.unparse(node).split("\n", 1)[0][:100]
    if exits([node]):
        yield "exit_trick", f"ends the run when it is imported: {words}"
    elif isinstance(node, ast.Delete):
        yield "test_edited", f"takes a name away: {words}"
    elif skips([node]) and is_skip(node):
        yield "test_skipped", f"skips when it is imported: {words}"
    elif "PYTEST_" in words or "PYTHON" in words:
        yield "environment_trick", f"changes what pytest or Python reads: {words}"
    elif (target := _written(node)) is not None:
        if target.endswith(".__test__"):
            yield "test_skipped", f"keeps a test from being collected: {words}"
        elif target.split(".", 1)[0].split("[", 1)[0] in _RUNNER:
            yield "test_hook", f"changes what all tests use: {words}"
        else:
            yield "test_edited", f"changes something when it is imported: {words}"
    elif not _is_idle(node):
        yield "test_edited", f"does something when it is imported: {words}"


def _written(node: ast.AST) -> str | None:
    """What an assignment writes to that is no name of its own."""
    single = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
    targets = node.targets if isinstance(node, ast.Assign) else single
    for target in targets:
        if isinstance(target, ast.Attribute | ast.Subscript):
            return ast.unparse(target)
    return None


def _is_idle(node: ast.stmt) -> bool:
    """A statement without an effect on tests: a text, `pass`, a tuple of names that get values, a main block."""
    if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return True
    if isinstance(node, ast.Assign):
        return True
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
