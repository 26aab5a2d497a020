"""The pages over HTTP: hostile texts stay text, forms work without a script, pages are light."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from holdfast.session.context.text import visible_line
from tests.house.source import PACKAGE
from tests.serve.hostile import TEXTS as HOSTILE
from tests.serve.hostile import Dom, write
from tests.serve.served import Served, serving
from tests.support.web_home import WebHome, populate, web_home

PAGES = PACKAGE / "serve" / "pages"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("hostile") / "home"
    anyio.run(write, HOSTILE, home)
    with serving(home) as server:
        yield server


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same sessions with ordinary texts."""
    home = tmp_path_factory.mktemp("ordinary") / "home"
    anyio.run(write, ["a plain text"] * len(HOSTILE), home)
    with serving(home) as server:
        yield server


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a home with sessions in all states and a mission."""
    home = tmp_path_factory.mktemp("populated") / "home"
    anyio.run(_populated, home)
    with serving(home) as server:
        yield server


async def _populated(home: Path) -> None:
    async with web_home(home) as made:
        await populate(made)


def test_no_template_trusts_a_text() -> None:
    """Escaping is never switched off, so no author of a page can forget it."""
    files = [*PAGES.rglob("*.html"), *PAGES.rglob("*.py")]
    assert len(files) > 15
    wrong = re.compile(
        r"\|\s*safe\b|Markup|autoescape\s*=?\s*False|innerHTML|insertAdjacentHTML|outerHTML|document\.write"
    )
    found = [file.name for file in (*files, *PAGES.rglob("*.js")) if wrong.search(file.read_text())]
    assert found == []


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_texts_are_shown_and_do_nothing(attacked: Served, ordinary: Served, number: int) -> None:
    """A page with such texts has no tag, attribute, or address that the same page with plain texts does not have."""
    item, session = f"/inbox/itm_{number + 1:04}", f"ses_h{number}"
    words = visible_line(" ".join(HOSTILE[number].split()))[:30]
    with attacked.browser() as browser, ordinary.browser() as plain:
        for path in (item, f"/sessions/{session}", f"/brief/{session}", "/", "/fleet", "/brief"):
            got = Dom(browser.get(path).text)
            assert got.kinds - Dom(plain.get(path).text).kinds == set(), path
            if path in (item, f"/sessions/{session}"):
                assert words in " ".join(got.text.split()), path


def test_the_check_of_hostile_texts_sees_one_that_is_not_escaped(ordinary: Served) -> None:
    with ordinary.browser() as plain:
        page = plain.get("/").text
    for text in HOSTILE:
        seen = Dom(page.replace("a plain text", text)).kinds - Dom(page).kinds
        assert bool(seen) == ("<" in text and "%" not in text), text


def test_the_inbox_and_its_badge_count_the_same(populated: Served) -> None:
    with populated.browser() as browser:
        page = browser.get("/").text
    badge, heading = re.findall(r"<span>Inbox</span> <b>(\d+)<", page), re.findall(r"Needs you <b>(\d+)<", page)
    assert badge == heading != []


def test_an_item_is_answered_by_a_form(populated: Served) -> None:
    """Without a script; with the digest of another action, and a second time, nothing is decided."""
    with populated.browser() as browser:
        page = browser.get("/inbox/itm_0001").text
        fields = dict(re.findall(r'name="(csrf|digest)" value="(\w+)"', page))
        assert set(fields) == {"csrf", "digest"}
        wrong = browser.post("/inbox/itm_0001", data={**fields, "digest": "0" * 64, "verdict": "approve"})
        assert wrong.status_code == 400
        unsigned = browser.post("/inbox/itm_0001", data={"digest": fields["digest"], "verdict": "approve"})
        assert unsigned.status_code == 403
        done = browser.post("/inbox/itm_0001", data={**fields, "verdict": "approve"})
        assert (done.status_code, done.headers["location"]) == (303, "/?done=itm_0001")
        assert "ada" in browser.get("/inbox/itm_0001").text
        again = browser.post("/inbox/itm_0001", data={**fields, "verdict": "deny"})
        assert again.status_code == 409
        assert "ada" in again.text


def test_a_server_without_a_model_says_how_to_set_one(populated: Served) -> None:
    with populated.browser() as browser:
        fields = dict(re.findall(r'name="(csrf|once)" value="(\w+)"', browser.get("/start").text))
        refused = browser.post("/start", data={**fields, "what": "session", "goal": "Write a greeting"})
    assert refused.status_code == 400
    assert "this server has no model" in refused.text
    assert "holdfast config set model" in refused.text


def test_pages_are_light(populated: Served, tmp_path: Path) -> None:
    """At most 8 KB a page and 26 KB of script and style, compressed."""
    static = b"".join((PAGES / "static" / name).read_bytes() for name in ("holdfast.js", "holdfast.css"))
    assert len(gzip.compress(static)) <= 26_000
    anyio.run(_many, tmp_path / "home")
    with serving(tmp_path / "home") as server, server.browser() as browser:
        page = browser.get("/fleet").text
        assert page.count('<tr id="s-') == 100
        assert len(gzip.compress(page.encode())) <= 8_000
    with populated.browser() as browser:
        for path in ("/", "/sessions/ses_flakytests", "/missions/ses_top", "/items/ses_reviews", "/brief", "/fleet"):
            assert len(gzip.compress(browser.get(path).content)) <= 8_000, path


async def _many(home: Path) -> None:
    async with web_home(home) as made:
        for number in range(110):
            await _one(made, number)


async def _one(made: WebHome, number: int) -> None:
    name = await made.open(
        f"job-{number}", f"Do the task with the number {number} of the list", ago_us=number * 1_000_000
    )
    await made.end(name)
