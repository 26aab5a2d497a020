"""Contracts are read as people have them, and written back with nothing changed but what passed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import ContractInvalid
from holdfast.facts.mission import Check, Contract, Metric
from holdfast.globs import matches
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.kinds.mission.contract.formats.files import read_contract, write_back

QUICKSTART = """[
  {
    "category": "functional",
    "description": "New chat button creates a fresh conversation",
    "steps": [
      "Step 1: Navigate to main interface",
      "Step 2: Click the 'New Chat' button"
    ],
    "passes": false
  },
  {
    "category": "style",
    "description": "Dark mode keeps contrast",
    "steps": ["Switch the theme"],
    "passes": true
  }
]
"""

RALPH = {
    "project": "MyApp",
    "branchName": "ralph/priority",
    "description": "Add priority levels to tasks",
    "userStories": [
        {
            "id": "US-001",
            "title": "Add priority field to database",
            "description": "As a developer, I need to store task priority.",
            "acceptanceCriteria": ["Add priority column to tasks table", "Typecheck passes"],
            "priority": 1,
            "passes": False,
            "notes": "",
        },
        {
            "id": "US-002",
            "title": "Show it",
            "description": "As a user, I see it.",
            "acceptanceCriteria": ["Each card shows a badge", "Typecheck passes"],
            "priority": 2,
            "passes": False,
            "notes": "",
        },
    ],
}

COMPOUND = {
    "project": "P",
    "description": "Speed up sign-in",
    "tasks": [
        {
            "id": "T-001",
            "title": "Measure",
            "description": "",
            "acceptanceCriteria": ["Run `npm test` - exits with 0"],
            "priority": "high",
            "passes": False,
            "notes": None,
        }
    ],
}

PLAN = """# A greeter

Greets people by name.

## Library

- [ ] greet() greets by name
  - An empty name is refused.
  - check: `pytest tests/test_greet.py`
  - guard: `pytest tests/test_old.py`
  - metric: `python bench.py` at most 0.5 tolerance 0.1
  - paths: src/greet.py, src/names.py
  - id: greet
- [x] part() says goodbye
  - depends: greet

```md
- [ ] not an item: it is code
```

## Notes

- none of this is an item
"""


def read(value: Any, name: str = "feature_list.json") -> Contract:
    """The contract of a value as JSON."""
    return read_contract(json.dumps(value).encode(), name)


def test_the_quickstarts_list_without_ids() -> None:
    contract = read_contract(QUICKSTART.encode(), "feature_list.json")
    first, second = contract.items
    assert first.category == "functional"
    assert first.steps == ("Step 1: Navigate to main interface", "Step 2: Click the 'New Chat' button")
    (criterion,) = first.criteria
    assert criterion.check is None
    assert "Click the 'New Chat' button" in criterion.text
    assert second.id == "dark-mode-keeps-contrast"
    assert "feature_list.json" in contract.protected


def test_ids_made_from_words_stay_when_entries_move() -> None:
    entries = [{"description": f"The tool prints page {n} of the manual in {n} columns"} for n in range(40)]
    before = {item.description: item.id for item in read(entries).items}
    after = {item.description: item.id for item in read([{"description": "New"}, *reversed(entries[3:])]).items}
    assert len(set(before.values())) == 40
    assert {text: name for text, name in after.items() if text != "New"}.items() <= before.items()


def test_prd_json_of_both_families() -> None:
    contract = read(RALPH, "prd.json")
    assert contract.goal == "Add priority levels to tasks"
    assert [item.id for item in contract.items] == ["US-001", "US-002"]
    assert list(contract.criteria()) == [
        "US-001.add-priority-column-to-tasks-table",
        "US-001.typecheck-passes",
        "US-002.each-card-shows-a-badge",
        "US-002.typecheck-passes",
    ]
    compound = read(COMPOUND, "prd.json")
    assert compound.goal == "Speed up sign-in"
    assert [(item.id, item.description, item.priority) for item in compound.items] == [("T-001", "Measure", 1)]


def test_every_form_of_a_check() -> None:
    metric = {"command": "python bench.py", "target": 0.95, "tolerance": 0.01, "direction": "at_least"}
    contract = read(
        [
            {"id": "a", "description": "a", "check": "pytest -q"},
            {"id": "b", "description": "b", "check": {"command": "pytest -q", "tests": ["t.py::x"], "timeout_s": 9}},
            {"id": "c", "description": "c", "check": {"metric": metric}},
            {
                "id": "d",
                "description": "d",
                "acceptance": [
                    "A line.",
                    {"text": "It greets.", "needs_run": True},
                    {"text": "The suite stays green.", "command": "pytest -q", "guard": True},
                    {"id": "own", "text": "Fast.", "metric": metric},
                ],
            },
            {"id": "e", "description": "e", "acceptance": ["One.", "Two."], "check": ["pytest a.py", None]},
            {"id": "f", "description": "f", "steps": ["call it", "look"]},
        ]
    )
    found = contract.criteria()
    assert found["a.check"].check == Check("pytest -q")
    assert found["b.check"].check == Check("pytest -q", ("t.py::x",), None, 9.0)
    assert found["c.check"].check == Check("python bench.py", (), Metric(0.95, 0.01, "at_least"))
    assert (found["d.a-line"].check, found["d.a-line"].needs_run) == (None, False)
    assert found["d.it-greets"].needs_run
    assert found["f.done"].needs_run, "steps are there to be done"
    assert found["d.the-suite-stays-green"].guard
    assert found["own"].check == Check("python bench.py", (), Metric(0.95, 0.01, "at_least"))
    assert found["e.one"].check == Check("pytest a.py")
    assert found["e.two"].check is None


def test_a_plan_in_markdown() -> None:
    contract = read_contract(PLAN.encode(), "PLAN.md")
    assert contract.goal == "A greeter: Greets people by name."
    greet, part = contract.items
    assert (greet.id, greet.description, greet.category) == ("greet", "greet() greets by name", "Library")
    assert greet.paths == ("src/greet.py", "src/names.py")
    assert part.depends == ("greet",)
    kinds = [(each.check.command if each.check else each.text, each.guard) for each in greet.criteria]
    assert kinds == [
        ("An empty name is refused.", False),
        ("pytest tests/test_greet.py", False),
        ("pytest tests/test_old.py", True),
        ("python bench.py", False),
    ]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("# G\n## Parting\nSay it.\n### Acceptance criteria\n- Goodbye is said.\n", {"parting": ["Goodbye is said."]}),
        (
            "# G\n## Parting\n**Acceptance:**\n- a\n- [ ] b\n## Greeting\nDone when:\n- c\n",
            {"parting": ["a", "b"], "greeting": ["c"]},
        ),
        ("# G\n## Overview\n- no\n## Parting\n- a\n", {"parting": ["a"]}),
        ("1. [ ] One\n2. [x] Two\n    - [ ] sub\n", {"one": ["One"], "two": ["sub"]}),
    ],
)
def test_plans_are_written_in_many_ways(text: str, items: dict[str, list[str]]) -> None:
    contract = read_contract(text.encode(), "PLAN.md")
    assert {item.id: [each.text for each in item.criteria] for item in contract.items} == items


ISSUE = "### Steps to reproduce\n1. call greet('')\n### Expected behavior\nIt raises ValueError.\n### Actual\nhello\n"


@pytest.mark.parametrize(
    ("data", "items"),
    [
        (
            {"number": 7, "title": "Greets nobody", "body": ISSUE, "html_url": "u", "labels": [{"name": "bug"}]},
            {"greets-nobody": ["It raises ValueError."]},
        ),
        (
            {"iid": 7, "title": "Two", "description": "- [ ] a\n- [x] b\n", "web_url": "u"},
            {"a": ["a"], "b": ["b"]},
        ),
        (
            {"number": 7, "title": "T", "body": "## Checklist\n- [x] I have searched\n\n## Tasks\n- [ ] a\n"},
            {"a": ["a"]},
        ),
        ({"number": 7, "title": "T", "body": None}, {"t": ["T"]}),
    ],
)
def test_issues_of_github_and_gitlab(data: dict[str, Any], items: dict[str, list[str]]) -> None:
    contract = read(data, "issue.json")
    assert contract.goal == data["title"]
    assert {item.id: [each.text for each in item.criteria] for item in contract.items} == items


def test_the_text_of_an_issue() -> None:
    contract = read_contract(f"Greets nobody\n\n{ISSUE}".encode(), "issue.txt")
    (item,) = contract.items
    assert contract.goal == "Greets nobody"
    assert "call greet('')" in item.description
    assert [each.text for each in item.criteria] == ["It raises ValueError."]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (" \n\ufeff", "is empty"),
        ("[]", "no entries"),
        ("{}", "no list of entries"),
        ("3", "a number"),
        ("[1]", "entry 1 is a number"),
        ('[{"description": "a"}', "line 1"),
        ('[{"description": "a"},]', "trailing comma"),
        ('[\n{"description": "a"}\n{"description": "b"}]', "line 3"),
        ('[{"description": "a", "description": "b"}]', "duplicate key"),
        ('[{"category": "x"}]', "has no description"),
        ('[{"description": 3}]', "entry 1.description is a number"),
        (
            '[{"id": "a", "description": "x"}, {"id": "a", "description": "y"}]',
            "entry 2.id is 'a', which is",
        ),
        ('[{"id": "", "description": "x", "passes": "no"}]', "entry 1.passes is text"),
        ('[{"description": "x", "steps": {}}]', "entry 1.steps is an object"),
        ('[{"description": "x", "check": 3}]', "entry 1.check is a number"),
        ('[{"description": "x", "check": {"tests": []}}]', "entry 1.check has no command"),
        ('[{"description": "x", "check": {"command": " "}}]', "is empty"),
        ('[{"description": "x", "check": {"metric": {"command": "a"}}}]', "has no target"),
        ('[{"description": "x", "check": {"metric": {"command": "a", "target": 1e999}}}]', "not a finite number"),
        ('[{"description": "x", "check": {"metric": {"command": "a", "target": NaN}}}]', "not JSON"),
        ('[{"description": "x", "check": {"metric": {"command": "a", "target": 1, "direction": "up"}}}]', "at_least"),
        ('[{"description": "x", "check": {"command": "a", "timeout_s": 0}}]', "timeout_s"),
        ('[{"description": "x", "depends": ["y"]}]', "names 'y', which is not an item"),
        ('[{"id": "a", "description": "x", "depends": ["a"]}]', "a → a"),
        ('[{"description": "x", "priority": "soon"}]', "priority"),
        ('[{"description": "x", "acceptance": [3]}]', "acceptance[0]"),
        ('[{"description": "\\ud800"}]', "surrogate"),
        ('[{"description": "x", "check": "a\\u0000b"}]', "surrogate"),
        ("[" * 10_000, "nested"),
        ('{"userStories": []}', "no entries"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_place(text: str, says: str) -> None:
    with pytest.raises(ContractInvalid) as refused:
        read_contract(text.encode(), "feature_list.json")
    assert "feature_list.json" in str(refused.value)
    assert says in str(refused.value)


def test_what_is_no_text_or_no_plan_is_refused() -> None:
    for data, name in ((b"\xff\xfe[", "feature_list.json"), (b"# Only a title\n", "PLAN.md"), (b"#\n", "issue.txt")):
        with pytest.raises(ContractInvalid, match=name):
            read_contract(data, name)


def test_what_would_take_for_ever_is_refused_or_read_at_once() -> None:
    for data, name in (
        (json.dumps([{"description": "same"}] * 2_001).encode(), "feature_list.json"),
        (b"- [ ] same\n" * 30_000, "PLAN.md"),
    ):
        with pytest.raises(ContractInvalid, match="limit 2000"):
            read_contract(data, name)
    assert len(read_contract(b"## A\n### Acceptance\n- b\n" * 2_000, "PLAN.md").items) == 2_000
    assert len(read_contract(b"- [ ] a\n  - check: " + b"`" * 50_000, "PLAN.md").items) == 1


def test_only_passes_is_written_back() -> None:
    contract = read_contract(QUICKSTART.encode(), "feature_list.json")
    first, second = contract.items
    written = write_back(QUICKSTART.encode(), contract, {first.criteria[0].id}).decode()
    expected = QUICKSTART.replace("true", "TRUE").replace("false", "true").replace("TRUE", "false")
    assert written == expected
    both = {first.criteria[0].id, second.criteria[0].id}
    assert write_back(QUICKSTART.encode(), contract, both).decode() == QUICKSTART.replace("false", "true")


def test_an_entry_passes_when_all_its_criteria_do() -> None:
    text = b'[{"id":"a","description":"x","acceptance":["one","two"]},\n {"id":"b", "description":"y"}]'
    contract = read_contract(text, "f.json")
    assert write_back(text, contract, {"a.one", "b.done"}) == text.replace(b'"y"', b'"y", "passes": true')
    assert write_back(text, contract, {"a.one", "a.two"}) == text.replace(b'"two"]', b'"two"],"passes": true')


def test_boxes_of_a_plan_are_ticked() -> None:
    contract = read_contract(PLAN.encode(), "PLAN.md")
    every = set(contract.criteria())
    assert write_back(PLAN.encode(), contract, every).decode() == PLAN.replace("- [ ] greet", "- [x] greet")
    assert write_back(PLAN.encode(), contract, set()).decode() == PLAN.replace("- [x] part", "- [ ] part")


def test_another_file_is_not_written_to() -> None:
    contract = read_contract(QUICKSTART.encode(), "feature_list.json")
    with pytest.raises(ContractInvalid, match="not the file"):
        write_back(QUICKSTART.replace("Dark", "Light").encode(), contract, set())


def test_tests_and_what_configures_them_are_protected() -> None:
    globs = read(RALPH, "plans/prd.json").protected
    inside = ("tests/test_a.py", "pkg/tests/data/x.json", "conftest.py", "src/a_test.go", "web/a.test.ts",
              ".gitlab-ci.yml", "test_top.py", ".github/workflows/ci.yml", "plans/prd.json", "mission.toml",
              "tox.ini")  # fmt: skip
    outside = ("src/a.py", "contest.py", "docs/tests.md", "pyproject.toml", "testing/kit.py")
    assert [path for path in inside if not matches(path, globs)] == []
    assert [path for path in outside if matches(path, globs)] == []
    assert "golden/**" in read({"items": [{"description": "x"}], "protected": ["golden/**"]}).protected


def test_the_digest_is_over_what_is_meant() -> None:
    contract = read(RALPH, "prd.json")
    spaced = read_contract(json.dumps(RALPH, indent=4).encode(), "prd.json")
    assert contract_digest(spaced) == contract_digest(contract)
    assert contract_digest(read(COMPOUND, "prd.json")) != contract_digest(contract)
