"""`holdfast mission init`: a goal becomes a contract in the repository, and no file is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.app.mission.init import api_address
from holdfast.errors import UsageError
from holdfast.globs import matches
from holdfast.kinds.mission.role.submissions import submitted_contract
from tests.app.terminal import Said, Type, bash, script, turn
from tests.app.test_mission_lint import make

FEATURES: list[dict[str, Any]] = [
    {
        "id": "part",
        "category": "functional",
        "description": "part() says goodbye by name",
        "steps": ["Call part('Bo')"],
        "priority": 1,
        "acceptance": ["part('Bo') is 'Goodbye, Bo.'"],
        "check": "python3 -c \"import greet; assert greet.part('Bo') == 'Goodbye, Bo.'\"",
        "passes": True,
    },
    {"id": "shout", "description": "shout() greets in capitals", "acceptance": ["shout('Bo') is 'HELLO, BO!'"]},
]

SET_UP = "python3 -m venv .venv"


def submit(**value: Any) -> dict[str, Any]:
    """A turn that hands in a contract."""
    return turn(tool_calls=[{"name": "submit_contract", "input": value}])


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one program."""
    return make(tmp_path / "repo", {"greet.py": "def greet(name):\n    return f'Hello, {name}.'\n"})


def status(repo: Path) -> list[str]:
    """What git says is new or changed."""
    done = subprocess.run(["git", "status", "--porcelain"], cwd=repo, check=True, capture_output=True, text=True)
    return sorted(done.stdout.split("\n")[:-1])


def init(type: Type, repo: Path, model: str, *words: str | Path) -> Said:
    """Type it."""
    return type("mission", "init", *(words or ("Complete the greeter.",)), "--repo", repo, "--model", model)


TEST = "from greet import part\n\n\ndef test_part():\n    assert part('Bo') == 'Goodbye, Bo.'\n"


def test_test_files_come_with_a_contract_and_are_protected(type: Type, repo: Path, tmp_path: Path) -> None:
    check = {**FEATURES[0], "check": "python3 -m pytest tests/deep/test_part.py"}
    refused = [{"greet.py": "x = 1"}, {"../out.py": ""}, {"/tests/a.py": ""}, {"tests/.git/test_a.py": ""}]
    model = script(
        tmp_path / "m.json",
        *(submit(features=[check], files=files) for files in refused),
        submit(features=[check], files={"tests/deep/test_part.py": TEST}),
    )
    said = init(type, repo, model, "Goodbyes.", "--json").went(0)
    answers = [each["content"] for each in said.lines if each["type"] == "agent.tool_result"]
    assert [("not a test file" in each, "inside the repository" in each) for each in answers[:4]] == [
        (True, False), (False, True), (False, True), (False, True)
    ]  # fmt: skip
    assert (repo / "tests/deep/test_part.py").read_text() == TEST
    assert "tests/deep/test_part.py" in said.lines[-1]["written"] or "tests/deep/test_part.py" in said.out
    assert not (tmp_path / "out.py").exists()
    contract, _ = submitted_contract({"features": [check]})
    assert matches("tests/deep/test_part.py", contract.protected)


def test_a_link_on_the_way_to_a_test_file_is_not_followed(type: Type, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repo / "tests").symlink_to(tmp_path / "elsewhere")
    model = script(tmp_path / "m.json", submit(features=[FEATURES[0]], files={"tests/test_part.py": TEST}))
    assert init(type, repo, model).code == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_goal_becomes_a_contract(type: Type, repo: Path, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json",
        bash("cat greet.py && touch seen && mkdir -p .git/x"),
        submit(features=FEATURES, init_sh=SET_UP, mission_toml="workers = 4\n[models]\njudge = 'anthropic:NAME'\n"),
    )
    said = init(type, repo, model).went(0)
    assert "feature_list.json, mission.toml, init.sh written: 2 items, 3 criteria" in said.out
    entries = json.loads((repo / "feature_list.json").read_text())
    assert [(each["id"], each["passes"]) for each in entries] == [("part", False), ("shout", False)]
    assert list(entries[0]) == ["id", "category", "description", "steps", "priority", "acceptance", "check", "passes"]
    assert (repo / "init.sh").read_text() == f"#!/bin/sh\nset -e\n{SET_UP}\n"
    assert os.access(repo / "init.sh", os.X_OK)
    settings = (repo / "mission.toml").read_text()
    assert 'goal = "Complete the greeter."\ncontract = "feature_list.json"\nworkers = 4\n' in settings
    assert status(repo) == ["?? feature_list.json", "?? init.sh", "?? mission.toml"]


def test_what_is_there_is_not_overwritten(type: Type, repo: Path, tmp_path: Path) -> None:
    (repo / "init.sh").write_text("mine\n")
    (repo / "mission.toml").symlink_to(tmp_path / "elsewhere")
    model = script(tmp_path / "m.json", submit(features=FEATURES, init_sh=SET_UP, mission_toml="workers = 4"))
    said = init(type, repo, model).went(0)
    assert "feature_list.json written" in said.out
    assert "init.sh exists already" in said.err
    assert "mission.toml exists already" in said.err
    assert (repo / "init.sh").read_text() == "mine\n"
    assert not (tmp_path / "elsewhere").exists()
    again = init(type, repo, model).refused(2, "has a contract already, feature_list.json")
    assert "mission lint" in again.err


def test_a_small_goal_is_for_a_plain_run(type: Type, repo: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", submit(plain_run_would_do=True, why="One line is missing."))
    said = init(type, repo, model, "Mend the dot.").went(0)
    assert "a plain run would do (One line is missing.)" in said.out
    assert "run 'Mend the dot.' --workspace" in said.out
    assert status(repo) == []
    lines = type("mission", "init", "Mend.", "--repo", repo, "--model", model, "--json").went(0).lines
    assert lines[-1] == {"type": "contract", "plain_run_would_do": True, "why": "One line is missing.", "written": []}


def test_a_contract_that_cannot_be_meant_is_asked_for_again(type: Type, repo: Path, tmp_path: Path) -> None:
    twice = [FEATURES[0], FEATURES[0]]
    model = script(
        tmp_path / "m.json",
        submit(features=twice),
        submit(features=[{"id": "a", "description": "Something"}]),
        submit(features=[{**FEATURES[0], "check": "true"}]),
        submit(features=FEATURES),
    )
    said = type("mission", "init", "Complete it.", "--repo", repo, "--model", model, "--json").went(0)
    answers = [line["content"] for line in said.lines if line["type"] == "agent.tool_result"]
    assert "'part', which is already taken" in answers[0]
    assert "no criterion says when it is done" in answers[1]
    assert "cannot fail" in answers[2]
    assert answers[3] == "Handed in."
    assert said.lines[-1]["criteria"] == 3
    assert "no init.sh was written" in said.err


def test_settings_that_a_repository_may_not_have_are_left_out(type: Type, repo: Path, tmp_path: Path) -> None:
    settings = '[environment]\nhosts = ["evil.example.com"]\n'
    model = script(tmp_path / "m.json", submit(features=FEATURES, mission_toml=settings))
    said = init(type, repo, model).went(0)
    assert "settings proposed by the initializer are invalid and were left out" in said.err
    assert "hosts" not in (repo / "mission.toml").read_text()


def test_nothing_is_written_when_nothing_is_handed_in(type: Type, repo: Path, tmp_path: Path) -> None:
    said = init(type, repo, script(tmp_path / "m.json", turn(text="I am done.")))
    assert said.went(said.code).code == 1
    assert status(repo) == []


# --- issues ----------------------------------------------------------------------------------------


def test_an_issue_from_a_file_is_the_goal(type: Type, repo: Path, tmp_path: Path) -> None:
    issue = tmp_path / "issue.json"
    issue.write_text(json.dumps({"number": 7, "title": "Says no goodbye", "body": "part() is missing.\r\n"}))
    init(type, repo, script(tmp_path / "m.json", submit(features=FEATURES)), "--issue", issue).went(0)
    assert 'goal = "Says no goodbye\\n\\npart() is missing."' in (repo / "mission.toml").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "the goal is empty"),
        (("--issue", "nowhere.txt"), "cannot be read"),
        (("--issue", "https://github.com/a/b/issues/7"), "--allow-host api.github.com"),
        (("--issue", "https://gitlab.example.com/a/b/c/-/issues/7"), "--allow-host gitlab.example.com"),
        (("--issue", "https://github.com/a/b/issues/7", "--no-sandbox"), "fetched from the sandbox"),
        (("--issue", "http://github.com/a/b/issues/7"), "not the address of an issue"),
        (("--issue", "https://github.com/a/b/pulls/7"), "not the address of an issue"),
    ],
)
def test_an_issue_that_cannot_be_had(type: Type, repo: Path, words: tuple[str, ...], says: str) -> None:
    type("mission", "init", *words, "--repo", repo, "--model", "scripted:none.json").refused(2, says)
    assert status(repo) == []


def test_where_the_api_has_an_issue() -> None:
    assert api_address("https://github.com/a/b.c/issues/7") == "https://api.github.com/repos/a/b.c/issues/7"
    assert api_address("https://git.example.com/a/b/issues/7") == "https://git.example.com/api/v3/repos/a/b/issues/7"
    gitlab = "https://gitlab.com/group/sub/name/-/issues/12"
    assert api_address(gitlab) == "https://gitlab.com/api/v4/projects/group%2Fsub%2Fname/issues/12"
    for wrong in ("https://a:b@github.com/a/b/issues/7", "https://github.com/a/b/issues/x", "file:///etc/passwd"):
        with pytest.raises(UsageError, match="not the address of an issue"):
            api_address(wrong)


def test_without_a_repository_nothing_begins(type: Type, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    init(type, folder, script(tmp_path / "m.json", submit(features=FEATURES))).refused(5, "git")
    assert list(folder.iterdir()) == []
