"""Pages and metrics of duties, over HTTP: a served home fires them, and hostile texts stay text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.terminal import script, turn, typed
from tests.serve.served import serving
from tests.support.waiting import until

HOSTILE = '<script>fetch("/stop")</script>'


@pytest.mark.real
def test_a_served_home_fires_its_duties_and_shows_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    report = {"name": "report", "input": {"name": "size", "value": 7.5, "unit": "MB", "note": HOSTILE}}
    model = script(tmp_path / "m.json", turn(tool_calls=[report]), turn(text=f"All is there. {HOSTILE}"))
    typed(
        "every", "1d", f"Look {HOSTILE}", "--name", "look", "--model", model, "--now", "--home", home
    ).went()  # fmt: skip
    with serving(home) as server, server.browser() as browser:
        until(lambda: "st-done" in browser.get("/duties").text)
        listed, one = browser.get("/duties").text, browser.get("/duties/look").text
        assert "/duties/ses_" in listed
        assert "<polyline" in one
        assert "size = 7.5 MB" in one
        assert "All is there." in one
        assert HOSTILE not in listed + one
        assert browser.get("/duties/nothing").status_code == 404
        with server.client(server.key("m")) as monitor:
            assert 'holdfast_duty_late_seconds{duty="look"} 0' in monitor.get("/metrics").text
