"""Habits that keep the tree small, acyclic, documented and free of leftovers."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tokenize
from collections import Counter

import holdfast
from tests.house.source import (
    BOX,
    PACKAGE,
    ROOT,
    SRC,
    calls,
    functions,
    imports,
    length,
    modules,
    none_of,
    python_files,
    short,
    tracked,
    tree,
)

FILE_LINES = 400
FOLDER_FILES = 22
FUNCTION_LINES = 70
SOURCE_FUNCTION_LINES = 60

USED_ONCE = 255
"""Private functions of at most five lines with one use; may only shrink."""

LONGER_FILES: dict[str, int] = {}
"""path → its length. An entry may only shrink, and goes when the file fits."""

LONGER_FUNCTIONS: dict[str, int] = {}
"""path::name → its length. An entry may only shrink, and goes when the function fits."""

PAGES = {"README.md": 120, "AGENTS.md": 100, "ARCHITECTURE.md": 200}
"""path → the most lines it may have."""

ALL = ("src", "tests", "scripts", "bench")


def ratchet(lengths: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    """What is too long, and which exceptions are out of date."""
    wrong = []
    for name, lines in lengths.items():
        allowed = exceptions.get(name, limit)
        if lines > allowed:
            wrong.append(f"{name}: {lines} lines, at most {allowed}: split it by what it is about")
        elif name in exceptions and lines < allowed:
            wrong.append(f"{name}: shrank to {lines}: lower its exception (drop it at {limit})")
    wrong += [f"{name}: has an exception and is gone" for name in exceptions if name not in lengths]
    return wrong


def test_files_are_short() -> None:
    lengths = {short(file): len(file.read_text().splitlines()) for file in python_files(*ALL)}
    none_of(ratchet(lengths, FILE_LINES, LONGER_FILES))


def test_folders_can_be_taken_in_at_a_glance() -> None:
    beside = Counter(short(file.parent) for file in python_files("src"))
    none_of([f"{folder}: {number} files" for folder, number in beside.items() if number > FOLDER_FILES])


def test_functions_are_short() -> None:
    lengths = {
        f"{short(file)}::{function.name}": length(function)
        for file in python_files(*ALL)
        for function in functions(file)
    }
    none_of(ratchet(lengths, FUNCTION_LINES, LONGER_FUNCTIONS))


def test_functions_of_the_source_are_shorter_still() -> None:
    lengths = {
        f"{short(file)}::{function.name}": length(function)
        for file in python_files("src")
        for function in functions(file)
    }
    none_of(ratchet(lengths, SOURCE_FUNCTION_LINES, {}))


def test_few_small_functions_serve_one_caller() -> None:
    """A private function of five lines that is used once makes a reader jump; most belong into their caller."""
    found = []
    for file in python_files("src"):
        if file.is_relative_to(PACKAGE / "proof"):
            continue
        used = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(tree(file))
            if isinstance(node, ast.Name | ast.Attribute)
        )
        found += [
            f"{short(file)}:{function.lineno} {function.name}"
            for function in functions(file)
            if re.match("_[^_]", function.name) and length(function) <= 5 and used[function.name] == 1
        ]
    if len(found) > USED_ONCE:
        none_of(found, f"{len(found)} private functions of at most five lines are used once, at most {USED_ONCE}")


def test_own_modules_are_imported_at_the_top() -> None:
    lazy = {
        "src/holdfast/app/server/verbs.py",  # the server, which needs an extra
        "src/holdfast/app/compose.py",  # doors that many commands never open
        "src/holdfast/app/providers.py",  # a provider each
        "src/holdfast/sources/opening.py",  # a source each, some of an extra
        "src/holdfast/hands/box/agent/agent.py",  # the web, which few calls need
    }
    wrong = [
        f"{short(file)}:{line}: imports {name} inside {function.name}"
        for file in python_files("src")
        if short(file) not in lazy
        for function in functions(file)
        for name, line in imports(function)
        if name.split(".")[0] == "holdfast"
    ]
    none_of(wrong)


def test_own_modules_are_loaded_by_name_only_where_laziness_is_kept() -> None:
    lazy = {
        "src/holdfast/__init__.py",
        "src/holdfast/app/cli/__init__.py",
        "src/holdfast/app/compose.py",  # loops
        "src/holdfast/app/models.py",
        "src/holdfast/app/settings/targets.py",  # an extra each
        "src/holdfast/app/running/drive.py",  # the rows of loops
        "src/holdfast/app/running/workers.py",
        "src/holdfast/kinds/__init__.py",  # a kind each
    }
    wrong = [
        f"{short(file)}:{call.lineno}: {ast.unparse(call)}"
        for file in python_files("src")
        for name, call in calls(file)
        if name in ("importlib.import_module", "import_module", "__import__") and short(file) not in lazy
        if not (isinstance(call.args[0], ast.Constant) and not str(call.args[0].value).startswith("holdfast"))
    ]
    none_of(wrong)


def test_no_cycle_hides_behind_type_checking() -> None:
    wrong = [
        f"{short(file)}:{node.lineno}"
        for file in python_files("src")
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("TYPE_CHECKING")
    ]
    none_of(wrong)


def test_pure_floors_touch_nothing() -> None:
    impure = {"open", "print", "input", "exec", "eval", "breakpoint", "globals"}
    wrong = [
        f"{short(file)}:{call.lineno}: {name}()"
        for file in python_files("src")
        if file.relative_to(PACKAGE).parts[0] in ("facts", "session")
        for name, call in calls(file)
        if name in impure
    ]
    none_of(wrong)


def test_the_box_is_standard_library_only() -> None:
    wrong = [
        f"{short(file)}:{line}: {name}"
        for file in python_files("src")
        if file.is_relative_to(BOX) or file == PACKAGE / "privileges.py"
        for name, line in imports(tree(file))
        if name.split(".")[0] not in sys.stdlib_module_names
        and not f"{name}.".startswith(("holdfast.hands.box.", "holdfast.privileges."))
    ]
    none_of(wrong)


def test_every_module_says_what_it_is() -> None:
    silent = [
        short(file)
        for file in python_files(*ALL)
        if file != ROOT / "tests" / "__init__.py" and not ast.get_docstring(tree(file))
    ]
    none_of(silent)


def test_every_public_class_and_function_says_what_it_does() -> None:
    """The checks of a conformance kit are sentences already: their functions are let off."""
    wrong = [
        f"{short(file)}:{node.lineno}: {node.name}"
        for file in python_files("src")
        for node in tree(file).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if not node.name.startswith("_") and not ast.get_docstring(node)
        if isinstance(node, ast.ClassDef) or not file.is_relative_to(PACKAGE / "testing")
    ]
    none_of(wrong)


def test_the_public_names_exist() -> None:
    names = list(getattr(holdfast, "__all__", ["__version__"]))
    assert len(names) <= 25
    assert names == sorted(set(names)), "sorted, each once"
    assert [name for name in names if not hasattr(holdfast, name)] == []
    public = {name for name in dir(holdfast) if not name.startswith("_")} | {"__version__"}
    modules_below = {name for name in public if f"holdfast.{name}" in sys.modules}
    helpers = {"annotations", "Any", "import_module", "importlib"}
    assert public - modules_below - helpers <= set(names), "a public name that __all__ does not have"


def roots() -> set[str]:
    """Where the program begins, and what those who write a door of their own import."""
    known = modules()
    cli = "holdfast.app.cli"
    found = {"holdfast", "holdfast.__main__", cli, f"{cli}.start"}
    found |= {name for name in known if name.startswith("holdfast.testing")}
    if cli in known:
        found |= {info.path for info in importlib.import_module(cli).VERBS.values()}
    # The lazy table of the package names modules as text.
    found |= set(re.findall(r'"(holdfast\.[a-z_.]+)"', known["holdfast"].read_text()))
    return found & set(known)


def reachable() -> set[str]:
    """The modules that the program or a measurement comes to: imported, or named by their file, by one it comes to."""
    known = modules()
    by_file: dict[str, str] = {file.name: name for name, file in known.items() if file.name != "__init__.py"}
    found: set[str] = set()
    waiting = [*roots(), *(name for file in python_files("bench") for name, _ in imports(tree(file)) if name in known)]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        near = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
        near |= {other for other, _ in imports(tree(known[name]))}
        near |= {by_file[word] for word in re.findall(r"\w+\.py\b", known[name].read_text()) if word in by_file}
        near |= set(re.findall(r"holdfast(?:\.\w+)+", known[name].read_text()))
        waiting += near & set(known)
    return found


def test_no_module_is_dead() -> None:
    none_of(sorted(set(modules()) - reachable()), "nothing comes to these:")


def test_no_data_file_is_dead() -> None:
    """A file that is read by its name is named by a module."""
    code = "\n".join(file.read_text() for file in python_files("src"))
    dead = [
        short(file)
        for file in tracked()
        if file.is_relative_to(SRC) and file.suffix != ".py" and file.name != "py.typed"
        if file.stem not in code
    ]
    none_of(dead, "no module names these:")


def test_own_processes_import_nothing_from_the_current_folder() -> None:
    """`python -m` begins with the current folder, which may be a workspace: each start has -P or -I."""
    wrong = [
        f"{short(file)}:{number}: {line.strip()}"
        for file in python_files("src")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if "sys.executable" in line and not re.search('"-[PI]"', line)
    ]
    none_of(wrong, "Python is started without -P or -I:")


def test_nothing_is_put_off() -> None:
    """In comments: a string may be about somebody else's unfinished work."""
    later = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    wrong = []
    for file in python_files("src", "scripts", "bench"):
        with file.open("rb") as source:
            said = [token for token in tokenize.tokenize(source.readline) if token.type == tokenize.COMMENT]
        wrong += [f"{short(file)}:{token.start[0]}: {token.string}" for token in said if later.search(token.string)]
    none_of(wrong)


def test_tests_use_the_real_thing() -> None:
    wrong = []
    for file in python_files("tests"):
        wrong += [f"{short(file)}:{line}: {name}" for name, line in imports(tree(file)) if "mock" in name.split(".")]
        for name, call in calls(file):
            pause = call.args[0] if call.args else None
            if (
                file.name.startswith("test_")  # others may be programs that a test kills
                and name.split(".")[-1] == "sleep"
                and isinstance(pause, ast.Constant)
                and isinstance(pause.value, int | float)
            ):
                if 0.05 < pause.value < 3600:
                    wrong.append(f"{short(file)}:{call.lineno}: sleeps {pause.value} s: wait for the event itself")
            if name in ("pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"):
                if not any(word.arg == "reason" for word in call.keywords) and not (
                    name == "pytest.skip" and call.args
                ):
                    wrong.append(f"{short(file)}:{call.lineno}: {name} without a reason")
    none_of(wrong)


def test_no_file_names_a_registry_or_a_machine() -> None:
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "deb.debian" + ".org", "file" + ":///opt"]
    places = [re.escape(f"{ROOT}/")]
    notes = [r"\bissues? #?\d"]
    unwanted = re.compile("|".join([*map(re.escape, hosts), *places, *notes]))
    wrong = []
    for file in tracked():
        text = file.read_bytes().decode("utf-8", "replace")
        wrong += [
            f"{short(file)}:{number}: {found.group()}"
            for number, line in enumerate(text.splitlines(), 1)
            if (found := unwanted.search(line))
        ]
    none_of(wrong)


def test_every_rule_that_is_cited_can_be_read() -> None:
    """`# S4` in the code is a rule; its text stands in a document of this repository."""
    rules = "\n".join(file.read_text() for file in tracked() if file.suffix == ".md" and file.name != "AGENTS.md")
    written = set(re.findall(r"\bS\d+\b", rules))
    wrong = [
        f"{short(file)}:{number}: {rule}"
        for file in python_files("src")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for rule in re.findall(r"\bS[1-9]\d?\b", line)
        if rule not in written
    ]
    none_of(wrong, "no document has these rules:")


def test_pages_are_short() -> None:
    wrong = [
        f"{name}: {lines} lines, at most {limit}"
        for name, limit in PAGES.items()
        if (ROOT / name).exists() and (lines := len((ROOT / name).read_text().splitlines())) > limit
    ]
    none_of(wrong)
