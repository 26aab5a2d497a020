"""The page of a run over a list, over HTTP: counts, items by page and by state, results, and hostile texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.serve.hostile import Dom
from tests.serve.served import Served, serving
from tests.support.web_home import web_home
from tests.support.web_list import write_list

HOSTILE = '<script>fetch("/stop")</script>'


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a home with two runs of 250 items, one with hostile texts."""
    home = tmp_path_factory.mktemp("lists") / "home"
    anyio.run(_write, home)
    with serving(home) as server:
        yield server


async def _write(home: Path) -> None:
    async with web_home(home) as made:
        await write_list(made, "reviews", 250)
        await write_list(made, "hostile", 250, HOSTILE)
        await made.end(await made.open("plain", "Say hello", ago_us=0))


def rows(page: str) -> list[str]:
    """The rows of the table of items."""
    return re.findall(r'<tr id="i-.*?</tr>', page)


def test_a_run_has_a_page_with_its_counts_and_its_items_by_page_and_state(lists: Served) -> None:
    with lists.browser() as browser:
        page = browser.get("/items/reviews").text
        assert "<b>233 of 250</b>" in page
        assert "5 quarantined of at most 12" in page
        assert re.search(r"about \d+ (s|min|h) and \$[\d.]+ to go", page)
        assert "tries failed" in page
        assert len(rows(page)) == 100
        first, second, *_ = rows(page)
        assert "quarantined" in first
        assert "the model refused: It is about the mill" in first
        assert 'href="/sessions/ses_item0"' in first
        assert "It is about the mill: 1" in second
        assert re.findall(r'class="num">(.*?)</td>', second) == ["1", "1", "$0.0020"]
        last = browser.get("/items/reviews?from=200").text
        assert len(rows(last)) == 50
        assert rows(last)[-1].count('<td class="num">0</td>') == 1
        assert 'rel="prev" href="?from=100"' in last
        assert 'rel="next"' not in last
        bad = rows(browser.get("/items/reviews?only=quarantined").text)
        assert [re.findall(r'class="num">(\d+)</td>', row)[0] for row in bad] == ["0", "50", "100", "150", "200"]
        assert browser.get("/items/reviews?only=nothing").status_code == 400
        assert browser.get("/items/reviews?from=-1").status_code == 400


def test_the_results_of_a_run_are_those_that_count(lists: Served) -> None:
    with lists.browser() as browser:
        got = browser.get("/items/reviews/results.jsonl")
    lines = [json.loads(line) for line in got.text.splitlines()]
    assert got.headers["content-disposition"] == 'attachment; filename="results.jsonl"'
    wanted = [number for number in range(238) if number % 50]
    assert [line["index"] for line in lines] == wanted
    assert [line["result"] for line in lines] == [f"It is about the mill: {number}" for number in wanted]


def test_lists_of_sessions_say_how_far_a_run_is_and_lead_to_it(lists: Served) -> None:
    with lists.browser() as browser:
        fleet = browser.get("/fleet").text
        assert "233 of 250 items done, 5 quarantined; 2 at work" in fleet
        assert 'href="/items/ses_reviews"' in fleet
        assert 'href="/items/ses_reviews"' in browser.get("/sessions/ses_reviews").text
        plain = browser.get("/items/plain")
        assert (plain.status_code, plain.headers["location"]) == (303, "/sessions/ses_plain")
        assert browser.get("/items/plain/results.jsonl").status_code == 400
        assert browser.get("/items/nothing").status_code == 404


def test_texts_of_a_run_stay_text(lists: Served) -> None:
    with lists.browser() as browser:
        for path in ("", "?only=quarantined", "?from=200"):
            pages = [browser.get(f"/items/{key}{path}").text for key in ("hostile", "reviews")]
            hostile, plain = (Dom(page.replace("hostile", "reviews")) for page in pages)
            assert hostile.kinds - plain.kinds == set()
            assert HOSTILE in " ".join(hostile.text.split())
