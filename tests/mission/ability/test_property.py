"""Random small suites with a right product: each probe fails; with a product that equals everything no flip does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.facts.mission import Check
from tests.mission.ability.bench import of, probed

pytestmark = pytest.mark.real

VALUES = st.one_of(
    st.integers(-5, 5), st.text("abc", max_size=3), st.booleans(), st.lists(st.integers(0, 3), max_size=2),
    st.tuples(st.integers(0, 3)), st.dictionaries(st.text("ab", max_size=1), st.integers(0, 3)),
    st.floats(0, 4, width=16),
)  # fmt: skip
SHAPES = (
    "    assert f({i}) == {value!r}\n",
    "    assert {value!r} == f({i})\n",
    "    result = f({i})\n    assert result == {value!r}, 'not it'\n",
    "    expected = {value!r}\n    assert f({i}) == expected\n",
    "    assert f({i}) in [{value!r}]\n    assert f({i}) == {value!r}\n",
)

EVERYTHING = "class E:\n    def __eq__(self, other):\n        return True\n\ndef f(i):\n    return E()\n"


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(VALUES, st.sampled_from(SHAPES), st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_probes_of_honest_suites_fail_and_flips_catch_equality(drawn: list[tuple[object, str, bool, bool]]) -> None:
    lines, unsure = ["import pytest\nfrom calc import f\n"], False
    for i, (value, shape, in_class, cases) in enumerate(drawn):
        body = shape.format(i=i, value=value)
        unsure |= shape == SHAPES[4]
        mark = "@pytest.mark.parametrize('n', [1, 2])\n" if cases else ""
        head = f"def test_{i}({'self, ' if in_class else ''}{'n' if cases else ''}):\n"
        text = f"{mark}{head}{body}"
        if in_class:
            text = f"class Test{i}:\n" + "".join(f"    {line}\n" for line in text.splitlines())
        lines.append(text)
    product = f"VALUES = {[value for value, *_ in drawn]!r}\n\ndef f(i):\n    return VALUES[i]\n"
    files = of({"calc.py": product, "tests/test_a.py": "\n".join(lines), "pytest.ini": "[pytest]\npythonpath = .\n"})
    assert probed(Check("pytest", tests=("tests/test_a.py",)), files) == {
        "canary": [True], "flip": [True], "hollow": [True], "empty": [True],
    }  # fmt: skip
    if not unsure:
        told = probed(Check("pytest", tests=("tests/test_a.py",)), {**files, "calc.py": EVERYTHING.encode()})
        assert told["flip"] == [False]
