"""The model with nerves: proper below its fill, in a hurry above it, calm again in a fresh context."""

from __future__ import annotations

import re
from typing import Any

import anyio
import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.facts.model import Purpose
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.proof.oracle.anxious import AnxiousModel
from holdfast.session.context.conversation import Message, TextPart, ToolCallPart, ToolResultPart
from holdfast.session.signs.features import text_marks

GOAL = Message("user", (TextPart("Write the parts."),))
LINE = 20_000


def request(messages: list[Message], responses: int, purpose: Purpose = "turn", **more: Any) -> ModelRequest:
    """A request that shows these messages."""
    return ModelRequest(purpose, "system", tuple(messages), (), 1_000, responses, 1, **more)


def parts_of(model: AnxiousModel, asked: ModelRequest) -> list[StreamPart]:
    """The whole stream."""

    async def run() -> list[StreamPart]:
        return [part async for part in model.stream(asked)]

    return anyio.run(run)


class Desk:
    """Files, and a conversation over them that can be begun anew."""

    def __init__(self, model: AnxiousModel) -> None:
        self.model = model
        self.files: dict[str, str] = {}
        self.messages = [GOAL]
        self.responses = 0

    def turn(self) -> str:
        """One response, its calls done. Returns its words; they end with a mark when it called nothing."""
        parts = parts_of(self.model, request(self.messages, self.responses))
        assert parts == parts_of(self.model, request(self.messages, self.responses)), "the same again"
        self.responses += 1
        text = "".join(part.text for part in parts if isinstance(part, TextDelta))
        names = [part.name for part in parts if isinstance(part, ToolCallStart)]
        if not names:
            assert isinstance(parts[-1], Finish)
            return f"{text} END"
        value = msgspec.json.decode("".join(part.fragment for part in parts if isinstance(part, ToolCallDelta)))
        call = ToolCallPart(f"c{self.responses}", names[0], value)
        self.messages.append(Message("assistant", (TextPart(text), call)))
        result = ToolResultPart(call.call_id, call.name, self.do(call.name, value))
        self.messages.append(Message("user", (result,)))
        return text

    def do(self, name: str, value: dict[str, Any]) -> str:
        """The effect of a call."""
        if name == "write":
            self.files[value["file_path"]] = value["content"]
        if name == "read":
            return self.files[value["file_path"]]
        if name == "grep":
            lines = [(path, text.split("\n")[0]) for path, text in self.files.items()]
            return "\n".join(f"{path}:1:{line}" for path, line in lines if re.match(value["pattern"], line))
        return "1"

    def to_the_end(self) -> list[str]:
        """Turns until it stops."""
        said: list[str] = []
        while not said or not said[-1].endswith("END"):
            said.append(self.turn())
            assert len(said) < 200
        return said


def test_it_works_properly_in_a_context_with_room() -> None:
    desk = Desk(AnxiousModel(0.9, line_tokens=1_000_000))
    said = desk.to_the_end()
    assert said[-1] == "Done: all 12 parts are written and checked. END"
    assert len(desk.files) == 12
    assert all(text.startswith("done ") for text in desk.files.values())
    assert not any(text_marks(text) for text in said)


def test_it_gets_anxious_and_a_fresh_context_mends_it() -> None:
    desk = Desk(AnxiousModel(0.5, line_tokens=LINE))
    said = desk.to_the_end()
    stubs = [path for path, text in desk.files.items() if text.startswith("TODO")]
    assert stubs
    assert "low on context" in said[-1]
    assert len(desk.files) < 12 or stubs
    for _ in range(12):  # one reset after the other
        desk.messages = [GOAL]
        said = desk.to_the_end()
        if said[-1].startswith("Done"):
            break
    assert said[-1] == "Done: all 12 parts are written and checked. END"
    assert all(text.startswith("done ") for text in desk.files.values())


def test_it_answers_a_handoff_by_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"done": {"$ref": "#/$defs/Lines"}, "next": {"type": "string"}},
        "$defs": {"Lines": {"type": "array", "items": {"type": "string"}}},
    }
    parts = parts_of(AnxiousModel(0.5), request([GOAL], 3, "handoff", output_schema=schema))
    value = msgspec.json.decode("".join(part.text for part in parts if isinstance(part, TextDelta)))
    assert list(value) == ["done", "next"]
    assert isinstance(value["done"], list)
    parts = parts_of(AnxiousModel(0.5), request([GOAL], 3, "compaction"))
    assert isinstance(parts[0], TextDelta)


def test_it_costs_no_more_than_it_said() -> None:
    model = AnxiousModel(0.5)
    asked = request([GOAL], 0)
    finish = parts_of(model, asked)[-1]
    assert isinstance(finish, Finish)
    worst, cost = model.worst_case_pico(asked), model.cost_pico(finish.usage)
    assert worst is not None
    assert cost is not None
    assert 0 < cost <= worst


@pytest.mark.parametrize("name", ["anxious:", "anxious:x", "anxious:0", "anxious:1.5", "anxious:nan"])
def test_a_wrong_fill_is_told(name: str) -> None:
    with pytest.raises(UsageError, match=r"anxious:0\.7"):
        AnxiousModel.from_name(name, 1_000)


def test_its_name() -> None:
    assert AnxiousModel.from_name("anxious:0.7", 1_000).name == "anxious:0.7"
