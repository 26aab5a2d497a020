"""A small library with a suite that has something for every tamper: written for this, and for nothing else."""

from __future__ import annotations

import textwrap

from holdfast.sim.tampers_measure import furnished


def _text(text: str) -> bytes:
    return textwrap.dedent(text).lstrip().encode()


FILES = furnished(
    {
        "pyproject.toml": _text(
            """
            [project]
            name = "harbor"
            version = "1.0"
            dependencies = ["attrs>=23"]

            [tool.pytest.ini_options]
            addopts = "--strict-markers"
            testpaths = ["tests"]
            """
        ),
        "src/harbor/__init__.py": b"from harbor.knots import bend, hitch\n",
        "src/harbor/knots.py": _text(
            '''
            """Knots."""

            import re


            def bend(rope, turns=1):
                """A bend in a rope."""
                if turns < 0:
                    raise ValueError("turns count from 0")
                return f"{rope}:{turns}"


            def hitch(rope):
                return bend(rope, len(re.findall("a", rope)))
            '''
        ),
        "tests/conftest.py": _text(
            """
            import pytest


            @pytest.fixture
            def rope():
                return "manila"
            """
        ),
        "tests/helpers.py": _text(
            """
            def tight(knot):
                return knot.endswith(":2")
            """
        ),
        "tests/data/knots.txt": b"manila:2\n",
        "tests/test_knots.py": _text(
            """
            import unittest

            import pytest
            from harbor import bend, hitch
            from helpers import tight


            @pytest.fixture
            def line():
                return "sisal"


            def test_bend():
                assert bend("hemp", 14) == "hemp:14"
                assert bend("jute", 3) == "jute:3"


            def test_hitch(rope):
                knot = hitch(rope)
                assert tight(knot)
                assert knot == "manila:2"


            def test_line(line):
                assert hitch(line) == "sisal:1"


            def test_negative():
                with pytest.raises(ValueError, match="from 0"):
                    bend("hemp", -1)


            @pytest.mark.parametrize("turns", [1, 2, 3])
            def test_turns(turns):
                assert bend("x", turns) == f"x:{turns}"


            class TestHitches(unittest.TestCase):
                def test_none(self):
                    self.assertEqual(hitch("rope"), "rope:0")
            """
        ),
    }
)
