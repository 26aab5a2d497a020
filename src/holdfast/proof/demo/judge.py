"""The judge of the demonstration: the library's own tests, on a clean copy, in fresh hands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio

from holdfast.app.compose import Runtime
from holdfast.clock import SystemClock
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, HandsSpec
from holdfast.ids import new_hands_id, system_entropy
from holdfast.proof.demo.material import Material
from holdfast.proof.rebuild.library import SuiteCounts, clean_copy, parse_counts, restored

TIMEOUT_S = 900.0
_EPOCH = 1
_CALL = "judge.0"


@dataclass(frozen=True)
class Verdict:
    """What the tests said. `identical` when the module is byte for byte the published one."""

    passed: bool
    counts: SuiteCounts
    identical: bool
    output: str


async def judge(runtime: Runtime, material: Material, session_id: str) -> Verdict:
    """Put the worked-on module into the published tree and run the suite there."""
    folder = runtime.home.workspaces / f"{session_id}-judge"
    worked = Path(material.workspace.path)
    clean_copy(material.library, worked, folder)
    workspace = Workspace(str(folder), True, read_only=material.workspace.read_only)
    spec = HandsSpec(
        session_id=f"{session_id}-judge",
        hands_id=new_hands_id(SystemClock().now_us(), system_entropy),
        workspace=workspace,
        read_only=workspace.read_only,
    )
    hands = await runtime.provider(workspace).provision(spec, _EPOCH)
    try:
        await hands.start(_EPOCH, _CALL, ExecRequest("bash", {"command": material.suite}, TIMEOUT_S))
        result = await hands.wait(_EPOCH, _CALL)
    finally:
        with anyio.CancelScope(shield=True):
            await hands.release(_EPOCH)
    identical = bool(restored(material.manifest, worked))
    return Verdict(result.ok, parse_counts(result.output), identical, result.output)
