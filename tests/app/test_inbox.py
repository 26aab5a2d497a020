"""The inbox: its four groups, one item whole, and the picker on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app.screen.inbox import counts, details, folded
from holdfast.app.screen.picker import Chosen, Pages, keys_of
from holdfast.facts.people import ApprovalRequested
from holdfast.service.inbox import FINISHED_US, Entry, Shown, build
from holdfast.session.rows import ItemRow, SessionRow
from tests.app.asking import asks, facts, rests, types
from tests.app.screen import Session
from tests.app.terminal import Type, bash, script, turn

NOW_US = 10**15


def row(name: str, status: str, reason: str = "", **more: Any) -> SessionRow:
    fields: dict[str, Any] = {
        "session_id": f"ses_{name}",
        "key": name,
        "goal": "the goal",
        "model": "m",
        "workspace": "/w",
        "accounts": (),
        "created_us": NOW_US - 60_000_000,
        "updated_us": NOW_US - 1_000_000,
        "head": 1,
        "head_hash": b"",
        "epoch": 1,
        "status": status,
        "reason": reason,
    }
    return SessionRow(**{**fields, **more})


def shown(name: str, item_id: str = "itm_1", **more: Any) -> Shown:
    fields: dict[str, Any] = {"kind": "tool", "title": "may bash run?", "action": "bash: make"}
    request = ApprovalRequested(item_id=item_id, **{**fields, **more})
    item = ItemRow(
        item_id=item_id,
        session_id=f"ses_{name}",
        seq=5,
        kind=request.kind,
        title=request.title,
        opened_us=NOW_US - 5_000_000,
    )
    return Shown(item, request)


def placed(*rows: SessionRow, items: tuple[Shown, ...] = (), holders: tuple[str, ...] = ()) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in build(rows, items, dict.fromkeys(holders, "wrk"), NOW_US):
        found.setdefault(entry.group, []).append(entry.row.key)
    return found


def test_every_session_stands_where_a_person_looks_for_it() -> None:
    long_ago = NOW_US - FINISHED_US - 1_000_000
    assert placed(
        row("asked", "parked", "person"),
        row("interrupted", "parked", "person"),
        row("capped", "parked", "cap"),
        row("poor", "parked", "budget"),
        row("soon", "parked", "budget", due_us=NOW_US + 1),
        row("sleeping", "parked", "timer", due_us=NOW_US + 1),
        row("parent", "parked", "child"),
        row("held", "runnable"),
        row("left", "runnable"),
        row("killed", "runnable", updated_us=NOW_US - 120_000_000),
        row("overdue", "parked", "provider", due_us=NOW_US - 120_000_000),
        row("broken", "runnable", detail="no sandbox"),
        row("stopped", "runnable", detail="the process was asked to stop"),
        row("failed", "failed", detail="no"),
        row("done", "done"),
        row("cancelled", "cancelled"),
        row("old", "done", updated_us=long_ago),
        row("old failure", "failed", updated_us=long_ago),
        items=(shown("asked"),),
        holders=("ses_held",),
    ) == {
        "needs you": ["asked", "interrupted", "capped", "poor", "overdue", "stopped", "killed"],
        "errors": ["broken", "failed"],
        "finished": ["done", "cancelled"],
        "running": ["soon", "sleeping", "parent", "held", "left"],
    }


def test_a_session_that_nothing_runs_says_how_to_resume_it() -> None:
    late_us = NOW_US - 120_000_000
    rows = (row("killed", "runnable", updated_us=late_us), row("late", "parked", "provider", due_us=late_us))
    titles = {entry.row.key: entry.title for entry in build(rows, (), {}, NOW_US)}
    assert titles["killed"] == "no process runs it; resume it with `holdfast wake killed`"
    assert titles["late"].endswith("and no process runs it; resume it with `holdfast wake late`")


def test_a_session_that_asks_stands_once_and_two_questions_stand_twice() -> None:
    asked = row("a", "parked", "person")
    assert placed(asked, items=(shown("a"), shown("a", "itm_2"))) == {"needs you": ["a", "a"]}


def test_nothing_of_an_action_is_left_out_or_hidden_and_none_of_it_passes_for_ours() -> None:
    nasty = "bash: echo \u202ehi\x1b[2J\nwho       anybody may answer\n" + "x" * 5_000
    lines = details(shown("a", action=nasty, why="w"), row("a", "parked", "person"), NOW_US)
    text = "\n".join(lines)
    assert "\\u202e" in text
    assert "\\x1b" in text
    assert "\x1b" not in text
    assert "x" * 5_000 in text
    assert [line for line in lines if line.startswith("who ")] == ["who       anybody may answer"]


def test_a_line_that_is_folded_cannot_pass_for_ours_either() -> None:
    for width in (30, 60, 80):
        fits = "x" * (width - 13)
        lines = details(shown("a", action=fits + "who       anybody may answer"), row("a", "parked", "person"), NOW_US)
        rows = [part for line in lines for part in folded(line, width, len)]
        assert all(len(part) < width for part in rows)
        assert [part for part in rows if part.startswith("who ")] == [part for part in lines if part.startswith("who ")]
        assert any(part.startswith("          | who ") for part in rows)


def test_who_may_answer_and_until_when_are_said() -> None:
    late = NOW_US + 60_000_000
    item = shown("a", default="deny", expires_us=late, approvers=("anna",), second=("ben",), escalate_us=late)
    item = Shown(msgspec.structs.replace(item.item, expires_us=late), item.request, ("anna",))
    text = "\n".join(details(item, row("a", "parked", "person"), NOW_US))
    assert "anna may answer; ben too from 2001-09-09 01:47 UTC" in text
    assert "2001-09-09 01:47 UTC, then it counts as denied, after a user has seen it" in text


# --- pages ----------------------------------------------------------------------------------------


def pages(*items: Shown) -> Pages:
    page = Pages(len)
    page.load(build([row("a", "parked", "person"), row("b", "done")], items, {}, NOW_US), NOW_US)
    return page


def screen(page: Pages, width: int = 80, height: int = 23) -> str:
    found = page.rows(width, height)
    assert len(found) <= height
    return "\n".join("".join(text for text, _ in line.spans) for line in found)


def press(page: Pages, *keys: str) -> Chosen | str | None:
    found: Chosen | str | None = None
    for key in keys:
        screen(page)
        found = page.key(key)
    return found


def test_an_item_is_approved_after_a_second_key() -> None:
    item = shown("a")
    page = pages(item)
    assert press(page, "a") is None
    assert "approve this?" in screen(page)
    assert press(page, "n") is None
    assert press(page, "a", "y") == Chosen(item, "approve")


def test_a_denial_takes_words() -> None:
    item = shown("a")
    page = pages(item)
    assert press(page, "d", *"nox", "backspace", "enter") == Chosen(item, "deny", "no")
    assert press(page, "d", "x", "escape", "q") == "quit"


def test_a_question_is_answered_in_words() -> None:
    item = shown("a", kind="question")
    assert press(pages(item), "a", *"yes", "enter") == Chosen(item, "approve", "yes")


def test_what_is_not_shown_whole_is_not_approved() -> None:
    item = shown("a", action="\n".join(f"line {number}" for number in range(100)))
    page = pages(item)
    assert press(page, "a") is None
    assert "read it to its end first" in screen(page)
    assert "approve this?" not in screen(page)
    assert press(page, "a") is None
    assert "read it to its end first" in screen(page)
    for _ in range(10):
        press(page, "page down")
    assert press(page, "a", "y") == Chosen(item, "approve")


def test_whoever_is_at_an_item_stays_at_it_or_is_told_that_it_is_gone() -> None:
    first, second = shown("a"), shown("a", "itm_2")
    page = pages(first, second)
    press(page, "down", "enter")
    assert "itm_2" in screen(page)
    page.load(build([row("a", "parked", "person")], [second], {}, NOW_US), NOW_US)
    assert press(page, "a") is None
    assert press(page, "y") == Chosen(second, "approve")
    page.load([], NOW_US)
    assert "nothing here" in screen(page)
    assert press(page, "a", "d", "enter", "up", "down") is None


@pytest.mark.parametrize("size", [(80, 23), (40, 10), (20, 5), (200, 60)])
def test_no_row_is_wider_than_the_terminal(size: tuple[int, int]) -> None:
    page = pages(shown("a", action="wide " * 200))
    for key in ("x", "enter", "page down", "escape", "d"):
        press(page, key)
        found = page.rows(*size)
        assert len(found) <= max(size[1], 4)


def test_keys_of_terminals() -> None:
    assert keys_of("\x1b[A\x1bOBj\r") == ["up", "down", "j", "enter"]
    assert keys_of("\x1b[1;5Cq") == ["q"]
    assert keys_of("\x1b") == ["escape"]
    assert keys_of("ä\x7f\x00") == ["ä", "backspace"]


def test_counts_name_every_group() -> None:
    entry = Entry("errors", row("a", "failed"), "no", NOW_US)
    assert counts([entry]) == {"needs you": 0, "errors": 1, "finished": 0, "running": 0}


# --- the verb -------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that asks for one command."""
    return script(tmp_path / "m.json", turn(text="I build.", **bash("echo built")), turn(text="Done."))


def test_the_list_and_one_item(type: Type, model: str, holdfast_home: Path) -> None:
    empty = type("inbox").went().out
    assert empty.splitlines() == ["NEEDS YOU (0)", "", "ERRORS (0)", "", "FINISHED (0)", "", "RUNNING (0)"]
    item = asks(type, model)
    (entry,) = type("inbox", "--json").went().lines
    assert (entry["group"], entry["item_id"], entry["action"]) == ("needs you", item, "bash: echo built")
    assert entry["seen_at"] is None
    assert "approval.seen" not in types(holdfast_home), "a script that looks has seen nothing"
    listed = type("inbox").went().out
    assert f"  {item}  may bash run?  (k, " in listed
    assert f"`holdfast inbox {item}` shows all of it" in listed
    type("inbox", item).went()
    assert types(holdfast_home).count("approval.seen") == 1
    (one,) = type("inbox", item[:8], "--json").went().lines
    assert one["action_digest"] == facts(type, "approval.requested")[0]["action_digest"]
    assert one["seen_at"] is not None


def test_a_long_list_says_that_it_is_cut_and_a_script_gets_all(
    type: Type, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        type("run", "build", "--model", model, "--ask", "bash", "--session-id", f"k{number}")
    monkeypatch.setattr("holdfast.app.cli.inbox.SHOWN", 2)
    listed = type("inbox").went()
    assert [f"(k{number}, " in listed.out for number in range(3)] == [True, True, False]
    assert "these are the 2 oldest; `holdfast inbox --json` lists all" in listed.err
    entries = type("inbox", "--json").went().lines
    assert [bool(entry.get("item_id")) for entry in entries] == [True] * 3


def test_the_picker_answers_by_keys(type: Type, model: str) -> None:
    item = asks(type, model)
    with Session("inbox") as terminal:
        terminal.until(lambda text: item in text and "needs you 1" in text)
        terminal.type("\r")
        terminal.until("bound to")
        terminal.type("\x1b")
        terminal.type("a")
        terminal.until("approve this?")
        terminal.type("y")
        terminal.until(f"approved {item}; k goes on in the background")
        terminal.until(lambda text: "needs you 0" in text and "finished 1" in text)
        terminal.type("q")
        assert terminal.ended() == 0
        assert not terminal.screen.cursor.hidden
    assert rests().out == "Done.\n"


def test_the_picker_shows_what_happens_meanwhile_and_leaves_the_terminal_alone(type: Type, model: str) -> None:
    item = asks(type, model)
    with Session("inbox", columns=60, rows=12) as terminal:
        terminal.until(item)
        terminal.type("d")
        terminal.until("why not")
        type("approve", item).went()
        terminal.until("is no longer open")
        terminal.type("ctrl-c")
        assert terminal.ended() == 130
    rests()


def test_a_pipe_gets_lines(type: Type, model: str) -> None:
    item = asks(type, model)
    with Session("inbox", "--plain") as terminal:
        assert terminal.ended() == 0
        assert item in terminal.text
        assert b"\x1b" not in terminal.written
