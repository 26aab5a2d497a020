"""web_fetch and web_search from hands in a sandbox, through a real proxy that decides what they reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.hands.base import ExecRequest, ExecResult, Hands
from holdfast.testing.egress import SECRETS, variable_of
from tests.egress.rigs import VALUES, proxy_rig
from tests.egress.scene import ONE, SECRET, SES, inside

FOUND = {"web": {"results": [{"title": "A hit", "url": "https://one.test/a", "content": "what it says"}]}}
SEARCHER = {
    "name": "mine",
    "url": f"https://{ONE.host}/search?q={{query}}",
    "results": "web.results",
    "title": "title",
    "link": "url",
    "snippet": "content",
    "variable": variable_of(SECRETS[0]),
    "header": "authorization",
}


async def used(hands: Hands, call_id: str, tool: str, **given: Any) -> ExecResult:
    """What a tool comes to."""
    await hands.start(1, call_id, ExecRequest(tool, given, 60.0))
    return await hands.wait(1, call_id)


async def test_the_proxy_decides_what_the_web_is(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig, inside(tmp_path, rig, SECRET) as (hands, _):
        rig.world.files["/page"] = b"what strangers wrote"
        rig.world.files["/search"] = json.dumps(FOUND).encode()
        page = await used(hands, "1.0", "web_fetch", url=f"https://{ONE.host}/page")
        assert page.ok, page.output
        assert "what strangers wrote" in page.output
        refused = await used(hands, "1.1", "web_fetch", url="https://evil.test/")
        assert (refused.ok, refused.bytes_total) == (False, 0)
        assert "the proxy said HTTP/1.1 403" in refused.output
        away = await used(hands, "1.2", "web_fetch", url=f"https://{ONE.host}/redirect?to=https://evil.test/")
        assert not away.ok
        assert "evil.test" in away.output
        hits = await used(hands, "1.3", "web_search", query="a thing", searchers=[SEARCHER])
        assert hits.output == "1. A hit\n   https://one.test/a\n   what it says"
        asked = [seen for seen in rig.world.of(ONE.host) if seen.path.startswith("/search")]
        assert [(seen.path, seen.headers["authorization"]) for seen in asked] == [
            ("/search?q=a%20thing", f"Bearer {VALUES[0]}")
        ]
        told = "".join(each.output for each in (page, refused, away, hits))
        assert not any(value in told for value in VALUES)
        await rig.egress.change(SES, SECRET, held=(SECRETS[0],))
        held = await used(hands, "1.4", "web_search", query="again", searchers=[SEARCHER])
        assert not held.ok
        assert "approval" in held.output
        assert len([seen for seen in rig.world.of(ONE.host) if seen.path.startswith("/search")]) == 1
