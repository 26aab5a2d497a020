"""The page of a device: it subscribes a browser to notices, which then arrive, and logs it out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.app.terminal import bash, script, turn, typed
from tests.serve.served import SETTINGS, serving
from tests.support.push_service import Browser, PushService
from tests.support.waiting import until


def csrf(page: str) -> str:
    (token,) = set(re.findall(r'name="csrf" value="(\w+)"', page))
    return str(token)


@pytest.fixture
def settings(tmp_path: Path) -> None:
    """The user's own settings, with a target for browsers."""
    file = tmp_path / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True)
    file.write_text(SETTINGS)


@pytest.mark.usefixtures("settings")
def test_a_subscribed_browser_receives_what_waits(tmp_path: Path, holdfast_home: Path) -> None:
    rules = tmp_path / "rules.toml"
    model = script(tmp_path / "m.json", bash("git push"), turn(text="Done."))
    rules.write_text('[[rule]]\ntool = "bash"\ndecision = "ask"\n')
    with PushService() as service, serving(holdfast_home) as served, served.browser() as page:
        device = Browser(f"{service.url}/push/1")
        shown = page.get("/devices").text
        assert "Notify this device" in shown
        form = {"csrf": csrf(shown), **device.subscription(), "label": "a <b>phone</b>"}
        assert page.post("/devices", data={**form, "csrf": "0"}).status_code == 403
        assert page.post("/devices", data={**form, "p256dh": "AAAA"}).status_code == 400
        assert page.post("/devices", data=form).status_code == 303
        assert "a &lt;b&gt;phone" in page.get("/devices").text
        words = ("--model", model, "--rules", str(rules), "--session-id", "pusher", "--scratch", "--detach")
        typed("run", "Push it.", *words).went()
        until(lambda: service.requests)
        told = device.read(service.requests[0].body)
        assert (told["title"], told["body"]) == ("An approval waits", "pusher")
        item = page.get(told["path"])
        assert item.status_code == 200
        assert "git push" in item.text
        assert (
            page.post("/devices/remove", data={"csrf": form["csrf"], "device": device.device.device_id}).status_code
            == 303
        )
        assert "Subscribed browsers" not in page.get("/devices").text
        worker = page.get("/worker.js")
        assert worker.headers["content-type"].startswith("text/javascript")
        assert page.post("/logout", data={"csrf": form["csrf"]}).status_code == 303
        assert page.get("/devices").status_code == 401


def test_without_a_target_the_page_says_how_to_set_one_up(holdfast_home: Path) -> None:
    with serving(holdfast_home) as served, served.browser() as page:
        shown = page.get("/devices").text
        assert "holdfast config set notify.phone" in shown
        assert "Notify this device" not in shown
