"""Handoffs of a context, and transcripts of the log as input for handoffs and summaries (S16). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.facts import bounded_json
from holdfast.facts.base import Fact, text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse, Handoff
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionForked
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.context.notes import FORKED_CALL, note_of, result_text
from holdfast.session.context.text import action_text
from holdfast.session.state import HandoffItem, Item, ResponseItem, SummaryItem
from holdfast.session.tools import TOOLS, main_argument

SECTIONS = Handoff.__struct_fields__

LEFT_OUT = "(older entries were left out here; `search_log` finds what they were about)"
"""Replaces entries that were dropped for lack of room."""

ENTRIES_MAX = 40
"""Maximum entries of one section; the oldest are dropped."""

CHARACTERS_MAX = 24_000
"""Maximum characters of all entries, about 6,000 tokens; useful handoffs were 7,000 to 10,000 characters long."""

FILES_MAX = 60
_ENTRY_MAX = 400
_LISTED = 12
_WORDS_MAX = 1_500


def schema() -> dict[str, Any]:
    """Return the JSON schema for a handoff by a model: six required lists of sentences."""
    entry = {"type": "array", "items": {"type": "string"}}
    return {
        "type": "object",
        "properties": {name: dict(entry) for name in SECTIONS},
        "required": list(SECTIONS),
        "additionalProperties": False,
    }


def parse(text: str) -> Handoff | str:
    """Parse the handoff in a model's response; on failure, return the reason."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body.partition("\n")[2].removesuffix("```")
    try:
        note = bounded_json.decode_as(body, Handoff)
    except msgspec.DecodeError as error:
        return f"the note does not fit its schema: {error}"
    note = Handoff(**{name: _clean(getattr(note, name)) for name in SECTIONS})
    return note if note != Handoff() else "the note is empty"


def _clean(entries: Iterable[str]) -> tuple[str, ...]:
    """Drop blank entries, and those equal to the harness's own marker."""
    return tuple(entry for entry in entries if entry.strip() and entry != LEFT_OUT)


def merge(earlier: Handoff | None, new: Handoff, characters: int = CHARACTERS_MAX) -> Handoff:
    """Merge two handoffs: the earlier entries unchanged, then the new ones; without room, the oldest are dropped."""
    sections = {}
    for name in SECTIONS:
        old = getattr(earlier, name) if earlier is not None else ()
        sections[name] = list(dict.fromkeys((*old, *getattr(new, name))))
    for entries in sections.values():
        while len(_real(entries)) > ENTRIES_MAX:
            _drop_oldest(entries)
    while sum(len(entry) for entries in sections.values() for entry in entries) > characters:
        longest = max(sections.values(), key=lambda entries: (len(_real(entries)) > 1, sum(map(len, entries))))
        if len(_real(longest)) <= 1:
            break
        _drop_oldest(longest)
    return Handoff(**{name: tuple(entries) for name, entries in sections.items()})


def _real(entries: list[str]) -> list[str]:
    return [entry for entry in entries if entry != LEFT_OUT]


def _drop_oldest(entries: list[str]) -> None:
    kept = _real(entries)[1:]
    entries[:] = [LEFT_OUT, *kept]


def files_of(handoff: Handoff, seen: Mapping[str, str]) -> dict[str, str]:
    """Return the files that a handoff mentions, with the digests under which its context knew them (S18)."""
    text = "\n".join(entry for name in SECTIONS for entry in getattr(handoff, name))
    named = {path: digest for path, digest in seen.items() if path in text or path.rpartition("/")[2] in text}
    return dict(list(named.items())[-FILES_MAX:])


# --- handoffs without a model --------------------------------------------------------------------


def mechanical(items: Iterable[Item], facts: Mapping[int, Fact], why: str) -> Handoff:
    """Write a handoff by code: changed files, commands with their outcomes, questions, last messages."""
    changed: dict[str, str] = {}
    commands: dict[str, bool] = {}
    questions: dict[str, None] = {}
    words = ""
    for item in items:
        if not isinstance(item, ResponseItem):
            continue
        words = _said(item, facts) or words
        for call, end in _calls(item, facts):
            _take(call, end, changed, commands, questions)
    passed = [command for command, ok in commands.items() if ok]
    failing = [command for command, ok in commands.items() if not ok]
    return Handoff(
        done=(
            *(f"changed {path} ({digest})" for path, digest in list(changed.items())[-_LISTED:]),
            *(f"ran with success: {command}" for command in passed[-_LISTED:]),
        ),
        workspace=tuple(f"failed when last run: {command}" for command in failing[-_LISTED:]),
        open_questions=tuple(list(questions)[-_LISTED:]),
        next=(*((f"the last words before this note: {words}",) if words else ()), f"(written by the harness: {why})"),
    )


def _said(item: ResponseItem, facts: Mapping[int, Fact]) -> str:
    texts = [text_of(fact.content) for seq in item.parts if isinstance(fact := facts.get(seq), AgentMessage)]
    text = "\n".join(texts).strip()
    return text if len(text) <= _WORDS_MAX else f"… {text[-_WORDS_MAX:]}"


def _calls(item: ResponseItem, facts: Mapping[int, Fact]) -> list[tuple[AgentToolUse, Fact | None]]:
    uses = [fact for seq in item.parts if isinstance(fact := facts.get(seq), AgentToolUse)]
    return [(use, facts.get(seq)) for use, seq in zip(uses, item.results, strict=False)]


def _take(
    call: AgentToolUse, end: Fact | None, changed: dict[str, str], commands: dict[str, bool], questions: dict[str, None]
) -> None:
    tool = TOOLS.get(call.name)
    argument = _short(main_argument(tool, call.input)) if tool is not None else ""
    ran = isinstance(end, ToolResult) and end.outcome in ("ok", "error")
    ok = isinstance(end, ToolResult) and end.outcome == "ok"
    if call.name in ("write", "edit") and ok and isinstance(end, ToolResult):
        for file in end.files:
            changed.pop(file.path, None)
            changed[file.path] = f"SHA-256 {file.digest[:16]}"
    elif call.name == "bash" and argument and (ran or isinstance(end, ToolOutcomeUnknown)):
        commands.pop(argument, None)
        commands[argument] = ok
    elif call.name == "ask_person" and argument and not ok:
        questions[argument] = None


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _ENTRY_MAX else f"{flat[:_ENTRY_MAX]} …"


SHORTEST = 200
"""Minimum length to which an entry is cut, in characters."""


def raw(items: Iterable[Item]) -> list[Item]:
    """Return the items that are original events, without summaries and handoffs."""
    return [item for item in items if not isinstance(item, SummaryItem | HandoffItem)]


def transcript(items: Iterable[Item], facts: Mapping[int, Fact], characters: int) -> str:
    """Return a stretch of the log as text of about `characters` characters; the longest entries lose their middle."""
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
    """Return the end of a call, which may have been open at a fork (S22)."""
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
