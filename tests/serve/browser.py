"""A real browser that is logged in to a server."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import greenlet  # type: ignore[import-untyped]
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.serve.served import SETTINGS, Served, serving
from tests.support.waiting import PATIENCE_S
from tests.support.web_home import populate, web_home

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not on this machine: apt-get install -y chromium fonts-dejavu-core")
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def bounded(browser: Browser, limit_s: float) -> Iterator[None]:
    """End the browser of a test after the limit, which makes the test fail where it waits.

    Some calls of the driver have no limit of their own: `evaluate`, keys, the mouse wheel.
    """
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    (pid,) = (each["id"] for each in processes if each["type"] == "browser")
    test = greenlet.getcurrent()

    def end() -> None:
        place = "".join(traceback.format_stack(test.gr_frame)) if test.gr_frame else "in Python"
        print(f"the test took {limit_s:g} s; its browser was ended. It waited here:\n{place}", file=sys.stderr)
        os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Served]:
    """A server of a home with sessions in all states and a mission."""
    settings = tmp_path / "config" / "holdfast" / "holdfast.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS)
    made(populated, tmp_path / "home")
    with serving(tmp_path / "home") as server:
        yield server


def made(write: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Write a home: in a thread, because the driver of the browser has an event loop in this one."""
    with ThreadPoolExecutor(1) as apart:
        apart.submit(anyio.run, write, *args).result()


async def populated(home: Path) -> None:
    async with web_home(home) as made:
        await populate(made)


def login(chromium: Browser, served: Served, **options: Any) -> BrowserContext:
    """A browser of its own, logged in without a page.

    The page of a link leads on to the inbox by itself, and closing a page that leaves can hang in the driver.
    """
    context = chromium.new_context(base_url=served.url, **options)
    context.set_default_timeout(PATIENCE_S * 1000)
    _, secret = served.access.issue("link", "ada", "admin", proof="login_link:0", lives_s=60)
    assert context.request.get(f"/login?link={secret}").ok
    return context


def opened(context: BrowserContext, path: str) -> Page:
    """A page that was loaded without an error, such as a broken content policy."""
    page = context.new_page()
    errors: list[str] = []
    page.on(
        "console",
        lambda message: errors.append(f"{message.text} {message.location}") if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path, wait_until="load")
    assert errors == [], (path, errors)
    return page
