"""What a user does from the first look to a fork, in a real browser: with keys alone, and by touch on a phone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, Page

from tests.app.terminal import script, turn, typed
from tests.serve.browser import chromium as chromium
from tests.serve.browser import login, made, opened, populated
from tests.serve.served import Served, serving
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.faults

GIT = ("git", "-c", "user.name=Anna", "-c", "user.email=anna@example.com", "-c", "commit.gpgsign=false")

CONTRACT = [{"description": "The greeting is English", "steps": ["greet.txt says hello"], "passes": False}]


class Hand(Protocol):
    """A way to use a page: reach an element, use it, and write into it."""

    def use(self, page: Page, selector: str) -> None: ...

    def write(self, page: Page, selector: str, text: str) -> None: ...


class Keys:
    """The keyboard alone: Tab to the element, then Enter."""

    def reach(self, page: Page, selector: str) -> None:
        for _ in range(400):
            if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"no way to {selector} with the Tab key")

    def use(self, page: Page, selector: str) -> None:
        self.reach(page, selector)
        page.keyboard.press("Enter")

    def write(self, page: Page, selector: str, text: str) -> None:
        self.reach(page, selector)
        page.keyboard.type(text)


class Finger:
    """A touch screen. Whatever is tapped is large enough for a finger."""

    def use(self, page: Page, selector: str) -> None:
        at = page.locator(selector).first
        at.scroll_into_view_if_needed()
        box = at.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 24, (selector, box)
        at.tap()

    def write(self, page: Page, selector: str, text: str) -> None:
        page.locator(selector).first.tap()
        page.keyboard.type(text)


DESK = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Served]:
    """A server of a home with sessions in all states, whose model writes a file and answers messages."""
    made(populated, tmp_path / "home")
    write = {"tool_calls": [{"name": "bash", "input": {"command": "echo hello > greet.txt"}}]}
    model = script(tmp_path / "model.json", turn(**write), *(turn(text=f"Answer {number}.") for number in range(40)))
    (tmp_path / "home").chmod(0o711)
    with serving(tmp_path / "home", model=model) as server:
        yield server


def focused(page: Page) -> bool:
    """True if the focus is on something of the page."""
    return bool(page.evaluate("document.activeElement !== null && document.activeElement !== document.body"))


def item(served: Served, name: str) -> dict[str, Any]:
    """An inbox item as the command line shows it."""
    found: dict[str, Any] = json.loads(typed("inbox", name, "--json", "--home", str(served.home)).went().out)
    return found


@pytest.mark.parametrize(("hand", "device"), [(Keys(), DESK), (Finger(), PHONE)], ids=["keys", "phone"])
def test_a_user_starts_reads_answers_scrubs_and_forks(
    chromium: Browser, home: Served, hand: Hand, device: dict[str, Any]
) -> None:
    context = chromium.new_context(**device)
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    page.goto(home.link)
    page.wait_for_url(f"{home.url}/")
    # Start a session.
    hand.use(page, "main a[href='/start']")
    page.wait_for_url("**/start")
    hand.write(page, "form textarea[name=goal]", "Write a greeting")
    hand.use(page, "form.start button")
    page.wait_for_url("**/sessions/ses_*")
    session = page.url.rpartition("/")[2]
    # Read it while it works, and send a message; the page follows, and the focus stays.
    page.get_by_text("Answer 0.").first.wait_for(state="attached")
    hand.write(page, "#steer textarea", "And in French?")
    hand.use(page, "#steer .say button")
    page.get_by_text("Answer 1.").first.wait_for(state="attached")
    page.locator("#buttons", has_text="Interrupt").wait_for(state="detached")
    hand.use(page, ".ev a.seq")
    page.wait_for_url("**at=*")
    # Scrub to the first call, and fork there.
    events = page.locator(".ev").count()
    for at in range(2, events):
        page.goto(f"{home.url}/sessions/{session}?at={at}")
        if page.locator("[data-act=fork]").count():
            break
    hand.use(page, "[data-act=fork]")
    page.wait_for_url(lambda url: "/sessions/ses_" in url and session not in url)
    assert page.get_by_text("Fork of").count() > 0
    # Approve one item, deny another one, from their pages.
    page.goto(f"{home.url}/inbox/itm_0001")
    hand.use(page, "button[data-act=approve]")
    page.wait_for_url("**/?done=itm_0001")
    page.goto(f"{home.url}/inbox/itm_0003")
    hand.use(page, "summary[data-act=deny]")
    hand.write(page, ".deny input[name=words]", "neither")
    hand.use(page, ".deny button")
    page.wait_for_url("**/?done=itm_0003")
    assert [item(home, name)["status"] for name in ("itm_0001", "itm_0003")] == ["approved", "denied"]
    context.close()


def test_a_mission_is_started_with_keys(chromium: Browser, home: Served, tmp_path: Path) -> None:
    """A refused form comes back with its fields and the reason."""
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "greet.txt").write_text("hallo\n")
    (repo / "feature_list.json").write_text(json.dumps(CONTRACT))
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        subprocess.run([*GIT, *words], cwd=repo, check=True, capture_output=True)
    context = login(chromium, home, **DESK)
    page = opened(context, "/missions")
    page.keyboard.press("n")
    page.wait_for_url("**/start")
    hand = Keys()
    hand.write(page, "input[name=repo]", str(repo))
    hand.write(page, "input[name=contract]", "../elsewhere.json")
    hand.use(page, "form.start:has(input[name=repo]) button")
    assert "is not in" in page.locator("#wrong").inner_text()
    assert page.locator("input[name=repo]").input_value() == str(repo)
    page.locator("input[name=contract]").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("feature_list.json")
    hand.use(page, "form.start:has(input[name=repo]) button")
    page.wait_for_url("**/missions/ses_*")
    assert "The greeting is English" in page.locator("#criteria").inner_text()
    typed("mission", "cancel", page.url.rpartition("/")[2].removesuffix("#main"), "--home", str(home.home)).went()
    context.close()


def test_the_focus_survives_updates_of_a_session_page(chromium: Browser, home: Served) -> None:
    """Each part of the page that changes in place while it is focused keeps the focus."""
    context = login(chromium, home, **DESK)
    page = opened(context, "/sessions/ses_releasenotes")
    for number, selector in enumerate(("#head summary", "#head a", ".ev a.seq", "#steer button")):
        page.locator(selector).first.focus()
        typed("send", "release-notes", f"words {number}", "--home", str(home.home)).went()
        page.get_by_text(f"words {number}").first.wait_for(state="attached")
        assert focused(page), selector
    context.close()


@pytest.mark.parametrize("device", [DESK, PHONE], ids=["desk", "phone"])
def test_a_long_action_is_approved_after_its_end_was_shown(
    chromium: Browser, home: Served, device: dict[str, Any]
) -> None:
    """With a script the button waits; without one it stands below the action. A push opens this page."""
    context = login(chromium, home, **device)
    page = opened(context, "/inbox/itm_0002")
    approve = page.locator("#answers button[data-act=approve]")
    tall = page.locator("pre.action").evaluate("(at) => at.getBoundingClientRect().bottom > innerHeight")
    assert tall
    assert approve.is_disabled()
    page.keyboard.press("a")
    page.keyboard.press("y")
    assert item(home, "itm_0002")["status"] == "open"
    page.mouse.wheel(0, 300) if device is DESK else page.evaluate("scrollBy(0, 100)")
    approve.scroll_into_view_if_needed()
    until(lambda: approve.is_enabled())
    if device is DESK:  # where a short action is whole on the screen
        short = opened(context, "/inbox/itm_0001")
        assert short.locator("#answers button[data-act=approve]").is_enabled()
    context.close()
    context = login(chromium, home, java_script_enabled=False, **device)
    page = context.new_page()
    page.goto("/inbox/itm_0002")
    action, button = (page.locator(at).first.bounding_box() for at in ("pre.action", "button[data-act=approve]"))
    assert action is not None
    assert button is not None
    assert button["y"] >= action["y"] + action["height"]
    assert re.search(r"2024", page.locator("pre.action").inner_text())
    context.close()
