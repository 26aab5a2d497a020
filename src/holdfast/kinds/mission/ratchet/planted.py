"""Planted files and new dependencies: changes that could decide the result of checks (S25).

The protected files are checked out over a worker's tree as they were, except tests to which cases were only added. That
is not enough: a new file is not protected and can decide the result of a check. `planted` names those: settings and
hooks of runners, files that take the place of a module or of a target of a build file. They are set aside and refused
unless the contract or the task names them.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.globs import matches
from holdfast.kinds.mission.check.judging import Judges
from holdfast.kinds.mission.ratchet.additions import last_name, parsed

STDLIB = frozenset(  # module names of Python 3.11 to 3.14
    """
    __future__ _thread abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit audioop
    base64 bdb binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections
    colorsys compileall compression concurrent configparser contextlib contextvars copy copyreg crypt csv ctypes
    curses dataclasses datetime dbm decimal difflib dis distutils doctest email encodings ensurepip enum errno
    faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob
    graphlib grp gzip hashlib heapq hmac html http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools
    json keyword lib2to3 linecache locale logging lzma mailbox mailcap marshal math mimetypes mmap modulefinder msilib
    msvcrt multiprocessing netrc nis nntplib nt ntpath nturl2path numbers opcode operator optparse os ossaudiodev
    pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath pprint profile pstats pty
    pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri random re readline reprlib resource rlcompleter runpy
    sched secrets select selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd
    sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau symtable
    sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios textwrap this threading time timeit tkinter token
    tokenize tomllib trace traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest urllib uu
    uuid venv warnings wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib
    zoneinfo
    """.split()
)


LOCKS = (
    "**/uv.lock", "**/poetry.lock", "**/pdm.lock", "**/Pipfile.lock", "**/package-lock.json", "**/yarn.lock",
    "**/pnpm-lock.yaml", "**/bun.lock*", "**/npm-shrinkwrap.json", "**/go.sum", "**/Cargo.lock", "**/Gemfile.lock",
    "**/composer.lock", "**/pylock*.toml", "**/mix.lock",
)  # fmt: skip
"""Lock files: any change of them is a change of dependencies."""

MANIFESTS = (
    "**/requirements*.txt", "**/requirements/*.txt", "**/constraints*.txt", "**/requirements*.in", "**/Pipfile",
    "**/environment.y*ml", "**/go.mod", "**/Cargo.toml", "**/Gemfile", "**/composer.json", "**/pom.xml",
    "**/build.gradle*", "**/mix.exs", "**/*.csproj", "**/.gitmodules", "**/bower.json", "**/deno.json*",
)  # fmt: skip
"""Dependency manifests, compared line by line."""

_VERSIONED = ("go.mod", "mix.exs", "composer.json", "build.gradle", "build.gradle.kts", "bower.json", "deno.json")

_OWN = re.compile(
    r"(?:go|toolchain|module)\s|\"?version\"?\s*[:=]|\"(?:name|description|license|type)\"\s*:|[)\](}{\[]+,?$"
)
"""Lines of a manifest about the project itself, such as its version."""

_NODE = ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies", "overrides", "resolutions")


def wanted(path: str, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """Describe the dependencies that a change adds or removes; empty if it concerns none."""
    old, new = before.get(path), after.get(path)
    if matches(path, LOCKS):
        return ["was removed" if new is None else "changes locked versions"]
    was, now = _named(path, old), _named(path, new)
    changed = sorted(line for line in now if line not in was)
    gone = sorted(line for line in was if line not in now)
    return [f"adds {line}" for line in changed] + ([] if changed else [f"removes {line}" for line in gone])


def _named(path: str, content: bytes | None) -> set[str]:
    """Return the dependencies in a manifest, one string each."""
    name = path.rsplit("/", 1)[-1]
    if content is None:
        return set()
    text = content.decode("utf-8", "replace")
    try:
        if name == "pyproject.toml":
            return set(_pyproject(tomllib.loads(text)))
        if name == "package.json":
            known = json.loads(text)
            return {f"{key} {value}" for part in _NODE for key, value in (known.get(part) or {}).items()}
        if name == "setup.cfg":
            return set(_setup_cfg(text))
        if name == "setup.py":
            tree = parsed(content)
            words = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)] if tree is not None else []
            wanted = [word.value for word in words if word.arg and word.arg.endswith(("_require", "_requires"))]
            constants = (each for value in wanted for each in ast.walk(value) if isinstance(each, ast.Constant))
            return {ast.unparse(each) for each in constants}
        if name == "Cargo.toml":
            return set(_tables(tomllib.loads(text), "cargo"))
    except (ValueError, AttributeError, configparser.Error, RecursionError):
        return {"something that cannot be parsed"}
    if name == "pom.xml":
        blocks = re.findall(r"<(?:dependency|plugin|parent|repository)>.*?</", re.sub(r"\s", "", text))
        return set(blocks) | set(
            re.findall(
                r"<artifactId>[^<]*</artifactId><version>[^<]*",
                re.sub(r"\s", "", "".join(re.findall(r"<dependency>.*?</dependency>", text, re.S))),
            )
        )
    if matches(path, MANIFESTS):
        lines = (line.split(" #", 1)[0].strip() for line in text.splitlines())
        kept = {line for line in lines if line and not line.startswith(("#", "//", "<!--"))}
        return {line for line in kept if not _OWN.match(line)} if name in _VERSIONED else kept
    return set()


def _pyproject(known: dict[str, Any]) -> Iterator[str]:
    project, tools = known.get("project", {}), known.get("tool", {})
    groups = [project.get("dependencies", []), known.get("build-system", {}).get("requires", [])]
    groups += [*project.get("optional-dependencies", {}).values(), *known.get("dependency-groups", {}).values()]
    yield from (str(each) for group in groups for each in group)
    for tool in ("poetry", "uv", "pdm", "flit", "hatch"):
        yield from _tables(tools.get(tool, {}), tool)


def _tables(table: dict[str, Any], prefix: str) -> Iterator[str]:
    for key, value in table.items():
        if "dependencies" in key or key in ("sources", "source", "index"):
            inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
            yield from (f"{prefix} {name} {each}" for name, each in inside)
        elif isinstance(value, dict):
            yield from _tables(value, f"{prefix}.{key}")


def _setup_cfg(text: str) -> Iterator[str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    for section in parser.sections():
        for key, value in parser.items(section):
            if section == "options.extras_require" or key in ("install_requires", "setup_requires", "tests_require"):
                yield from (line.strip() for line in value.splitlines() if line.strip())


def declared(files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the dependencies in the manifests of a tree, as module names, without the tree's own modules."""
    names = {
        re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0].lower().replace("-", "_")
        for path, content in files.items()
        if path.count("/") <= 1 and path.endswith((".toml", ".txt", ".cfg", ".in"))
        for line in _named(path, content)
    }
    folders = {part.lower() for path in files for part in path.split("/")[:-1]}
    return frozenset(names - folders - {"", "python", "poetry", "uv", "pdm", "hatch", "flit"})


ALWAYS = (
    # pytest and the interpreter read these before any test runs; a new pytest.ini alone hides all other configuration.
    "**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/.pytest.toml",
    "**/sitecustomize.py", "**/usercustomize.py", "**/sitecustomize/**", "**/usercustomize/**", "**/*.pth",
    "**/*._pth", "**/pyvenv.cfg", "**/.coveragerc", "**/.pdbrc",
    # Compiled files are loaded without checking their source; metadata announces plug-ins.
    "**/__pycache__/**", "**/*.pyc", "**/*.pyo", "**/*.egg-info/**", "**/*.dist-info/**", "**/*.egg-link",
    # Environment variables.
    "**/.env", "**/.env.local", "**/.env.test", "**/.env.test.local", "**/.envrc",
    # The same of other languages.
    "**/.mocharc*", "**/jest.config.*", "**/jest.setup.*", "**/vitest.config.*", "**/vitest.workspace.*",
    "**/karma.conf.*", "**/playwright.config.*", "**/cypress.config.*", "**/.npmrc", "**/.yarnrc*", "**/.pnp.*",
    "**/node_modules/**", "**/__mocks__/**", "**/.babelrc*", "**/babel.config.*", "**/.swcrc",
    "**/.cargo/config*", "**/rust-toolchain*", "**/go.work", "vendor/modules.txt", "**/.rspec", "**/phpunit.xml*",
    "**/*.runsettings", "**/CTestCustom.cmake",
)  # fmt: skip
"""Files that influence checks and are rarely a product: kept as at the base, whatever the contract protects."""

STRUCTURE = ("**/__init__.py", "**/test_*.py", "**/*_test.py", "**/conftest.py", "**/*_test.go")
"""Files of a base that show its packages, the import paths of tests, and their imports."""

ENVIRONMENT = {
    "PYTEST_ADDOPTS": "",
    "PYTEST_PLUGINS": "",
    "PYTHONSTARTUP": "",
    "PYTHONINSPECT": "",
    "NODE_OPTIONS": "",
    "PYTHONDONTWRITEBYTECODE": "1",  # compiled files of a tree are set aside, and none is made
}
"""Variables of every check. `PYTEST_DISABLE_PLUGIN_AUTOLOAD` is not among them: a suite may need its plug-ins, which
come from the environment and not from the worker; plug-ins announced by a tree are removed."""

TOOLS = frozenset({
    "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "xdist", "pytest_asyncio",
    "pytest_cov", "pytest_timeout", "pytest_mock", "hypothesis", "coverage", "nose", "mock", "tox", "nox", "anyio",
    "ruff", "mypy", "pip", "setuptools", "wheel", "pkg_resources", "ward", "behave", "freezegun", "responses",
    "python", "make", "pytest_django", "pytest_subtests", "hamcrest", "assertpy", "sure", "expects", "nose2", "doctest",
})  # fmt: skip
"""Modules of test tools: a file of that name in a tree shadows the real one."""

SUFFIXES = (".py", ".pyc", ".so", ".pyd")

_TAKEN = (TOOLS | STDLIB) - {"test", "this", "antigravity"}

_GO_HOOK = re.compile(rb"^func (?:TestMain\(|init\(\))", re.MULTILINE)


def planted(
    new: Mapping[str, bytes], before: Mapping[str, bytes], judges: Judges, own: Collection[str] = ()
) -> tuple[str, ...]:
    """Return new paths that could decide the result of a check and that neither contract nor task asks for.

    `new` are the files added after the base; `before` those of the base, or at least those of `STRUCTURE`. `own` are
    the paths asked for.
    """
    tested = {_folder(path) for path in before if is_test_file(path) or path.endswith("_test.go")}
    globs = (*ALWAYS, *judges.settings)
    shadows = set(shadowing({*new, *before}, declared(before)))
    return tuple(
        sorted(
            path
            for path, content in new.items()
            if path not in own
            and (
                path in shadows
                or path in judges.taken
                or _decides(path, globs, tested)
                or _hooks(path, content, tested)
            )
        )
    )


def _decides(path: str, globs: Collection[str], tested: Collection[str]) -> bool:
    """Return True if a runner reads a file by its name. A conftest.py counts only if older tests are below it."""
    if path.rsplit("/", 1)[-1] == "conftest.py":
        folder = _folder(path)
        return any(not folder or f"{each}/".startswith(f"{folder}/") for each in tested)
    return matches(path, globs)


def _hooks(path: str, content: bytes, tested: Collection[str]) -> bool:
    """Return True if a new test file affects the existing tests."""
    if path.endswith("_test.go"):
        return _folder(path) in tested and _GO_HOOK.search(content) is not None
    tree = parsed(content) if is_test_file(path) else None
    targets = [each for node in (tree.body if tree else ()) for each in getattr(node, "targets", ())]
    return any(last_name(each) == "pytest_plugins" for each in targets)


def shadowing(paths: Collection[str], more: Collection[str] = ()) -> list[str]:
    """Return paths that shadow a module of the standard library, of a test tool, or one in `more`."""
    named = [path for path in paths if (name := _module(path)) in _TAKEN or (name and name in more)]
    if not named:
        return []
    packages = {_folder(path) for path in paths if path.endswith("/__init__.py")}
    roots = {"", "src", "lib"} | {_folder(path) for path in paths if is_test_file(path)}
    found = []
    for path in named:
        folder, _, file = path.rpartition("/")
        place = _folder(folder) if file.startswith("__init__.") else folder  # where it is imported from
        if place in roots and place not in packages:
            found.append(path)
    return sorted(found)


def is_test_file(path: str) -> bool:
    """Return True if pytest collects the file as tests or loads it as configuration, judged by its name."""
    name = path.rsplit("/", 1)[-1]
    return name == "conftest.py" or (name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _module(path: str) -> str:
    """Return the top-level name under which a file may be imported; empty if none."""
    if not path.endswith(SUFFIXES):
        return ""
    folder, _, file = path.rpartition("/")
    name = file.split(".", 1)[0]
    return folder.rpartition("/")[2] if name == "__init__" else name
