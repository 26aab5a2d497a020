"""Token estimates, visible text, and actions rendered for approvers (S6, S21)."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.facts.base import Block, Content, Text
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import EgressPolicy, Environment, SessionCreated
from holdfast.patterns import lazy
from holdfast.session.tools import Tool
from holdfast.session.tools.effects import effects_of, told

BYTES_PER_TOKEN = 4
"""Usual rule of thumb for English and code."""

OVERHEAD_TOKENS = 8
"""Tokens of a message beside its text."""


def estimate(text: str) -> int:
    """Estimate the tokens of `text`."""
    return len(text) // BYTES_PER_TOKEN + OVERHEAD_TOKENS if text else 0


def estimate_pinned(created: SessionCreated) -> int:
    """Estimate the tokens that every context of a session includes (S17)."""
    return sum(estimate(text) for text in (created.goal, created.rules, created.agent.system, *created.criteria))


BLOCK_TOKENS = 1_600
"""Estimated tokens of an image or a page. Anthropic documents up to 1,600 per image, others are in that range."""


def estimate_content(content: Content) -> int:
    """Estimate the tokens of a message. Documents other than text are estimated by size, at 3 kB a page."""
    return sum([_estimate_block(block) for block in content])


def _estimate_block(block: Block) -> int:
    if isinstance(block, Text):
        return estimate(block.text)
    if block.media_type.startswith("text/"):
        return len(block.data) // BYTES_PER_TOKEN + OVERHEAD_TOKENS
    pages = 1 if block.media_type.startswith("image/") else max(1, len(block.data) // 3_000)
    return BLOCK_TOKENS * pages


def estimate_input(value: dict[str, Any]) -> int:
    """Estimate the tokens of a tool call's arguments."""
    return sum([len(key) + len(str(item)) for key, item in value.items()]) // BYTES_PER_TOKEN + OVERHEAD_TOKENS


_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))
"""Controls, format and bidirectional marks, surrogates, private use, unassigned, blanks, separators."""

_MARKS = frozenset(("Mn", "Mc", "Me"))

_BLANK = lazy(r"\b(?:BLANK|FILLER|NULL NOTEHEAD|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT)\b")
"""Default-ignorable and blank characters of the other categories, by their names, which Unicode never changes."""

_DRAWN = "BLANK SYMBOL"
"""U+2422 is visible despite the word in its name."""

MARKS_MAX = 4
"""Maximum combining marks on one character; more would reach over adjacent lines."""

_OTHER = lazy(r"[^\n\t -~]+")
"""Runs of characters other than plain ASCII."""

_OUTSIDE_STRINGS = lazy(r"[^ -~]")


@lru_cache(maxsize=4_096)
def is_hidden(character: str) -> bool:
    """Return True if a character is invisible or reorders others. A space is the only blank that is not hidden."""
    if character == " ":
        return False
    if unicodedata.category(character) in _HIDDEN:
        return True
    name = unicodedata.name(character, "")
    return _BLANK.search(name) is not None and name != _DRAWN


def visible(text: str) -> str:
    """Return `text` with each hidden character, and each combining mark without a base, as an escape such as `\\u202e`.

    Newlines and tabs stay. Two texts without backslashes never look the same because of a hidden character.
    """
    if text.isascii() and text.isprintable():
        return text
    return _OTHER.sub(_written_out, text)


def visible_line(text: str) -> str:
    """Return `visible` text on one line: newlines and tabs are escaped too, and spaces are not collapsed."""
    return visible(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def _written_out(run: re.Match[str]) -> str:
    before = run.string[run.start() - 1] if run.start() else " "
    based, marks, out = not before.isspace(), 0, []
    for character in run[0]:
        mark = unicodedata.category(character) in _MARKS
        marks = marks + 1 if mark else 0
        shows = not is_hidden(character) and (not mark or (based and marks <= MARKS_MAX))
        out.append(character if shows else _escape(character))
        based = shows
    return "".join(out)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def harmless(text: str) -> str:
    """Replace terminal control characters in text that no approval depends on; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def visible_json(line: str) -> str:
    """Escape the hidden characters in the strings of one line of JSON as `\\uXXXX`, without changing its value."""
    return line if line.isascii() and line.isprintable() else _OUTSIDE_STRINGS.sub(_json_escape, line)


def _json_escape(found: re.Match[str]) -> str:
    character = found[0]
    if not is_hidden(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def action_digest(name: str, value: dict[str, Any]) -> str:
    """Return the SHA-256 hex of an action: its tool and its input, with sorted keys."""
    return hashlib.sha256(msgspec.json.encode([name, value], order="deterministic")).hexdigest()


def action_text(name: str, value: dict[str, Any]) -> str:
    """Return the complete action of a call as text."""
    if name == "bash" and set(value) == {"command"}:
        return f"bash: {value['command']}"
    lines = [f"{name}:"]
    for key, item in value.items():
        text = item if isinstance(item, str) else msgspec.json.encode(item, order="deterministic").decode()
        lines.append(f"  {key}: {text}" if "\n" not in text else f"  {key}:\n    " + text.replace("\n", "\n    "))
    return "\n".join(lines)


def touches(
    tool: Tool | None,
    value: dict[str, Any],
    created: SessionCreated,
    policy: EgressPolicy,
    hands: HandsProvisioned | None,
) -> str:
    """Describe the reach of an action for an approver. `policy` is the egress policy in force."""
    if tool is None:
        return ""
    if tool.where == "process":
        return "unknown: a function of the embedding program, which runs outside the sandbox"
    if tool.where == "harness":
        return "this session's log and the sessions that it opens"
    folder, own = created.workspace.path, own_programs(created, hands)
    effects = effects_of(tool.name, value, main=tool.main, folder=folder, own_programs=own)
    sealed = not created.hands.accept_weak if hands is None else hands.isolation.get("network") == "hard"
    return told(effects, created.workspace, policy, tool=tool.name, walled=sealed)


def own_programs(created: SessionCreated, hands: HandsProvisioned | None) -> bool:
    """Return True if the search path for programs includes folders that the agent can write to."""
    prepared = created.environment != Environment() or bool(hands is not None and hands.environment)
    return prepared or "PATH" in created.workspace.env
