"""mission.toml is read key by key; what cannot be meant is refused with what may have been."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.app.settings.config import Settings
from holdfast.app.settings.mission_file import (
    POLICY_KEYS,
    MissionFile,
    parse_mission_file,
    project_mission,
    read_mission_file,
)
from holdfast.errors import UsageError
from holdfast.facts.mission import MissionPolicy
from holdfast.kinds.mission.contract.formats.files import read_contract

PATH = Path("mission.toml")

WHOLE = """
goal = "A greeter for everybody."
name = "greeter"
contract = "plan/features.json"
follow = "develop"
model = "anthropic:NAME"
budget_usd = 20
protected = ["golden/**"]
unprotected = ["spec/**"]
planner = "items"
judge = "at_end"
gate = "green_branch"
context = "reset"
workers = 4
max_iterations = 5
max_attempts = 3
max_replans = 0
judge_tries = 2
batch = 16
flake_reruns = 0
scope = "list"
dependencies = "list"
lessons = "off"
confirm_runs = 5
plateau = 2
lesson_lines = 0
task_tokens = 40000
task_budget_usd = 2.50
hooks = false
checks = ["ruff check ."]
edit_checks = ["ruff format --check ."]
documents = false

[models]
judge = "openai:NAME"

[turns]
worker = 300

[hands]
memory_bytes = "1G"

[environment]
auto = true
"""


def parse(text: str) -> MissionFile:
    """A file from its text."""
    return parse_mission_file(text.encode(), PATH)


def test_each_key_is_read() -> None:
    file = parse(WHOLE)
    assert (file.goal, file.name, file.contract) == ("A greeter for everybody.", "greeter", "plan/features.json")
    assert (file.follow, file.model, file.budget_usd) == ("refs/heads/develop", "anthropic:NAME", "20")
    assert file.policy.task_budget_pico == 2_500_000_000_000
    assert (file.policy.models, file.policy.turns) == ({"judge": "openai:NAME"}, {"worker": 300})
    default = MissionPolicy()
    same = [name for name in MissionPolicy.__struct_fields__ if getattr(file.policy, name) == getattr(default, name)]
    assert same == []  # each of them was read, and said something else
    assert POLICY_KEYS.keys() == set(MissionPolicy.__struct_fields__)
    assert parse("") == MissionFile() == project_mission(Path("there is none"), Settings())


def test_settings_are_filled_in_where_nobody_said_anything() -> None:
    file = parse(WHOLE)
    filled = file.settings(Settings(hands={"memory_bytes": "512M"}))
    assert (filled.model, filled.budget_usd, filled.hands) == ("anthropic:NAME", "20", {"memory_bytes": "512M"})
    assert filled.environment == {"auto": True}
    said = file.settings(Settings(model="openai:MINE", budget_usd="1", environment={"auto": False}))
    assert (said.model, said.budget_usd, said.environment) == ("openai:MINE", "1", {"auto": False})


def test_what_is_protected_is_added_to_and_taken_from() -> None:
    contract = parse(WHOLE).applied(read_contract(b'[{"description": "x"}]', "feature_list.json"))
    assert contract.goal == "A greeter for everybody."
    assert "golden/**" in contract.protected
    assert "spec/**" not in contract.protected
    assert "tests/**" in contract.protected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("worker = 3", "did you mean 'workers'?"),
        ("judge = 'sometimes'", "one of per_task, at_end, off"),
        ("workers = 0", "workers in mission.toml"),
        ("workers = 65", "more than 64"),
        ("workers = true", "workers in mission.toml"),
        ("task_tokens = 10", "at least 1000"),
        ("task_budget_usd = 0", "task_budget_usd"),
        ("budget_usd = 'much'", "amount of dollars"),
        ("hooks = 'no'", "true or false"),
        ("checks = 'ruff'", "list of texts"),
        ("contract = '../other.json'", "inside the repository"),
        ("contract = '/etc/passwd'", "inside the repository"),
        ("contract = '.git/config'", "inside the repository"),
        ("follow = '-x'", "name of a branch"),
        ("follow = 'a..b'", "name of a branch"),
        ("name = 'a/b'", "letters, digits"),
        ("goal = ' '", "has to be text"),
        ("[models]\nworkers = 'a:b'", "did you mean 'worker'?"),
        ("[turns]\njudge = 0", "turns in mission.toml"),
        ("models = 3", "table by role"),
        ("hands = 3", "has to be a table"),
        ("[hands]\nmemory = 3", "did you mean 'memory_bytes'?"),
        ("[hands]\nmemory_bytes = '900G'", "only make the limits of hands tighter"),
        ("[environment]\nhosts = ['a.example.com']", "counts only in your own"),
        ("[environment]\nsetup = 'x'", "setup in [environment]"),
        ("[models]\njudge = 'openai:x@http://evil.example.com/'", "model at another machine"),
        ("model = 'openai:x@http://evil.example.com/'", "model at another machine"),
        ("people = {}", "counts only in your own"),
        ("egress = {}", "counts only in your own"),
        ("zzzz = 3", "there are"),
        ("= 3", "is not TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert says in str(refused.value)
    assert "mission.toml" in str(refused.value)


def test_a_file_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no mission file"):
        read_mission_file(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not TOML"):
        read_mission_file(tmp_path / "bad.toml")
