"""A Python program says what a session may talk to, and which secrets it may use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import UsageError
from holdfast.facts.session import SessionCreated
from tests.app.terminal import script, turn
from tests.vault.conftest import Load
from tests.vault.test_tables import WHOLE


async def test_a_run_takes_hosts_registries_and_secrets(tmp_path: Path, load: Load) -> None:
    load(WHOLE)
    agent = holdfast.Agent(model=script(tmp_path / "m.json", turn(text="Done.")), tools=["search_log"])
    async with holdfast.open() as hf:
        await hf.run(agent, "x", key="k", allow_hosts=["a.example.com:99"], registries=True, secrets=["forge"])
        opening, *_ = [event async for event in hf.events("k")]
        first = opening.fact
        assert isinstance(first, SessionCreated)
        assert first.egress.registries
        assert ("a.example.com", (99,)) in [(place.host, place.ports) for place in first.egress.allow]
        assert [use.name for use in first.egress.secrets] == ["forge"]
        assert first.hands.memory_bytes == 3 << 29
        assert first.environment.setup == ("npm ci",)
        assert [searcher.name for searcher in first.searchers] == ["one"]
        with pytest.raises(UsageError, match="holdfast egress k --allow HOST"):
            await hf.run(agent, "x", key="k", allow_hosts=["b.example.com"])


BAD: list[tuple[Mapping[str, Any], str]] = [
    ({"allow_hosts": "a.example.com"}, "must be a list of names"),
    ({"allow_hosts": ["*.example.com"]}, "name each host exactly"),
    ({"secrets": "forge"}, "must be a list of names"),
    ({"secrets": ["forg"]}, "did you mean 'forge'"),
]


@pytest.mark.parametrize(("options", "why"), BAD)
async def test_what_cannot_be_meant_opens_nothing(
    tmp_path: Path, load: Load, options: Mapping[str, Any], why: str
) -> None:
    load(WHOLE)
    agent = holdfast.Agent(model=script(tmp_path / "m.json", turn(text="Done.")), tools=["search_log"])
    async with holdfast.open() as hf:
        with pytest.raises(UsageError, match=why):
            await hf.run(agent, "x", **options)
        assert await hf.sessions() == []
