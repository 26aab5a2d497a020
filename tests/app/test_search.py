"""`holdfast search`: lines that fit, ids that other verbs accept, filters, JSON, and removal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.app.cli import search as verb
from holdfast.app.cli.search import fitted
from holdfast.log.search.index import Excerpt
from tests.app.terminal import Type, bash, script, turn


@pytest.fixture
def two(type: Type, holdfast_home: Path) -> None:
    """Two finished sessions; only the second has a result with a needle."""
    model = script(Path("m.json"), turn(text="Nothing here."))
    type("run", "hello", "--model", model, "--session-id", "one", "--no-sandbox").went()
    model = script(Path("n.json"), bash("echo first; echo a needle; seq 3"), turn(text="Found it."))
    type("run", "look for it", "--model", model, "--session-id", "two", "--no-sandbox").went()


def test_what_is_found_is_shown_with_ids_that_other_verbs_accept(two: None, type: Type, holdfast_home: Path) -> None:
    said = type("search", "needle").went().out.splitlines()
    listed = type("ps", "two").went().out.splitlines()
    assert [re.sub(r"\b\d+s\b", "age", line) for line in said[:2]] == [
        re.sub(r"\b\d+s\b", "age", line) for line in listed
    ]
    assert len(said) == 4
    seqs = {}
    for line in said[2:]:
        match = re.fullmatch(r"  #(\d+) \d+s (tool call|tool result): .*\*needle\*.*", line)
        assert match is not None, line
        seqs[match[2]] = match[1]
    name = said[1].split()[0]
    (event,) = type("logs", name, "--after", str(int(seqs["tool result"]) - 1), "-n", "1", "--json").went().lines[:1]
    assert type("show", name, "--at", seqs["tool call"]).went().out
    (hit,) = type("search", '"a needle"', "is:done", "--json").went().lines
    assert (hit["key"], hit["state"], hit["matching"]) == ("two", "done", 2)
    best = next(each for each in hit["matches"] if each["kind"] == "tool result")
    assert [best["excerpt"][start:end] for start, end in best["marks"]] == ["a needle"]
    assert type("search", "needle", "is:failed").went().err.startswith("nothing found")
    assert not event["type"].startswith("session.")


def test_a_removed_session_leaves_no_byte_and_a_rebuild_finds_the_rest(
    two: None, type: Type, holdfast_home: Path
) -> None:
    type("search", "needle").went()
    index = holdfast_home / "holdfast.db-search"
    assert b"needle" in index.read_bytes()
    type("rm", "two", "--yes").went()
    for path in holdfast_home.glob("holdfast.db-search*"):
        assert b"needle" not in path.read_bytes()
    assert type("search", "hello", "--rebuild").went().out.splitlines()[1].startswith("one")
    index.write_bytes(b"damaged")
    assert type("search", "hello").went().out.splitlines()[1].startswith("one")


@pytest.mark.parametrize("words", [["is:parked"], ["x:y"], ['"'], ["a", "--limit", "0"]])
def test_a_search_that_cannot_be_made_is_one_sentence(type: Type, words: list[str]) -> None:
    said = type("search", *words)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1


def test_a_search_that_has_no_time_to_index_says_so(
    two: None, type: Type, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("holdfast.log.search.index.BATCH", 3)
    monkeypatch.setattr(verb, "FILL_S", 0.0)
    from holdfast.app.cli import main

    assert main(["search", "needle"]) == 0
    assert "not indexed yet; search again" in capfd.readouterr().err


@pytest.mark.parametrize("room", [1, 5, 10, 20, 40, 200])
def test_an_excerpt_fits_and_shows_its_first_word(room: int) -> None:
    text = "a long beginning of many words\nand more before the needle and much after it " + "x" * 100
    at = text.index("needle")
    line = fitted(Excerpt(text, ((at, at + 6),)), room)
    assert len(line) <= room
    assert "\n" not in line
    assert "*needle*" in line or room < 20
    assert fitted(Excerpt("plain \x1b[1m"), 40) == fitted(Excerpt("plain  \x1b[1m"), 40)
    assert "\x1b" not in fitted(Excerpt("plain \x1b[1m"), 40)
