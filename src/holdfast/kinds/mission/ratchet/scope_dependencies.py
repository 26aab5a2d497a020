"""New dependencies: what a tree wants from elsewhere that its base did not, as its manifests say it.

An import brings nothing in: what is not installed fails by itself.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.globs import matches
from holdfast.kinds.mission.ratchet.additions import parsed

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
