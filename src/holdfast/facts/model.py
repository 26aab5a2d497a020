"""What was asked of a model and what it answered. Streamed deltas are never here (S13)."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.facts.base import Content, Fact, Usage

Purpose = Literal["turn", "compaction", "handoff"]
"""What a request is for: the agent's next turn, a summary (S16), the note for a reset. Each counts its own
responses."""

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal"]


class ModelRequestStart(Fact, frozen=True, tag="span.model_request_start"):
    """One attempt begins; its money is reserved by this very event (S13, S15).

    `inputs_through` is the last sequence number that the model will see. `attempt` counts the tries
    since the last response, from 1. `reserved_pico` is None when the model has no price. `through_seq`,
    of a compaction or handoff, is the last event that it covers, fixed here (S16).
    """

    purpose: Purpose
    model: str
    attempt: int
    inputs_through: int
    max_output_tokens: int
    reserved_pico: int | None = None
    window_digest: str = ""
    input_tokens_estimate: int = 0
    through_seq: int = 0


class ModelRequestEnd(Fact, frozen=True, tag="span.model_request_end"):
    """That attempt ended; its reservation is settled by this very event.

    `presumed` is the outcome of an attempt that died with its brain: it is charged its reservation.
    `cost_pico` is None when unknown, never 0 for that.
    """

    request_seq: int
    outcome: Literal["ok", "error", "cancelled", "presumed"]
    usage: Usage | None = None
    cost_pico: int | None = None
    stop_reason: StopReason | None = None
    error_kind: str = ""
    message: str = ""
    retry_after_s: float | None = None
    first_token_ms: float | None = None
    duration_ms: float | None = None


class AgentThinking(Fact, frozen=True, tag="agent.thinking"):
    """The model's reasoning, with the provider's signature, kept to be sent back.

    `provider`, `provider_id` and `details` are what that provider wants to see again beside the text;
    another provider is never given them.
    """

    request_seq: int
    text: str
    signature: str = ""
    provider: str = ""
    provider_id: str = ""
    details: dict[str, Any] = {}


class AgentMessage(Fact, frozen=True, tag="agent.message"):
    """The model's words. `provider`, `provider_id` and `details` are as in `AgentThinking`."""

    request_seq: int
    content: Content
    provider: str = ""
    provider_id: str = ""
    details: dict[str, Any] = {}


class AgentToolUse(Fact, frozen=True, tag="agent.tool_use"):
    """The model wishes a tool call. It has not run: that is `tool.dispatched` (S6).

    `malformed` holds the text of arguments that were not a JSON object; `input` is then empty.
    """

    request_seq: int
    call_id: str
    name: str
    input: dict[str, Any]
    provider_id: str = ""
    malformed: str = ""
    provider: str = ""
    details: dict[str, Any] = {}
