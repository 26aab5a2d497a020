"""Search over HTTP: words and excerpts of all sessions that the caller may see, as data and as a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import anyio
import pytest

from holdfast.facts.base import Text
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Workspace
from tests.app.families import until
from tests.serve.served import API, Served, failure, serving
from tests.support.web_home import web_home

SESSIONS = 23


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose index has the words of sessions in two projects."""
    home = tmp_path_factory.mktemp("words") / "home"
    anyio.run(_write, home)
    with serving(home) as server, server.client(server.key("ada", "admin")) as client:
        until(lambda: client.get(f"{API}/search?q=zebra").json()["lag_events"] == 0, server.process)
        yield server


async def _write(home: Path) -> None:
    async with web_home(home) as made:
        for number in range(SESSIONS):
            place = Workspace("/srv/shop" if number else "/srv/bank")
            name = await made.open(f"z{number}", "Count <b>zebras</b>", ago_us=60_000_000, workspace=place)
            await made.tell(name, UserMessage(content=(Text("A zebra\n\n<script>crosses</script> the road"),)))
            await made.end(name)


def test_pages_of_a_search_have_each_session_once(words: Served) -> None:
    with words.client(words.key("ada")) as client:
        first = client.get(f"{API}/search", params={"q": "zebra road", "limit": 20}).json()
        rest = client.get(f"{API}/search", params={"q": "zebra road", "after": first["next"]}).json()
        found = [each["session"]["key"] for each in (*first["hits"], *rest["hits"])]
        assert sorted(found) == sorted(f"z{number}" for number in range(SESSIONS))
        assert rest["next"] is None
        (match,) = first["hits"][0]["matches"]
        assert [match["excerpt"][start:end] for start, end in match["marks"]] == ["zebra", "road"]
        none = client.get(f"{API}/search", params={"q": "zebra is:failed"}).json()
        assert (none["hits"], none["complete"]) == ([], True)
        assert "needs a word" in failure(client.get(f"{API}/search?q=..."), 400, "invalid_request")


def test_a_search_finds_only_sessions_that_its_caller_may_see(words: Served) -> None:
    with words.client(words.key("bob", project="/srv/bank")) as client:
        found = client.get(f"{API}/search", params={"q": "zebra"}).json()["hits"]
        assert [each["session"]["key"] for each in found] == ["z0"]
        failure(client.get(f"{API}/search", params={"q": "zebra", "after": "z1"}), 404, "not_found")


def test_the_page_of_a_search_leads_to_the_events(words: Served) -> None:
    with words.browser() as browser:
        assert 'action="/search"' in browser.get("/").text
        page = browser.get("/search", params={"q": "zebra road"}).text
        assert page.count("<mark>zebra</mark>") == 20
        assert " &lt;script&gt;crosses&lt;/script&gt; the <mark>road</mark>" in page
        (further,) = re.findall(r'rel="next" href="(\?q=[^"]+)"', page)
        assert browser.get("/search" + unescape(further)).text.count("<mark>zebra</mark>") == SESSIONS - 20
        address = re.findall(r'class="ev-link" href="([^"]+)"', page)[0]
        assert "A zebra" in browser.get(address).text
        assert "Filters:" in browser.get("/search", params={"q": "color:red"}).text
        assert "No event has all" in browser.get("/search", params={"q": "zebra unheard"}).text
        assert browser.get("/search").status_code == 200
