"""Hostile texts in a real browser: no request, no violation of the content policy, and the text stays readable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markupsafe import escape
from playwright.sync_api import Browser, BrowserContext, Dialog, Error, Page, Request, Route

from holdfast.session.context.text import visible, visible_line
from tests.serve.browser import chromium as chromium
from tests.serve.browser import login, made
from tests.serve.hostile import Dom, all_texts, write
from tests.serve.served import serving

OWN = ("/static/", "/holdfast/v1/stream")

MARKUP = re.compile("<[a-z/!]")
"""The beginning of a tag or comment."""

PART = 40
"""Number of texts in one home: the inbox has a card for each of them."""

PARTS = [all_texts()[at : at + PART] for at in range(0, len(all_texts()), PART)]

WATCH = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""


class Watched:
    """A page of which each request, violation, and dialog is recorded."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.page.add_init_script(WATCH)
        self.asked: list[Request] = []
        self.paths = ["", ""]
        self.dialogs: list[str] = []
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)

    def _request(self, request: Request) -> None:
        self.asked.append(request)

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def load(self, url: str, path: str) -> tuple[list[str], list[str]]:
        """Load a page; return its foreign requests with dialogs, and its violations."""
        self.asked.clear()
        self.page.goto(path, wait_until="load")
        violations = self.page.evaluate("window.violations")
        self.paths = [self.paths[1], urlsplit(f"{url}{path}").path]  # the page before may still load itself again

        def own(request: Request) -> bool:
            place = urlsplit(request.url).path
            return request.url.startswith(url) and (place in self.paths or place.startswith(OWN))

        foreign = [each.url for each in self.asked if each.method != "GET" or not own(each)]
        return foreign + self.dialogs, list(violations)


@pytest.mark.faults
@pytest.mark.parametrize("texts", PARTS, ids=range(len(PARTS)))
def test_hostile_texts_do_nothing_in_a_browser(chromium: Browser, tmp_path: Path, texts: Sequence[str]) -> None:
    """Also when a template forgets to escape one: then the content policy or the check of tags reports it."""
    made(write, texts, tmp_path / "home")
    wrong: dict[str, object] = {}
    with serving(tmp_path / "home") as server:
        context = login(chromium, server)
        watched = Watched(context)
        lists = ["/", "/brief", "/fleet", "/fleet?q=is:parked", "/missions", "/missions/ses_top", "/brief/ses_top"]
        for path in lists:
            if (found := watched.load(server.url, path)) != ([], []):
                wrong[path] = found
        watched.load(server.url, "/missions/ses_top")
        board = " ".join(str(watched.page.evaluate("document.body.textContent")).split())
        for number, text in enumerate(texts):
            words = visible_line(text.split()[0])[:30]
            session, item = f"/sessions/ses_h{number}", f"/inbox/itm_{number + 1:04}"
            assert words in board, words
            for path in (item, session, f"{session}?at=6", f"{session}/events/3", f"/brief/ses_h{number}"):
                if (found := watched.load(server.url, path)) != ([], []):
                    wrong[path] = found
                if path in (item, session, f"{session}/events/3"):
                    shown = " ".join(str(watched.page.evaluate("document.body.textContent")).split())
                    assert words in shown, (path, words)
            assert _caught(context, server.url, item, text) == bool(MARKUP.search(text)), text
        context.close()
    assert wrong == {}


def _caught(context: BrowserContext, url: str, path: str, text: str) -> bool:
    """True if a page that does not escape this text is reported. Its foreign requests go nowhere."""
    plain, watched = "", Watched(context)

    def unescaped(route: Route) -> None:
        nonlocal plain
        if not route.request.url.startswith(url):
            route.abort()
        elif route.request.is_navigation_request() and not plain:
            response = route.fetch()
            plain = response.text()
            assert str(escape(visible(text))) in plain, text
            route.fulfill(response=response, body=plain.replace(str(escape(visible(text))), visible(text)))
        else:
            route.continue_()

    watched.page.route("**/*", unescaped)
    try:
        _, violations = watched.load(url, path)
    except Error:  # it led the page away
        violations = ["navigation"]
    watched.page.unroute_all(behavior="ignoreErrors")
    watched.page.close()
    raw = Dom(plain.replace(str(escape(visible(text))), visible(text)))
    return bool(violations) or bool(raw.kinds - Dom(plain).kinds)
