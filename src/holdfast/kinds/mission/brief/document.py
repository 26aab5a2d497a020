"""Parts of a brief, each with the events that support it, and their rendering as Markdown. Pure."""

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
"""So much is kept of what somebody wrote, in characters."""

STANDING = (ShiftEnded, ShiftStarted, MissionFinished)
"""The facts that say how a session stands."""


class Evidence(msgspec.Struct, frozen=True):
    """An event that a line stands on: its session, its position there, its type."""

    session_id: str
    seq: int
    type: str


class Example(msgspec.Struct, frozen=True):
    """One of those that a line counts. `criteria` are the ids that it is about."""

    text: str
    evidence: tuple[Evidence, ...]
    commits: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()


class Option(msgspec.Struct, frozen=True):
    """One way to decide: its name, the commands to type one after the other, and what they lead to."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    leads: str


class Line(msgspec.Struct, frozen=True):
    """One claim. `kind` names what it is about, `count` is how many there are, all of them in `examples` when it has
    any; `more` are the words of the command that shows them. It has evidence of its own, or each of its examples has.
    `options` are those of a decision.
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
    """What happened in a session and all below it, up to the event `through_seq`, after `since_us` if that is set.

    `headline` says how it stands, what it cost with all below it, and what it needs. `numbers` are what its lines
    count: pico-dollars end in `_pico`, and are None where nothing of it is known. `repo` and `branch` are of a mission,
    empty for another session.
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
        """All its lines, in order."""
        return (line for section in self.sections for line in section.lines)


class Part:
    """One session's log: who it is, and its own events; those of a fork begin where it left its origin. `role` is what
    it does in a mission, empty for none.
    """

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
        """The event at a position, None when it is not there."""
        at = seq - self.events[0].seq if self.events else -1
        return self.events[at] if 0 <= at < len(self.events) else None


class Tree:
    """A session's log and the logs of all below it. Nothing that is not after `since_us` is news."""

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
        """All logs, the top one first."""
        return [self.top, *self.below]

    @property
    def name(self) -> str:
        """What the top session is called in a command: its key when it has one."""
        return (self.top.created.key if self.top.created else "") or self.top.session_id

    def latest(self) -> Event | None:
        """The event that says how the top session stands."""
        stands = (event for event in reversed(self.top.events) if isinstance(event.fact, STANDING))
        return next(stands, self.top.events[0] if self.top.events else None)

    def role(self, part: Part) -> str:
        """For what its money went: its own role, or that of whoever opened it."""
        if part is self.top:
            return "mission" if part.is_mission else "agent"
        return self._roles[part.session_id]

    def new(self, event: Event) -> bool:
        """Whether an event is news."""
        return self.since_us is None or event.at_us > self.since_us

    def called(self, part: Part) -> str:
        """A session below the top one in a few words; empty for the top one."""
        return "" if part is self.top else part.name or self.role(part)

    def events(self, *kinds: type[Fact]) -> list[Event]:
        """The top session's events of these types, news or not."""
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
    """An event as evidence."""
    return Evidence(event.session_id, event.seq, event.type)


def lined(
    kind: str, words: str, examples: Sequence[Example], more: tuple[str, ...], count: int = 0
) -> tuple[Line, ...]:
    """A line for its examples, with how many there are; none without any."""
    count = count or len(examples)
    return (Line(kind, f"{words}: {count}", count, examples=tuple(examples), more=more),) if examples else ()


def plain(text: str, most: int = TEXT_MAX) -> str:
    """What somebody wrote, on one line, without what a terminal or Markdown would obey."""
    flat = " ".join(text.split())
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in flat)
    flat = _TAG.sub("(", flat.translate(_MARKS))
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


_MARKS = str.maketrans({"`": "'", "[": "(", "]": ")", "|": "/"})
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def counted(number: int, one: str, many: str = "") -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many there are besides."""
    shown = ", ".join(plain(name, 60) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


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
