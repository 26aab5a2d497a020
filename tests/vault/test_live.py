"""A change of what a session may talk to holds at once, also while no brain looks at it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.facts.session import Destination, EgressPolicy
from holdfast.testing.egress import Place, part
from holdfast.vault.fake import FakeVault
from tests.app.terminal import HOLDFAST, bash, in_scratch, script, turn, typed
from tests.egress.rigs import _request as ask_there
from tests.egress.upstream import World


def _typed(*words: str) -> str:
    done = subprocess.run([*HOLDFAST, *in_scratch(words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_living_proxy_is_told(tmp_path: Path, holdfast_home: Path) -> None:
    world = World(tmp_path)
    egress = ProxyEgress(
        holdfast_home / "egress",
        FakeVault({}, SystemClock()),
        bundle=str(world.bundle),
        network=part(world.tables),
    )
    session_id = ""
    try:
        one, two = Place("one.test", 443), Place("two.test", 443)
        for number, place in enumerate((one, two)):
            world.serve(place.host, f"93.184.216.{number + 1}")
        model = script(tmp_path / "m.json", bash("true"), turn(text="Done."))
        words = ("--session-id", "k", "--no-sandbox", "--allow-host", "one.test", "--max-turns", "1")
        typed("run", "x", "--scratch", "--model", model, *words).went(4)  # it is not done: its proxy lives on
        session_id = next((holdfast_home / "workspaces").iterdir()).name
        policy = EgressPolicy(allow=(Destination("one.test"),))
        gateway = await egress.open(session_id, policy, uid=os.getuid())
        door = Path(gateway.socket)
        assert (ask_there(door, one, ""), ask_there(door, two, "")) == ("allowed", "refused")
        _typed("egress", "k", "--allow", "two.test", "--deny", "one.test", "--no-wake")
        assert (ask_there(door, one, ""), ask_there(door, two, "")) == ("refused", "allowed")
    finally:
        if session_id:
            await egress.forget(session_id)
        world.close()
