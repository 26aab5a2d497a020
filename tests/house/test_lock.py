"""The lock files fit pyproject.toml and each other, and lead to no particular registry."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.source import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
LOCKED = {package["name"]: package.get("version", "") for package in LOCK["package"]}
HASHES = {
    package["name"]: {
        file["hash"] for file in [*package.get("wheels", ()), *filter(None, [package.get("sdist")])] if file.get("hash")
    }
    for package in LOCK["package"]
}
FILES = ("requirements.txt", "requirements-dev.txt")


def pinned(name: str) -> dict[str, tuple[str, set[str]]]:
    """Package → version and hashes of a requirement file."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    found: dict[str, tuple[str, set[str]]] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(re.split(r"\s+--hash", line)[0])
            (pin,) = requirement.specifier
            assert pin.operator == "=="
            found[canonicalize_name(requirement.name)] = (pin.version, set(re.findall(r"--hash=(\S+)", line)))
    return found


@pytest.mark.parametrize("wanted", PROJECT["project"]["dependencies"])
def test_run_time_requirements_are_locked(wanted: str) -> None:
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(LOCKED[requirement.name])
    assert requirement.name in pinned("requirements.txt")


@pytest.mark.parametrize("wanted", [each for each in PROJECT["dependency-groups"]["dev"] if each != "holdfast[all]"])
def test_development_requirements_are_locked(wanted: str) -> None:
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(LOCKED[requirement.name])
    assert requirement.name in pinned("requirements-dev.txt")


@pytest.mark.parametrize("name", FILES)
def test_requirement_files_say_what_the_lock_says(name: str) -> None:
    for package, (version, hashes) in pinned(name).items():
        assert version == LOCKED[package]
        assert hashes == HASHES[package]


@pytest.mark.parametrize("name", FILES)
def test_extras_that_packages_ask_for_are_pinned_with_them(name: str) -> None:
    """pip takes the newest release for an extra that no line names, and has no hash for it."""
    lines = (ROOT / name).read_text()
    wanted = {
        (each["name"], extra)
        for package in LOCK["package"]
        for each in package.get("dependencies", ())
        for extra in each.get("extra", ())
    }
    assert wanted
    for package, extra in wanted:
        for line in re.findall(rf"(?m)^{re.escape(package)}\b.*==", lines):
            assert extra in Requirement(line.rstrip("=")).extras


def test_the_core_is_small() -> None:
    assert len(pinned("requirements.txt")) <= 10


@pytest.mark.parametrize("name", ["uv.lock", *FILES])
def test_no_address_is_in_a_lock_file(name: str) -> None:
    assert re.findall(r"\w+://\S+|--(?:extra-)?index-url|--find-links", (ROOT / name).read_text()) == []
    if name == "uv.lock":
        assert {str(package["source"]) for package in LOCK["package"]} == {"{'registry': '.'}", "{'editable': '.'}"}
