"""The items of a loop: read from `prd.json` or `feature_list.json`, the next one, and `passes` set by the harness."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from holdfast.errors import ContractInvalid
from holdfast.facts.contract import Check, Contract, Item
from holdfast.kinds.mission.contract.formats.files import read_contract, write_back
from holdfast.kinds.mission.contract.formats.json_list import entries_in
from holdfast.kinds.mission.contract.formats.positions import decode, parse


class Board(msgspec.Struct, frozen=True):
    """The items of a file and which of them are said to pass. `entries` are the items as the file has them."""

    contract: Contract
    passes: dict[str, bool]
    entries: dict[str, str]

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, in the file's order."""
        return self.contract.items

    def unfinished(self) -> list[Item]:
        """What is left to do: the lowest priority number first, then the file's order, dependencies before."""
        waiting = sorted((item for item in self.items if not self.passes[item.id]), key=lambda item: item.priority)
        ready = [item for item in waiting if all(self.passes.get(name, True) for name in item.depends)]
        return ready or waiting

    def finished(self) -> bool:
        """Whether all pass."""
        return all(self.passes.values())

    def find(self, name: str) -> Item | None:
        """The item with that id."""
        return next((item for item in self.items if item.id == name), None)


def checks_of(item: Item) -> tuple[Check, ...]:
    """The commands that tell whether an item is done."""
    return tuple(criterion.check for criterion in item.criteria if criterion.check is not None)


def read_board(data: bytes, name: str) -> Board:
    """The items in a file. Raises `ContractInvalid` for one that is malformed, empty or no list of items."""
    contract = read_contract(data, name)
    source = decode(data, name)
    node = parse(source)
    entries = [entry for _, entry in entries_in(node)]
    if not contract.items or len(entries) != len(contract.items):
        raise ContractInvalid(
            f'{name} has no list of items; a right form is {{"userStories": [{{"id": "US-001", "title": "Greet by '
            'name", "check": "pytest tests/test_greet.py", "passes": false}]}'
        )
    pairs = list(zip(contract.items, entries, strict=True))
    passes = {
        item.id: bool(entry.members["passes"].value) if "passes" in entry.members else False for item, entry in pairs
    }
    return Board(contract, passes, {item.id: source.text[entry.start : entry.end] for item, entry in pairs})


def marked(data: bytes, board: Board, passed: Collection[str], lost: Collection[str] = ()) -> bytes:
    """The same file with `passes` of those items true and of the lost ones false, and no other byte changed."""
    passing = ({name for name, passes in board.passes.items() if passes} | set(passed)) - set(lost)
    met = {criterion.id for item in board.items if item.id in passing for criterion in item.criteria}
    return write_back(data, board.contract, met)


def edits(before: bytes, after: bytes | None, name: str) -> str:
    """What a command did to the file of the items, in words; empty when it did nothing."""
    if after == before:
        return ""
    if after is None:
        return f"{name} was removed or replaced by something that is no file"
    board = read_board(before, name)
    try:
        now = read_board(after, name)
    except ContractInvalid as error:
        return f"{name} was made unreadable ({error})"
    flipped = [each for each, passes in now.passes.items() if passes and not board.passes.get(each, False)]
    cleared = [each for each, passes in now.passes.items() if not passes and board.passes.get(each, False)]
    said = [f"`passes` of {', '.join(flipped)} was set to true"] if flipped else []
    said += [f"`passes` of {', '.join(cleared)} was set to false"] if cleared else []
    if now.items != board.items:
        said.append("the items themselves were changed")
    return f"{name}: " + ("; ".join(said) if said else "other parts of it were changed")
