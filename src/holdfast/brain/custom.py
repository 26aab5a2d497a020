"""The door to tools of the embedding program: functions that run in the brain's own process."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.facts.session import CustomTool


class CustomResult(msgspec.Struct, frozen=True):
    """How a call ended. `unknown` says that nobody can tell: it ran over its time and may still run."""

    ok: bool
    content: str
    unknown: bool = False


class ToolRunner(Protocol):
    """One tool. `spec` is what the log and the model are told of it."""

    @property
    def spec(self) -> CustomTool:
        """Its declaration, as it stands in the log of a session that has it."""
        ...

    async def run(self, call_id: str, value: dict[str, Any], key: str) -> CustomResult:
        """Do it. `key` stays the same when the call is repeated (S12). Raises nothing for a bad input."""
        ...

    async def probe(self, call_id: str, value: dict[str, Any], key: str) -> bool | None:
        """Whether that call happened; None when nobody can say."""
        ...
