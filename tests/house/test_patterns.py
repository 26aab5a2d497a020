"""The examples of docs/patterns.md are what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.facts.session import Rule
from holdfast.globs import matches
from holdfast.session.tools.effects import effects_of
from holdfast.session.tools.policy import evaluate

PAGE = (Path(__file__).parents[2] / "docs/patterns.md").read_text()
CODE = re.compile(r"`([^`]+)`")


def rows(heading: str) -> list[tuple[str, list[str], list[str]]]:
    """Return the rows of the table below a heading: the pattern, what it matches, and what it does not."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [(CODE.findall(line[0])[0], CODE.findall(line[1]), CODE.findall(line[2])) for line in lines]


PATHS, TEXTS = rows("Paths of a repository"), rows("Text")


@pytest.mark.parametrize(("glob", "yes", "no"), PATHS, ids=[row[0] for row in PATHS])
def test_paths(glob: str, yes: list[str], no: list[str]) -> None:
    assert yes
    assert no
    assert all(matches(path, [glob]) for path in yes)
    assert not any(matches(path, [glob]) for path in no)


@pytest.mark.parametrize(("pattern", "yes", "no"), TEXTS, ids=[row[0] for row in TEXTS])
def test_texts(pattern: str, yes: list[str], no: list[str]) -> None:
    assert yes
    assert no
    rules = (Rule("*", "deny", pattern),)
    parts = {text: effects_of("fetch", {"text": text}, main="text").parts for text in (*yes, *no)}
    assert {text for text in parts if evaluate(rules, "fetch", parts[text], whole=text).decision == "deny"} == set(yes)
