"""How much a model may reason, in the words of each provider."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.session.context.conversation import Message, TextPart, ThinkingPart
from tests.model.rigs import FAMILIES, Rig, connect, request, tool_turn, user

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")


async def sent(rig: Rig, model: str, thinking: str, **more: Any) -> Any:
    """What goes over the wire when that model is asked to reason that much."""
    _, module, path = FAMILIES[rig.family]
    rig.server.load(*tool_turn())
    rig.model = connect(model, module, rig.proxy.url + path, rig.clock)
    await rig.ask(request(user(), thinking=thinking, **more))
    return rig.proxy.seen[-1].json


@pytest.mark.parametrize("rig", ["anthropic"], indirect=True)
async def test_anthropic_newer_models_take_a_level(rig: Rig) -> None:
    for level in ("low", "medium", "high"):
        body = await sent(rig, "anthropic:claude-sonnet-5-5", level)
        assert body["thinking"]["type"] == "adaptive"
        assert body["output_config"]["effort"] == level
        # A compacted context is another prefix: reasoning bound to the old one is dropped there, not refused.
        assert body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
        assert "thinking-binding" in rig.proxy.seen[-1].headers["anthropic-beta"]
    assert (await sent(rig, "anthropic:claude-sonnet-5-5", "off")).get("thinking", {}).get("type") != "adaptive"


@pytest.mark.parametrize("rig", ["anthropic"], indirect=True)
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
async def test_anthropic_older_models_take_tokens_that_fit_the_response_limit(rig: Rig) -> None:
    found = [(await sent(rig, "anthropic:claude-haiku-4-5", level))["thinking"] for level in ("low", "high")]
    assert [thinking["type"] for thinking in found] == ["enabled", "enabled"]
    assert 1_024 <= found[0]["budget_tokens"] <= found[1]["budget_tokens"] < 4_096
    assert "thinking" not in await sent(rig, "anthropic:claude-haiku-4-5", "")
    assert "thinking" not in await sent(rig, "anthropic:claude-haiku-4-5", "off")


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
async def test_openai_takes_an_effort(rig: Rig) -> None:
    for level in ("low", "medium", "high"):
        assert (await sent(rig, "openai:gpt-5.6", level))["reasoning"]["effort"] == level
    assert (await sent(rig, "openai:gpt-5.6", "off"))["reasoning"]["effort"] == "none"
    assert "effort" not in (await sent(rig, "openai:gpt-5.6", "")).get("reasoning", {})


@pytest.mark.parametrize("rig", ["openai-chat"], indirect=True)
async def test_chat_takes_an_effort_where_the_model_reasons(rig: Rig) -> None:
    assert (await sent(rig, "openai-chat:gpt-5.6", "low"))["reasoning_effort"] == "low"
    assert "reasoning_effort" not in await sent(rig, "openai-chat:gpt-4.1", "low")
    assert "reasoning_effort" not in await sent(rig, "openai-chat:gpt-5.6", "")


@pytest.mark.parametrize("rig", ["google"], indirect=True)
async def test_google_takes_a_level(rig: Rig) -> None:
    levels = []
    for level in ("low", "high"):
        body = await sent(rig, "google:gemini-3.1-pro-preview", level)
        config = body["generationConfig"]["thinkingConfig"]
        levels.append(str(config.get("thinkingLevel") or config["thinking_level"]).lower())
        assert config.get("includeThoughts") or config["include_thoughts"]
    assert levels == ["low", "high"]
    assert "thinkingConfig" not in (await sent(rig, "google:gemini-3.1-pro-preview", ""))["generationConfig"]


async def test_no_level_breaks_a_request_after_reasoning_was_dropped(rig: Rig) -> None:
    """A fallback to this model in the middle: the reasoning before is another's, and gone."""
    name = FAMILIES[rig.family][0]
    for level in ("", "off", "low", "medium", "high"):
        _, module, path = FAMILIES[rig.family]
        rig.server.load(*tool_turn())
        rig.model = connect(name, module, rig.proxy.url + path, rig.clock)
        said = Message("assistant", (ThinkingPart("hm", "c2ln", "another"), TextPart("I called.")))
        await rig.ask(request(user(), said, user(), thinking=level))
