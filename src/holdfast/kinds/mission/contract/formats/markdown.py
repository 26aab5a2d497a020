"""Plans in Markdown: a checklist, or headings with a list of what is accepted.

```
# A greeter                       the goal
Greets people by name.            goes with it

## Library                        a category
- [ ] greet() greets by name      an item
  - An empty name is refused.     a rubric line
  - check: `pytest tests/a.py`    a command; `guard:` for one that holds already
  - metric: `python bench.py` at least 0.95 tolerance 0.01
  - paths: src/greet.py           what it is about; `depends:`, `priority:` and `id:` too

## Parting                        an item, since something is accepted under it
### Acceptance criteria
- It says goodbye.
```
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.facts.contract import Contract
from holdfast.kinds.mission.contract.contents import free_name, slug
from holdfast.kinds.mission.contract.formats.entry import Reading
from holdfast.kinds.mission.contract.formats.positions import Node, Source
from holdfast.kinds.mission.contract.protected import protected

RIGHT_PLAN = (
    'a right form is a heading "# A greeter", then items such as "- [ ] greet() greets by name" with lines such as '
    '"  - check: `pytest tests/test_greet.py`" below them'
)

_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_BULLET = re.compile(r"^(\s*)(?:[-*+]|\d{1,4}[.)])\s+(?:\[([ xX])\]\s+)?(.*\S)\s*$")
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_ACCEPTED = re.compile(
    r"^[*_\s]*(acceptance(\s+(criteria|tests?))?|done when|definition of done|success criteria|criteria|"
    r"expected( (behaviou?r|results?|outcome))?)[*_\s]*:?[*_\s]*$",
    re.IGNORECASE,
)
_FORMS = re.compile(r"before (you )?submit|check ?list|prerequisites?|confirm|verification steps taken", re.IGNORECASE)
_CLAIM = re.compile(r"^(i|i've|i'm|i’ve|we)\b", re.IGNORECASE)
_KEY = re.compile(r"^\**(check|run|guard|metric|paths?|depends(?: on)?|priority|id|steps?)\**\s*:\**\s*(.+)$", re.I)
_METRIC = re.compile(
    r"^`([^`]+)`\s*(at least|at most|equal|>=|<=|==|=)\s*([-+.\deE]+)(?:\s*(?:tolerance|±|\+/-)\s*([-+.\deE]+))?\s*$"
)
_PLAIN_HEADINGS = re.compile(
    r"^(overview|background|context|notes?|non-?goals|out of scope|references?|introduction|summary|motivation|goals?|"
    r"architecture|design|risks?|open questions)\b",
    re.IGNORECASE,
)


MARKER_LENGTH = 80


class Line(msgspec.Struct):
    """A line of a document that counts: a heading, a bullet or words. `level` is a heading's, `indent` a bullet's."""

    number: int
    kind: str
    text: str
    level: int = 0
    indent: int = 0
    box: int = -1


class Entry(msgspec.Struct):
    """An item as it was found: its words, those below it, and where its box is (-1 without one)."""

    line: int
    title: str
    category: str = ""
    box: int = -1
    accepted: list[str] = []
    words: list[str] = []


def read_plan(source: Source) -> Contract:
    """The contract of a plan. Raises `ContractInvalid` when nothing in it is an item."""
    lines = lines_of(source)
    entries = entries_of(lines)
    if not entries:
        source.refuse(0, "no item is in it: no box to tick and no list of what is accepted", RIGHT_PLAN)
    return _contract(source, entries, _goal(lines) or f"All {len(entries)} items of {source.name} hold.")


def read_document(source: Source, title: str) -> Contract:
    """The contract of an issue: the items of its text, or when there are none it is one item."""
    lines = lines_of(source)
    entries = [] if _is_flat(lines) else entries_of(lines, issue=True)
    if not entries:
        top = [line for line in lines if line.kind == "bullet" or line.kind == "words"]
        accepted = _accepted_at_large(lines)
        words = [line.text for line in top if line.text not in accepted]
        entries = [Entry(0, title, accepted=accepted, words=words)]
    return _contract(source, entries, title)


def boxes(source: Source) -> dict[str, int]:
    """Where the marks of ticked boxes stand in a text, by the ids of their items."""
    entries = entries_of(lines_of(source))
    if not entries or not source.name.lower().endswith((".md", ".markdown", ".mdown")):
        return {}
    items = _contract(source, entries, "").items
    return {item.id: entry.box for item, entry in zip(items, entries, strict=True) if entry.box >= 0}


# --- lines ------------------------------------------------------------------------------------------


def lines_of(source: Source) -> list[Line]:
    """The lines that count; code between fences and comments do not."""
    found: list[Line] = []
    position, fence, comment = 0, "", False
    for number, raw in enumerate(source.text.split("\n"), 1):
        start, position = position, position + len(raw) + 1
        mark = _FENCE.match(raw)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
            continue
        comment = comment or raw.lstrip().startswith("<!--")
        if fence or comment or not raw.strip():
            comment = comment and "-->" not in raw
            continue
        found.append(_line(raw.lstrip("\ufeff") if number == 1 else raw, number, start + (raw[:1] == "\ufeff")))
    return found


def _line(raw: str, number: int, start: int) -> Line:
    heading = _HEADING.match(raw)
    if heading:
        return Line(number, "heading", heading[2], level=len(heading[1]))
    bullet = _BULLET.match(raw)
    if bullet:
        box = start + bullet.start(2) if bullet[2] is not None else -1
        return Line(number, "bullet", bullet[3], indent=len(bullet[1].expandtabs(4)), box=box)
    return Line(number, "words", raw.strip(), indent=len(raw) - len(raw.lstrip()))


def _goal(lines: list[Line]) -> str:
    """The first heading of the first level, with the words right below it."""
    for at, line in enumerate(lines):
        if line.kind == "heading" and line.level == 1:
            below = []
            for after in lines[at + 1 :]:
                if after.kind != "words":
                    break
                below.append(after.text)
            text = " ".join(below)
            return f"{line.text}: {text}" if text else line.text
    return ""


# --- items ------------------------------------------------------------------------------------------


def entries_of(lines: list[Line], *, issue: bool = False) -> list[Entry]:
    """The items of a document, by what it has: headings with what is accepted, boxes, or headings with lists."""
    marked = _marked(lines)
    if marked:
        return marked
    ticked = _ticked(lines)
    return ticked if ticked or issue else _headed(lines)


def _is_marker(line: Line) -> bool:
    """Whether what follows is what is accepted. Long lines are not even tried: the pattern would take its time."""
    if len(line.text) > MARKER_LENGTH or _ACCEPTED.match(line.text) is None:
        return False
    return line.kind == "heading" or line.text.rstrip("*_ ").endswith(":") or line.text.startswith("**")


def _is_flat(lines: list[Line]) -> bool:
    """Whether what is accepted belongs to the whole: no heading but the title's stands above the first marker."""
    for line in lines:
        if _is_marker(line):
            return True
        if line.kind == "heading" or line.box >= 0:
            return False
    return False


def _accepted_at_large(lines: list[Line]) -> list[str]:
    """The lines below the markers of a document that is one item."""
    found: list[str] = []
    level = -1
    for line in lines:
        if _is_marker(line):
            level = line.level
        elif line.kind == "heading" or (level == 0 and line.text.startswith("**")):
            level = -1
        elif level >= 0:
            found.append(line.text)
    return found


def _marked(lines: list[Line]) -> list[Entry]:
    """Headings under which something is accepted."""
    found: list[Entry] = []
    above: list[Line] = []
    current: Entry | None = None
    inside = -1
    places = {line.number: at for at, line in enumerate(lines)}
    for at, line in enumerate(lines):
        if _is_marker(line):
            owner = next((each for each in reversed(above) if line.kind != "heading" or each.level < line.level), None)
            if owner is None or owner.level < 2:
                return []
            if current is None or current.line != owner.number:
                current = Entry(owner.number, owner.text, category=_category(above, owner))
                current.words = [each.text for each in lines[places[owner.number] + 1 : at]]
                found.append(current)
            inside = line.level
        elif line.kind == "heading":
            above = [*(each for each in above if each.level < line.level), line]
            inside = -1
        elif current is not None and inside >= 0:
            current.accepted.append(line.text)
    return found


def _category(above: list[Line], owner: Line) -> str:
    outer = [each for each in above if 1 < each.level < owner.level]
    return outer[-1].text if outer else ""


def _ticked(lines: list[Line]) -> list[Entry]:
    """Boxes of the outermost level, with the bullets below them."""
    found: list[Entry] = []
    heading, current, depth = "", None, 0
    for line in lines:
        if line.kind == "heading":
            heading, current = (line.text if line.level > 1 else ""), None
        elif line.box >= 0 and (current is None or line.indent <= depth):
            if _FORMS.search(heading) or _CLAIM.match(line.text):
                current = None
                continue
            current, depth = Entry(line.number, line.text, category=heading, box=line.box), line.indent
            found.append(current)
        elif current is not None and line.indent > depth:
            (current.accepted if line.kind == "bullet" else current.words).append(line.text)
        else:
            current = None
    return found


def _headed(lines: list[Line]) -> list[Entry]:
    """Headings below the first level with a list right below them."""
    found: list[Entry] = []
    current: Entry | None = None
    for line in lines:
        if line.kind == "heading":
            fits = line.level > 1 and not _PLAIN_HEADINGS.match(line.text)
            current = Entry(line.number, line.text) if fits else None
        elif current is not None and line.kind == "bullet":
            if not current.accepted:
                found.append(current)
            current.accepted.append(line.text)
        elif current is not None:
            current.words.append(line.text)
    return found


# --- contract ---------------------------------------------------------------------------------------


def _contract(source: Source, entries: list[Entry], goal: str) -> Contract:
    """The items, by the same rules as those of JSON."""
    reading = Reading(source)
    reading.check_count(len(entries))
    starts = [0]
    for raw in source.text.split("\n"):
        starts.append(starts[-1] + len(raw) + 1)
    titles: dict[str, str] = {}
    items = []
    for entry in entries:
        name = free_name(slug(entry.title), titles)
        fields = _fields(source, entry, starts[max(0, entry.line - 1)])
        fields.setdefault("id", name)
        titles[fields["id"]] = entry.title
        items.append(reading.item(_node(fields, starts[max(0, entry.line - 1)]), f"the item {entry.title[:60]!r}"))
    reading.finish(tuple(items))
    return Contract(goal, tuple(items), protected(source.name), source.name)


def _node(value: Any, at: int) -> Node:
    """A value as if it had been read from JSON at that place."""
    if isinstance(value, dict):
        return Node(value, at, at, members={key: _node(each, at) for key, each in value.items()})
    if isinstance(value, list):
        return Node(value, at, at, elements=[_node(each, at) for each in value])
    return Node(value, at, at)


def _fields(source: Source, entry: Entry, at: int) -> dict[str, Any]:
    """An entry as the fields of JSON."""
    found: dict[str, Any] = {"description": _joined(entry.title, entry.words), "category": entry.category}
    accepted: list[Any] = []
    for text in entry.accepted:
        key = _KEY.match(text)
        name = key[1].lower().split()[0] if key else ""
        value = key[2].strip() if key else ""
        if name in ("check", "run", "guard"):
            accepted.append({"command": _unquoted(value), "guard": name == "guard"})
        elif name == "metric":
            accepted.append(_metric(source, value, at))
        elif name in ("path", "paths", "depends"):
            found.setdefault("depends" if name == "depends" else "paths", []).extend(_names(value))
        elif name in ("step", "steps"):
            found.setdefault("steps", []).append(value)
        elif name in ("priority", "id"):
            found[name] = _unquoted(value)
        else:
            accepted.append(text)
    return {**found, "acceptance": accepted} if accepted else found


def _joined(title: str, words: list[str]) -> str:
    return "\n".join([title, *words])


def _unquoted(text: str) -> str:
    inner = re.fullmatch(r"(`{1,3})\s*(.+?)\s*\1\.?", text)
    return inner[2] if inner else text


def _names(text: str) -> list[str]:
    return [name for name in (each.strip(" `") for each in text.split(",")) if name]


def _metric(source: Source, text: str, at: int) -> dict[str, Any]:
    found = _METRIC.match(text)
    numbers = [_number(found[3]), _number(found[4] or "0")] if found else [None]
    if found is None or None in numbers:
        source.refuse(
            at,
            f"a metric reads {text[:60]!r}",
            "a right form is metric: `python bench.py` at least 0.95 tolerance 0.01",
        )
    target, off = numbers
    return {"metric": {"command": found[1], "target": target, "tolerance": off, "direction": found[2]}}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
