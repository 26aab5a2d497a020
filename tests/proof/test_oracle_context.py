"""The oracle in contexts that are too small for its work: compacted and reset, it looks again and finishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.facts.model import ContextCompacted, ContextReset
from holdfast.facts.session import ContextPolicy, Limits
from holdfast.hands.fake.calls import Files
from holdfast.proof.oracle.session import OracleModel
from tests.brain.stage import Stage, WatchedModel
from tests.proof.made_library import MODULE
from tests.proof.oracle_session import FILE, QUICK, RUN_SUITE, VirtualClock, stripped_workspace

AT = f"/workspace/{FILE}"


def suite(command: str, files: Files) -> tuple[int, str]:
    """The whole suite passes when the module is the true one."""
    right = files[AT] == MODULE.encode()
    return (0, "passed") if command != RUN_SUITE or right else (1, "failed")


@pytest.mark.parametrize("strategy", ["compaction", "reset", "hybrid", "auto"])
async def test_it_goes_on_after_its_context_was_renewed(strategy: Any, tmp_path: Path) -> None:
    manifest = stripped_workspace(tmp_path)
    line = 1500
    policy = ContextPolicy(strategy=strategy, line_tokens=line, keep_tokens=400)
    stage = Stage([], limits=Limits(context=policy), effect=suite)
    stage.model = WatchedModel(OracleModel(manifest, RUN_SUITE, VirtualClock(), quick_command=QUICK))
    for path in tmp_path.rglob("*"):
        if path.is_file():
            stage.hands.files("/w")[f"/workspace/{path.relative_to(tmp_path)}"] = path.read_bytes()
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
    assert stage.hands.files("/w")[AT] == MODULE.encode()
    renewed = len(await stage.facts(ContextCompacted)) + len(await stage.facts(ContextReset))
    assert renewed >= 1
