"""What tests expect instead: near, or what another test expects, asked for in the same form."""

from __future__ import annotations

import ast

import pytest

from holdfast.kinds.mission.check.ability import javascript, python

pytestmark = pytest.mark.real

SUITE = """\
def test_sum():
    assert add(1, 2) == 3

def test_word():
    assert word() == "abc"

def test_pair():
    assert (1, "b") == pair()

def test_helper():
    check_same(add(2, 2), 4)

def test_not_a_question():
    record(add(2, 2), 4)

def test_other_side():
    assert add(1, 1) == expected

class TestUnit(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(add(3, 3), 6)
"""


def _flips(word: str) -> dict[str, str]:
    tree = ast.parse(SUITE)
    turned = python.flipped(tree, (), word, 40)
    made = {node.name: ast.unparse(node.body[0]) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {name.rpartition("::")[2]: made[name.rpartition("::")[2]] for name in turned}


def test_expectations_of_python_keep_their_form() -> None:
    found = [_flips(word) for word in ("aa", "ab")]
    assert set(found[0]) == {"test_sum", "test_word", "test_pair", "test_helper", "test_other_side", "test_equal"}
    wanted = {
        "test_sum": {"assert add(1, 2) == 4", "assert add(1, 2) == 'abc'"},
        "test_word": {"assert word() == 'abd'", "assert word() == 3"},
        "test_pair": {"assert (1, 'c') == pair()", "assert 3 == pair()"},
        "test_helper": {"check_same(add(2, 2), 5)", "check_same(add(2, 2), 3)"},
        "test_other_side": {"assert add(1, 1) == 'aa'", "assert add(1, 1) == 'ab'"},
        "test_equal": {"self.assertEqual(add(3, 3), 7)", "self.assertEqual(add(3, 3), 3)"},
    }
    for name, ways in wanted.items():
        assert {each[name] for each in found} == ways


@pytest.mark.parametrize("value", [True, 3, 2.5, "a", "a!", b"x", [1], (1, "b"), {"a": 1}, set(), "", None])
def test_another_value_is_another_one(value: object) -> None:
    for turn in range(2):
        made = python.Wrong("word", turn, [3, 2.5, "a"]).instead(value)
        assert ast.literal_eval(made) != value


NODE = """\
const test = require('node:test');
test('sum', () => { assert.strictEqual(add(1, 2), 3); });
test('word', () => { expect(word()).toBe('abc'); });
test('helper', () => { same(add(2, 2), 4); });
test('another', () => { notSame(add(2, 2), 4); });
test('made', () => { assert.strictEqual(add(1, 2), expected); });
"""


def test_expectations_of_javascript_keep_their_form() -> None:
    found = [javascript.flipped(NODE.encode(), word, 40) for word in ("aa", "ab")]
    assert [turned for _, turned in found] == [["sum", "word", "helper", "made"]] * 2
    lines = [{line.split("'")[1]: line for line in data.decode().splitlines()} for data, _ in found]
    for name, ways in {"sum": ("4)", "'abc')"), "word": ("'abd')", "3)"), "helper": ("5)", "3)")}.items():
        assert {next(way for way in ways if f" {way};" in each[name]) for each in lines} == set(ways), name
    assert '"expected aa"' in lines[0]["made"]
    assert all("notSame(add(2, 2), 4)" in data.decode() for data, _ in found)
