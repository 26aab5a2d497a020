"""Bodies are taken out by source position, and come back byte for byte."""

from __future__ import annotations

import ast
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.proof.rebuild.strip import STUB, strip
from tests.proof.made_library import MODULE, STRIPPED_NAMES


def test_the_bodies_are_gone_and_everything_else_is_as_it_was() -> None:
    stripped, module, blocks = strip("made/shapes.py", MODULE.encode())
    assert {name for block in blocks for name in block.functions} == STRIPPED_NAMES
    assert stripped.decode().count(STUB) == len(STRIPPED_NAMES) + 1  # the setter's own
    assert module.true_sha256 == hashlib.sha256(MODULE.encode()).hexdigest()
    assert module.stripped_sha256 == hashlib.sha256(stripped).hexdigest()
    before, after = ast.parse(MODULE), ast.parse(stripped)
    assert _signatures(before) == _signatures(after)
    kept = [line for line in MODULE.split("\n") if line.startswith(("import", "from", "class", "    @", "    sides"))]
    assert [line for line in stripped.decode().split("\n") if line in kept] == kept


def _signatures(tree: ast.Module) -> list[tuple[str, str, str | None, int]]:
    nested = {"compute"}
    return [
        (node.name, ast.unparse(node.args), ast.get_docstring(node), len(node.decorator_list))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in nested
    ]


def test_what_declares_only_is_left_alone() -> None:
    stripped, _, _ = strip("shapes.py", MODULE.encode())
    for text in (
        "    def size(self) -> int: ...\n\n    def half(self) -> int:\n        return self.size() // 2\n",
        "    @abstractmethod\n    def area(self) -> int:\n        return self.side\n",
        "    def grow(self, by: int) -> int: ...\n    @overload\n",
        '        raise NotImplementedError("names are fixed")\n',
        "        def nothing(self) -> None:\n            pass\n",
    ):
        assert text in stripped.decode()


@pytest.mark.parametrize(
    ("true", "stub"),
    [
        ("def f(): return 1\n", f"def f(): {STUB}\n"),
        ("def f(): x = 1; return x\n", f"def f(): {STUB}\n"),
        ("def f():\n    # why\n\n    return 1\n", f"def f():\n    {STUB}\n"),
        ("def f():  # why\n    return 1  # so\n\n\nx = 2\n", f"def f():  # why\n    {STUB}\n\n\nx = 2\n"),
        (
            'def f():\n    """Doc.\n    # no comment"""\n    return 1\n',
            f'def f():\n    """Doc.\n    # no comment"""\n    {STUB}\n',
        ),
        ('def f():\n    "Doc."; return 1\n', f'def f():\n    "Doc."; {STUB}\n'),
        ("def f():\n\treturn 1\n", f"def f():\n\t{STUB}\n"),
        ("def f():\n    return 'ü', '''\nx\n'''\n", f"def f():\n    {STUB}\n"),
        ("def f():\n    @g\n    def h(): pass\n    return h", f"def f():\n    {STUB}"),
        ("async def f():\n    await g()\n", f"async def f():\n    {STUB}\n"),
        ("def f(): return (1,\n    2); x = 3  # so\n", f"def f(): {STUB}  # so\n"),
        (
            "try:\n    def f():\n        return 1\nexcept E:\n    def g():\n        return 1\n",
            f"try:\n    def f():\n        {STUB}\nexcept E:\n    def g():\n        {STUB}\n",
        ),
    ],
)
def test_shapes_of_bodies(true: str, stub: str) -> None:
    stripped, _, blocks = strip("f.py", true.encode())
    assert stripped.decode() == stub
    text = stub
    for block in blocks:
        assert text.count(block.stub) == 1
        text = text.replace(block.stub, block.true)
    assert text == true


@given(order=st.permutations(range(len(strip("m.py", MODULE.encode())[2]))))
def test_blocks_come_back_in_any_order_each_found_exactly_once(order: list[int]) -> None:
    stripped, _, blocks = strip("m.py", MODULE.encode())
    text = stripped.decode()
    for index in order:
        block = blocks[index]
        assert text.count(block.stub) == 1
        assert text.count(block.true) == 0
        text = text.replace(block.stub, block.true)
        assert text.count(block.true) == 1
    assert text == MODULE


def test_neighbours_that_look_alike_become_one_block_and_lines_are_told() -> None:
    stripped, _, blocks = strip("m.py", MODULE.encode())
    assert any(len(block.functions) > 1 for block in blocks)
    lines = stripped.decode().split("\n")
    for block in blocks:
        height = block.stub.count("\n") + 1
        assert "\n".join(lines[block.line - 1 : block.line - 1 + height]) == block.stub


@pytest.mark.parametrize(
    "data",
    [
        b"x = 1\n",
        b"def f(): ...\n",
        b"def f(:\n",
        b"def f():\r\n    return 1\r\n",
        b"\xef\xbb\xbfdef f(): return 1\n",
        b"# coding: latin-1\ndef f(): return '\xe4'\n",
        b"def f():\n    return 1\0\n",
    ],
)
def test_a_module_that_would_not_come_back_byte_for_byte_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"f\.py"):
        strip("f.py", data)
