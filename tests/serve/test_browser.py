"""The pages in a real browser: accessibility, keys, live updates, and notices while no page is open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
from playwright.sync_api import Browser

from tests.app.terminal import typed
from tests.house.source import ROOT
from tests.serve.browser import chromium as chromium
from tests.serve.browser import login, opened
from tests.serve.browser import watched as watched
from tests.serve.served import Served
from tests.support.waiting import until

AXE = ROOT / ".venv" / "programs" / "axe.min.js"

SCREENS = {
    "inbox": "/",
    "item": "/inbox/itm_0002",
    "question": "/inbox/itm_0003",
    "session": "/sessions/ses_flakytests",
    "session then": "/sessions/ses_flakytests?at=60",
    "fleet": "/fleet?q=is:parked",
    "search": "/search?q=orders",
    "mission": "/missions/ses_top",
    "items": "/items/ses_reviews?from=100",
    "no items": "/items/ses_reviews?only=submitted",
    "brief": "/brief",
    "stop": "/stop",
    "start": "/start",
    "event": "/sessions/ses_flakytests/events/40",
    "missions": "/missions",
    "whole brief": "/brief/ses_top",
    "duties": "/duties",
    "duty": "/duties/ses_backups",
    "nothing": "/fleet?q=is:parked+nothing",
    "wrong": "/fleet?q=is:foo",
    "devices": "/devices",
}


MAIN = ("inbox", "session then", "fleet", "mission", "start")
"""The screens that are looked at in each run of the tests."""


def test_no_main_screen_has_a_known_barrier(chromium: Browser, watched: Served) -> None:
    without_barriers(chromium, watched, MAIN, "light", 390)


@pytest.mark.faults
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_screen_has_a_known_barrier(chromium: Browser, watched: Served, theme: str, width: int) -> None:
    without_barriers(chromium, watched, SCREENS, theme, width)


def without_barriers(chromium: Browser, watched: Served, names: Iterable[str], theme: str, width: int) -> None:
    """WCAG 2.2 A and AA as far as a program can tell; and no screen scrolls sideways."""
    if not AXE.exists():
        pytest.skip("axe-core is not here: scripts/test_programs")
    found: dict[str, list[str]] = {}
    # The checker is put into the page by the driver, which the content policy would forbid to anyone else.
    context = login(chromium, watched, color_scheme=theme, viewport={"width": width, "height": 860}, bypass_csp=True)
    for name in names:
        page = opened(context, SCREENS[name])
        page.evaluate(AXE.read_text())
        said = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})")
        found[name] = [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in said["violations"]]
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found[name].append("scrolls")
        page.close()
    context.close()
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_keys_answer_an_item_and_a_live_page_keeps_the_focus(chromium: Browser, watched: Served) -> None:
    context = login(chromium, watched)
    page = opened(context, "/")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('article') !== null")
    page.keyboard.press("a")
    page.get_by_text("Press y").wait_for()
    page.keyboard.press("y")
    page.wait_for_url(re.compile(r"/\?done=itm_0001"))
    item = json.loads(typed("inbox", "itm_0001", "--json", "--home", str(watched.home)).went().out)
    assert (item["status"], item["answered"].startswith("ada")) == ("approved", True) or "ada" in item["answered"]
    # Another user answers the next item: the card changes in place, and the focus stays on the page.
    page.keyboard.press("j")
    typed("deny", "itm_0003", "--home", str(watched.home)).went()
    page.locator("#i-itm_0003.closed").wait_for()
    assert page.evaluate("document.activeElement !== document.body")
    for place, path in {"f": "/fleet", "b": "/brief", "m": "/missions", "i": "/"}.items():
        page.keyboard.press("g")
        page.keyboard.press(place)
        page.wait_for_url(re.compile(rf"//[^/]+{path}(\?.*)?$"))
    context.close()


def test_a_notice_is_shown_while_no_page_is_open(chromium: Browser, watched: Served) -> None:
    """The driver delivers the message: there is no push service of a browser's maker on this machine."""
    context = login(chromium, watched)
    context.grant_permissions(["notifications"])
    page = opened(context, "/devices")
    driver = context.new_cdp_session(page)
    ids: list[str] = []
    driver.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: ids.extend(each["registrationId"] for each in event["registrations"]),
    )
    driver.send("ServiceWorker.enable")
    page.get_by_role("button", name="Notify this device").click()
    registration = "navigator.serviceWorker.getRegistration()"  # `ready` could wait for ever
    active = f"{registration}.then((at) => Boolean(at && at.active && at.active.state === 'activated'))"
    until(lambda: page.evaluate(active) and ids)
    told = {"title": "An approval waits", "body": "release-notes", "tag": "t", "path": "/inbox/itm_0001"}
    shown = f"{registration}.then((at) => at.getNotifications())"

    def arrives() -> bool:
        """Deliver it. The driver drops a message without a word while the browser still stores the registration."""
        message = {"origin": watched.url, "registrationId": ids[-1], "data": json.dumps(told)}
        driver.send("ServiceWorker.deliverPushMessage", message)
        return bool(page.evaluate(f"{shown}.then((all) => all.length)"))

    until(arrives)
    words = page.evaluate(f"{shown}.then((all) => [all[0].title, all[0].body, all[0].data])")
    assert words == ["An approval waits", "release-notes", "/inbox/itm_0001"]
    context.close()
