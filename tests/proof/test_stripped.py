"""A whole library without its bodies, and items made of what its tests need."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from holdfast.proof.oracle.faults import mutants
from holdfast.proof.rebuild.contract import shortened
from holdfast.proof.rebuild.items import make_items, there_with, with_tests
from holdfast.proof.rebuild.library import Library
from holdfast.proof.rebuild.probe import Line, Needs, keep, needs, read_lines
from holdfast.proof.rebuild.strip import STUB
from holdfast.proof.rebuild.stripped import Whole
from tests.proof.mini import SUITE, needed

# --- the library without bodies --------------------------------------------------------------------


def test_every_body_is_out_and_comes_back(mini: Library, whole: Whole) -> None:
    assert len(whole.bodies) == 28
    assert whole.kept == ("mini/__init__.py",)
    nothing, everything = whole.tree_with(()), whole.tree_with(range(28))
    for file, data in nothing.items():
        functions = [node for node in ast.walk(ast.parse(data)) if isinstance(node, ast.FunctionDef)]
        assert len(functions) == data.count(STUB.encode())
        assert everything[file] == mini.tree[file].data
    one = whole.tree_with([3])
    assert sum(one[file] != nothing[file] for file in nothing) == 1


def test_entries_are_where_functions_begin(mini: Library, whole: Whole) -> None:
    assert sum(map(len, whole.entries.values())) == 28
    for file, lines in whole.entries.items():
        text = mini.tree[file].data.decode().splitlines()
        for line, number in lines.items():
            assert text[line - 1].lstrip().startswith("def ")
            assert whole.bodies[number].file == file


@pytest.mark.parametrize("number", range(28))
def test_mutants_parse_and_differ(whole: Whole, number: int) -> None:
    block = whole.bodies[number]
    found = mutants(block)
    assert block.true not in found
    assert block.stub not in found
    true = whole.true[block.file].decode()
    for text in found:
        ast.parse(true.replace(block.true, text, 1))


# --- what tests need ---------------------------------------------------------------------------------


def test_each_test_passes_with_what_its_item_depends_on(whole: Whole) -> None:
    items = make_items(whole, needed(whole, SUITE), wanted=5)
    assert sorted(body for item in items for body in item.bodies) == list(range(28))
    given = [test for item in items for cluster in item.clusters for test in cluster.tests]
    assert sorted(given) == sorted(SUITE)
    seen: set[str] = set()
    for item in items:
        assert set(item.depends) <= seen, "what it depends on comes before it"
        seen.add(item.name)
        there = there_with(item, items)
        for cluster in item.clusters:
            for test in cluster.tests:
                assert set(SUITE[test]) <= there, (item.name, test)
        assert item.files == tuple(sorted({whole.bodies[body].file for body in item.bodies}))
    assert any(len(item.depends) == 0 for item in items[1:]), "some can be worked on beside each other"


def test_no_circle_comes_of_tests_that_tell_of_each_other(whole: Whole) -> None:
    """Two items, and two tests that each tell of another one and need both: one item has to have both tests."""
    of = {"x": frozenset({0}), "y": frozenset({9}), "p": frozenset({0, 9}), "q": frozenset({0, 9})}
    told = {0: frozenset({"x", "p"}), 9: frozenset({"y", "q"})}
    items = make_items(whole, Needs(of, told))
    having = {test: item for item in items for cluster in item.clusters for test in cluster.tests}
    assert having["p"] == having["q"]
    assert having["x"] != having["y"]
    for test, item in having.items():
        assert of[test] <= there_with(item, items)


def test_an_item_loses_clusters_without_tests(whole: Whole) -> None:
    item = make_items(whole, needed(whole, SUITE))[0]
    first = item.clusters[0].tests[0]
    assert [cluster.tests for cluster in with_tests(item, {first}).clusters] == [(first,)]
    assert with_tests(item, ()).clusters == ()


def test_a_line_that_a_crash_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "lines.jsonl"
    assert list(read_lines(path)) == []
    keep(path, Line(-1, {"a": (1,), "b": ()}))
    with path.open("ab") as file:
        file.write(b'{"missing":3,"fai')
    keep(path, Line(2, failed=("b",)))
    lines = list(read_lines(path))
    assert [line.missing for line in lines] == [-1, 2]
    # What a test fails without, it needs, whether it was seen there or not.
    assert needs(lines) == Needs({"a": frozenset({1}), "b": frozenset({2})}, {2: frozenset({"b"})})


def test_all_parameters_have_one_name() -> None:
    assert shortened(["t::parse[1]", "t::parse[2]", "t::split"], SUITE) == ("t::parse", "t::split")
    assert shortened(["t::parse[2]"], SUITE) == ("t::parse[2]",)
