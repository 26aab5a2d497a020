"""Every model shows what the kit asks: the scripted one, and the four families over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.facts.base import Usage
from holdfast.model.base import Model, ModelRequest, StreamPart
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.testing.model import CHECKS, Said
from tests.model.rigs import USAGE, Rig

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")


class Counted:
    """A model that counts what it is asked."""

    def __init__(self, inner: Model) -> None:
        self.name = inner.name
        self.asked = 0
        self._inner = inner

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """As it says."""
        return self._inner.worst_case_pico(request)

    def cost_pico(self, usage: Usage) -> int | None:
        """As it says."""
        return self._inner.cost_pico(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Its parts."""
        self.asked += 1
        async for part in self._inner.stream(request):
            yield part


class ScriptedRig:
    """A scripted model; its script is written anew by each `answers`."""

    def __init__(self) -> None:
        self._turns: list[dict[str, object]] = []
        self._model: Counted | None = None

    @property
    def model(self) -> Counted:
        """The model of the script as it stands."""
        if self._model is None:
            price = {"input_per_mtok": 3.0, "output_per_mtok": 15.0}
            script = parse_script(json.dumps({"turns": self._turns, "price": price}))
            self._model = Counted(ScriptedModel(script, SystemClock()))
        return self._model

    def answers(self, *said: Said) -> None:
        """A script of these turns."""
        self._turns = [
            {
                "text": text,
                "thinking": thinking,
                "tool_calls": [{"name": name, "input": value} for name, value in calls],
            }
            for text, thinking, calls in said
        ]
        self._model = None

    def fails(self) -> None:
        """An error in the first turn."""
        self._turns[0]["error"] = "overloaded"

    def asked(self) -> int:
        """As counted."""
        return self.model.asked


class ServedRig:
    """A family, and the server behind it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    @property
    def model(self) -> Model:
        """The family's model."""
        return self._rig.model

    def answers(self, *said: Said) -> None:
        """One fixture each, served once."""
        fixtures = []
        for number, (text, thinking, calls) in enumerate(said):
            asked = [{"name": name, "arguments": value, "id": f"call_{at}"} for at, (name, value) in enumerate(calls)]
            turn: dict[str, Any] = {"content": text, "reasoning": thinking, "toolCalls": asked}
            turn = {"usage": USAGE, **{name: value for name, value in turn.items() if value}}
            fixtures.append({"match": {"userMessage": "the goal", "sequenceIndex": number}, "response": turn})
        self._rig.server.load(*fixtures)
        self._rig.proxy.seen.clear()

    def fails(self) -> None:
        """The server is overloaded once."""
        self._rig.server.fail_next(503, message="come back")

    def asked(self) -> int:
        """As the server wrote down itself, and the proxy saw."""
        assert len(self._rig.server.journal()) == len(self._rig.proxy.seen)
        return len(self._rig.proxy.seen)


@pytest.mark.parametrize("name", CHECKS)
async def test_scripted(name: str) -> None:
    await CHECKS[name](ScriptedRig())


@pytest.mark.parametrize("name", CHECKS)
async def test_over_http(name: str, rig: Rig) -> None:
    await CHECKS[name](ServedRig(rig))
