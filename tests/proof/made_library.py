"""A small library made on the spot, as the archive that an index would serve."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

MODULE = '''\
"""Shapes, and what can be asked of them."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Protocol, overload


def doubled(value: int) -> int:
    # A comment of the body.
    result = value * 2  # and another

    return result  # kept with it


def quarter(value: int) -> float: return value / 4


def spread(
    *values: int,
    # a comment inside a signature
    scale: int = 1,
) -> list[int]:
    """All values, scaled.

    # not a comment
    """
    return [
        value * scale
        for value in values
    ]


def described(): """A docstring on the line of its function."""; return "é — " + str(doubled(2))


class Sized(Protocol):
    def size(self) -> int: ...

    def half(self) -> int:
        return self.size() // 2


class Shape(ABC):
    """Anything with an area."""

    sides = 0

    def __init__(self, side: int) -> None:
        self.side = side

    @abstractmethod
    def area(self) -> int:
        return self.side

    @overload
    def grow(self, by: int) -> int: ...
    @overload
    def grow(self, by: str) -> str: ...
    def grow(self, by):
        if isinstance(by, str):
            return by * self.side
        self.side += by
        return self.side

    @property
    def name(self) -> str:
        """Its name."""

        # Above the first statement.
        return type(self).__name__.lower()

    @name.setter
    def name(self, value: str) -> None:
        raise NotImplementedError("names are fixed")

    def __repr__(self) -> str:
        return f"{self.name}({self.side})"


class Square(Shape):
    sides = 4

    def __init__(self, side: int) -> None:
        super().__init__(side)
        self.corners = 4

    def __repr__(self) -> str:
        return f"□{self.side}"

    def area(self) -> int:
        @functools.lru_cache
        def compute(side: int) -> int:
            return side * side

        return compute(self.side)


class Triangle(Shape):
    sides = 3

    def __init__(self, side: int) -> None:
        super().__init__(side)
        self.corners = 3

    def __repr__(self) -> str:
        return f"△{self.side}"

    def area(self) -> int:
        return self.side * self.side // 2

    class Part:
        async def load(self) -> int:
            """Load it."""
            return 7

        def nothing(self) -> None:
            pass


if doubled.__name__:
    def late() -> str:
        text = """
def late() -> str:
    raise NotImplementedError
"""
        return text.strip()


def last() -> int:
    return 9'''

STRIPPED_NAMES = {
    "doubled",
    "quarter",
    "spread",
    "described",
    "Shape.__init__",
    "Shape.grow",
    "Shape.name",
    "Shape.__repr__",
    "Square.__init__",
    "Square.__repr__",
    "Square.area",
    "Triangle.__init__",
    "Triangle.__repr__",
    "Triangle.area",
    "Triangle.Part.load",
    "late",
    "last",
}

SUITE = """\
import asyncio

from made.shapes import Square, Triangle, described, doubled, last, late, quarter, spread


def test_functions():
    assert (doubled(4), quarter(6), spread(1, 2, scale=3), last()) == (8, 1.5, [3, 6], 9)
    assert described().endswith("4")
    assert late().startswith("def late")


def test_shapes():
    assert [shape.area() for shape in (Square(4), Triangle(4))] == [16, 8]
    assert [repr(Square(2)), repr(Triangle(3)), Square(1).name] == ["□2", "△3", "square"]
    assert (Square(2).grow(3), Square(2).grow("a"), Triangle(1).corners) == (5, "aa", 3)
    assert asyncio.run(Triangle.Part().load()) == 7
"""

PKG_INFO = """\
Metadata-Version: 2.4
Name: made
Version: 1.2.3
Summary: Made for a test
License-Expression: MIT
Requires-Dist: helper>=1
Requires-Dist: tool; extra == "test"
Requires-Dist: other; python_version < "4" and extra == "tests"
Requires-Dist: never; extra == "docs"

The long description.
"""

PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "made"
version = "1.2.3"

[dependency-groups]
test = ["grouped>=2", {include-group = "more"}]
more = ["included", {include-group = "test"}]
"""

FILES: dict[str, str] = {
    "PKG-INFO": PKG_INFO,
    "pyproject.toml": PYPROJECT,
    "made/__init__.py": '__version__ = "1.2.3"\n',
    "made/shapes.py": MODULE,
    "tests/test_shapes.py": SUITE,
    "tests/data/run.sh": "#!/bin/sh\necho data\n",
}


def write_sdist(folder: Path, files: dict[str, str] = FILES, name: str = "made", version: str = "1.2.3") -> Path:
    """`NAME-VERSION.tar.gz` in `folder`, with those files; paths that end in `.sh` are executable."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for inner, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(f"{name}-{version}/{inner}")
            member.size = len(data)
            member.mode = 0o755 if inner.endswith(".sh") else 0o600
            tar.addfile(member, io.BytesIO(data))
    return path
