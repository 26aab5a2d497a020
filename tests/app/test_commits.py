"""`run` in a repository: which folder it takes, and the branch that holds the workspace of each park."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.screen import Session
from tests.app.terminal import Said, Type, bash, ended, script, spawn, turn, typed
from tests.repo.repositories import everything, git, made

MINE = {"a.txt": b"one\n", ".gitignore": b"*.log\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository that hands may write, with a staged change, another one, and a new file."""
    folder = made(tmp_path / "repo", MINE)
    (folder / "a.txt").write_text("staged\n")
    git(folder, "add", "a.txt")
    (folder / "a.txt").write_text("changed\n")
    (folder / "new.txt").write_text("new\n")
    for path in (folder, *(each for each in folder.iterdir() if each.name != ".git")):
        path.chmod(0o777)
    return folder


def here(home: Path, *words: str | Path, cwd: Path) -> Said:
    """A command in that folder, as it is typed there."""
    return typed("--home", home, *words, cwd=cwd)


def untouched(repo: Path) -> dict[str, object]:
    """What belongs to the user: the index, HEAD, and every ref but Holdfast's."""
    inside = {name: data for name, data in everything(repo / ".git").items() if not name.startswith("objects")}
    return {name: data for name, data in inside.items() if "holdfast" not in name}


# --- the folder --------------------------------------------------------------------------------------


def test_a_run_works_at_the_top_of_the_repository(repo: Path, tmp_path: Path, holdfast_home: Path) -> None:
    model, below = script(tmp_path / "m.json", bash("pwd; echo hi > made"), turn(text="Done.")), repo / "src" / "deep"
    below.mkdir(parents=True)
    here(holdfast_home, "run", "x", "--model", model, "--no-sandbox", cwd=below).went()
    assert (repo / "made").read_text() == "hi\n"


def test_elsewhere_it_needs_a_word(tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Done."))
    plain = tmp_path / "plain"
    plain.mkdir()
    for words in ((), ("--json",), ("--detach",)):
        said = here(holdfast_home, "run", "x", "--model", model, *words, cwd=plain)
        said.refused(2, str(plain), "--workspace .", "--scratch", "nothing was started")
    assert not any((holdfast_home / "workspaces").iterdir())
    here(holdfast_home, "run", "x", "--model", model, "--no-sandbox", "--scratch", cwd=plain).went()
    assert not any(plain.iterdir())
    both = here(holdfast_home, "run", "x", "--model", model, "--scratch", "--workspace", ".", cwd=plain)
    both.refused(2, "--workspace and --scratch")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2)])
def test_on_a_terminal_it_asks(type: Type, tmp_path: Path, holdfast_home: Path, answer: str, code: int) -> None:
    model = script(tmp_path / "m.json", bash("echo hi > made"), turn(text="Done."))
    Path.cwd().chmod(0o777)
    with Session("--home", holdfast_home, "run", "x", "--model", model, "--no-sandbox", "--plain") as terminal:
        terminal.until("Let the agent work in this folder? [y/N]")
        terminal.type(answer)
        assert terminal.ended() == code
    assert Path("made").exists() == (code == 0)


@pytest.mark.parametrize("place", ["home", "above", "/"])
def test_a_run_never_takes_everything(type: Type, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "users" / "ann"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    folder = {"home": home, "above": home.parent, "/": Path("/")}[place]
    model = script(tmp_path / "m.json", turn(text="Done."))
    type("run", "x", "--model", model, "--workspace", folder).refused(
        2, str(folder), "--scratch", "nothing was started"
    )
    monkeypatch.chdir(folder)
    unsaid = ("--home", tmp_path / "h", "run", "x", "--model", model)
    type(*unsaid).refused(2, str(folder), "--scratch")
    if place == "home":
        git(home, "init", "-q")
        (home / "project").mkdir()
        monkeypatch.chdir(home / "project")
        type(*unsaid).refused(2, str(home), "home directory")


def test_a_kept_key_goes_on_in_its_own_folder(repo: Path, tmp_path: Path, holdfast_home: Path) -> None:
    model, words = script(tmp_path / "m.json", turn(text="Done."), turn(text="More.")), ("--session-id", "k")
    here(holdfast_home, "run", "x", "--model", model, "--no-sandbox", *words, cwd=repo).went()
    assert here(holdfast_home, "run", "more", *words, cwd=tmp_path).went().out == "More.\n"
    here(holdfast_home, "run", "more", *words, "--scratch", cwd=tmp_path).refused(2, "--scratch", str(repo))
    here(holdfast_home, "run", "more", *words, "--commit", cwd=tmp_path).refused(2, "--commit")


# --- the branch --------------------------------------------------------------------------------------


def branch_of(repo: Path) -> str:
    """The full name of the only branch of Holdfast's."""
    (name,) = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads/holdfast").splitlines()
    return name


def held(repo: Path) -> dict[str, str]:
    """The files on the branch, by path."""
    branch = branch_of(repo)
    return {
        path: git(repo, "show", f"{branch}:{path}")
        for path in git(repo, "ls-tree", "-r", "--name-only", branch).split()
    }


def lying(repo: Path) -> dict[str, str]:
    """The files in the workspace that are not ignored."""
    found = [path for path in repo.rglob("*") if path.is_file() and ".git" not in path.parts and path.suffix != ".log"]
    return {str(path.relative_to(repo)): path.read_text().strip() for path in found}


def test_a_park_is_on_the_branch_and_nothing_else_moves(repo: Path, tmp_path: Path, holdfast_home: Path) -> None:
    before = untouched(repo)
    work = bash("echo hi > made; echo no > a.log; chmod 666 made")
    model = script(tmp_path / "m.json", work, bash("true"), turn(text="Done."), turn(text="More."))
    words = ("--session-id", "k", "--no-sandbox", "--max-turns", "1", "--commit")
    here(holdfast_home, "run", "x", "--model", model, *words, cwd=repo).went(4)
    assert held(repo) == lying(repo) == {"a.txt": "changed", "new.txt": "new", "made": "hi", ".gitignore": "*.log"}
    assert git(repo, "rev-parse", f"{branch_of(repo)}^") == git(repo, "rev-parse", "HEAD")
    first = git(repo, "rev-parse", branch_of(repo))
    here(holdfast_home, "run", "--session-id", "k", "--max-turns", "9", cwd=repo).went()
    assert git(repo, "rev-parse", branch_of(repo)) == first  # nothing changed
    (repo / "made").write_text("mine\n")
    here(holdfast_home, "send", "k", "more", cwd=repo).went()
    here(holdfast_home, "wake", "k", cwd=repo).went()
    assert held(repo)["made"] == "mine"
    assert git(repo, "rev-parse", f"{branch_of(repo)}^") == first
    assert untouched(repo) == before


def test_a_branch_that_is_checked_out_is_not_moved(repo: Path, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Done."), bash("echo hi > made"), turn(text="More."))
    here(holdfast_home, "run", "x", "--model", model, "--session-id", "k", "--no-sandbox", "--commit", cwd=repo).went()
    branch, tip = branch_of(repo), git(repo, "rev-parse", branch_of(repo))
    git(repo, "symbolic-ref", "HEAD", branch)
    here(holdfast_home, "send", "k", "more", cwd=repo).went()
    here(holdfast_home, "wake", "k", cwd=repo).went()
    assert git(repo, "rev-parse", branch) == tip
    assert "checked out" in here(holdfast_home, "logs", "k", "--type", "session.error", cwd=repo).out
    git(repo, "symbolic-ref", "HEAD", "refs/heads/main")
    here(holdfast_home, "send", "k", "more", cwd=repo).went()
    here(holdfast_home, "wake", "k", cwd=repo)
    assert held(repo) == lying(repo)


def test_commits_need_a_repository(repo: Path, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Done."))
    (repo / "below").mkdir()
    for folder in ("below", tmp_path):
        words = ("run", "x", "--model", model, "--commit", "--workspace", folder)
        here(holdfast_home, *words, cwd=repo).refused(2, "--commit", "top folder of a git repository")
    here(holdfast_home, "run", "x", "--model", model, "--commit", "--scratch", cwd=repo).refused(2, "--commit")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q")
    here(holdfast_home, "run", "x", "--model", model, "--commit", cwd=fresh).refused(2, "--commit", "commit")


def events(home: Path) -> list[tuple[str, str]]:
    """Type and body of each event of the session."""
    with closing(sqlite3.connect(home / "holdfast.db", timeout=30.0)) as connection:
        query = "select type, body from events where session_id != 'ses_home' order by seq"
        return [(type_, str(body)) for type_, body in connection.execute(query)]


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.faults)])
def test_kills_leave_the_last_park_on_the_branch(repo: Path, tmp_path: Path, holdfast_home: Path, kills: int) -> None:
    """Each round is killed once, at a random event; the branch then has the last park or, if already made, the next."""
    chance, before = random.Random(kills), untouched(repo)
    rounds = [(bash(f"echo {number} > made; chmod 666 made"), turn(text="Done.")) for number in range(kills + 1)]
    model = script(tmp_path / "m.json", *(each for round_ in rounds for each in round_))
    words = ("--session-id", "k", "--no-sandbox", "--commit")
    here(holdfast_home, "run", "x", "--model", model, *words, cwd=repo).went()
    size, head = len(events(holdfast_home)), len(events(holdfast_home))
    for number in range(1, kills + 1):
        parked, old = held(repo), git(repo, "rev-parse", branch_of(repo))
        here(holdfast_home, "send", "k", "more", cwd=repo).went()
        last = head + chance.randint(2, size)
        brain = spawn("--home", holdfast_home, "wake", "k", cwd=repo)
        while len(events(holdfast_home)) < last and brain.poll() is None:
            threading.Event().wait(0.003)
        brain.kill()
        ended(brain)
        now = held(repo)
        assert now == parked or (now == lying(repo) and git(repo, "rev-parse", f"{branch_of(repo)}^") == old)
        here(holdfast_home, "wake", "k", cwd=repo).went()
        assert held(repo) == lying(repo)
        assert held(repo)["made"] == str(number)
        assert untouched(repo) == before
        head = len(events(holdfast_home))
    here(holdfast_home, "verify", cwd=repo).went()
