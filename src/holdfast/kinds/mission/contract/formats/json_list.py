"""Lists of entries in JSON: `feature_list.json` with or without ids, and `prd.json` of two families of tools."""

from __future__ import annotations

from holdfast.facts.contract import Contract, Item
from holdfast.kinds.mission.contract.formats.entry import Reading
from holdfast.kinds.mission.contract.formats.positions import RIGHT_LIST, Node, Source
from holdfast.kinds.mission.contract.protected import protected

LISTS = ("features", "items", "userStories", "user_stories", "stories", "tasks")
"""Names that a list of entries has when it is not alone in its file."""

GOALS = ("goal", "description", "project", "title", "name")


def lists_in(node: Node) -> list[tuple[str, Node]]:
    """The lists of entries of a file, each with its place, in the order of the file."""
    if isinstance(node.value, list):
        return [("", node)]
    return [
        (name, found)
        for name, found in node.members.items()
        if name in LISTS and isinstance(found.value, list) and all(isinstance(each, dict) for each in found.value)
    ]


def entries_in(node: Node) -> list[tuple[str, Node]]:
    """All entries with their places, such as `userStories[2]`."""
    return [
        (f"{name}[{number}]" if name else f"entry {number + 1}", each)
        for name, found in lists_in(node)
        for number, each in enumerate(found.elements)
    ]


def read_entries(source: Source, node: Node) -> Contract:
    """The contract of a list of entries. Raises `ContractInvalid` with the place of what is wrong."""
    reading = Reading(source)
    entries = entries_in(node)
    if not entries:
        source.refuse(node.start, "there is no entry in it", RIGHT_LIST)
    reading.check_count(len(entries))
    items = tuple(reading.item(each, place) for place, each in entries)
    reading.finish(items)
    return Contract(
        _goal(source, node, reading, items), items, protected(source.name, _more(node, reading)), source.name
    )


def _goal(source: Source, node: Node, reading: Reading, items: tuple[Item, ...]) -> str:
    """What the file says that it is for; without a word, that its entries hold."""
    for key in GOALS:
        found = node.members.get(key)
        if found is not None and isinstance(found.value, str) and found.value.strip():
            return reading.words(found, key, '"goal": "A list of things to do on the command line."')
    return items[0].description if len(items) == 1 else f"All {len(items)} entries of {source.name} hold."


def _more(node: Node, reading: Reading) -> tuple[str, ...]:
    """Globs that the file protects beside the usual ones."""
    found = node.members.get("protected")
    if found is None or found.value is None:
        return ()
    right = 'a right form is "protected": ["data/golden/**"]'
    if not isinstance(found.value, list):
        reading.source.refuse(found.start, f"protected is {found.kind}", right)
    globs = (reading.words(each, f"protected[{n}]", right) for n, each in enumerate(found.elements))
    return tuple(glob for glob in globs if glob)
