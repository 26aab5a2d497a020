"""Parts of a brief, each with its supporting events, and their rendering as Markdown. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import MissionFinished
from holdfast.facts.session import SessionCreated, SessionForked
from holdfast.facts.shift import ShiftEnded, ShiftStarted

TEXT_MAX = 300
"""Most characters kept of an event's text."""

STANDING = (ShiftEnded, ShiftStarted, MissionFinished)
"""Events that determine the status of a session."""


class Evidence(msgspec.Struct, frozen=True):
    """Event that supports a line: its session, its position there, its type."""

    session_id: str
    seq: int
    type: str


class Example(msgspec.Struct, frozen=True):
    """Occurrence that a line counts. `criteria` are the ids that it is about."""

    text: str
    evidence: tuple[Evidence, ...]
    commits: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()


class Option(msgspec.Struct, frozen=True):
    """Option of a decision: its name, the commands to run in order, and their consequence."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    leads: str


class Line(msgspec.Struct, frozen=True):
    """Claim with evidence of its own or of each of its examples.

    `kind` names its subject; `count` is the number of occurrences, all of them in `examples` if it has any. `more` are
    the arguments of the command that lists them. `options` are those of a decision.
    """

    kind: str
    text: str
    count: int = 1
    evidence: tuple[Evidence, ...] = ()
    commits: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    more: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()


class Section(msgspec.Struct, frozen=True):
    """Lines under one title, the most important first."""

    title: str
    lines: tuple[Line, ...]


class Brief(msgspec.Struct, frozen=True):
    """Events of a session and its descendants up to `through_seq`, after `since_us` if set, condensed into lines.

    `headline` has the status, the total cost, and the number of decisions. `numbers` are the counts of the lines:
    amounts in pico-dollars end in `_pico` and are None if unknown. `repo` and `branch` are those of a mission, empty
    for another session.
    """

    session_id: str
    name: str
    goal: str
    headline: str
    through_seq: int
    sections: tuple[Section, ...]
    numbers: dict[str, int | None]
    since_us: int | None = None
    repo: str = ""
    branch: str = ""

    @property
    def lines(self) -> Iterator[Line]:
        """All lines of the brief, in order."""
        return (line for section in self.sections for line in section.lines)


class Part:
    """Log of one session; the events of a fork begin at the fork. `role` is its role in a mission, or empty."""

    def __init__(self, events: Sequence[Event]) -> None:
        forks = [place for place, event in enumerate(events) if isinstance(event.fact, SessionForked)]
        self.events = events[forks[-1] :] if forks else events
        self.session_id = events[-1].session_id if events else ""
        self.created = next((event.fact for event in events if isinstance(event.fact, SessionCreated)), None)
        self.name = self.created.agent.name if self.created else ""
        own = self.created if not forks else None
        self.parent = own.parent.session_id if own is not None and own.parent is not None else ""
        self.role = own.role.kind if own is not None and own.role is not None else ""
        self.is_mission = own is not None and own.mission is not None

    def at(self, seq: int) -> Event | None:
        """Return the event at a position, or None if missing."""
        at = seq - self.events[0].seq if self.events else -1
        return self.events[at] if 0 <= at < len(self.events) else None


class Tree:
    """Log of a session and the logs of its descendants. Only events after `since_us` are new."""

    def __init__(self, events: Sequence[Event], below: Iterable[Sequence[Event]], since_us: int | None) -> None:
        self.top = Part(events)
        self.below = [Part(each) for each in below if each]
        self.since_us = since_us
        self._roles: dict[str, str] = {}
        known = {part.session_id: part for part in self.below}
        for part in self.below:
            self._roles[part.session_id] = _inherited(part, known)

    @property
    def parts(self) -> list[Part]:
        """All logs, that of the top session first."""
        return [self.top, *self.below]

    @property
    def name(self) -> str:
        """Name of the top session for a command: its key, or its id."""
        return (self.top.created.key if self.top.created else "") or self.top.session_id

    def latest(self) -> Event | None:
        """Return the latest event that determines the status of the top session."""
        found = (event for event in reversed(self.top.events) if isinstance(event.fact, STANDING))
        return next(found, self.top.events[0] if self.top.events else None)

    def role(self, part: Part) -> str:
        """Return the role that a session's cost counts for: its own, or that of the nearest ancestor with one."""
        if part is self.top:
            return "mission" if part.is_mission else "agent"
        return self._roles[part.session_id]

    def new(self, event: Event) -> bool:
        """Return True if an event is after `since_us`."""
        return self.since_us is None or event.at_us > self.since_us

    def called(self, part: Part) -> str:
        """Return the short name of a descendant; empty for the top session."""
        return "" if part is self.top else part.name or self.role(part)

    def events(self, *kinds: type[Fact]) -> list[Event]:
        """Return the top session's events of these types."""
        return [event for event in self.top.events if isinstance(event.fact, kinds)]


def _inherited(part: Part, known: Mapping[str, Part]) -> str:
    at: Part | None = part
    for _ in range(len(known) + 1):
        if at is None:
            break
        if at.role:
            return at.role
        at = known.get(at.parent)
    return "agent"


def of(event: Event) -> Evidence:
    """Return an event as evidence."""
    return Evidence(event.session_id, event.seq, event.type)


def lined(
    kind: str, words: str, examples: Sequence[Example], more: tuple[str, ...], count: int = 0
) -> tuple[Line, ...]:
    """Build a line from its examples and their number; no line without examples."""
    count = count or len(examples)
    return (Line(kind, f"{words}: {count}", count, examples=tuple(examples), more=more),) if examples else ()


def plain(text: str, most: int = TEXT_MAX) -> str:
    """Reduce a text to one line without terminal control characters or Markdown syntax."""
    flat = " ".join(text.split())
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in flat)
    flat = _TAG.sub("(", flat.translate(_MARKS))
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


_MARKS = str.maketrans({"`": "'", "[": "(", "]": ")", "|": "/"})
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def counted(number: int, one: str, many: str = "") -> str:
    """Format a count: `1 task`, `2 tasks`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """List the first names, and the number of the others."""
    shown = ", ".join(plain(name, 60) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


# --- Markdown ----------------------------------------------------------------------------------------

LINES_MAX = 40
"""Most lines of a brief in Markdown."""

SHORT = 10
EXAMPLE_MAX, HEAD_MAX = 200, 240
LINKS_MAX = 3
INLINE, BELOW, BELOW_LEAST = 4, 10, 2
"""Most examples in a line, most in lines of their own, and the least that the latter are cut to."""

_BELOW = frozenset({"waits", "unmet", "given_up", "quarantined"})
"""Kinds whose examples each get their own line."""

_FIRST = {"stands": 0, "items": 0, "spend": 1, "stopped": 2, "waits": 3}
"""Kinds that are cut last."""

Typed = Callable[..., str]


def typed_plainly(*words: str) -> str:
    """Return a command for the default home."""
    return shlex.join(("holdfast", *words))


def markdown(brief: Brief, typed: Typed = typed_plainly) -> str:
    """Render a brief as Markdown with at most `LINES_MAX` lines."""
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
    """Render the `left` most important lines, each with at most `most` examples."""
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
    foot = f"e12 is event 12: `{typed('logs', name, '--after', '11')}`. As data: `{typed('brief', name, '--json')}`."
    if brief.repo:
        foot += f" A commit: `{shlex.join(('git', '-C', brief.repo, 'show'))} COMMIT`."
    return "\n".join([*out, "", foot, ""])


def _decision(brief: Brief, line: Line, number: int, most: int, typed: Typed) -> list[str]:
    """Render a decision with its examples and options."""
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
    """Render a line with its first examples and the number of the others; examples with the same text are merged."""
    head = f"- **{plain(line.text, HEAD_MAX)}**{_links(brief, line.evidence, line.commits)}"
    found: dict[str, Example] = {}
    for each in line.examples:
        known = found.get(each.text)
        found[each.text] = each if known is None else replace(known, evidence=(*known.evidence, *each.evidence))
    every = list(found.values())
    examples = every[: most if line.kind in _BELOW else INLINE]
    rest = len(every) - len(examples)
    more = [f"and {rest} more: `{typed(*line.more)}`"] if rest and line.more else []
    shown = [*(_example(brief, each) for each in examples), *more]
    if line.kind in _BELOW:
        return [head, *(f"  - {each}" for each in shown)]
    return [f"{head}: {'; '.join(shown)}" if shown else head]


def _example(brief: Brief, example: Example) -> str:
    return f"{plain(example.text, EXAMPLE_MAX)}{_links(brief, example.evidence, example.commits)}"


def _links(brief: Brief, evidence: Sequence[Evidence], commits: Sequence[str]) -> str:
    links = [
        f"e{each.seq}" if each.session_id == brief.session_id else f"{each.session_id} e{each.seq}"
        for each in evidence[:LINKS_MAX]
    ]
    links += [commit[:SHORT] for commit in commits if commit]
    return f" [{', '.join(links)}]" if links else ""
