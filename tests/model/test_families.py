"""The four families over HTTP, through a whole session: what is asked, what is kept, what it costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.facts.base import Usage, text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.tool import ToolDispatched
from holdfast.model.base import Finish, TextDelta
from holdfast.session.context.conversation import (
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tests.model.rigs import COMMAND, KEY, USAGE, Rig, request, tool_turn, user
from tests.support.fault_proxy import Fault

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200, 240))


def whole(body: Any) -> str:
    """The body of a request as text."""
    return json.dumps(body, ensure_ascii=False)


async def test_a_tool_turn_is_dispatched_once_and_paid_for(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    outcome = await rig.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    (use,) = await rig.stage.facts(AgentToolUse)
    assert (use.name, use.input) == ("bash", {"command": COMMAND})
    assert len(await rig.stage.facts(ToolDispatched)) == 1
    said = [text_of(fact.content) for fact in await rig.stage.facts(AgentMessage)]
    assert said == ["I build.", "Built."]
    ends = await rig.ends()
    assert [(end.outcome, end.stop_reason) for end in ends] == [("ok", "tool_use"), ("ok", "end_turn")]
    assert [end.usage for end in ends] == [Usage(100, 20)] * 2
    assert [end.cost_pico for end in ends] == [600_000_000] * 2
    await rig.check_books()
    await rig.check_calls()


async def test_the_result_stands_with_its_call_under_the_id_of_the_provider(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    await rig.run()
    first, second = (whole(exchange.json) for exchange in rig.proxy.seen)
    assert "call_of_the_server_1" not in first
    assert second.count('"call_of_the_server_1"') >= 2 or rig.family == "google"
    assert "make -C /workspace all" in second


async def test_no_library_asks_a_second_time_by_itself(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.server.fail_next(500, message="it broke", type="server_error")
    await rig.run()
    assert [end.outcome for end in await rig.ends()] == ["error", "ok", "ok"]
    await rig.check_books()


THOUGHT = "It has to be built first, so I look for a Makefile."


async def test_reasoning_is_kept_and_given_back_as_its_provider_wants_it(rig: Rig) -> None:
    rig.server.load(*tool_turn(reasoning=THOUGHT, reasoningSignature="c2lnbmVk", redactedThinking=["aGlkZGVu"]))
    await rig.run()
    thoughts = await rig.stage.facts(AgentThinking)
    assert [thought.text for thought in thoughts if thought.text] == [THOUGHT]
    assert {thought.provider for thought in thoughts} == {rig.family}
    back = rig.proxy.seen[1].json
    if rig.family == "anthropic":
        blocks = next(message["content"] for message in back["messages"] if message["role"] == "assistant")
        kept = [block for block in blocks if "thinking" in block["type"]]
        assert {"type": "thinking", "thinking": THOUGHT, "signature": "c2lnbmVk"} in kept
        assert {"type": "redacted_thinking", "data": "aGlkZGVu"} in kept
        assert blocks[-1]["type"] == "tool_use"
    elif rig.family == "openai":
        (item,) = [item for item in back["input"] if item.get("type") == "reasoning"]
        assert item["id"] == thoughts[0].provider_id
        assert item["encrypted_content"] == thoughts[0].signature != ""
        assert item["summary"] == [{"text": THOUGHT, "type": "summary_text"}]
        assert back["store"] is False
        assert "reasoning.encrypted_content" in back["include"]
    elif rig.family == "openai-chat":
        (message,) = [message for message in back["messages"] if message["role"] == "assistant"]
        assert message["reasoning_content"] == THOUGHT
    else:
        parts = next(content["parts"] for content in back["contents"] if content["role"] == "model")
        assert parts[0]["thought"] is True
        assert parts[0]["text"] == THOUGHT


@pytest.mark.parametrize("rig", ["google"], indirect=True)
async def test_the_signature_of_a_google_call_comes_back_with_the_call(rig: Rig) -> None:

    def sign(body: bytes) -> bytes:
        signed = body.replace(b'"functionCall"', b'"thoughtSignature":"c2lnbmVk","functionCall"', 1)
        assert signed != body
        return signed

    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(rewrite=sign)]
    await rig.run()
    parts = [part for content in rig.proxy.seen[1].json["contents"] for part in content["parts"]]
    (call,) = [part for part in parts if "functionCall" in part]
    assert call["thoughtSignature"] == "c2lnbmVk"


async def test_reasoning_of_another_provider_is_never_sent(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    other = "google" if rig.family != "google" else "anthropic"
    said = Message(
        "assistant",
        (
            ThinkingPart("a secret thought", "c2VjcmV0", other, "rs_of_another", {"raw_content": ["raw"]}),
            TextPart("I call.", other, "msg_of_another", {"thought_signature": "c2VjcmV0"}),
            ToolCallPart("7.0", "bash", {"command": "ls"}, "call_of_another", other, {"id": "fc_of_another"}),
        ),
    )
    result = user(ToolResultPart("7.0", "bash", "a b c", provider_id="call_of_another"))
    await rig.ask(request(user(), said, result))
    sent = whole(rig.proxy.seen[0].json)
    assert "I call." in sent
    assert "a b c" in sent
    for foreign in ("secret thought", "c2VjcmV0", "of_another", "raw"):
        assert foreign not in sent


@pytest.mark.parametrize("rig", ["anthropic", "openai"], indirect=True)
async def test_reasoning_that_was_cut_off_before_it_was_signed_is_not_sent(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    said = Message("assistant", (ThinkingPart("half a thou", "", rig.family), TextPart("I was")))
    await rig.ask(request(user(), said, user()))
    assert "half a thou" not in whole(rig.proxy.seen[0].json)


async def test_reasoning_that_nothing_followed_is_not_sent(rig: Rig) -> None:
    """It was interrupted, or ran into the limit: providers refuse an answer that ends in reasoning."""
    rig.server.load(*tool_turn())
    thought = ThinkingPart("a lonely thought", "c2lnbmVk", rig.family, "rs_1")
    await rig.ask(request(user(), Message("assistant", (thought,)), user(TextPart("go on"))))
    sent = whole(rig.proxy.seen[0].json)
    assert "lonely" not in sent
    assert "rs_1" not in sent
    assert "go on" in sent


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
async def test_reasoning_in_several_parts_is_one_item(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    first = ThinkingPart("First this.", "c2lnbmVk", rig.family, "rs_1")
    second = ThinkingPart("Then that.", "", rig.family, "rs_1")
    unsigned = ThinkingPart("Half a", "", rig.family, "rs_2")
    said = Message("assistant", (first, second, unsigned, TextPart("So.", rig.family, "msg_1")))
    await rig.ask(request(user(), said, user(TextPart("go on"))))
    (item,) = [item for item in rig.proxy.seen[0].json["input"] if item.get("type") == "reasoning"]
    assert [piece["text"] for piece in item["summary"]] == ["First this.", "Then that."]
    assert (item["id"], item["encrypted_content"]) == ("rs_1", "c2lnbmVk")


async def test_pictures_and_documents_reach_the_wire(rig: Rig) -> None:
    rig.server.load({"match": {"userMessage": "the goal"}, "response": {"content": "Seen."}})
    note = DocumentPart("text/plain", "naïve words".encode(), "notes.txt")
    parts = await rig.ask(
        request(user(ImagePart("image/png", PNG), note, DocumentPart("application/pdf", b"%PDF-1.7 words", "a.pdf")))
    )
    assert isinstance(parts[-1], Finish)
    sent = whole(rig.proxy.seen[0].json).replace("-", "+").replace("_", "/")
    assert "iVBORw0KGgrIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v" in sent
    assert "JVBERi0xLjcgd29yZHM" in sent
    assert "naïve words" in sent
    assert "notes.txt" in sent


async def test_the_answer_of_a_schema_is_asked_for_in_the_way_of_the_provider(rig: Rig) -> None:
    answer = {"verdict": "pass", "why": ["it builds"]}
    rig.server.load({"match": {"userMessage": "the goal"}, "response": {"content": json.dumps(answer)}})
    schema = {
        "type": "object",
        "properties": {"verdict": {"type": "string"}, "why": {"type": "array", "items": {"type": "string"}}},
        "required": ["verdict", "why"],
        "additionalProperties": False,
    }
    asked = request(user(), output_schema=schema)
    parts = await rig.ask(asked)
    assert json.loads("".join(part.text for part in parts if isinstance(part, TextDelta))) == answer
    sent = rig.proxy.seen[0].json
    places = {
        "anthropic": lambda: sent["output_config"]["format"]["schema"],
        "openai": lambda: sent["text"]["format"]["schema"],
        "openai-chat": lambda: sent["response_format"]["json_schema"]["schema"],
        "google": lambda: sent["generationConfig"]["responseJsonSchema"],
    }
    assert set(places[rig.family]()["properties"]) == {"verdict", "why"}


def marked(body: Any) -> list[str]:
    """What the cache marks of a request stand on, in order of the wire."""
    found = []
    for kind in ("tools", "system"):
        found += [kind for block in body[kind] if "cache_control" in block]
    for number, message in enumerate(body["messages"]):
        for place, block in enumerate(message["content"]):
            if "cache_control" in block:
                found.append(f"message {number} block {place} of {len(message['content'])}")
    return found


async def test_the_pinned_head_and_the_end_carry_cache_marks(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    await rig.stage.open()
    await rig.stage.post("send", "and be quick")
    await rig.stage.wake()
    first, second = (exchange.json for exchange in rig.proxy.seen)
    if rig.family == "anthropic":
        assert marked(first) == ["tools", "system", "message 0 block 0 of 2", "message 0 block 1 of 2"]
        assert marked(second) == ["tools", "system", "message 0 block 0 of 2", "message 2 block 0 of 1"]
        assert first["messages"][0]["content"][0]["text"] == "the goal"
        assert (first["system"], first["tools"]) == (second["system"], second["tools"])
    elif rig.family == "google":
        assert "cache" not in whole(first).lower()  # Google caches by itself
        assert first["systemInstruction"] == second["systemInstruction"]
    else:
        assert first["prompt_cache_key"] == second["prompt_cache_key"]
        assert first["prompt_cache_key"].startswith("holdfast-")


async def test_cached_tokens_are_not_counted_as_input(rig: Rig) -> None:
    fields = {
        "anthropic": (
            b'"input_tokens":100',
            b'"input_tokens":100,"cache_read_input_tokens":40,"cache_creation_input_tokens":7',
        ),
        "openai": (b'"input_tokens":100', b'"input_tokens":100,"input_tokens_details":{"cached_tokens":40}'),
        "openai-chat": (b'"prompt_tokens":100', b'"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":40}'),
        "google": (b'"promptTokenCount":100', b'"promptTokenCount":100,"cachedContentTokenCount":40'),
    }
    before, after = fields[rig.family]

    def cached(body: bytes) -> bytes:
        assert before in body
        return body.replace(before, after)

    rig.server.load({"match": {"userMessage": "the goal"}, "response": {"content": "Hello.", "usage": USAGE}})
    rig.proxy.faults = [Fault(rewrite=cached)]
    await rig.run()
    (end,) = await rig.ends()
    assert end.usage == (Usage(100, 20, 40, 7) if rig.family == "anthropic" else Usage(60, 20, 40))
    await rig.check_books()


async def test_no_key_is_in_the_log(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.server.fail_next(401, message=f"Incorrect API key provided: {KEY}", type="authentication_error")
    outcome = await rig.run()
    assert outcome.ended is not None
    events = await rig.stage.events()
    assert KEY not in "".join(repr(event) for event in events)
    assert any(KEY in value for value in rig.proxy.seen[0].headers.values())
