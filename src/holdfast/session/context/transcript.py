"""A stretch of the log as text, for whoever summarises it: the raw words, never an earlier summary (S16). Pure.

Every entry is headed by its position, so that a note can name it and `search_log` can find it. Pictures and files are
named by text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.facts.base import Fact, text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.session import SessionForked
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserMessage
from holdfast.session.context.notes import FORKED_CALL, note_of, result_text
from holdfast.session.context.render import action_text
from holdfast.session.state import HandoffItem, Item, ResponseItem, SummaryItem

SHORTEST = 200
"""No entry is cut to fewer characters than this."""


def raw(items: Iterable[Item]) -> list[Item]:
    """The items that are what happened, without what stands for older turns."""
    return [item for item in items if not isinstance(item, SummaryItem | HandoffItem)]


def transcript(items: Iterable[Item], facts: Mapping[int, Fact], characters: int) -> str:
    """What happened, in order, in about so many characters: only the middle of the longest entries is left out."""
    entries = [entry for item in raw(items) for entry in _entries(item, facts)]
    longest = max((len(text) for _, text in entries), default=0)
    heads = sum(len(head) + 2 for head, _ in entries)
    while longest > SHORTEST and heads + sum(min(len(text), longest) for _, text in entries) > characters:
        longest = max(SHORTEST, longest * 3 // 4)
    return "\n\n".join(f"{head}\n{_cut(text, longest)}" for head, text in entries)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters are left out here …]\n{text[-half:]}"


def _entries(item: Item, facts: Mapping[int, Fact]) -> list[tuple[str, str]]:
    if not isinstance(item, ResponseItem):
        return [_entry(item.seq, facts.get(item.seq))]
    out = [_entry(seq, facts.get(seq)) for seq in item.parts]
    return out + [_end(seq, facts.get(seq)) for seq in item.results if seq]


def _end(seq: int, fact: Fact | None) -> tuple[str, str]:
    """The end of a call, which a fork may have found open (S22)."""
    return (f"[{seq}] the harness said:", FORKED_CALL) if isinstance(fact, SessionForked) else _entry(seq, fact)


def _entry(seq: int, fact: Fact | None) -> tuple[str, str]:
    match fact:
        case UserMessage(content=content):
            return f"[{seq}] a person said:", text_of(content)
        case AgentThinking(text=text):
            return f"[{seq}] the agent thought:", text
        case AgentMessage(content=content):
            return f"[{seq}] the agent said:", text_of(content)
        case AgentToolUse(name=name, input=value, call_id=call_id, malformed=malformed):
            return f"[{seq}] the agent asked for call {call_id}:", action_text(name, value) + malformed
        case ToolResult(call_id=call_id, outcome=outcome, untrusted=untrusted):
            stranger = ", from outside, maybe by strangers" if untrusted else ""
            return f"[{seq}] call {call_id} ended ({outcome}{stranger}):", result_text(fact)
        case ToolOutcomeUnknown(call_id=call_id, content=content):
            return f"[{seq}] call {call_id}: nobody knows what became of it:", content
        case None:
            return f"[{seq}]", "(this was erased)"
        case _:
            return f"[{seq}] the harness said:", note_of(fact) or "(this was erased)"
