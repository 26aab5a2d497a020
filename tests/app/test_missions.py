"""Missions as a person has them: run, looked at, steered, several on one repository, and what cannot be worked on."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.app.terminal import Said, Type, bash, ended, script, spawn, turn
from tests.app.test_mission_lint import make

FILES = {
    "a.py": "def f():\n    raise NotImplementedError\n",
    "b.py": "def g():\n    raise NotImplementedError\n",
    "mission.toml": 'planner = "items"\njudge = "off"\n',
}

ITEMS = [
    {"id": "one", "description": "f() is 1", "check": "python3 -c 'import a; assert a.f() == 1'", "passes": False},
    {"id": "two", "description": "g() is 1", "check": "python3 -c 'import b; assert b.g() == 1'", "passes": False},
]

WRITE = "sed -i 's/raise NotImplementedError/return 1/' a.py b.py"


def hand_in(**said: object) -> dict[str, object]:
    """A turn that hands in."""
    return turn(tool_calls=[{"name": "hand_in", "input": {"status": "done", "notes": "as wanted", **said}}])


def git(repo: Path, *words: str) -> str:
    """What git says there."""
    command = ["git", "-C", str(repo), "-c", "user.name=ann", "-c", "user.email=ann@localhost", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def passes(repo: Path, branch: str, item: int) -> bool:
    """Whether a check passes on a branch: the truth, whatever a log says. The files are our own script's."""
    sources = {name: git(repo, "show", f"{branch}:{name}") for name in ("a.py", "b.py")}
    return "return 1" in sources["ab"[item] + ".py"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a contract that is committed."""
    return make(tmp_path / "repo", {**FILES, "feature_list.json": json.dumps(ITEMS, indent=2) + "\n"})


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """The same with one item."""
    return make(tmp_path / "repo", {**FILES, "feature_list.json": json.dumps(ITEMS[:1], indent=2) + "\n"})


@pytest.fixture
def good(tmp_path: Path) -> str:
    """A worker that does what is wanted."""
    return script(tmp_path / "good.json", bash(WRITE), hand_in(notes="both return 1", findings=["it was short"]))


def run(type: Type, repo: Path, model: str, *words: str | Path) -> Said:
    """Type it."""
    return type("mission", "run", "--repo", repo, "--model", model, "--session-id", "m", *words)


def test_from_a_contract_to_a_branch(type: Type, repo: Path, good: str) -> None:
    before = git(repo, "status", "--porcelain"), git(repo, "rev-parse", "HEAD")
    said = run(type, repo, good, "--json").went(0)
    result = said.lines[-1]
    assert (result["status"], result["exit_code"], result["usage"]["output_tokens"] > 0) == ("done", 0, True)
    assert passes(repo, "holdfast/feature-list/main", 0)
    assert passes(repo, "holdfast/feature-list/main", 1)
    goals = [event["goal"] for event in said.lines if event["type"] == "child.opened"]
    assert len(goals) == 2
    assert all("# What fails now" in goal and "NotImplementedError" in goal for goal in goals)
    assert (git(repo, "status", "--porcelain"), git(repo, "rev-parse", "HEAD")) == before
    kept = json.loads(git(repo, "show", "holdfast/feature-list/notes:feature_list.json"))
    assert [entry["passes"] for entry in kept] == [True, True]
    board = type("mission", "show", "m", "--json").went(0).lines[0]
    assert {task["status"] for task in board["tasks"].values()} == {"merged"}
    assert all(each["passes"] for each in board["criteria"].values())
    assert "merged (2)" in type("mission", "show", "m").went(0).out
    assert "2 of 2 criteria are met" in type("brief", "m").went(0).out
    assert "git merge" in type("wake", "m").went(0).err
    told = type("mission", "deliver", "m", "--json").went(0).lines[0]
    assert (told["branch"], told["pushed"]) == ("holdfast/feature-list/main", "")
    type("verify").went(0)


def test_who_says_done_and_has_done_nothing_ends_with_a_person(type: Type, one: Path, tmp_path: Path) -> None:
    lazy = script(tmp_path / "lazy.json", *[hand_in(notes="<promise>COMPLETE</promise>")] * 3)
    said = run(type, one, lazy).went(3)
    assert "a person is asked" in said.err
    assert not passes(one, "holdfast/feature-list/main", 0)
    item = next(word for word in said.err.split() if word.startswith("itm_"))
    items = type("inbox", "--json").went(0).lines
    escalations = [each for each in items if each.get("kind") == "escalation"]
    assert len(escalations) == 1, item
    type("deny", escalations[0]["item_id"], "--note", "enough").went(0)
    type("wake", "m").went(1)
    assert "of 1 criteria are met" in type("brief", "m").went(0).out


def test_a_contract_that_is_edited_afterwards_changes_nothing(type: Type, one: Path, tmp_path: Path) -> None:
    easier = [{**each, "check": "true"} for each in ITEMS[:1]]
    text = json.dumps(easier)
    cheat = script(
        tmp_path / "cheat.json",
        bash(f"rm -f feature_list.json; printf '%s' {shlex.quote(text)} > feature_list.json; ls"),
        *[hand_in()] * 3,
    )
    (one / "feature_list.json").chmod(0o644)
    run(type, one, cheat).went(3)
    assert not passes(one, "holdfast/feature-list/main", 0)
    assert json.loads(git(one, "show", "holdfast/feature-list/main:feature_list.json")) == ITEMS[:1]


@pytest.mark.faults
def test_two_missions_and_a_person_on_one_repository(repo: Path, good: str, holdfast_home: Path) -> None:
    words = ("mission", "run", "--repo", repo, "--model", good, "--plain")
    first, second = (spawn(*words, "--session-id", key, "--name", key) for key in ("m1", "m2"))
    (repo / "c.py").write_text("X = 1\n")
    git(repo, "add", "c.py")
    git(repo, "commit", "-qm", "a person's own")
    for each in (first, second):
        ended(each, 120).went(0)
    for name in ("m1", "m2"):
        assert passes(repo, f"holdfast/{name}/main", 0), name
        assert passes(repo, f"holdfast/{name}/main", 1), name
    assert git(repo, "log", "-1", "--format=%s") == "a person's own"
    git(repo, "merge", "-q", "--no-edit", "holdfast/m1/main")
    git(repo, "merge", "-q", "--no-edit", "holdfast/m2/main")


def test_a_mission_without_a_sandbox_warns_once(type: Type, one: Path, good: str) -> None:
    said = type("mission", "run", "--repo", one, "--model", good, "--no-sandbox").err
    assert said.count("WARNING: tools run without a sandbox") == 1


def test_pause_wake_and_cancel_leave_every_tree_reachable(type: Type, repo: Path, tmp_path: Path) -> None:
    asks = script(
        tmp_path / "asks.json",
        bash(WRITE),
        turn(tool_calls=[{"name": "ask_person", "input": {"question": "Tabs or spaces?"}}]),
        hand_in(),
    )
    run(type, repo, asks).went(3)
    assert passes(repo, "holdfast/feature-list/one", 0), "work in progress is committed when a worker rests"
    said = type("mission", "pause", "m", "--json").went(0).lines[0]
    assert len(said["paused"]) == 3
    type("mission", "replan", "m", "--reason", "smaller parts", "--json").went(0)
    type("mission", "cancel", "m").went(0)
    assert passes(repo, "holdfast/feature-list/one", 0)
    assert type("mission", "show", "m", "--json").went(0).lines[0]["status"] == "cancelled"
    type("mission", "replan", "m").refused(2, "cancelled")


def merges(type: Type) -> int:
    """How many tasks are on the main branch of the mission."""
    return len(type("logs", "m", "--json", "--type", "repo.merged").went().lines)


def test_money_for_half_of_it(type: Type, repo: Path, tmp_path: Path) -> None:
    price = {"input_per_mtok": 3.0, "output_per_mtok": 15.0}
    model = script(tmp_path / "priced.json", bash(WRITE), hand_in(), price=price)
    result = run(type, repo, model, "--budget", "0.70", "--workers", "1", "--json").went(4).lines[-1]
    assert (result["status"], result["stop_reason"]) == ("parked", "budget")
    assert 0.6 <= result["cost_usd"] <= 0.70
    before = merges(type)
    said = type("mission", "run", "--repo", repo, "--session-id", "m", "--budget", "5", "--json").went(0)
    assert said.lines[-1]["cost_usd"] == pytest.approx(4 * 0.315)
    assert "  money      $1.26 of $5.00 (worker $1.26)" in type("mission", "show", "m").went().out
    assert type("cost", "--by", "session").went().out.split() == [
        *("SESSION", "COST", "SESSIONS"),
        *("m", "$1.26", "1", "total", "$1.26", "1"),
    ]
    assert merges(type) > before
    logged = type("logs", "m", "--json").went().lines
    assert [event["status"] for event in logged if event["type"] == "mission.finished"] == ["done"]
    # What was verified before is not verified again.
    runs = [(e["tree"], e["key"], name) for e in logged if e["type"] == "criterion.checked" for name in e["criteria"]]
    assert len(runs) == len(set(runs))


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("gone.json",), 2, ("gone.json",)),
        (("bad.json",), 2, ("bad.json", "not JSON")),
        (("empty.json",), 2, ("empty.json", "no entries")),
        (("--repo", "nowhere"), 5, ("git init",)),
        (("--policy", "gone.toml"), 2, ("gone.toml",)),
        (("--policy", "typo.toml"), 2, ("plannner", "planner")),
        (("--workers", "0"), 2, ("--workers",)),
    ],
)
def test_what_cannot_be_meant_leaves_nothing(
    type: Type, repo: Path, good: str, words: tuple[str, ...], code: int, says: tuple[str, ...]
) -> None:
    Path("bad.json").write_text("[")
    Path("empty.json").write_text("[]")
    Path("typo.toml").write_text('plannner = "items"\n')
    Path("nowhere").mkdir()
    type("mission", "run", "--repo", repo, "--model", good, *words).refused(code, *says)
    assert git(repo, "branch", "--list", "holdfast/*") == ""
    assert type("ps", "--all").went(0).out.count("ses_") == 0


def test_no_default_model_is_needed_where_each_role_in_use_has_its_own(type: Type, repo: Path, good: str) -> None:
    words = ("mission", "run", "--repo", repo, "--session-id", "m", "--policy", "own.toml")
    roles = f'planner = "items"\n[models]\nworker = "{good}"\n'
    Path("own.toml").write_text(f'judge = "at_end"\n{roles}')
    type(*words).refused(2, "no model is named", "--model")
    Path("own.toml").write_text(f'judge = "off"\n{roles}')
    type(*words).went(0)
    assert passes(repo, "holdfast/feature-list/main", 0)


def test_repositories_as_people_have_them(type: Type, one: Path, good: str, tmp_path: Path) -> None:
    (one / "a.py").write_text("# half a thought\n")
    (one / "new.txt").write_text("not committed\n")
    said = run(type, one, good).went(0)
    assert "uncommitted changes stay as they are" in said.err
    assert (one / "a.py").read_text() == "# half a thought\n"
    git(one, "checkout", "-q", "--", "a.py")
    git(one, "checkout", "-q", "--detach")
    type("mission", "run", "--repo", one, "--model", good, "--name", "loose").went(0)
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(one), str(bare)], check=True)
    contract, policy = one / "feature_list.json", one / "mission.toml"
    type("mission", "run", contract, "--repo", bare, "--model", good, "--name", "naked", "--policy", policy).went(0)
    assert passes(bare, "holdfast/naked/main", 0)
    git(one, "-c", "user.name=a", "commit", "-q", "--allow-empty", "-m", "one more")
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{one}", str(shallow)], check=True)
    type("mission", "run", "--repo", shallow, "--model", good).refused(5, "shallow", "unshallow")
