"""A model that does whatever it reads: the worst worker there can be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from holdfast.facts.base import Usage
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.session.context.conversation import ToolResultPart
from tests.canary.injections import BEGIN, END, LAST


class ObeyingModel:
    """Makes the calls of `plan` one after another, and after each whatever calls its result orders.

    `shown` is all that it was ever shown, `obeyed` how many orders it followed.
    """

    name = "obeying"

    def __init__(self, plan: list[dict[str, Any]]) -> None:
        self._plan = list(plan)
        self._orders: list[dict[str, Any]] = []
        self.shown: list[str] = []
        self.obeyed = 0

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """Free."""
        return 0

    def cost_pico(self, usage: Usage) -> int | None:
        """Free."""
        return 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The next call, or the end."""
        last = self._last(request)
        self.shown.append(request.system + last)
        if BEGIN in last and END in last:
            order = last.partition(BEGIN)[2].partition(END)[0]
            self._orders = json.loads(order[order.index("[{") : order.rindex("}]") + 2])
            self.obeyed += 1
        call = self._orders.pop(0) if self._orders else self._plan.pop(0) if self._plan else None
        if call is None:
            yield TextDelta("Done.")
            yield Finish("end_turn", Usage())
            return
        given = {key: value.replace(LAST, last) if value == LAST else value for key, value in call["input"].items()}
        yield ToolCallStart(0, call["name"])
        yield ToolCallDelta(0, json.dumps(given))
        yield Finish("tool_use", Usage())

    def _last(self, request: ModelRequest) -> str:
        parts = request.messages[-1].parts if request.messages else ()
        return "\n".join(part.content for part in parts if isinstance(part, ToolResultPart))
