"""A session over a real proxy: what a person's word about a secret changes, from the log to the wire."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.brain.doors import Doors
from holdfast.facts.hands import EgressRecorded, SessionTainted
from holdfast.facts.session import Destination, EgressPolicy, SecretUse
from holdfast.hands.fake.calls import Files
from tests.brain.outside_stage import OutsideStage, bash
from tests.brain.stage import turn
from tests.egress.rigs import VALUES, ProxyRig
from tests.egress.rigs import _request as ask_there

ONE, TWO = (place.host for place in ProxyRig.places)
POLICY = EgressPolicy(allow=(Destination(TWO),), secrets=(SecretUse("ALPHA", (ONE,), variable="ALPHA_KEY"),))
READ, USE = bash(f"get {TWO}"), bash(f"use {ONE} ALPHA_KEY")


@dataclass
class RealStage(OutsideStage):
    """A stage whose commands make real requests over the socket that the hands were given."""

    def command(self, command: str, files: Files) -> tuple[int, str]:
        network = self.specs[-1].network
        if network is None:
            return 7, "unreachable"
        verb, host, *rest = command.split()
        place = next(place for place in ProxyRig.places if place.host == host)
        return 0, ask_there(Path(network.socket), place, network.env[rest[0]] if verb == "use" else "")


async def test_held_asked_allowed_and_used(tmp_path: Path) -> None:
    rig = ProxyRig(tmp_path)
    try:
        stage = RealStage([turn("", READ), turn("", USE), turn("", USE), turn("Done.")], policy=POLICY)
        stage.doors = _with(stage, rig)
        outcome = await stage.run()
        assert outcome.ended is not None
        assert outcome.ended.reason == "person"
        assert await stage.results() == ["allowed", "held"]
        assert (await stage.request()).action == f"use secret ALPHA for GET https://{ONE}/"
        await stage.intake.approve(await stage.item())
        outcome = await stage.wake()
        assert outcome.ended is not None
        assert outcome.ended.status == "done"
        assert await stage.results() == ["allowed", "held", "allowed"]
        noted = [seen for fact in await stage.facts(EgressRecorded) for seen in fact.seen]
        assert sum(seen.count for seen in noted if seen.verdict == "held") == 1
        assert sum(seen.count for seen in noted if seen.secret == "ALPHA" and seen.verdict == "allowed") == 1
        assert len(await stage.facts(SessionTainted)) == 1
        told = repr(await stage.events())
        assert not any(value in told for value in VALUES)
    finally:
        await rig.close()


async def test_denied_it_is_never_sent(tmp_path: Path) -> None:
    rig = ProxyRig(tmp_path)
    try:
        stage = RealStage([turn("", READ), turn("", USE), turn("", USE), turn("Done.")], policy=POLICY)
        stage.doors = _with(stage, rig)
        await stage.run()
        await stage.intake.deny(await stage.item())
        await stage.wake()
        assert await stage.results() == ["allowed", "held", "held"]
    finally:
        await rig.close()


def _with(stage: OutsideStage, rig: ProxyRig) -> Doors:
    """The doors of a stage, with a real way outside."""
    return replace(stage.doors, egress=rig.egress, uid=lambda workspace: rig.uid)
