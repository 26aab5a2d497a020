"""Plain English in what people read: source, documentation, help, prompts."""

from __future__ import annotations

import ast
import re

from tests.house.source import ROOT, none_of, python_files, short, tracked, tree

CLAUSE = re.compile(r"(?:What|Whether|Who|Whose|How|Where|Which)\b")
PAGES = (".md", ".py", ".pyi", ".toml", ".txt", ".yml", ".sql")
READ = ("src", "docs", ".github")


def phrases() -> list[str]:
    """The phrases of scripts/english.txt."""
    lines = (ROOT / "scripts" / "english.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    wrong = []
    for file in python_files("src"):
        for node in ast.walk(tree(file)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                if CLAUSE.match(first):
                    wrong.append(f"{short(file)}:{getattr(node, 'lineno', 1)}: {first}")
    none_of(wrong)


def test_no_phrase_that_was_given_up_comes_back() -> None:
    pattern = re.compile(
        r"\b(?:" + "|".join(re.escape(each).replace(r"\ ", r"\s+") for each in phrases()) + r")\b", re.I
    )
    wrong = []
    for file in tracked():
        parts = file.relative_to(ROOT).parts
        if "synthetic" in parts:  # phrases that models write
            continue
        if file.suffix in PAGES and (parts[0] in READ or (len(parts) == 1 and file.suffix == ".md")):
            text = file.read_text()
            wrong += [
                f"{short(file)}:{text.count(chr(10), 0, at.start()) + 1}: {at[0]!r}" for at in pattern.finditer(text)
            ]
    none_of(wrong)
