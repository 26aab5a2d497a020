"""A brief as Markdown: 40 lines at most, the decisions first. Pure.

What stands in brackets are links: `e12` is event 12 of the session, `ID e12` of another one, the rest are commits.
What stands in backticks can be typed. What does not fit is counted, with the command that shows it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.kinds.mission.brief.shapes import Brief, Evidence, Example, Line, plain

LINES_MAX = 40
"""A brief has so many lines at most."""

SHORT = 10
EXAMPLE_MAX, HEAD_MAX = 200, 240
LINKS_MAX = 3
INLINE, BELOW, BELOW_LEAST = 4, 10, 2
"""So many examples stand behind a line, and so many in lines of their own: fewer when that saves lines."""

_BELOW = frozenset({"waits", "unmet", "given_up"})
"""The kinds whose examples stand in lines of their own."""

_FIRST = {"stands": 0, "spend": 1, "stopped": 2, "waits": 3}
"""The kinds that stay longest when something has to be cut."""

Typed = Callable[..., str]


def typed_plainly(*words: str) -> str:
    """A command as it can be typed where the home is the default one."""
    return shlex.join(("holdfast", *words))


def markdown(brief: Brief, typed: Typed = typed_plainly) -> str:
    """The brief as text for people, within the bound whatever happened."""
    lines = list(brief.lines)
    most, left = BELOW, len(lines)
    text = _whole(brief, most, left, typed)
    while text.count("\n") > LINES_MAX and left > 1:
        if most > BELOW_LEAST:
            most -= 1
        else:
            left -= 1
        text = _whole(brief, most, left, typed)
    return text


def _whole(brief: Brief, most: int, left: int, typed: Typed) -> str:
    """With so many examples of a line at most, and of all lines so many, the important ones."""
    ranked = sorted(enumerate(brief.lines), key=lambda each: (_FIRST.get(each[1].kind, len(_FIRST)), each[0]))
    name = brief.session_id
    kept, cut = {place for place, _ in ranked[:left]}, [line for _, line in ranked[left:]]
    out = [f"# {plain(brief.name, 60) or brief.session_id}: {brief.headline}"]
    place = number = 0
    for section in brief.sections:
        body: list[str] = []
        for line in section.lines:
            if place in kept and line.options:
                number += 1
                body += _decision(brief, line, number, most, typed)
            elif place in kept:
                body += _line(brief, line, most, typed)
            place += 1
        if body:
            out += [f"## {section.title}", *body]
    decisions = sum(bool(line.options) for line in cut)
    if decisions:
        out.append(f"and {decisions} more decisions: `{typed('inbox')}`")
    rest = [plain(line.text, 80) for line in cut if not line.options]
    if rest:
        out.append(f"and {'; '.join(rest[:INLINE])}{' …' if rest[INLINE:] else ''}: `{typed('brief', name, '--json')}`")
    return "\n".join([*out, *_foot(brief, typed), ""])


def _decision(brief: Brief, line: Line, number: int, most: int, typed: Typed) -> list[str]:
    """A decision, the output that it is about, and what can be typed."""
    out = [f"{number}. **{plain(line.text, HEAD_MAX)}**{_links(brief, line.evidence, ())}"]
    out += [f"   > {_example(brief, each)}" for each in line.examples[:most]]
    rest = len(line.examples) - most
    if rest > 0:
        out.append(f"   > and {rest} more: `{typed(*line.more)}`")
    for option in line.options:
        commands = ", then ".join(f"`{typed(*words)}`" for words in option.commands)
        out.append(f"   - {option.name}: {commands}: {option.leads}")
    return out


def _line(brief: Brief, line: Line, most: int, typed: Typed) -> list[str]:
    """A line with its first examples, each with its links; then how many there are besides."""
    head = f"- **{plain(line.text, HEAD_MAX)}**{_links(brief, line.evidence, line.commits)}"
    every = _grouped(line.examples)
    examples = every[: most if line.kind in _BELOW else INLINE]
    rest = len(every) - len(examples)
    more = [f"and {rest} more: `{typed(*line.more)}`"] if rest and line.more else []
    shown = [*(_example(brief, each) for each in examples), *more]
    if line.kind in _BELOW:
        return [head, *(f"  - {each}" for each in shown)]
    return [f"{head}: {'; '.join(shown)}" if shown else head]


def _grouped(examples: Sequence[Example]) -> list[Example]:
    """Examples with the same words as one, with the links of all."""
    found: dict[str, Example] = {}
    for each in examples:
        known = found.get(each.text)
        found[each.text] = each if known is None else replace(known, evidence=(*known.evidence, *each.evidence))
    return list(found.values())


def _example(brief: Brief, example: Example) -> str:
    return f"{plain(example.text, EXAMPLE_MAX)}{_links(brief, example.evidence, example.commits)}"


def _links(brief: Brief, evidence: Sequence[Evidence], commits: Sequence[str]) -> str:
    links = [
        f"e{each.seq}" if each.session_id == brief.session_id else f"{each.session_id} e{each.seq}"
        for each in evidence[:LINKS_MAX]
    ]
    links += [commit[:SHORT] for commit in commits if commit]
    return f" [{', '.join(links)}]" if links else ""


def _foot(brief: Brief, typed: Typed) -> list[str]:
    """How to follow a link."""
    name = brief.session_id
    line = f"e12 is event 12: `{typed('logs', name, '--after', '11')}`. As data: `{typed('brief', name, '--json')}`."
    if brief.repo:
        line += f" A commit: `{shlex.join(('git', '-C', brief.repo, 'show'))} COMMIT`."
    return ["", line]
