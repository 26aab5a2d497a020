"""What files imply, and where this machine's tools say that packages are."""

from __future__ import annotations

import pytest

from holdfast.environment.detect import detect, interesting
from holdfast.environment.registries import destination, discover, without_credentials
from holdfast.facts.session import Destination

ALL = ("npm", "pnpm", "yarn", "uv", "poetry", "python3", "cargo", "go", "cmake")


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"init.sh": b"", "package-lock.json": b""}, "bash ./init.sh"),
        ({"package-lock.json": b"{}"}, "rm -rf node_modules && npm ci --no-audit --no-fund"),
        ({"npm-shrinkwrap.json": b"{}"}, "rm -rf node_modules && npm ci --no-audit --no-fund"),
        ({"pnpm-lock.yaml": b""}, "rm -rf node_modules && pnpm install --frozen-lockfile"),
        ({"yarn.lock": b""}, "rm -rf node_modules && yarn install --frozen-lockfile"),
        ({"uv.lock": b"", "pyproject.toml": b""}, "rm -rf .venv && uv sync --frozen --no-cache"),
        ({"poetry.lock": b""}, "rm -rf .venv && POETRY_VIRTUALENVS_IN_PROJECT=true poetry install --no-interaction"),
        ({"Cargo.lock": b""}, "CARGO_HOME=/opt/environment/cargo cargo fetch --locked"),
        ({"go.mod": b""}, "GOMODCACHE=/opt/environment/go go mod download"),
    ],
)
def test_a_lock_file_implies_its_command(files: dict[str, bytes], command: str) -> None:
    found = detect(files, ALL)
    assert found.commands == (command,)
    assert set(found.files) == set(files)


def test_requirements_and_the_project_itself_go_into_one_environment() -> None:
    project = b"[build-system]\n[project]\n[project.optional-dependencies]\ntest = []\ndocs = []\n"
    found = detect({"requirements-it's.txt": b"", "requirements.txt": b"", "pyproject.toml": project}, ALL)
    (command,) = found.commands
    assert command.startswith("rm -rf .venv && python3 -m venv .venv && ")
    assert "-r 'requirements-it'\\''s.txt'" in command
    assert command.endswith("-e '.[test]'")
    assert found.env["VIRTUAL_ENV"] == "/workspace/.venv"


def test_a_lock_without_its_tool_falls_back_or_says_so() -> None:
    assert "pip install" in detect({"uv.lock": b"", "pyproject.toml": b"[project]"}, ("python3",)).commands[0]
    found = detect({"package-lock.json": b"{}"}, ())
    assert found.commands == ()
    assert "needs npm, which is not installed" in found.notes[0]
    assert "has no lock file" in detect({"package.json": b'{"dependencies": {}}'}, ALL).notes[0]
    assert "cannot be read" in detect({"pyproject.toml": b"= ="}, ALL).notes[0]


def test_a_pyproject_that_only_configures_tools_installs_nothing_of_its_own() -> None:
    (command,) = detect({"pyproject.toml": b"[tool.ruff]\n"}, ALL).commands
    assert "-e" not in command


def test_nothing_comes_of_nothing() -> None:
    assert detect({"CMakeLists.txt": b"", ".gitmodules": b""}, ALL).commands == ()
    assert interesting(["README.md", "src", "go.mod", "requirements-dev.txt"]) == ["go.mod", "requirements-dev.txt"]


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("https://user:word@index.test/simple", Destination("index.test", private=True)),
        ("http://mirror.test:8080/x", Destination("mirror.test", (8080,), plain=True, private=True)),
        ("http://mirror.test", Destination("mirror.test", (80,), plain=True, private=True)),
        ("file:///srv/index", None),
        ("https://[bad", None),
        ("https://index.test:port", None),
        ("", None),
    ],
)
def test_an_address_is_a_destination_without_its_credentials(address: str, found: Destination | None) -> None:
    assert destination(address) == found
    if found is not None:
        assert "word" not in without_credentials(address)


def test_the_tools_of_this_machine_are_asked() -> None:
    tools = discover()
    assert all(place.private for place in tools.destinations)
    assert not any("@" in value.partition("://")[2].partition("/")[0] for value in tools.env.values())
    if tools.apt:
        assert "Post-Invoke" not in tools.apt
        assert not any("auth.conf" in path for path in tools.read_only)
