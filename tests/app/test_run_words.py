"""Words of `run` about models and money: fallbacks, reasoning, shared accounts, models without a price."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.terminal import PRICE, Type, script, turn


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Says that it is done, for 0.315 dollars."""
    return script(tmp_path / "m.json", turn(text="Done."), price=PRICE)


@pytest.fixture
def free(tmp_path: Path) -> str:
    """Says that it is done, and has no price."""
    return script(tmp_path / "free.json", turn(text="Done."))


def test_a_model_without_a_price_needs_a_word_under_a_cap(type: Type, free: str) -> None:
    type("run", "g", "--model", free, "--budget", "1").refused(2, "has no price", "--unpriced")
    said = type("run", "g", "--model", free, "--budget", "1", "--unpriced", "--session-id", "k")
    assert (said.code, "unknown cost" in said.err) == (0, True)


def test_every_model_of_the_chain_needs_a_price(type: Type, model: str, free: str) -> None:
    type("run", "g", "--model", model, "--fallback", free, "--budget", "1").refused(2, "free.json", "has no price")


def test_a_shared_account_counts_what_all_spend_from_it(type: Type, model: str) -> None:
    words = ("run", "g", "--model", model, "--account", "project:web", "--session-id")
    assert type(*words, "one").code == 0
    assert type(*words, "two").code == 0
    said = type("budget", "two", "--json")
    accounts = [json.loads(line) for line in said.out.splitlines()]
    spent = {each["account_id"]: each["total"]["spent_usd"] for each in accounts}
    assert spent["project:web"] == pytest.approx(0.63)
    assert type("budget", "two", "--account", "project:web", "--set", "0.8").code == 0
    said = type(*words, "three")
    assert (said.code, "project:web" in said.err) == (4, True)


@pytest.mark.parametrize("name", ["web", ":web", "project:", "project:we\nb"])
def test_what_is_no_shared_account(type: Type, model: str, name: str) -> None:
    type("run", "g", "--model", model, "--account", name).refused(2, "--account", "project:web")


def test_an_agent_file_names_fallbacks_and_reasoning(type: Type, model: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'model = "{model}"\nfallbacks = ["{model}"]\nthinking = "low"\n')
    assert type("run", "g", "--agent", file, "--session-id", "k").code == 0
    said = type("logs", "k", "--type", "session.created", "--json")
    agent = json.loads(said.out)["agent"]
    assert (agent["fallbacks"], agent["thinking"]) == ([model], "low")
    type("run", "", "--session-id", "k", "--fallback", "scripted:other.json").refused(2, "--fallback", "falls back on")
    type("run", "", "--session-id", "k", "--account", "a:b").refused(2, "--account", "no shared account")
    file.write_text('thinking = "hard"\n')
    type("run", "g", "--agent", file).refused(2, "thinking", "low, medium, high")
    file.write_text("fallbacks = [3]\n")
    type("run", "g", "--agent", file).refused(2, "fallbacks", "anthropic:NAME")
