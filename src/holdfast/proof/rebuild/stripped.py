"""Whole library without its bodies: every module stripped, nothing else changed.

Bodies that run at import are removed too: the package then cannot be imported, as if it were not written yet. The
bodies that each test enters are found by running it (`holdfast.proof.rebuild.probe`), so every test needs those that
run at import.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec

from holdfast.errors import UsageError
from holdfast.proof.rebuild.library import Library
from holdfast.proof.rebuild.strip import AnyFunction, Block, Module, strip
from holdfast.proof.rebuild.tree import SourceFile


class Whole(msgspec.Struct, frozen=True):
    """Library and its bodies, numbered by their place in `bodies`.

    `entries` maps a file to its functions: the line where each begins in the true file, decorators included, to the
    number of the body that it is in. `kept` are unchanged modules, which have no body to remove or cannot be restored
    byte for byte.
    """

    pin: str
    modules: tuple[Module, ...]
    bodies: tuple[Block, ...]
    stripped: dict[str, bytes]
    true: dict[str, bytes]
    entries: dict[str, dict[int, int]]
    kept: tuple[str, ...]

    def name(self, number: int) -> str:
        """Return the display name of a body: `package/module.py: Class.method`."""
        block = self.bodies[number]
        return f"{block.file}: {', '.join(block.functions)}"

    def file_with(self, file: str, numbers: Collection[int]) -> bytes:
        """Return a module with exactly these of its bodies."""
        return put_back(self.stripped[file].decode(), (self.bodies[n] for n in numbers), file).encode()

    def tree_with(self, numbers: Collection[int]) -> dict[str, bytes]:
        """Return all stripped modules with exactly these bodies."""
        return {module.file: self.file_with(module.file, numbers) for module in self.modules}


def put_back(text: str, blocks: Iterator[Block], file: str) -> str:
    """Return the text of `file` with these of its blocks restored."""
    for block in blocks:
        if block.file == file:
            text = text.replace(block.stub, block.true, 1)
    return text


def strip_all(library: Library) -> Whole:
    """Remove the body of every function of every module. Raises `UsageError` if there is none."""
    modules: list[Module] = []
    bodies: list[Block] = []
    stripped: dict[str, bytes] = {}
    entries: dict[str, dict[int, int]] = {}
    kept: list[str] = []
    for file in library.layout.modules:
        data = library.tree[file].data
        try:
            without, module, blocks = strip(file, data)
        except UsageError:
            kept.append(file)
            continue
        modules.append(module)
        stripped[file] = without
        entries[file] = _entries(data, blocks, len(bodies))
        bodies += blocks
    if not bodies:
        raise UsageError(
            f"{library.pin} has no function with a body to take out; a right example is --library tinydb==4.9.0"
        )
    true = {module.file: library.tree[module.file].data for module in modules}
    return Whole(library.pin, tuple(modules), tuple(bodies), stripped, true, entries, tuple(kept))


def stripped_tree(library: Library, whole: Whole) -> dict[str, SourceFile]:
    """Return the library's files at the start of a mission."""
    return {**library.tree, **{file: SourceFile(data) for file, data in whole.stripped.items()}}


def _entries(data: bytes, blocks: tuple[Block, ...], first: int) -> dict[int, int]:
    """Map the first line of each function to the number of its body."""
    text = data.decode()
    ranges: list[tuple[int, int, int]] = []
    for number, block in enumerate(blocks, first):
        begin = text[: text.index(block.true)].count("\n") + 1
        ranges.append((begin, begin + block.true.count("\n"), number))
    found: dict[int, int] = {}
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, AnyFunction):
            inside = [number for begin, end, number in ranges if begin <= node.lineno <= end]
            if inside:
                found[min([node.lineno, *(each.lineno for each in node.decorator_list)])] = inside[0]
    return found
