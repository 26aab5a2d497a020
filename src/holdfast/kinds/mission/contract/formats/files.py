"""Readers of contract files; only `passes` and ticked boxes are written back.

| file | content |
|---|---|
| `feature_list.json` | entries `{description, steps, passes}`, optionally with `id`, `acceptance`, `check` |
| `prd.json` | an object with `userStories` or `tasks` |
| Markdown | a checklist, or headings with an acceptance list |
| an issue | JSON of the GitHub or GitLab API, or its text |
"""

from __future__ import annotations

import re
from collections.abc import Collection

from holdfast.errors import ContractInvalid
from holdfast.facts.mission import Contract
from holdfast.kinds.mission.contract.formats.entry import Reading
from holdfast.kinds.mission.contract.formats.markdown import boxes, read_document, read_plan
from holdfast.kinds.mission.contract.formats.positions import RIGHT_LIST, Node, Source, decode, parse
from holdfast.kinds.mission.contract.protected import protected

LISTS = ("features", "items", "userStories", "user_stories", "stories", "tasks")
"""Keys of lists of entries in an object."""

GOALS = ("goal", "description", "project", "title", "name")


def lists_in(node: Node) -> list[tuple[str, Node]]:
    """Return the lists of entries of a file with their keys, in file order."""
    if isinstance(node.value, list):
        return [("", node)]
    return [
        (name, found)
        for name, found in node.members.items()
        if name in LISTS and isinstance(found.value, list) and all(isinstance(each, dict) for each in found.value)
    ]


def entries_in(node: Node) -> list[tuple[str, Node]]:
    """Return all entries with their paths, such as `userStories[2]`."""
    return [
        (f"{name}[{number}]" if name else f"entry {number + 1}", each)
        for name, found in lists_in(node)
        for number, each in enumerate(found.elements)
    ]


def read_entries(source: Source, node: Node) -> Contract:
    """Read the contract of a list of entries. Raises `ContractInvalid` with the line of the error."""
    reading = Reading(source)
    entries = entries_in(node)
    if not entries:
        source.refuse(node.start, "it has no entries", RIGHT_LIST)
    reading.check_count(len(entries))
    items = tuple(reading.item(each, place) for place, each in entries)
    reading.finish(items)
    goal = items[0].description if len(items) == 1 else f"All {len(items)} entries of {source.name} hold."
    for key in GOALS:
        found = node.members.get(key)
        if found is not None and isinstance(found.value, str) and found.value.strip():
            goal = reading.words(found, key, '"goal": "A list of things to do on the command line."')
            break
    return Contract(goal, items, protected(source.name, _own_protected(node, reading)), source.name)


def _own_protected(node: Node, reading: Reading) -> tuple[str, ...]:
    """Return the globs that the file protects in addition to the defaults."""
    found = node.members.get("protected")
    if found is None or found.value is None:
        return ()
    right = 'a right form is "protected": ["data/golden/**"]'
    if not isinstance(found.value, list):
        reading.source.refuse(found.start, f"protected is {found.kind}", right)
    globs = (reading.words(each, f"protected[{n}]", right) for n, each in enumerate(found.elements))
    return tuple(glob for glob in globs if glob)


_RIGHT_ISSUE = 'a right form is {"title": "Greets nobody", "body": "…"}, as the GitHub or GitLab API returns it'


def is_issue(node: Node) -> bool:
    """Return True if a JSON object is an issue: it has a title and a body, or a title and a number."""
    return "title" in node.members and not node.members.keys().isdisjoint({"body", "description", "number", "iid"})


def read_issue(source: Source, node: Node) -> Contract:
    """Read the contract of an issue: its checkboxes or acceptance lists are items; else the whole issue is one item."""
    title, body = issue_words(source, node)
    return read_document(Source(source.name, body), title)


def issue_words(source: Source, node: Node) -> tuple[str, str]:
    """Return the title and the text of an issue. Raises `ContractInvalid`."""
    reading = Reading(source)
    title = reading.words(node.members["title"], "title", _RIGHT_ISSUE)
    if not title:
        source.refuse(node.members["title"].start, "the title is empty", _RIGHT_ISSUE)
    body = ""
    for key in ("body", "description"):
        found = node.members.get(key)
        if found is not None and found.value is not None:
            body = body or reading.words(found, key, _RIGHT_ISSUE)
    return title, body


def issue_text(data: bytes, name: str) -> str:
    """Return the text of an issue: title and body of an API response, or the whole file if it is not JSON."""
    source = decode(data, name)
    if not source.text.lstrip("\ufeff \t\r\n").startswith("{"):
        return source.text.strip("\ufeff \t\r\n")
    node = parse(source)
    if not is_issue(node):
        source.refuse(node.start, "this is not an issue", _RIGHT_ISSUE)
    return "\n\n".join(filter(None, issue_words(source, node)))


def read_issue_text(source: Source) -> Contract:
    """Read the contract of an issue's text, whose first line is the title."""
    text = source.text.lstrip("\ufeff \t\r\n")
    first, _, rest = text.partition("\n")
    title = first.lstrip("# ").strip()
    if not title or "\0" in text:
        source.refuse(0, "the first line has to be the title of the issue", 'a right form is "Greet nobody politely"')
    return read_document(Source(source.name, rest), title)


_MARKDOWN = (".md", ".markdown", ".mdown")


def read_contract(text: bytes, name: str) -> Contract:
    """Read the contract in a file called `name`, which becomes its `source`.

    Text in a Markdown file is a plan; other text is an issue. Missing ids are made from the words of an entry, so they
    stay the same when entries are moved, added, or removed. Raises `ContractInvalid` with the line of the error.
    """
    source = decode(text, name)
    if not _looks_like_json(source):
        return read_plan(source) if name.lower().endswith(_MARKDOWN) else read_issue_text(source)
    node = parse(source)
    if isinstance(node.value, dict) and not lists_in(node):
        if is_issue(node):
            return read_issue(source, node)
        source.refuse(
            node.start,
            "this is no list of entries, object with `userStories` or `tasks`, or issue",
            RIGHT_LIST,
        )
    if not isinstance(node.value, list | dict):
        source.refuse(node.start, f"this is {node.kind}, not a list of entries", RIGHT_LIST)
    return read_entries(source, node)


def _looks_like_json(source: Source) -> bool:
    body = source.text.lstrip("\ufeff \t\r\n")
    if source.name.lower().endswith(_MARKDOWN):
        return False
    if source.name.lower().endswith(".json") or body.startswith("{"):
        return True
    return body.startswith("[") and re.match(r"\[\s*[\[\]{]", body) is not None


def passing(contract: Contract, passed: Collection[str]) -> dict[str, bool]:
    """Map each item to True if all its criteria passed."""
    return {
        item.id: bool(item.criteria) and all(criterion.id in passed for criterion in item.criteria)
        for item in contract.items
    }


def write_back(original: bytes, contract: Contract, passed: Collection[str]) -> bytes:
    """Return the file with `passes` of each entry updated and no other byte changed.

    `passed` are the ids of criteria that are met. An entry without `passes` gets one when it passes. In Markdown the
    boxes are ticked; an issue stays unchanged. Raises `ContractInvalid` if this is not the file that the contract was
    read from.
    """
    if read_contract(original, contract.source).items != contract.items:
        raise ContractInvalid(
            f"{contract.source} is not the file that this contract was read from; restore that file, or amend the "
            "contract with the new one"
        )
    source = decode(original, contract.source)
    state = passing(contract, passed)
    if not _looks_like_json(source):
        places = boxes(source)
        found = ((places[item.id], state[item.id]) for item in contract.items if item.id in places)
        ticks = [(at, at + 1, "x" if now else " ") for at, now in found if (source.text[at] in "xX") is not now]
        return _spliced(source.text, ticks)
    node = parse(source)
    entries = [each for _, each in entries_in(node)]
    if len(entries) != len(contract.items):
        return original
    changes = (_passes(source, each, state[item.id]) for each, item in zip(entries, contract.items, strict=True))
    return _spliced(source.text, [change for change in changes if change is not None])


def marked(original: bytes, contract: Contract) -> frozenset[str]:
    """Return the ids of items that a file marks as passing. Trust the mark only if the harness wrote it."""
    source = decode(original, contract.source)
    if not _looks_like_json(source):
        return frozenset(name for name, at in boxes(source).items() if source.text[at] in "xX")
    entries = [each for _, each in entries_in(parse(source))]
    if len(entries) != len(contract.items):
        return frozenset()
    both = zip(entries, contract.items, strict=True)
    return frozenset(item.id for each, item in both if "passes" in each.members and each.members["passes"].value)


Change = tuple[int, int, str]
"""Start and end of a span, and its replacement."""


def _passes(source: Source, entry: Node, now: bool) -> Change | None:
    found = entry.members.get("passes")
    if found is not None:
        return None if found.value is now else (found.start, found.end, "true" if now else "false")
    if not now:
        return None
    last = list(entry.members.values())[-1]
    before = list(entry.members.values())[-2].end if len(entry.members) > 1 else entry.start + 1
    # Separate the field like the one before it: by a line break and indentation, by a space, or not at all.
    gap = re.match(r",?(\s*)", source.text[before:])
    return (last.end, last.end, f',{gap[1] if gap else " "}"passes": true')


def _spliced(text: str, changes: list[Change]) -> bytes:
    parts, at = [], 0
    for start, end, new in sorted(changes):
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]]).encode()
