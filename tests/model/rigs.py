"""A session with a real model client: brain, log and hands in memory, HTTP to a server behind the proxy."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import anyio

from holdfast.brain.wake import Outcome
from holdfast.clock import SystemClock
from holdfast.facts.model import AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import Limits
from holdfast.facts.tool import ToolDispatched
from holdfast.model.base import Model, ModelRequest, StreamPart, ToolSpec
from holdfast.model.direct.wire import Patience
from holdfast.model.names import Endpoint, parse_name
from holdfast.model.prices import OwnPrice
from holdfast.session.context.conversation import Message, Part, TextPart
from holdfast.session.money import price_per_mtok
from tests.brain.stage import Stage
from tests.support.fault_proxy import FaultProxy
from tests.support.model_server import ModelServer

FAMILIES = {
    "anthropic": ("anthropic:claude-sonnet-5-5", "anthropic", ""),
    "openai": ("openai:gpt-5.6", "openai", "/v1"),
    "openai-chat": ("openai-chat:gpt-4.1", "openai", "/v1"),
    "google": ("google:gemini-3.1-pro-preview", "google", ""),
}
"""family → the model asked for, the module of its client, the path of its API."""

KEY = "key-of-a-test-0123456789"

PRICE = OwnPrice(price_per_mtok(3.0, 15.0, 0.3, 3.75))

BUDGET_PICO = 10**14

HURRY = 20.0
"""How much faster the time of these tests passes."""

PATIENCE = Patience(connect_s=20.0, first_s=400.0, between_s=400.0)

IMPATIENCE = Patience(connect_s=20.0, first_s=20.0, between_s=10.0)
"""One second and half a second of real time."""

BASH = ToolSpec(
    "bash", "run a command", {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
)


class HastyClock(SystemClock):
    """Time that passes faster, so that a wait that was asked for is waited for, and does not take long."""

    def __init__(self) -> None:
        self._began_us = super().now_us()
        self._began_s = super().monotonic_s()

    def now_us(self) -> int:
        """Wall time, begun now."""
        return self._began_us + round((self.monotonic_s() - self._began_s) * 1_000_000)

    def monotonic_s(self) -> float:
        """Hasty seconds."""
        return self._began_s + (super().monotonic_s() - self._began_s) * HURRY

    async def sleep(self, seconds: float) -> None:
        """Return after so many hasty seconds."""
        await anyio.sleep(seconds / HURRY)


def connect(name: str, module: str, base_url: str, clock: SystemClock, patience: Patience = PATIENCE) -> Model:
    """A model of a family, at that address."""
    family = importlib.import_module(f"holdfast.model.direct.{module}")
    endpoint = Endpoint(parse_name(name), base_url, KEY, "TEST_API_KEY")
    model: Model = family.connect(endpoint, PRICE, clock, patience)
    return model


USAGE = {
    "input_tokens": 100,
    "output_tokens": 20,
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "promptTokenCount": 100,
    "candidatesTokenCount": 20,
    "totalTokenCount": 120,
}

COMMAND = "make -C /workspace all && echo 'it is \"done\"'"


def tool_turn(**more: Any) -> list[dict[str, Any]]:
    """A turn that calls `bash`, and the last one after its result."""
    call = {"name": "bash", "arguments": {"command": COMMAND}, "id": "call_of_the_server_1"}
    first = {"content": "I build.", "toolCalls": [call], "usage": USAGE, **more}
    last = {"content": "Built.", "usage": USAGE}
    return [
        {"match": {"userMessage": "the goal", "hasToolResult": False}, "response": first},
        {"match": {"userMessage": "the goal", "hasToolResult": True}, "response": last},
    ]


def request(*messages: Message, **more: Any) -> ModelRequest:
    """A request with one tool."""
    return ModelRequest("turn", "the prompt", messages, (BASH,), 4_096, 0, 1, 50, **more)


def user(*parts: Part) -> Message:
    """What a person says, after the goal."""
    return Message("user", (TextPart("the goal"), *parts))


@dataclass
class Rig:
    """One family. `stage` is the session, `proxy` stands between it and `server`."""

    family: str
    server: ModelServer
    proxy: FaultProxy

    def __post_init__(self) -> None:
        name, module, path = FAMILIES[self.family]
        self.clock = HastyClock()
        self.model = connect(name, module, self.proxy.url + path, self.clock)
        self.stage = Stage([], limits=Limits(budget_pico=BUDGET_PICO), clock=self.clock)
        self.stage.doors = replace(self.stage.doors, model=lambda name: self.model)

    async def impatient(self, patience: Patience = IMPATIENCE) -> None:
        """From now on, less patience. The library is loaded by a first request: that is not what is timed."""
        self.server.load(*tool_turn())
        await self.ask(request(user()))
        self.proxy.seen.clear()
        name, module, path = FAMILIES[self.family]
        self.model = connect(name, module, self.proxy.url + path, self.clock, patience=patience)

    async def run(self) -> Outcome:
        """Open the session and run it to its end."""
        return await self.stage.run()

    async def ask(self, asked: ModelRequest) -> list[StreamPart]:
        """One request beside the session."""
        stream: AsyncIterator[StreamPart] = self.model.stream(asked)
        return [part async for part in stream]

    async def starts(self) -> list[ModelRequestStart]:
        """The attempts of the log."""
        return await self.stage.facts(ModelRequestStart)

    async def ends(self) -> list[ModelRequestEnd]:
        """How they ended."""
        return await self.stage.facts(ModelRequestEnd)

    async def check_books(self, *, refused: int = 0) -> None:
        """Log, proxy and server count the same requests, no money is held, and what was spent is what they cost.

        `refused` requests never reached the server.
        """
        starts, ends = await self.starts(), await self.ends()
        assert len(starts) == len(ends) == len(self.proxy.seen)
        assert len(self.server.journal()) == len(starts) - refused
        (account,) = await self.stage.store.accounts()
        assert account.reserved_pico == 0
        assert account.spent_pico == sum(end.cost_pico or 0 for end in ends)
        for start, end in zip(starts, ends, strict=True):
            assert start.reserved_pico is not None
            assert end.cost_pico is not None
            assert end.cost_pico <= start.reserved_pico

    async def check_calls(self) -> None:
        """Every call that was dispatched is one that the server sent, whole."""
        uses = {use.call_id: use for use in await self.stage.facts(AgentToolUse)}
        for dispatched in await self.stage.facts(ToolDispatched):
            assert uses[dispatched.call_id].input == {"command": COMMAND}
