"""The prompt of an iteration, the shell command that hands it over, and what a command says about its cost. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.facts.base import Usage
from holdfast.session.money import PICO

PART_MAX = 20_000
"""Bytes of AGENTS.md, of progress.txt and of a report that a prompt has at most: a command line takes 128 KB."""

ITEM_MAX = 12_000
LAST_MAX = 4_000

TOKEN = "<promise>COMPLETE</promise>"
"""By this agents in a loop say that all is done. It is a hint: whoever quotes the prompt says it too."""

_HOLE = re.compile(r"\{\{([a-z]+)\}\}")
_WORD = re.compile(r"\{prompt_file\}|\{prompt\}")
_COST = re.compile(r'"total_cost_usd"\s*:\s*([0-9][0-9.eE+-]*)')
_COST_MAX_USD = 1_000_000.0


class Reported(msgspec.Struct, frozen=True):
    """The cost and the tokens that a command reported; None for what it did not report."""

    cost_pico: int | None = None
    usage: Usage | None = None


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced once. What is put in is never looked at for others."""
    return _HOLE.sub(lambda match: parts.get(match[1], match[0]), template)


def cut(text: str, most: int) -> str:
    """The text with its middle left out when it has more bytes than that."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    head, tail = data[: most // 4], data[-(most - most // 4) :]
    left_out = len(data) - len(head) - len(tail)
    return f"{head.decode('utf-8', 'ignore')}\n[… {left_out} bytes left out …]\n{tail.decode('utf-8', 'ignore')}"


def shell(command: Sequence[str], prompt: str) -> str:
    """One shell command that runs those words with the prompt on standard input, and in place of `{prompt}`.

    The prompt is in a file outside the workspace, which `{prompt_file}` names; it is gone afterwards.
    """
    text = prompt.replace("\0", "�").rstrip("\n")
    mark = f"HOLDFAST_{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"
    words = " ".join(_word(word) for word in command)
    shown = " ".join(shlex.join(command).split())[:200]
    return (
        f"# {shown}\n"
        'p=$(mktemp "${TMPDIR:-/tmp}/holdfast-prompt.XXXXXX") || exit 125\n'
        "trap 'rm -f \"$p\"' EXIT\n"
        f"cat > \"$p\" <<'{mark}'\n{text}\n{mark}\n"
        f'{words} < "$p"\n'
    )


def _word(word: str) -> str:
    """A word as bash reads it back, with its holes filled by bash."""
    out, at = [], 0
    for match in _WORD.finditer(word):
        out += [shlex.quote(word[at : match.start()])] if match.start() > at else []
        out.append('"$p"' if match[0] == "{prompt_file}" else '"$(cat "$p")"')
        at = match.end()
    if at < len(word) or not out:
        out.append(shlex.quote(word[at:]))
    return "".join(out)


def reported(output: str, *, truncated: bool = False) -> Reported:
    """Cost and tokens from the JSON lines of a command's output.

    Claude Code prints one result with `total_cost_usd` and `usage`. Codex prints `usage` with each finished turn, for
    all of them so far. OpenCode prints `tokens` and `cost` of each step.
    """
    values = [value for line in output.splitlines() if (value := _object(line)) is not None]
    for value in reversed(values):
        if (cost := _pico(value.get("total_cost_usd"))) is not None:
            return Reported(cost, _usage(value.get("usage")))
    steps = [part for value in values if isinstance(part := value.get("part"), dict) and "tokens" in part]
    if steps:
        costs = [_pico(step.get("cost")) for step in steps]
        tokens = [_step_usage(step["tokens"]) for step in steps]
        usage = None if None in tokens else sum((each for each in tokens if each), Usage())
        return Reported(None if None in costs else sum(each for each in costs if each), usage)
    found = _COST.findall(output) if truncated else []
    said = next((usage for value in reversed(values) if (usage := _usage(value.get("usage"))) is not None), None)
    return Reported(_pico(_number(found[-1])) if found else None, said)


def _object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _pico(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return math.ceil(value * PICO) if 0 <= value <= _COST_MAX_USD else None


def _usage(value: Any) -> Usage | None:
    """Tokens as Claude Code or Codex report them. The input of the latter includes what came from the cache."""
    if not isinstance(value, dict) or _count(value.get("input_tokens")) is None:
        return None
    cached = _count(value.get("cached_input_tokens"))
    fresh = (_count(value.get("input_tokens")) or 0) - (cached or 0)
    read = cached if cached is not None else _count(value.get("cache_read_input_tokens"))
    written = _count(value.get("cache_creation_input_tokens"))
    return Usage(max(fresh, 0), _count(value.get("output_tokens")) or 0, read or 0, written or 0)


def _step_usage(value: Any) -> Usage | None:
    if not isinstance(value, dict) or _count(value.get("input")) is None:
        return None
    cache = value["cache"] if isinstance(value.get("cache"), dict) else {}
    names = (value.get("input"), value.get("output"), cache.get("read"), cache.get("write"))
    fresh, output, read, written = (_count(each) or 0 for each in names)
    return Usage(fresh, output + (_count(value.get("reasoning")) or 0), read, written)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else None


def promised(output: str) -> bool:
    """Whether the command said the stop token."""
    return TOKEN in output
