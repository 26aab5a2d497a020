"""Contracts for small repositories: twenty good ones, and sixty with one planted defect each, ten of each kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.facts.mission import MissionPolicy
from tests.mission.lint_repos import PYTEST, REPOS, UNIT, Entry

KINDS = ("already_passes", "cannot_fail", "does_not_exist", "unchecked", "vague", "too_large")


@dataclass(frozen=True)
class Case:
    """A contract in a file, for a repository. `planted` are the kind and the item of what is wrong, if anything is."""

    name: str
    repo: str
    file: str
    text: str
    planted: tuple[str, str] | None = None
    policy: MissionPolicy = field(default_factory=MissionPolicy)
    more: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        """All files of the repository."""
        return {**REPOS[self.repo].files, **self.more, self.file: self.text}


# --- formats ---------------------------------------------------------------------------------------


def feature_list(entries: list[Entry]) -> tuple[str, str]:
    """A plain list."""
    return "feature_list.json", json.dumps(
        [{"category": "functional", **each, "passes": False} for each in entries], indent=2
    )


def wrapped(entries: list[Entry]) -> tuple[str, str]:
    """A list with a goal beside it."""
    return "plan/features.json", json.dumps({"goal": "What is missing is added.", "features": entries})


def prd(entries: list[Entry]) -> tuple[str, str]:
    """User stories."""
    stories = [
        {
            **{key: value for key, value in each.items() if key not in ("acceptance", "description")},
            "title": each["description"],
            "description": f"As a user I want that {each['description'][0].lower()}{each['description'][1:]}.",
            **({"acceptanceCriteria": each["acceptance"]} if "acceptance" in each else {}),
            "priority": number,
            "passes": False,
            "notes": "",
        }
        for number, each in enumerate(entries, 1)
    ]
    return "prd.json", json.dumps(
        {"project": "P", "branchName": "b", "description": "More of it", "userStories": stories}
    )


def markdown(entries: list[Entry]) -> tuple[str, str]:
    """A checklist."""
    lines = ["# What is missing", "", "It is added.", "", "## Features", ""]
    for each in entries:
        lines += [f"- [ ] {each['description']}", f"  - id: {each['id']}"]
        lines += [f"  - steps: {step}" for step in each.get("steps", ())]
        lines += [f"  - paths: {', '.join(each['paths'])}"] if each.get("paths") else []
        checks = each.get("check") or []
        for check in checks if isinstance(checks, list) else [checks]:
            lines.append(f"  - {_in_markdown(check, 'check')}")
        for line in each.get("acceptance", ()):
            if isinstance(line, str):
                lines += [f"  - {line}"] if line else []
            elif "command" in line:
                lines.append(f"  - {_in_markdown(line, 'guard' if line.get('guard') else 'check')}")
    return "PLAN.md", "\n".join(lines) + "\n"


def _in_markdown(check: Any, word: str) -> str:
    if isinstance(check, str):
        return f"{word}: `{check}`"
    if "metric" in check:
        metric = check["metric"]
        return f"metric: `{metric['command']}` at least {metric['target']} tolerance {metric.get('tolerance', 0)}"
    command = " ".join([check["command"], *check.get("tests", ())])
    return f"{word}: `{' '.join(command.split(chr(10)))}`"


FORMATS: tuple[Callable[[list[Entry]], tuple[str, str]], ...] = (feature_list, prd, wrapped, markdown)

# --- good ones -------------------------------------------------------------------------------------


def good_cases() -> list[Case]:
    """Four for each repository: all of its entries, or some, in each format."""
    cases = []
    for repo_name, repo in REPOS.items():
        for number, write in enumerate(FORMATS):
            entries = [each for at, each in enumerate(repo.good) if number == 0 or at != number]
            if write is markdown:  # a program of several lines does not fit on one
                entries = [each for each in entries if each["id"] != "errors"]
            file, text = write(entries)
            cases.append(Case(f"good-{repo_name}-{write.__name__}", repo_name, file, text))
    return cases


# --- defects ---------------------------------------------------------------------------------------


def _check(repo: str, description: str, check: Any, **more: Any) -> tuple[str, Entry]:
    return repo, {"id": "planted", "description": description, "check": check, **more}


DEFECTS: dict[str, tuple[tuple[str, Entry], ...]] = {
    "already_passes": (
        _check("greet", "Greets by name", f"{PYTEST} tests/test_greet.py::test_greet_by_name"),
        _check("greet", "Says hello", "python3 -c \"import greet; assert greet.greet('Bo') == 'Hello, Bo.'\""),
        _check("ledger", "Reads dollars", f"{UNIT} tests.test_money.TestParse"),
        _check("ledger", "Reads cents", "python3 -c \"from ledger.money import parse; assert parse('0.07') == 7\""),
        _check("words", "Counts words", "printf 'a b\\n' | python3 wordcount.py | grep -qx 2"),
        _check("words", "Is a program", "test -f wordcount.py"),
        _check("backup", "Saves a folder", "sh tests/run.sh save"),
        _check("backup", "Tells its version", "sh backup.sh version | grep -qx 1.0"),
        _check("slugs", "Is right mostly", {"metric": {"command": "python3 -m tests.accuracy", "target": 0.1}}),
        _check("slugs", "Has a function", "grep -q '^def slug' slugs.py"),
    ),
    "cannot_fail": (
        _check("greet", "Says goodbye", f"{PYTEST} tests/test_greet.py::test_part || true"),
        _check("greet", "Has tests for shouting", f"{PYTEST} --collect-only tests/test_greet.py"),
        _check("greet", "Starts", f"{PYTEST} tests/test_smoke.py"),
        _check("ledger", "Adds amounts", f"{UNIT} tests.test_money.TestTotal; exit 0"),
        _check("ledger", "Sums up", "echo 'total works'"),
        _check("words", "Counts paragraphs", "printf 'a' | python3 wordcount.py --paragraphs | tee /tmp/out.txt"),
        _check("words", "Scores high", {"metric": {"command": "python3 tests/constant.py", "target": 0.9}}),
        _check("backup", "Restores twice", "sh tests/run.sh restore || echo 'not yet'"),
        _check("backup", "Goes on to work", {"command": "true", "guard": True}),
        _check("slugs", "Is accurate", {"metric": {"command": "python3 tests/constant.py", "target": 0.9}}, guard=True),
    ),
    "does_not_exist": (
        _check("greet", "Waves", f"{PYTEST} tests/test_wave.py"),
        _check("greet", "Bows", f"{PYTEST} tests/test_greet.py::test_bow"),
        _check("greet", "Nods", f"{PYTEST} -k nodding tests/test_greet.py"),
        _check("ledger", "Takes taxes", f"{UNIT} tests.test_tax"),
        _check("ledger", "Rounds", f"{UNIT} tests.test_money.TestRounding"),
        _check("words", "Counts sentences", "wordcount-check --sentences tests/sample.txt"),
        _check("words", "Counts pages", "python3 tools/check_pages.py"),
        _check("backup", "Prunes", "sh tests/prune.sh"),
        _check("backup", "Is linted", "make check-backup"),
        _check("slugs", "Takes 10 ms at most", f"{PYTEST} tests/bench_speed.py"),
    ),
    "unchecked": (
        ("greet", {"id": "planted", "description": "Whispers"}),
        ("greet", {"id": "planted", "description": "Sings", "acceptance": [""]}),
        ("ledger", {"id": "planted", "description": "Takes foreign money", "acceptance": []}),
        ("ledger", {"id": "planted", "description": "Exports to CSV", "check": None}),
        ("words", {"id": "planted", "description": "Counts syllables", "check": "", "steps": []}),
        ("words", {"id": "planted", "description": "Reads PDF", "acceptance": [{"text": ""}]}),
        ("backup", {"id": "planted", "description": "Encrypts what it saves", "priority": 1}),
        ("backup", {"id": "planted", "description": "Saves to another machine", "acceptance": ["Over SSH.", " "]}),
        ("slugs", {"id": "planted", "description": "Knows German", "category": "style"}),
        ("slugs", {"id": "planted", "description": "Knows Greek", "depends": ["accents"]}),
    ),
    "vague": tuple(
        (repo, {"id": "planted", "description": description, "acceptance": [line]})
        for repo, description, line in (
            ("greet", "Greets in other languages", "Greetings in French, German, etc. are supported."),
            ("greet", "Greets crowds", "Large lists of names are greeted fast."),
            ("ledger", "Handles errors", "Errors are handled properly."),
            ("ledger", "Prints statements", "The statement looks good and is user friendly."),
            ("words", "Counts large files", "Performance is acceptable and the program is efficient with large files."),
            ("words", "Explains itself", "The help is intuitive."),
            ("backup", "Survives crashes", "Interrupted backups are dealt with gracefully."),
            ("backup", "Copies a lot", "It works well with many files and is scalable."),
            ("slugs", "Is documented", "The code is clean and well-documented."),
            ("slugs", "Handles oddities", "Other characters are replaced as appropriate."),
        )
    ),
    "too_large": tuple(
        (repo, {"id": "planted", "description": description, "acceptance": ["Nothing else changes."], **more})
        for repo, description, more in (
            ("greet", "Rewrites the names", {"paths": ["data/**"]}),
            ("greet", "Tidies all modules", {"paths": ["data/names.py", "greet.py"]}),
            ("ledger", "Moves the bookings", {"paths": ["data/*.py"]}),
            ("ledger", "Does what the letter says. " + "It is a long one, with a wish in each line.\n" * 6_000, {}),
            ("words", "Takes the dictionary in", {"paths": ["data/names.py"]}),
            (
                "words",
                "Follows the manual",
                {"steps": [f"Open page {n} and do what it says there." for n in range(6_000)]},
            ),
            ("backup", "Rewrites the catalog", {"paths": ["data/"]}),
            ("backup", "Follows the standard", {"description": "The standard says: " + "shall " * 45_000}),
            ("slugs", "Folds all of Unicode", {"paths": ["**/names.py"]}),
            ("slugs", "Splits the tables", {"paths": ["data"]}),
        )
    ),
}

BIG = "NAMES = [\n" + "".join(f'    "name number {n}",\n' for n in range(11_000)) + "]\n"


def defect_cases() -> list[Case]:
    """Sixty contracts: each planted entry among good ones, at another place and in another format."""
    cases = []
    for kind, planted in DEFECTS.items():
        for number, (repo_name, entry) in enumerate(planted):
            others = [each for each in REPOS[repo_name].good if each["id"] != "errors"]
            if entry.get("depends"):
                kept = others[1:3]
            else:
                kept = [others[number % len(others)], others[(number + 1) % len(others)]]
            entries = [*kept[: number % 3], entry, *kept[number % 3 :]]
            formats = FORMATS if kind not in ("unchecked", "too_large") else FORMATS[:3]
            file, text = formats[number % len(formats)](entries)
            more = {"data/names.py": BIG} if kind == "too_large" else {}
            cases.append(Case(f"{kind}-{number}", repo_name, file, text, (kind, "planted"), more=more))
    return cases
