"""Searchable text of events: one table of fact type → words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from msgspec.structs import astuple

from holdfast.facts import model, people, session, task, tool
from holdfast.facts.base import Fact, text_of
from holdfast.facts.mission import WorkSubmitted

Kind = Literal[
    "goal", "user message", "agent message", "tool call", "tool result", "question", "answer", "files", "error"
]

TEXT_CHARS = 16_000
"""Characters of a message, or of the arguments of a call, that are indexed."""

RESULT_CHARS = 4_000
"""Characters of a tool result that are indexed: three quarters of them from its beginning, the rest from its end."""

START, END = "\ue000", "\ue001"
"""Marks around matching words in an excerpt. Indexed text contains neither."""

_DROPPED = str.maketrans({START: " ", END: " ", "\0": " "})


class Words(NamedTuple):
    """Searchable text of one event, and the names of files in it. An event without either is not indexed."""

    kind: Kind
    text: str
    files: str = ""


def words_of(fact: Fact) -> Words | None:
    """Return the searchable text of a fact, None if it has none."""
    read = WORDS.get(type(fact))
    found = read(fact) if read is not None else None
    if found is None or not (found.text.strip() or found.files):
        return None
    most = RESULT_CHARS if found.kind == "tool result" else TEXT_CHARS
    files = found.files[:TEXT_CHARS].translate(_DROPPED)
    text, last = found.text, most // 4
    if len(text) > most:
        text = f"{text[: most - last]}\n…\n{text[-last:]}"
    return Words(found.kind, text.translate(_DROPPED), files)


def _values(given: dict[str, Any]) -> str:
    """The arguments of a call, or other structured data, as text."""
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in given.items()
    )


def _lines(*parts: str | Iterable[str]) -> str:
    flat = (line for part in parts for line in ((part,) if isinstance(part, str) else part))
    return "\n".join(line for line in flat if line)


Read = Callable[[Any], Words]

WORDS: dict[type[Fact], Read] = {
    session.SessionCreated: lambda fact: Words(
        "goal", _lines(fact.goal, fact.key, fact.agent.name, fact.agent.model, fact.criteria)
    ),
    session.SessionForked: lambda fact: Words("goal", _lines(fact.goal, fact.key, fact.name, fact.model)),
    session.SessionError: lambda fact: Words("error", _lines(fact.kind, fact.message)),
    people.UserMessage: lambda fact: Words("user message", text_of(fact.content)),
    people.UserInterrupt: lambda fact: Words("user message", fact.reason),
    people.UserPause: lambda fact: Words("user message", fact.reason),
    people.UserResume: lambda fact: Words("user message", fact.reason),
    people.UserCancel: lambda fact: Words("user message", fact.reason),
    people.ApprovalRequested: lambda fact: Words(
        "question", _lines(fact.title, fact.action, fact.why, fact.touches, fact.options)
    ),
    people.ApprovalDecided: lambda fact: Words("answer", fact.note),
    model.AgentMessage: lambda fact: Words("agent message", text_of(fact.content)),
    model.ContextCompacted: lambda fact: Words("agent message", fact.summary),
    model.ContextReset: lambda fact: Words("agent message", _lines(*astuple(fact.handoff)), "\n".join(fact.files)),
    model.AgentToolUse: lambda fact: Words("tool call", _lines(fact.name, fact.malformed or _values(fact.input))),
    tool.ToolResult: lambda fact: Words("tool result", fact.content, "\n".join(each.path for each in fact.files)),
    tool.ToolOutcomeUnknown: lambda fact: Words("tool result", fact.content),
    tool.JobStarted: lambda fact: Words("tool call", _lines(fact.name, fact.command)),
    tool.JobLine: lambda fact: Words("tool result", fact.content),
    tool.JobEnded: lambda fact: Words("tool result", fact.content),
    tool.ServiceStarted: lambda fact: Words("tool call", _lines(fact.name, fact.command)),
    tool.ServiceEnded: lambda fact: Words("tool result", fact.content),
    tool.HookRan: lambda fact: Words("tool result", _lines(fact.command, fact.content)),
    task.TaskInspected: lambda fact: Words("files", "", "\n".join(fact.files)),
    task.RepoConflicted: lambda fact: Words("files", "", "\n".join(fact.paths)),
    WorkSubmitted: lambda fact: Words("agent message", _values(fact.body)),
}
"""Fact type → searchable text. Reasoning is not indexed: the messages and calls that follow from it are."""
