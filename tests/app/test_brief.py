"""`holdfast brief` and `holdfast why` after a small real mission, and for ordinary sessions. About 15 s."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.screen.briefs import moment
from holdfast.app.screen.tracing import Line, author
from holdfast.app.settings.config import Settings
from holdfast.errors import UsageError
from holdfast.facts.mission import CriterionChecked
from holdfast.facts.task import RepoMerged, TaskHandedIn
from holdfast.kinds.mission.brief.audit import audit
from holdfast.kinds.mission.why import suspects
from holdfast.repo.fake_repository import FakeRepository
from holdfast.service.briefs import brief_of, logs_below
from tests.app.terminal import PRICE, Type, bash, script, turn
from tests.mission.brief_mission import MAIN, World, contract_of
from tests.support.trusted import trust

BODY = "def hello(name):\\n    return f'Hello, {name}.'\\n"

ENTRIES = [
    {
        "id": "hello",
        "description": "Greets by name",
        "check": "python3 -c \"import greet; assert greet.hello('Bo') == 'Hello, Bo.'\"",
        "paths": ["greet.py"],
    },
    {
        "id": "polite",
        "description": "Says please",
        "check": "python3 -c \"import greet; assert 'please' in greet.ask('Bo')\"",
        "paths": ["greet.py"],
    },
]

POLICY = 'planner = "items"\njudge = "off"\nmax_replans = 0\nmax_attempts = 1\nworkers = 1\n'


def git(repo: Path, *words: str) -> str:
    """A person's git."""
    who = ("-c", "user.name=Anna", "-c", "user.email=anna@example.com")
    return subprocess.run(["git", "-C", str(repo), *who, *words], check=True, capture_output=True, text=True).stdout


def make(repo: Path) -> None:
    """A repository of two functions that are not there, and what they have to be."""
    repo.mkdir()
    repo.joinpath("greet.py").write_text("def hello(name):\n    raise NotImplementedError\n")
    repo.joinpath("feature_list.json").write_text(json.dumps(ENTRIES))
    repo.joinpath("mission.toml").write_text(POLICY)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "Begin")
    trust(repo)


async def contradictions(home: Path, key: str, since_seq: int) -> list[str]:
    """What briefs of a session say that its logs do not."""
    async with open_runtime(Settings(home=str(home))) as runtime:
        row = await runtime.store.find(key)
        events, below = await runtime.store.read(row.session_id), await logs_below(runtime.store, row)
        assert len(below) == len(await runtime.store.sessions()) - 1
        assert any(isinstance(event.fact, CriterionChecked) for event in events)
        whole = await brief_of(runtime.store, runtime.kinds, runtime.shelf, row)
        since_us = events[since_seq - 1].at_us
        later = await brief_of(runtime.store, runtime.kinds, runtime.shelf, row, since_us=since_us)
        assert whole.numbers["met"] == 1
        assert (later.numbers["checks"] or 0) < (whole.numbers["checks"] or 0)
        return audit(whole, events, below) + audit(later, events, below)


def test_after_a_real_mission(type: Type, holdfast_home: Path, tmp_path: Path) -> None:
    repo = tmp_path / "greeter"
    make(repo)
    done = {"name": "hand_in", "input": {"status": "done", "notes": "Done.", "concerns": ["Fixes #7 for @anna <b>"]}}
    model = script(tmp_path / "m.json", bash(f'printf "{BODY}" > greet.py'), turn(tool_calls=[done]), price=PRICE)
    words = ("mission", "run", "--repo", repo, "--name", "greet", "--session-id", "greet", "--model", model)
    type(*words, "--plain").went(3)

    text = type("brief", "greet").went().out
    assert re.match(r"# greet: stopped after \d+ s, needs \d decisions?. Cost \$\d\.\d+. Main branch: 1 merge.\n", text)
    assert text.index("go on? 1 criterion not met: polite.check") < text.index("1 of 2 criteria are met")
    assert (
        "polite.check fails on the main branch; no other tree was checked: AttributeError: module 'greet' has" in text
    )
    merged = git(repo, "rev-parse", "--short=10", "holdfast/greet/main").strip()
    assert re.search(rf"merges on holdfast/greet/main: 1\*\*: hello: greet\.py \[e\d+, {merged}\]", text)
    assert "worker $" in text
    assert text.count("\n") <= 40
    assert re.search(r"`holdfast deny itm_\w+`: the mission ends as failed", text)
    assert anyio.run(partial(contradictions, holdfast_home, "greet", 20)) == []

    (data,) = type("brief", "greet", "--json").went().lines
    assert data["type"] == "brief"
    assert data["numbers"]["criteria"] == 2
    (later,) = type("brief", "greet", "--since", "20", "--json").went().lines
    assert later["numbers"]["merged"] in (0, 1)
    assert later["numbers"]["requests"] < data["numbers"]["requests"]

    (why,) = type("why", "greet.py:2", "--repo", repo, "--mission", "greet", "--json").went().lines
    assert [each["what"] for each in why["links"]] == ["merged", "task", "worker", "call", "criterion"]
    assert why["links"][0]["commit"].startswith(merged)
    for link in why["links"]:
        for each in link["evidence"]:
            lines = type(
                "logs", each["session_id"], "--after", each["seq"] - 1, "--json"
            ).lines  # checks print tracebacks
            assert lines[0]["type"] == each["type"]
    call = why["links"][3]["evidence"][0]
    assert call["type"] == "agent.tool_use"

    # People wrote that line as it stands in their folder, until they merge the branch.
    assert "people wrote it" in type("why", "greet.py:2", "--repo", repo).went(1).out
    git(repo, "merge", "-q", "holdfast/greet/main")
    told = type("why", "greet.py:2", "--repo", repo).went().out
    assert "hello: Greets by name" in told
    assert "bash printf" in told
    repo.joinpath("greet.py").write_text("# mine\n" + repo.joinpath("greet.py").read_text())
    assert "merged     with hello" in type("why", str(repo / "greet.py") + ":3", "--repo", repo).went().out
    assert "No mission brought this line" in type("why", "greet.py:1", "--repo", repo).went(1).out
    assert "No mission brought this line" in type("why", "greet.py:2", "--repo", repo).went(1).out

    body = type("mission", "deliver", "greet").went().out
    assert "## Status" in body
    assert "# 7 for @ anna" in body
    assert str(repo) not in body.partition("# greet")[2]


@pytest.mark.anyio
async def test_of_two_tasks_that_were_merged_together_the_one_that_wrote_the_line_is_named() -> None:
    repository = FakeRepository()
    base, both = repository.seed({"a.py": b"x = 0\n"}), repository.seed({"a.py": b"one = 1\nx = 0\ntwo = 2\n"})
    one, two = repository.seed({"a.py": b"one = 1\nx = 0\n"}), repository.seed({"a.py": b"x = 0\ntwo = 2\n"})
    contract, tasks = contract_of(2)
    world = World(contract, tasks)
    for task, made in zip(tasks, (one, two), strict=True):
        child = world.works(task, files=("a.py",))
        world.top.tell(
            TaskHandedIn(task_id=task.id, child_id=child.session_id, status="done", commit=made.commit, tree=made.tree)
        )
    world.top.tell(
        RepoMerged(batch=1, ref=MAIN, commit=both.commit, tree=both.tree, onto=base.commit, tasks=("T000", "T001"))
    )
    (merge,) = suspects(world.top.events, "a.py")
    for line, task_id in (("one = 1", "T000"), ("two = 2", "T001")):
        event = await author(repository, world.top.events, merge, Line(Path("/r"), "a.py", 1), line)
        assert event is not None
        assert isinstance(event.fact, TaskHandedIn)
        assert event.fact.task_id == task_id


def test_an_ordinary_session_and_all_that_moved(type: Type, tmp_path: Path) -> None:
    assert "No session changed." in type("brief").went().out
    model = script(tmp_path / "m.json", bash("echo 1 > new.txt"), turn(text="Done."), price=PRICE)
    type("run", "tidy up", "--model", model, "--session-id", "tidy", "--ask", "bash").went(3)
    text = type("brief", "tidy").went().out
    assert re.match(r"# tidy: stopped after \d+ s, needs 1 decision. Cost \$0.31\d*.\n## Decisions\n", text)
    assert re.search(r"`holdfast approve itm_\w+`: the call runs once", text)
    assert "agent $0.31" in text

    # Only now has this person been told; a script and a named time tell nobody.
    type("brief", "--json").went()
    type("brief", "--since", "1h").went()
    first = type("brief").went().out
    assert "you last asked" in first
    assert "## Needs you (1)" in first
    item = re.search(r"`holdfast approve (itm_\w+)`", first)
    assert item is not None
    type("approve", item[1], "--note", "go").went()
    type("wake", "tidy").went()
    second = type("brief").went().out
    assert "you last asked" in second
    assert "## Finished (1)" in second
    assert "tidy: done, $0.63" in second
    third = type("brief").went().out
    assert "No session changed." in third
    (entry,) = type("brief", "--since", "2d", "--json").went().lines
    assert (entry["type"], entry["group"], entry["key"]) == ("brief", "finished", "tidy")
    text = type("brief", "tidy").went().out
    assert re.match(r"# tidy: done after \d+ s, needs nothing. Cost \$0.63\d*.\n## Status\n", text)
    assert "last words: Done." in text
    assert re.search(r"files changed: 1\*\*: new.txt \[e\d+\]", text)
    assert "calls ended: 1**: 1 ok" in text
    assert "answers given: 1" in text
    type("verify").went()


def test_what_cannot_be_meant(type: Type, tmp_path: Path) -> None:
    type("brief", "nobody").refused(2, "nobody")
    model = script(tmp_path / "m.json", turn(text="Done."))
    type("run", "tidy up", "--model", model, "--session-id", "tidy").went()
    type("brief", "tidy", "--since", "soon").refused(2, "soon", "8h")
    type("brief", "tidy", "--since", "4000").refused(2, "no such event", "8h")
    type("brief", "--since", "2999-01-01").refused(2, "yet to come")
    type("brief", "--since", "99999999d").refused(2, "8h")
    here = tmp_path / "here"
    here.joinpath("a.py").write_text("x = 1\n")
    assert "No mission in this home" in type("why", "a.py:1").went(1).out
    type("why", "a.py").refused(2, "src/app.py:12")
    type("why", "a.py:0").refused(2, "src/app.py:12")
    type("why", "a.py:2").refused(2, "no line 2")
    type("why", "b.py:2").refused(2, "no file b.py")
    type("why", "../b.py:2").refused(2, "not in the repository")
    type("why", "a.py:1", "--repo", "nowhere").refused(2, "no such folder")
    type("why", "a.py:1", "--mission", "tidy").refused(2, "no mission")
    type("why", "a.py:1", "--mission", "nobody").refused(2, "nobody")


NOW_US = 1_764_000_000_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("8h", NOW_US - 8 * 3_600_000_000),
        ("1.5d", NOW_US - 36 * 3_600_000_000),
        ("2w", NOW_US - 14 * 86_400_000_000),
        ("2025-11-20", 1_763_596_800_000_000),
        ("2025-11-20T08:00", 1_763_625_600_000_000),
        ("2025-11-20T08:00:00+02:00", 1_763_618_400_000_000),
    ],
)
def test_times(text: str, us: int) -> None:
    assert moment(text, NOW_US) == us


@pytest.mark.parametrize("text", ["", "h", "-8h", "yesterday", "0h", "2025-13-01", "2999-01-01", "1e9d"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="8h"):
        moment(text, NOW_US)
