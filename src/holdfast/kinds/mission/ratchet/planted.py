"""Names of modules that come with Python, of versions 3.11 to 3.14: what a tree may neither shadow nor depend on."""

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

STDLIB = frozenset(
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
"""Files that name versions; any change of them is one of dependencies."""

MANIFESTS = (
    "**/requirements*.txt", "**/requirements/*.txt", "**/constraints*.txt", "**/requirements*.in", "**/Pipfile",
    "**/environment.y*ml", "**/go.mod", "**/Cargo.toml", "**/Gemfile", "**/composer.json", "**/pom.xml",
    "**/build.gradle*", "**/mix.exs", "**/*.csproj", "**/.gitmodules", "**/bower.json", "**/deno.json*",
)  # fmt: skip
"""Files that are about dependencies; lines of them are compared."""

_VERSIONED = ("go.mod", "mix.exs", "composer.json", "build.gradle", "build.gradle.kts", "bower.json", "deno.json")

_OWN = re.compile(
    r"(?:go|toolchain|module)\s|\"?version\"?\s*[:=]|\"(?:name|description|license|type)\"\s*:|[)\](}{\[]+,?$"
)
"""Lines of a manifest that are about the project itself: its version, its language."""

_NODE = ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies", "overrides", "resolutions")


def wanted(path: str, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """What a changed path wants that it did not, in words; empty when it is not about dependencies."""
    old, new = before.get(path), after.get(path)
    if matches(path, LOCKS):
        return ["is gone" if new is None else "names other versions"]
    was, now = _named(path, old), _named(path, new)
    changed = sorted(line for line in now if line not in was)
    gone = sorted(line for line in was if line not in now)
    return [f"wants {line}" for line in changed] + ([] if changed else [f"no longer wants {line}" for line in gone])


def _named(path: str, content: bytes | None) -> set[str]:
    """The dependencies that a manifest names, one string each."""
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
            return set(_setup_py(content))
    except (ValueError, AttributeError, configparser.Error, RecursionError):
        return {"what cannot be read"}
    if name == "Cargo.toml":
        try:
            return set(_tables(tomllib.loads(text), "cargo"))
        except ValueError:
            return {"what cannot be read"}
    if name == "pom.xml":
        blocks = re.findall(r"<(?:dependency|plugin|parent|repository)>.*?</", re.sub(r"\s", "", text))
        return {each for each in blocks} | set(
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


def _setup_py(content: bytes) -> Iterator[str]:
    tree = parsed(content)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.keyword) and node.arg and node.arg.endswith(("_require", "_requires")):
            yield from (ast.unparse(each) for each in ast.walk(node.value) if isinstance(each, ast.Constant))


def declared(files: Mapping[str, bytes]) -> frozenset[str]:
    """Names of what the manifests of a tree want, as modules are written; without its own."""
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
    # Compiled files are taken without a look at their source; metadata announces plug-ins.
    "**/__pycache__/**", "**/*.pyc", "**/*.pyo", "**/*.egg-info/**", "**/*.dist-info/**", "**/*.egg-link",
    # Variables for whoever loads them.
    "**/.env", "**/.env.local", "**/.env.test", "**/.env.test.local", "**/.envrc",
    # The same of other languages.
    "**/.mocharc*", "**/jest.config.*", "**/jest.setup.*", "**/vitest.config.*", "**/vitest.workspace.*",
    "**/karma.conf.*", "**/playwright.config.*", "**/cypress.config.*", "**/.npmrc", "**/.yarnrc*", "**/.pnp.*",
    "**/node_modules/**", "**/__mocks__/**", "**/.babelrc*", "**/babel.config.*", "**/.swcrc",
    "**/.cargo/config*", "**/rust-toolchain*", "**/go.work", "vendor/modules.txt", "**/.rspec", "**/phpunit.xml*",
    "**/*.runsettings", "**/CTestCustom.cmake",
)  # fmt: skip
"""Globs of what decides about checks and is hardly ever a product: as at the base, whatever the contract protects."""

STRUCTURE = ("**/__init__.py", "**/test_*.py", "**/*_test.py", "**/conftest.py", "**/*_test.go")
"""Files of a base that say what is a package, from where tests import, and what they import."""

ENVIRONMENT = {
    "PYTEST_ADDOPTS": "",
    "PYTEST_PLUGINS": "",
    "PYTHONSTARTUP": "",
    "PYTHONINSPECT": "",
    "NODE_OPTIONS": "",
    "PYTHONPYCACHEPREFIX": "/dev/null",  # no compiled file is read, whoever wrote it
}
"""Variables that every check gets. `PYTEST_DISABLE_PLUGIN_AUTOLOAD` is none of them: a suite may need its plug-ins,
and plug-ins come from the environment, which is not the worker's; those announced by a tree are removed."""

TOOLS = frozenset({
    "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "xdist", "pytest_asyncio",
    "pytest_cov", "pytest_timeout", "pytest_mock", "hypothesis", "coverage", "nose", "mock", "tox", "nox", "anyio",
    "ruff", "mypy", "pip", "setuptools", "wheel", "pkg_resources", "ward", "behave", "freezegun", "responses",
    "python", "make", "pytest_django", "pytest_subtests", "hamcrest", "assertpy", "sure", "expects", "nose2", "doctest",
})  # fmt: skip
"""Modules of test tools: one of these names in a tree stands before the real one."""

SUFFIXES = (".py", ".pyc", ".so", ".pyd")

_TAKEN = (TOOLS | STDLIB) - {"test", "this", "antigravity"}

_GO_HOOK = re.compile(rb"^func (?:TestMain\(|init\(\))", re.MULTILINE)


def planted(
    new: Mapping[str, bytes], before: Mapping[str, bytes], judges: Judges, own: Collection[str] = ()
) -> tuple[str, ...]:
    """New paths that decide what a check says, and that nobody asked for.

    `new` are the files that came after the base; `before` those of the base, or at least those of `STRUCTURE`. `own`
    are paths that somebody asked for.
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
    """Whether a runner reads a file by its name. A conftest.py with no older tests below it is a matter of new ones."""
    if path.rsplit("/", 1)[-1] == "conftest.py":
        folder = _folder(path)
        return any(not folder or f"{each}/".startswith(f"{folder}/") for each in tested)
    return matches(path, globs)


def _hooks(path: str, content: bytes, tested: Collection[str]) -> bool:
    """Whether a new file of tests does something to the tests that were there."""
    if path.endswith("_test.go"):
        return _folder(path) in tested and _GO_HOOK.search(content) is not None
    tree = parsed(content) if is_test_file(path) else None
    targets = [each for node in (tree.body if tree else ()) for each in getattr(node, "targets", ())]
    return any(last_name(each) == "pytest_plugins" for each in targets)


def shadowing(paths: Collection[str], more: Collection[str] = ()) -> list[str]:
    """Those of a tree's paths that would be imported instead of a module of the standard library, of a test tool, or of
    one of those named in `more`.
    """
    named = [path for path in paths if (name := _module(path)) in _TAKEN or (name and name in more)]
    if not named:
        return []
    packages = {_folder(path) for path in paths if path.endswith("/__init__.py")}
    roots = {"", "src", "lib"} | {_folder(path) for path in paths if is_test_file(path)}
    return sorted(path for path in named if (place := _place(path)) in roots and place not in packages)


def is_test_file(path: str) -> bool:
    """Whether pytest takes a file for tests, or for a part of its own, by its name."""
    name = path.rsplit("/", 1)[-1]
    return name == "conftest.py" or (name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _module(path: str) -> str:
    """The top-level name under which a file may be imported, empty for none."""
    if not path.endswith(SUFFIXES):
        return ""
    folder, _, file = path.rpartition("/")
    name = file.split(".", 1)[0]
    return folder.rpartition("/")[2] if name == "__init__" else name


def _place(path: str) -> str:
    """The folder from which a module or package is imported."""
    folder, _, file = path.rpartition("/")
    return _folder(folder) if file.startswith("__init__.") else folder
