"""The browser recipe: a page that a server inside hands out, looked at the way a person would. Leaves the machine."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from holdfast.environment.recipes import recipe
from holdfast.facts.hands import EgressRecorded
from holdfast.facts.session import Destination, EgressPolicy, Environment, Service
from tests.environment.rigs import has, home, unreachable, write

PAGE = """<title>The shop</title><h1>Hello</h1><form onsubmit="said.textContent = 'Thanks, ' + who.value; return false">
<input id=who><button>Send</button></form><p id=said></p><script>console.log('loaded')</script>"""
LOOK = (
    "page http://127.0.0.1:8000/ --fill '#who' Anna --click text=Send --see 'Thanks, Anna' --eval '6 * 7' --shot {shot}"
)
AWAY = "page http://evil.test/"
SERVER = Service("shop", "exec python3 -m http.server 8000 --bind 127.0.0.1", "python3 -c 'import socket; "
                 "socket.create_connection((\"127.0.0.1\", 8000))'")  # fmt: skip


@pytest.mark.faults
async def test_a_page_is_looked_at_as_a_person_would(tmp_path: Path) -> None:
    if reason := has("apt-get", "dpkg-deb", "npm") or unreachable():
        pytest.skip(reason)
    work = write(tmp_path / "work", {"index.html": PAGE})
    policy = Environment(recipes=("browser",), services=(SERVER,), timeout_s=600.0)
    outside = EgressPolicy(allow=(Destination("docs.test"),))
    look = LOOK.format(shot="/workspace/shot.png")
    async with home(tmp_path) as here:
        await here.run(
            work,
            policy,
            look,
            "page http://127.0.0.1:8000/none; page http://127.0.0.1:8000/ --click",
            AWAY,
            egress=outside,
        )
        record = await here.record()
        first, second, third = await here.results()
        (noted,) = [each for each in await here.facts(EgressRecorded) if not each.set_up]
    print(f"\nset up in {record.duration_ms:.0f} ms, {record.bytes >> 20} MiB\n{first}\n{second}", end="")
    assert "403" in third  # the proxy's answer: the browser has no other way outside
    assert "evil.test" in [seen.host for seen in noted.seen if seen.verdict == "refused"]
    assert "42" in first
    assert "http://127.0.0.1:8000/  200  The shop" in first
    assert "[console log] loaded" in first
    assert "Thanks, Anna" in first
    assert "404" in second
    assert "an action lacks a word" in second
    picture = (work / "shot.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (1280, 800)


def test_the_recipe_is_one_of_those_that_a_policy_may_name() -> None:
    found = recipe("browser")
    assert found.packages == ("chromium-headless-shell", "fonts-dejavu-core", "nodejs")
    assert [service.name for service in found.services] == ["browser"]
    assert ":9222" in found.env["BROWSER_URL"]
