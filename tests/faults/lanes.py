"""Many deaths of one kind, two at a time, and one verdict on all of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

T = TypeVar("T")

LANES = 3


def verdict(run: Callable[[T], list[str]], cases: Iterable[T]) -> dict[str, list[str]]:
    """Case → broken promises, for every case that broke one. A run that raises has broken one."""

    def safely(case: T) -> list[str]:
        try:
            return run(case)
        except Exception:
            return [traceback.format_exc()]

    listed = list(cases)
    with ThreadPoolExecutor(LANES) as lanes:
        results = list(lanes.map(safely, listed))
    return {str(case): result for case, result in zip(listed, results, strict=True) if result}


def none_broken(broken: dict[str, list[str]], what: str) -> None:
    """Fail with every broken promise, a line each."""
    lines = [f"{case}: {each}" for case, promises in broken.items() for each in promises]
    if lines:
        pytest.fail(f"{what}: {len(broken)} runs broke {len(lines)} promises\n" + "\n".join(lines), pytrace=False)
