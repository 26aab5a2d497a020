"""`holdfast mission amend`: another contract by a person, who is told what asks less before it does."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings, local_caller
from holdfast.facts.mission import Mission
from holdfast.facts.session import Agent, People, SessionCreated, Workspace
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.kinds.mission.contract.formats.files import read_contract
from tests.app.terminal import Type, rows

ENTRIES: list[dict[str, Any]] = [
    {"id": "a", "description": "A", "check": {"command": "pytest -q", "timeout_s": 60}},
    {"id": "b", "description": "B", "acceptance": ["B holds."]},
]
STRICTER = [{**ENTRIES[0], "check": {"command": "pytest -q", "timeout_s": 30}}, ENTRIES[1]]
WEAKER = [ENTRIES[0]]


async def opened(home: Path, repo: Path, people: People) -> None:
    """A mission that nobody works on yet."""
    contract = read_contract(json.dumps(ENTRIES).encode(), "feature_list.json")
    async with open_runtime(Settings(home=str(home))) as runtime:
        session_id = runtime.intake.new_session_id()
        created = SessionCreated(
            goal=contract.goal,
            agent=Agent(model="scripted:none.json", name="mission", tools=()),
            workspace=Workspace(str(home), True),
            key="m",
            accounts=(session_id,),
            people=people,
            mission=Mission("m", str(repo), "0" * 40, contract),
        )
        await runtime.intake.open(session_id, created)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Where the contract is; only its name counts here."""
    folder = tmp_path / "repo"
    folder.mkdir()
    return folder


def begin(home: Path, repo: Path, *approvers: str) -> None:
    """Open the mission."""
    anyio.run(partial(opened, home, repo, People(approvers=approvers)))


def write(repo: Path, entries: object) -> Path:
    """Another contract."""
    path = repo / "feature_list.json"
    path.write_text(json.dumps(entries))
    return path


def amendments(home: Path) -> int:
    """How many are in the log."""
    return len(rows(home / "holdfast.db", "select seq from events where type = 'contract.amended'"))


def test_what_asks_more_is_put_in_force(type: Type, repo: Path, holdfast_home: Path) -> None:
    begin(holdfast_home, repo)
    path = write(repo, STRICTER)
    said = type("mission", "amend", "m", path, "--reason", "it is quick", "--json").went(0)
    (line,) = said.lines
    assert list(line["stricter"]) == ["a.check"]
    assert "stricter a.check: its timeout fell" in said.err
    (event,) = [
        each["data"] if "data" in each else each
        for each in type("logs", "m", "--json").went(0).lines
        if each["type"] == "contract.amended"
    ]
    contract = read_contract(path.read_bytes(), "feature_list.json")
    assert event["digest"] == contract_digest(contract)
    assert (event["author"], event["reason"], list(event.get("weakened", ()))) == (
        local_caller("cli").actor,
        "it is quick",
        [],
    )
    type("mission", "amend", "m", path).refused(2, "nothing was changed")


def test_what_asks_less_needs_a_word(type: Type, repo: Path, holdfast_home: Path) -> None:
    begin(holdfast_home, repo)
    path = write(repo, WEAKER)
    said = type("mission", "amend", "m", path)
    assert said.went(2).err.splitlines()[0] == "weaker   b.b-holds: removed"
    assert "--weaken" in said.err
    assert amendments(holdfast_home) == 0
    assert "1 weaker" in type("mission", "amend", "m", path, "--weaken").went(0).out
    assert amendments(holdfast_home) == 1


def test_only_who_may_answer_makes_it_weaker(type: Type, repo: Path, holdfast_home: Path) -> None:
    begin(holdfast_home, repo, "somebody-else")
    said = type("mission", "amend", "m", write(repo, WEAKER), "--weaken")
    assert (
        said.went(2)
        .err.splitlines()[-1]
        .endswith("only somebody-else may make this contract weaker; nothing was changed")
    )
    assert amendments(holdfast_home) == 0
    type("mission", "amend", "m", write(repo, STRICTER)).went(0)


def test_what_is_no_contract_or_no_mission(type: Type, repo: Path, holdfast_home: Path) -> None:
    begin(holdfast_home, repo)
    type("mission", "amend", "m", write(repo, [])).refused(2, "no entries")
    type("mission", "amend", "m", repo / "none.json").refused(2, "cannot be read")
    type("mission", "amend", "nobody", write(repo, STRICTER)).refused(2, "nobody")
    assert msgspec.json.decode((repo / "feature_list.json").read_bytes()) == STRICTER
