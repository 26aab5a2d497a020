"""A brief as Markdown: at most 500 words beside its links, the most important first. Pure.

What stands in brackets are links: `e12` is event 12 of the session, `ID e12` of another one, the rest are commits.
What stands in backticks can be typed. Neither counts as words. What does not fit is counted, with the command that
shows it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from holdfast.mission.brief_shapes import Brief, Evidence, Example, Line, plain

WORDS_MAX = 500
"""A brief has so many words at most, its links and commands not counted."""

SHORT = 10
EXAMPLE_MAX, HEAD_MAX = 110, 200
LINKS_MAX = 3

_SHOWN = {"unmet": 10, "waits": 8, "merged": 5, "spend": 8, "passed": 12, "calls": 6}
"""So many of a line's examples are shown when there is room; of other kinds, `_OTHERS`."""
_OTHERS = 3
_KEPT = {"stands": 0, "unmet": 6, "waits": 6, "given_up": 2, "spend": 4}
"""Of what is most important so many examples stay as long as there is anything else to cut."""
_BELOW = frozenset({"unmet", "waits", "given_up"})
"""The kinds whose examples stand in lines of their own."""

Typed = Callable[..., str]


def typed_plainly(*words: str) -> str:
    """A command as it can be typed where the home is the default one."""
    return shlex.join(("holdfast", *words))


def words_in(markdown: str) -> int:
    """How many words a text has, its links and commands not counted."""
    return len(re.sub(r"`[^`\n]*`|\[[^\]\n]*\]", " ", markdown).split())


def markdown(brief: Brief, typed: Typed = typed_plainly) -> str:
    """The brief as text for people, within the bound whatever happened."""
    lines = list(brief.lines)
    shown = {number: min(line.count, _shown(line)) for number, line in enumerate(lines)}
    text = _whole(brief, shown, typed)
    while words_in(text) > WORDS_MAX and _less(lines, shown):
        text = _whole(brief, shown, typed)
    return text


def _shown(line: Line) -> int:
    return _SHOWN.get(line.kind, _OTHERS)


def _less(lines: Sequence[Line], shown: dict[int, int]) -> bool:
    """Show one thing less. First every line keeps an example, what a person has to act on several; then the least
    important ones go without, then they go. False when there is nothing left to cut.
    """
    above = [number for number, count in shown.items() if count > _KEPT.get(lines[number].kind, 1)]
    if above:
        number = max(above, key=lambda each: (shown[each], each))
        shown[number] -= 1
        return True
    for urgent in (False, True):
        mine = [number for number in shown if (lines[number].kind in _KEPT) == urgent]
        with_examples = [number for number in mine if shown[number]]
        if with_examples:
            shown[max(with_examples)] -= 1
            return True
        if not urgent and mine:
            del shown[max(mine)]
            return True
    return False


def _whole(brief: Brief, shown: dict[int, int], typed: Typed) -> str:
    out = [f"# {plain(brief.name, 60) or brief.session_id}: {brief.headline}", "", plain(brief.goal, HEAD_MAX), ""]
    number = left = 0
    for section in brief.sections:
        body: list[str] = []
        for line in section.lines:
            if number in shown:
                body += _line(brief, line, shown[number], typed)
            else:
                left += 1
            number += 1
        if body:
            out += [f"## {section.title}", "", *body, ""]
    if left:
        out += [f"and {left} more kinds of news: `{typed('brief', brief.session_id, '--json')}`", ""]
    return "\n".join([*out, *_foot(brief, typed), ""])


def _line(brief: Brief, line: Line, shown: int, typed: Typed) -> list[str]:
    """A line with its first examples, each with its links; then how many there are besides."""
    head = f"- **{plain(line.text, HEAD_MAX)}**{_links(brief, line.evidence, line.commits)}"
    examples = line.examples[:shown]
    rest = len(line.examples) - len(examples)
    more = f"and {rest} more: `{typed(*line.more)}`" if rest and line.more else ""
    if not examples and not more:
        return [head]
    if line.kind in _BELOW:
        below = [f"  - {_example(brief, each, typed)}" for each in examples]
        return [head, *below, *([f"  - {more}"] if more else [])]
    told = [_example(brief, each, typed) for each in examples]
    return [f"{head}: {'; '.join([*told, *([more] if more else [])])}"]


def _example(brief: Brief, example: Example, typed: Typed) -> str:
    command = f" `{typed(*example.command)}`" if example.command else ""
    return f"{plain(example.text, EXAMPLE_MAX)}{_links(brief, example.evidence, example.commits)}{command}"


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
    lines = [f"e12 is event 12: `{typed('logs', name, '--after', '11')}`. All of this as data: "]
    lines[0] += f"`{typed('brief', name, '--json')}`."
    if brief.repo:
        lines.append(
            f"A commit: `{shlex.join(('git', '-C', brief.repo, 'show'))} COMMIT`. Who wrote a line, and why: "
            f"`{typed('why', 'FILE:LINE', '--mission', name)}`. The board: `{typed('mission', 'show', name)}`."
        )
    return lines
