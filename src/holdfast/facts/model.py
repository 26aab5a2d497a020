"""Model requests and responses, and the compactions and resets of a context. Streamed deltas are never stored (S13)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.facts.base import Content, Fact, Usage

Purpose = Literal["turn", "compaction", "handoff"]
"""Purpose of a request: a turn of the agent, a summary (S16), or the handoff of a reset. Each counts its own
responses."""

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal"]


class ModelRequestStart(Fact, frozen=True, tag="span.model_request_start"):
    """An attempt at a model request began. This event reserves its money (S13, S15).

    `inputs_through` is the last sequence number that the model will see. `attempt` counts the attempts since the last
    response, from 1. `reserved_pico` is None when the model has no price. `through_seq` is the last event that a
    compaction or handoff covers, fixed here (S16).
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
    """The attempt ended. This event settles its reservation.

    The outcome `presumed` is that of an attempt that died with its brain: it is charged its reservation. An unknown
    `cost_pico` is None, never 0.
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
    """The model's reasoning with the provider's signature, kept to be sent back.

    `provider`, `provider_id`, and `details` are what that provider expects back beside the text; no other provider
    receives them.
    """

    request_seq: int
    text: str
    signature: str = ""
    provider: str = ""
    provider_id: str = ""
    details: dict[str, Any] = {}


class AgentMessage(Fact, frozen=True, tag="agent.message"):
    """Text of the model. `provider`, `provider_id`, and `details` are as in `AgentThinking`."""

    request_seq: int
    content: Content
    provider: str = ""
    provider_id: str = ""
    details: dict[str, Any] = {}


class AgentToolUse(Fact, frozen=True, tag="agent.tool_use"):
    """The model requested a tool call. It has not run: that is `tool.dispatched` (S6).

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


ResetCause = Literal["line", "phase", "anxiety", "loop", "no_progress", "compaction_failed", "asked"]
"""Cause of a reset: the token limit, the end of a phase, a sign, repeated failure of compaction, or a request."""

SignKind = Literal["anxiety", "loop", "no_progress"]


class Handoff(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Notes that a context leaves to its successor. Entries are only added: no note is made from another note."""

    done: tuple[str, ...] = ()
    workspace: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    dead_ends: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


class ContextCompacted(Fact, frozen=True, tag="context.compacted"):
    """The turns after `from_seq` up to `through_seq` are shown as `summary` from now on.

    The summary was made from the raw log of exactly that range, never from another summary (S16).
    """

    request_seq: int
    from_seq: int
    through_seq: int
    summary: str
    tokens_before: int = 0
    tokens_after: int = 0


class ContextReset(Fact, frozen=True, tag="context.reset"):
    """The conversation up to `through_seq` was dropped; the next one starts from the handoff.

    `request_seq` is 0 when code wrote the handoff because no model would. `files` are the digests of the files that the
    handoff mentions, as the outgoing context knew them (S18).
    """

    cause: ResetCause
    through_seq: int
    handoff: Handoff
    request_seq: int = 0
    detail: str = ""
    files: dict[str, str] = {}
    tokens_before: int = 0


class ContextSign(Fact, frozen=True, tag="context.sign"):
    """The log shows a sign of anxiety, a loop, or no progress. `evidence` are sequence numbers."""

    kind: SignKind
    detail: str
    evidence: tuple[int, ...] = ()


class ContextFailed(Fact, frozen=True, tag="context.failed"):
    """The response to a compaction or handoff request was unusable."""

    request_seq: int
    purpose: Literal["compaction", "handoff"]
    reason: str


class PhaseEnded(Fact, frozen=True, tag="context.phase_ended"):
    """The agent declared a phase of its work over and another begun."""

    call_id: str
    name: str
    next: str = ""


class RuleChecked(Fact, frozen=True, tag="rule.checked"):
    """The rules that code can check were checked against the events after `from_seq` through `through_seq`."""

    from_seq: int
    through_seq: int
    rules: int


class RuleBreached(Fact, frozen=True, tag="rule.breached"):
    """The events in `evidence` break a pinned rule."""

    rule: str
    detail: str
    evidence: tuple[int, ...] = ()
