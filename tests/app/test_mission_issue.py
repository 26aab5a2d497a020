"""An issue is fetched from inside the sandbox, through a proxy that reaches the host of its API alone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.mission.init import goal_text
from holdfast.app.settings.config import Settings
from holdfast.errors import CannotRunSafely
from tests.egress.rigs import ProxyRig, proxy_rig

ISSUE = {
    "iid": 7,
    "title": "Says no goodbye",
    "description": "part() is missing. é\n\n- [ ] part() works",
    "state": "x",
}

AT = "/api/v4/projects/group%2Fgreeter/issues/7"


async def fetched(rig: ProxyRig, home: Path, *hosts: str) -> str:
    """The goal that `--issue` gives, with the proxies of the rig."""
    settings = Settings(home=str(home))
    words = argparse.Namespace(
        goal="",
        issue="https://one.test/group/greeter/-/issues/7",
        no_sandbox=False,
        allow_host=list(hosts),
        take_over=False,
        json=False,
    )
    async with open_runtime(settings) as runtime:
        runtime.__dict__["egress"] = rig.egress
        goal = await goal_text(Call(words, settings), runtime)
    assert list((home / "workspaces").iterdir()) == []
    return goal


@pytest.mark.anyio
async def test_an_issue_is_fetched_where_its_host_is_allowed(tmp_path: Path, holdfast_home: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        rig.world.files[AT] = json.dumps(ISSUE).encode()
        goal = await fetched(rig, holdfast_home, "one.test", "two.test")
        assert goal == "Says no goodbye\n\npart() is missing. é\n\n- [ ] part() works"
        (seen,) = rig.world.of("one.test")
        assert seen.path == AT
        assert "authorization" not in seen.headers
        assert not [path for path in rig.folder.iterdir() if path.name.startswith("issue-")]


@pytest.mark.anyio
async def test_a_page_that_wants_a_login_is_no_issue(tmp_path: Path, holdfast_home: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        rig.world.files[AT] = b"<html><body>Sign in</body></html>"
        with pytest.raises(CannotRunSafely, match="the issue was not fetched: https:"):
            await fetched(rig, holdfast_home, "one.test")
