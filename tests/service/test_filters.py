"""Filters of sessions: each term, the part that an index answers, and invalid terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.log.base import Which
from holdfast.log.sqlite.store import SqliteStore
from holdfast.service.filters import matching, parse
from holdfast.service.sessions import sessions
from holdfast.session.costs import Cost
from holdfast.session.money import PICO
from holdfast.session.rows import SessionRow
from tests.service.test_queries import parked
from tests.support.synthetic.home import BEGIN_US, fill_home

HOUR_US = 3_600_000_000

ROW = SessionRow(
    session_id="ses_7f3k",
    key="nightly",
    goal="Mend the Parser",
    model="openai:large",
    workspace="/w",
    accounts=(),
    created_us=0,
    updated_us=10 * HOUR_US,
    head=3,
    head_hash=b"",
    epoch=1,
    status="parked",
    reason="person",
)


def passes(*terms: str, running: bool = False) -> bool:
    """Apply terms to a parked session that cost two dollars, one day after its latest event."""
    return parse(terms).has(ROW, Cost(2 * PICO), 34 * HOUR_US, running=running)


@pytest.mark.parametrize(
    "term",
    [
        "is:parked",
        "is:unfinished",
        "for:approval",
        "for:person",
        "spend:>1.99",
        "spend:<2.01",
        "older:23h",
        "newer:2d",
        "parser",
        "NIGHTLY",
        "7f3k",
        "openai:large",
    ],
)
def test_terms_that_pass(term: str) -> None:
    assert passes(term)


@pytest.mark.parametrize(
    "term",
    ["is:done", "is:running", "is:runnable", "for:timer", "spend:>2", "spend:<2", "older:1d", "newer:1d", "lexer"],
)
def test_terms_that_do_not_pass(term: str) -> None:
    assert not passes(term)
    assert not passes("is:parked", term), "all terms have to pass"


def test_a_running_session_is_not_parked() -> None:
    assert passes("is:running", running=True)
    assert passes("is:unfinished", running=True)
    assert not passes("is:parked", running=True)
    assert not passes("for:approval", running=True)


@pytest.mark.parametrize(
    ("term", "told"),
    [
        ("is:lost", "cancelled"),
        ("for:fun", "approval"),
        ("spend:2", "spend:>2"),
        ("spend:>many", "spend:>2"),
        ("older:soon", "older:1d"),
        ("color:red", "is:STATUS"),
    ],
)
def test_invalid_terms_are_named_with_what_exists(term: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(["fine", term])
    assert repr(term) in str(refused.value)
    assert told in str(refused.value)


async def test_the_store_answers_filters() -> None:
    stage = await parked()
    stage.session_id = stage.intake.new_session_id()
    await stage.open()
    new, old = await sessions(stage.store)
    now_us = stage.clock.now_us()
    assert (await matching(stage.store, parse(["for:approval"]), now_us)).found == [old]
    assert (await matching(stage.store, parse(["is:runnable"]), now_us)).found == [new]
    assert (await matching(stage.store, parse([]), now_us)).found == [new, old]
    assert parse(["for:approval"]).which(now_us, ()) == Which(status="parked", reason="person")
    assert parse(["is:running"]).which(now_us, ["ses_a"]) == Which(ids=frozenset({"ses_a"}))
    assert (await matching(stage.store, parse(["is:running"]), now_us)).found == []


@pytest.mark.parametrize("terms", [["is:parked"], ["job-1"], ["spend:>0.5"], ["newer:30h"], ["older:30h"], ["é"], []])
async def test_pages_join_to_what_a_filter_passes(tmp_path: Path, terms: list[str]) -> None:
    """A filter that the database answers passes the same sessions as each row by itself."""
    database = tmp_path / "holdfast.db"
    fill_home(database, 60, facts=3)
    async with await SqliteStore.open(database, workers=tmp_path / "workers", clock=SystemClock()) as store:
        now_us = BEGIN_US + 60 * HOUR_US
        wanted = parse(terms)
        rows = await sessions(store)
        passing = [each for each in rows if wanted.has(each.row, each.costs.tree, now_us, running=each.running)]
        assert (await matching(store, wanted, now_us)).found == passing
        for most in (None, 1):  # a bound on what is looked through ends a page early, and loses nothing
            page = await matching(store, wanted, now_us, limit=7, most=most)
            paged = page.found
            while page.after:
                page = await matching(store, wanted, now_us, after=page.after, limit=7, most=most)
                assert len(page.found) <= 7
                paged += page.found
            assert paged == passing
        assert len(passing) < len(rows) or not terms
