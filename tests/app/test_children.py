"""Sessions that open others, as a user sees them; killed at random moments; many on one cap. Real processes."""

from __future__ import annotations

import json
import random
import re
import threading
from pathlib import Path

import pytest

from tests.app.families import (
    CENT_PICO,
    PRICE,
    WAITS,
    lead,
    money,
    opens,
    pair,
    says,
    stands,
    until,
    whole,
    working,
)
from tests.app.terminal import Type, ended, rows, script, spawn, typed


def test_a_tree_from_beginning_to_end(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    words = ("--agent", lead(tmp_path), "--model", pair(tmp_path), "--session-id", "k", "--budget", "1")
    said = type("run", "split it", *words).went()
    assert said.out == "All is in.\n"
    notes = said.err.splitlines()
    assert any(re.search(r"waits for 2 of its children \(left, right\); they continue here", line) for line in notes)
    for name in ("left", "right"):
        assert sum(re.fullmatch(rf"child {name} \(\w{{8}}\) begins", line) is not None for line in notes) == 1
        assert sum(re.fullmatch(rf"child {name} \(\w{{8}}\) is done", line) is not None for line in notes) == 1
    assert whole(holdfast_home, 2) == []

    tree = type("ps", "--tree").went().out.splitlines()
    assert tree[1].startswith("k ")
    assert re.match(r"  \w+ +done .* left: ", tree[2])
    assert re.match(r"  \w+ +done .* right: ", tree[3])
    children = [line for line in type("show", "k").out.splitlines() if line.startswith("child ")]
    assert [line.split()[2:4] for line in children] == [["left", "done,"], ["right", "done,"]]
    child = children[0].split()[1]
    top = json.loads(type("show", "k", "--json").out)
    assert len(top["children"]) == 2
    assert f"parent      {top['session_id']}\n" in type("show", child).out
    folder = json.loads(type("show", child, "--json").out)["workspace"]
    assert Path(folder).is_dir()
    assert folder != top["workspace"]


def test_events_of_children_are_in_the_json_and_the_result_is_last(type: Type, tmp_path: Path) -> None:
    words = ("--agent", lead(tmp_path), "--model", pair(tmp_path), "--session-id", "k", "--json")
    lines = type("run", "split it", *words).went().lines
    assert lines[-1]["type"] == "result"
    assert lines[-1]["status"] == "done"
    assert len({line["session_id"] for line in lines}) == 3
    for session_id in {line["session_id"] for line in lines[:-1]}:
        seqs = [line["seq"] for line in lines[:-1] if line["session_id"] == session_id]
        assert seqs == sorted(set(seqs))


def test_a_child_that_asks_is_in_the_inbox_under_the_name_that_people_know(
    type: Type, tmp_path: Path, holdfast_home: Path
) -> None:
    model = script(
        tmp_path / "m.json",
        says("", opens("asker")),
        says("", WAITS, ("search_log", {"query": "anything"})),
        says("over"),
        price=PRICE,
    )
    words = ("--agent", lead(tmp_path), "--model", model, "--session-id", "k", "--ask", "search_log")
    said = type("run", "x", *words).went(3)
    assert "holdfast ps --tree" in said.err
    (waits,) = [line for line in type("inbox").went().out.splitlines() if "may search_log run?" in line]
    assert "(k > asker, " in waits
    item = next(word for word in waits.split() if word.startswith("itm_"))
    type("approve", item, "--no-wake").went()
    type("wake", "k").went(3)
    (waits,) = [line for line in type("inbox").went().out.splitlines() if "may search_log run?" in line]
    assert "(k, " in waits, "the child is done, and its parent asks now"
    assert stands(holdfast_home) == {"done": 1, "parked": 1}


def test_a_cancel_reaches_all_below(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(
        tmp_path / "m.json",
        says("", opens("a", tools=["sleep", "search_log"]), opens("b", tools=["sleep"])),
        says("", ("sleep", {"seconds": 3_600}), WAITS),
        price=PRICE,
    )
    said = type("run", "x", "--agent", lead(tmp_path), "--model", model, "--session-id", "k").went(4)
    assert "parked" in said.err
    assert stands(holdfast_home) == {"parked": 3}
    cancelled = type("cancel", "k").went()
    assert cancelled.out.startswith("k is cancelled")
    assert stands(holdfast_home) == {"cancelled": 3}
    assert type("verify").went().code == 0


# --- killed ----------------------------------------------------------------------------------------

MOMENTS = {
    "spawn": ("agent.tool_use", "child.opened", "shift.started"),
    "end": ("agent.message", "child.finished", "shift.ended"),
}
"""What is being done when the process is killed → the events after one of which that happens."""


def one_death(folder: Path, source: random.Random, moment: str) -> str:
    """Run the tree, kill the process around such an event, wake it. Returns when it was killed."""
    folder.mkdir()
    words = ("--agent", lead(folder), "--model", pair(folder), "--session-id", "k", "--budget", "1", "--json")
    process = spawn("run", "split it", *words)
    assert process.stdout is not None
    skip, delay_s = source.randrange(6), source.choice([0.0, source.random() * 0.004, source.random() * 0.03])
    seen = 0
    for line in process.stdout:
        if json.loads(line).get("type") in MOMENTS[moment]:
            seen += 1
            if seen > skip:
                break
    threading.Event().wait(delay_s)
    process.kill()
    ended(process)
    return f"{moment} {seen}, {delay_s * 1000:.1f} ms later: {process.returncode}"


def deaths(base: Path, monkeypatch: pytest.MonkeyPatch, moment: str, times: int, seed: int) -> tuple[int, list[str]]:
    """How many were killed in the middle, and every promise that was broken."""
    source, broken, killed = random.Random(seed), [], 0
    for number in range(times):
        there = base / f"home-{number}"
        monkeypatch.setenv("HOLDFAST_HOME", str(there))
        when = one_death(base / f"work-{number}", source, moment)
        middle = stands(there) != {"done": 3}
        killed += middle
        woken = typed("wake", "k")
        if woken.code != 0:
            broken.append(f"{when}: wake ended with {woken.code}: {woken.err[-300:]}")
        broken += [f"{when}: {problem}" for problem in whole(there, 2)]
    return killed, broken


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_children_begin_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    none_broken(tmp_path, monkeypatch, moment, times=2, seed=0)


@pytest.mark.faults
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seed", range(1, 11))
def test_killed_a_hundred_times_while_children_begin_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, seed: int
) -> None:
    none_broken(tmp_path, monkeypatch, moment, times=10, seed=seed)


def none_broken(base: Path, monkeypatch: pytest.MonkeyPatch, moment: str, times: int, seed: int) -> None:
    """Die so often; every promise must hold, and most deaths must have been in the middle."""
    killed, broken = deaths(base, monkeypatch, moment, times, seed)
    print(f"{moment}: {times} runs, {killed} of them killed in the middle, {len(broken)} promises broken")
    assert broken == []
    assert killed >= times // 2


# --- many on one cap -------------------------------------------------------------------------------

CHILDREN = 16
TURNS = 6
CAP_CENTS = 60


def many(folder: Path, source: random.Random) -> str:
    """A session that opens sixteen; each of them would spend six times one to three cents."""
    names = [f"c{number:02d}" for number in range(CHILDREN)]
    turns = [says("", *[opens(name) for name in names]), says("", WAITS)]
    for number in range(TURNS - 2):
        cents = source.randint(1, 3)
        usage = {"input_tokens": cents * 10_000, "output_tokens": 0}
        query = ("search_log", {"query": f"word{number}"})
        turns.append(says(f"step {number}", query, usage=usage, delay_s=source.random() * 0.05))
    return script(folder / "many.json", *turns, price=PRICE)


def share_a_cap(folder: Path, home: Path, seed: int) -> tuple[int, list[str]]:
    """Sixteen children on one cap, served by a worker. Returns what of the cap was used, and what is wrong."""
    folder.mkdir()
    model = many(folder, random.Random(seed))
    words = ("--agent", lead(folder), "--model", model, "--session-id", "k", "--budget", f"{CAP_CENTS / 100:.2f}")
    database = home / "holdfast.db"
    with working("--concurrency", "16", home=home) as worker:
        typed("run", "spend it", *words, "--detach").went()
        until(lambda: sum(stands(home).values()) == CHILDREN + 1, worker)
        until(lambda: stands(home)["runnable"] == 0, worker, 120.0)
    problems = money(home)
    if typed("verify").code != 0:
        problems.append("verify finds something")
    ((spent,),) = rows(database, "select max(spent_pico) from accounts")
    return spent, problems


@pytest.mark.parametrize(
    ("first", "last"), [(0, 2), *(pytest.param(at, at + 5, marks=pytest.mark.faults) for at in range(100, 120, 5))]
)
def test_sixteen_children_on_one_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
    cap, broken = CAP_CENTS * CENT_PICO, []
    print(f"\n{'run':>4}{'spent of the cap':>18}")
    for number in range(first, last):
        home = tmp_path / f"home-{number}"
        monkeypatch.setenv("HOLDFAST_HOME", str(home))
        spent, problems = share_a_cap(tmp_path / f"work-{number}", home, number)
        print(f"{number:>4}{spent / cap:>17.1%}")
        broken += problems
        if not 0.9 * cap <= spent <= cap:
            broken.append(f"run {number}: {spent} of {cap}")
    assert broken == []
