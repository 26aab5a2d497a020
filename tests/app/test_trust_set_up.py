"""The set-up, checks, model, and hooks of a repository run only once the user accepted them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import Type, bash, created, kept, script, turn
from tests.app.test_mission_lint import GIT, make
from tests.support.trusted import trust

SET_UPS = {
    'setup = ["touch ran"]': "environment.setup",
    "auto = true": "environment.auto",
    'packages = ["cmake"]': "environment.packages",
    'recipes = ["postgresql"]': "environment.recipes",
    "submodules = true": "environment.submodules",
    "lfs = true": "environment.lfs",
    'services = [{name = "web", command = "nc -l 1"}]': "environment.services",
}


@pytest.mark.parametrize("text", SET_UPS)
def test_the_set_up_of_a_clone_does_not_run_unasked(text: str, type: Type, holdfast_home: Path) -> None:
    model = script(Path("m.json"), bash("true"), turn(text="ok"))
    type("run", "x", "--model", model, "--deny", "*").went()
    before = kept(holdfast_home)
    Path("init.sh").write_text("touch ran\n")
    Path("holdfast.toml").write_text(f"[environment]\n{text}\n")
    said = type("run", "x", "--model", model, "--session-id", "clone").went(5)
    assert f"{SET_UPS[text]} is set only in" in said.err
    assert kept(holdfast_home) == before


def test_the_users_own_set_up_counts_instead(type: Type, tmp_path: Path) -> None:
    mine = tmp_path / "config" / "holdfast"
    mine.mkdir(parents=True, mode=0o700)
    (mine / "holdfast.toml").write_text("[environment]\nsetup = []\n")
    Path("holdfast.toml").write_text('[environment]\nsetup = ["touch ran"]\n')
    model = script(Path("m.json"), turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    assert not created(type, "k").get("environment", {}).get("setup")


def test_an_accepted_set_up_is_the_sessions(type: Type) -> None:
    Path("holdfast.toml").write_text('[environment]\nsetup = ["true"]\n')
    trust()
    model = script(Path("m.json"), turn(text="ok"))
    said = type("run", "x", "--model", model, "--session-id", "k").went()
    assert "ignored" not in said.err
    assert created(type, "k")["environment"]["setup"] == ["true"]


MISSIONS = {
    '[environment]\nsetup = ["touch ran"]': "environment.setup is set only in",
    "[environment]\nauto = true": "environment.auto is set only in",
    'checks = ["touch ran"]': "checks is set only in",
    'edit_checks = ["touch ran"]': "edit_checks is set only in",
    'model = "openai:x@http://127.0.0.1:9/v1"': "model is set only in",
}


@pytest.mark.parametrize("text", MISSIONS)
def test_the_set_up_checks_and_model_of_a_mission_do_not_count_unasked(text: str, type: Type, tmp_path: Path) -> None:
    entry = {"id": "a", "description": "There is a file.", "check": "test -e b"}
    repo = make(tmp_path / "repo", {"prd.json": json.dumps([entry])})
    (repo / "mission.toml").write_text(text)
    model = script(tmp_path / "m.json", turn(text="ok"))
    words = () if text.startswith("model") else ("--model", model)
    said = type("mission", "run", "--repo", repo, "--no-lint", *words).went(5)
    assert MISSIONS[text] in said.err
    assert type("ps", "--all", "--json").lines == []


def test_hooks_run_only_as_they_were_accepted(type: Type, tmp_path: Path) -> None:
    entry = {"id": "a", "description": "There is a file.", "check": "test -e b"}
    settings = json.dumps(
        {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "sh .claude/hooks/a"}]}]}}
    )
    files = {"prd.json": json.dumps([entry]), ".claude/settings.json": settings, ".claude/hooks/a": "true\n"}
    repo = make(tmp_path / "repo", files)
    model = script(tmp_path / "m.json", turn(text="ok"))

    def hooks(key: str) -> bool:
        said = type("mission", "run", "--repo", repo, "--no-lint", "--model", model, "--session-id", key, "--detach")
        said.went()
        type("mission", "cancel", key).went()
        policy: dict[str, Any] = created(type, key)["mission"].get("policy", {})
        return bool(policy.get("hooks", True))

    assert not hooks("unasked")
    trust(repo)
    assert hooks("accepted")
    (repo / ".claude/hooks/a").write_text("touch ran\n")
    assert not hooks("changed")
    trust(repo)
    assert not hooks("not committed")
    for words in (("add", "-A"), ("commit", "-q", "-m", "Hooks")):
        subprocess.run([*GIT, *words], cwd=repo, check=True, capture_output=True)
    assert hooks("committed")
