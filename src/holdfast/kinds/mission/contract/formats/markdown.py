"""Plans in Markdown: a checklist, or headings with an acceptance list.

```
# A greeter                       the goal
Greets people by name.            goes with it

## Library                        a category
- [ ] greet() greets by name      an item
  - An empty name is refused.     a rubric line
  - check: `pytest tests/a.py`    a command; `guard:` for one that already passes
  - metric: `python bench.py` at least 0.95 tolerance 0.01
  - paths: src/greet.py           its files; `depends:`, `priority:` and `id:` too

## Parting                        an item, since it has an acceptance list
### Acceptance criteria
- It says goodbye.
```
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.facts.mission import Contract
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
    """Significant line: a heading, a bullet, or words. `level` is a heading's, `indent` a bullet's."""

    number: int
    kind: str
    text: str
    level: int = 0
    indent: int = 0
    box: int = -1


class Entry(msgspec.Struct):
    """Item as found: its title, the words and acceptance lines below it, the position of its box (-1 if none)."""

    line: int
    title: str
    category: str = ""
    box: int = -1
    accepted: list[str] = []
    words: list[str] = []


def read_plan(source: Source) -> Contract:
    """Read the contract of a plan. Raises `ContractInvalid` if it has no items."""
    lines = lines_of(source)
    entries = entries_of(lines)
    if not entries:
        source.refuse(0, "it has no items: no checkbox and no acceptance list", RIGHT_PLAN)
    return _contract(source, entries, _goal(lines) or f"All {len(entries)} items of {source.name} hold.")


def read_document(source: Source, title: str) -> Contract:
    """Read the contract of an issue: the items of its text, or the issue as one item if it has none."""
    lines = lines_of(source)
    entries = [] if _is_flat(lines) else entries_of(lines, issue=True)
    if not entries:
        top = [line for line in lines if line.kind == "bullet" or line.kind == "words"]
        accepted = _accepted_at_large(lines)
        words = [line.text for line in top if line.text not in accepted]
        entries = [Entry(0, title, accepted=accepted, words=words)]
    return _contract(source, entries, title)


def boxes(source: Source) -> dict[str, int]:
    """Return the positions of checkbox marks in a text, by the ids of their items."""
    entries = entries_of(lines_of(source))
    if not entries or not source.name.lower().endswith((".md", ".markdown", ".mdown")):
        return {}
    items = _contract(source, entries, "").items
    return {item.id: entry.box for item, entry in zip(items, entries, strict=True) if entry.box >= 0}


# --- lines ------------------------------------------------------------------------------------------


def lines_of(source: Source) -> list[Line]:
    """Return the significant lines; fenced code and comments do not count."""
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
    """Return the first top-level heading with the words right below it."""
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
    """Return the items of a document: headings with acceptance lists, else checkboxes, else headings with lists."""
    marked = _marked(lines)
    if marked:
        return marked
    ticked = _ticked(lines)
    return ticked if ticked or issue else _headed(lines)


def _is_marker(line: Line) -> bool:
    """Return True if an acceptance list follows. Long lines are skipped: the pattern is slow on them."""
    if len(line.text) > MARKER_LENGTH or _ACCEPTED.match(line.text) is None:
        return False
    return line.kind == "heading" or line.text.rstrip("*_ ").endswith(":") or line.text.startswith("**")


def _is_flat(lines: list[Line]) -> bool:
    """Return True if the acceptance list is for the whole document: no heading or box comes before the first marker."""
    for line in lines:
        if _is_marker(line):
            return True
        if line.kind == "heading" or line.box >= 0:
            return False
    return False


def _accepted_at_large(lines: list[Line]) -> list[str]:
    """Return the acceptance lines of a document that is one item."""
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
    """Find headings with an acceptance list."""
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
                outer = [each.text for each in above if 1 < each.level < owner.level]
                current = Entry(owner.number, owner.text, category=outer[-1] if outer else "")
                current.words = [each.text for each in lines[places[owner.number] + 1 : at]]
                found.append(current)
            inside = line.level
        elif line.kind == "heading":
            above = [*(each for each in above if each.level < line.level), line]
            inside = -1
        elif current is not None and inside >= 0:
            current.accepted.append(line.text)
    return found


def _ticked(lines: list[Line]) -> list[Entry]:
    """Find checkboxes of the outermost level with the bullets below them."""
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
    """Find headings below the first level with a list right below them."""
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
    """Read entries by the same rules as JSON entries."""
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
    """Wrap a value as a JSON node at that position."""
    if isinstance(value, dict):
        return Node(value, at, at, members={key: _node(each, at) for key, each in value.items()})
    if isinstance(value, list):
        return Node(value, at, at, elements=[_node(each, at) for each in value])
    return Node(value, at, at)


def _fields(source: Source, entry: Entry, at: int) -> dict[str, Any]:
    """Convert an entry to the fields of JSON."""
    found: dict[str, Any] = {"description": "\n".join([entry.title, *entry.words]), "category": entry.category}
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
            names = (each.strip(" `") for each in value.split(","))
            found.setdefault("depends" if name == "depends" else "paths", []).extend(filter(None, names))
        elif name in ("step", "steps"):
            found.setdefault("steps", []).append(value)
        elif name in ("priority", "id"):
            found[name] = _unquoted(value)
        else:
            accepted.append(text)
    return {**found, "acceptance": accepted} if accepted else found


def _unquoted(text: str) -> str:
    inner = re.fullmatch(r"(`{1,3})\s*(.+?)\s*\1\.?", text)
    return inner[2] if inner else text


def _metric(source: Source, text: str, at: int) -> dict[str, Any]:
    found = _METRIC.match(text)
    numbers = [_number(found[3]), _number(found[4] or "0")] if found else [None]
    if found is None or None in numbers:
        source.refuse(
            at,
            f"the metric {text[:60]!r} cannot be read",
            "a right form is metric: `python bench.py` at least 0.95 tolerance 0.01",
        )
    target, off = numbers
    return {"metric": {"command": found[1], "target": target, "tolerance": off, "direction": found[2]}}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
