"""Patterns that are compiled at their first use behave like compiled ones."""

from __future__ import annotations

import re

import pytest

from holdfast.patterns import lazy


def test_a_lazy_pattern_is_compiled_at_its_first_use_alone() -> None:
    broken = lazy("(")
    with pytest.raises(re.error):
        broken.search("text")
    pattern = lazy(r"(\d+)", re.ASCII)
    assert "search" not in vars(pattern)
    assert pattern.sub("n", "a 12") == "a n"
    assert "search" in vars(pattern)
    assert pattern.pattern == r"(\d+)"
    assert [match[1] for match in pattern.finditer("1 22")] == ["1", "22"]
    assert lazy(rb"\w").fullmatch(b"x") is not None
