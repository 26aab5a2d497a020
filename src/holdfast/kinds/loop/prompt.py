"""Prompt of an iteration, the shell command that passes it on, and the cost that a command reports. Pure."""

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
"""Size limit of AGENTS.md, progress.txt, or a report in a prompt, in bytes: a command line takes 128 KB."""

ITEM_MAX = 12_000
LAST_MAX = 4_000

TOKEN = "<promise>COMPLETE</promise>"
"""Stop token with which agents claim completion. It is only a hint, since quoting the prompt prints it too."""

_HOLE = re.compile(r"\{\{([a-z]+)\}\}")
_WORD = re.compile(r"(\{prompt_file\}|\{prompt\})")
_COST = re.compile(r'"total_cost_usd"\s*:\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![0-9.eE+-])')
_COST_MAX_USD = 1_000_000.0


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Replace each `{{name}}` of a template once. Inserted text is not expanded again."""
    return _HOLE.sub(lambda match: parts.get(match[1], match[0]), template)


def cut(text: str, most: int) -> str:
    """Cut out the middle of a text that exceeds a number of bytes."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    head, tail = data[: most // 4], data[-(most - most // 4) :]
    left_out = len(data) - len(head) - len(tail)
    return f"{head.decode('utf-8', 'ignore')}\n[… {left_out} bytes left out …]\n{tail.decode('utf-8', 'ignore')}"


def shell(command: Sequence[str], prompt: str) -> str:
    """Build a shell command that runs these words with the prompt on standard input and in place of `{prompt}`.

    The prompt is in a file outside the workspace, named by `{prompt_file}` and removed afterwards.
    """
    text = prompt.replace("\0", "�").rstrip("\n")
    mark = f"HOLDFAST_{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"
    words = " ".join(map(_quoted, command))
    shown = " ".join(shlex.join(command).split())[:200]
    return (
        f"# {shown}\n"
        'p=$(mktemp "${TMPDIR:-/tmp}/holdfast-prompt.XXXXXX") || exit 125\n'
        "trap 'rm -f \"$p\"' EXIT\n"
        f"cat > \"$p\" <<'{mark}'\n{text}\n{mark}\n"
        f'{words} < "$p"\n'
    )


def _quoted(word: str) -> str:
    """Quote a word for bash, which expands its placeholders."""
    holes = {"{prompt_file}": '"$p"', "{prompt}": '"$(cat "$p")"'}
    parts = [part for part in _WORD.split(word) if part]
    return "".join(holes.get(part) or shlex.quote(part) for part in parts) or "''"


# --- cost and tokens ---------------------------------------------------------------------------------


class Reported(msgspec.Struct, frozen=True):
    """Cost and tokens that a command reported, with None for missing values."""

    cost_pico: int | None = None
    usage: Usage | None = None


def reported(output: str, *, truncated: bool = False) -> Reported:
    """Read cost and tokens from the JSON lines of a command's output.

    Claude Code prints one result with `total_cost_usd` and `usage`. Codex prints cumulative `usage` with each finished
    turn. OpenCode prints `tokens` and `cost` of each step.
    """
    values = [value for line in reversed(output.splitlines()) if (value := _object(line)) is not None]
    for value in values:
        if (cost := _pico(value.get("total_cost_usd"))) is not None:
            return Reported(cost, _usage(value.get("usage")))
    steps = [part for value in values if isinstance(part := value.get("part"), dict) and "tokens" in part]
    if steps:
        costs = [_pico(step.get("cost")) for step in steps]
        tokens = [_step_usage(step["tokens"]) for step in steps]
        usage = None if None in tokens else sum((each for each in tokens if each), Usage())
        return Reported(None if None in costs else sum(each for each in costs if each), usage)
    found = _COST.findall(output) if truncated else []
    said = next((usage for value in values if (usage := _usage(value.get("usage"))) is not None), None)
    return Reported(_pico(float(found[-1])) if found else None, said)


def _object(line: str) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] | None = json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value


def _pico(value: Any) -> int | None:
    """Convert a reported cost to pico-dollars; None if it is not a cost."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _COST_MAX_USD
    return math.ceil(value * PICO) if fits else None


def _usage(value: Any) -> Usage | None:
    """Read tokens as Claude Code or Codex report them. Codex includes cached tokens in its input."""
    total, cached = _count(value, "input_tokens"), _count(value, "cached_input_tokens")
    if total is None:
        return None
    read = cached if cached is not None else _count(value, "cache_read_input_tokens")
    written = _count(value, "cache_creation_input_tokens")
    return Usage(max(total - (cached or 0), 0), _count(value, "output_tokens") or 0, read or 0, written or 0)


def _step_usage(value: Any) -> Usage | None:
    """Read the tokens of one step as OpenCode reports them."""
    fresh = _count(value, "input")
    if fresh is None:
        return None
    output = (_count(value, "output") or 0) + (_count(value, "reasoning") or 0)
    cache = value.get("cache")
    return Usage(fresh, output, _count(cache, "read") or 0, _count(cache, "write") or 0)


def _count(value: Any, name: str) -> int | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**40 else None
