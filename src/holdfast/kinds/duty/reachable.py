"""Detection of alert conditions that never change: never true, or always, whatever is reported. Pure.

A condition that only compares is evaluated at every order that its values can have among the numbers in it, so the
answer is exact. One that calculates, or that has too many values, is not judged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import get_args, get_type_hints

from holdfast.facts.duty import FiringEnded
from holdfast.kinds.duty.expressions import CALL, LENGTH_MAX, TOKEN, Ending, History, Sample, parse

POINTS_MAX = 5_000
"""Most combinations of values that are tried."""

OUTCOMES: tuple[str, ...] = get_args(get_type_hints(FiringEnded)["outcome"])

_COMPARES = frozenset("<>=!&|()[],")
"""Signs of a condition that only compares."""


def check_reachable(text: str) -> None:
    """Raise `ValueError` if a condition that parses is never true, or always."""
    found = _truths(text)
    if len(found) == 1:
        never = "always" if found.pop() else "never"
        raise ValueError(f"the expression {text!r} is {never} true, whatever is reported")


def _truths(text: str) -> set[bool | None]:
    """Return the truths that a condition can have; nothing if it is not judged."""
    stands: dict[str, str] = {}

    def stand(what: str, kind: str) -> str:
        """Return the name of a value in the place of a call, or of a number that is given."""
        name = stands.setdefault(what, f"{kind}_in_place_{len(stands)}")
        return f"({name} == 1)" if kind == "missing" else name

    plain = CALL.sub(lambda found: stand(found[0].replace(" ", ""), found[1]), text)
    plain = TOKEN.sub(
        lambda found: stand(found[0], found[0]) if found[0] in ("failures", "spend_usd") else found[0], plain
    )
    if len(plain) > LENGTH_MAX:
        return set()
    expression = parse(plain)
    tokens = [(found.lastgroup, found[0]) for found in TOKEN.finditer(plain)]
    known = {*expression.names, "outcome", "true", "false", "in"}
    if any(
        (kind == "other" and token not in _COMPARES) or (kind == "name" and token not in known)
        for kind, token in tokens
    ):
        return set()
    numbers = {float(token) for kind, token in tokens if kind == "number"} | {0.0}
    if any(name.startswith("failures_in_place") for name in expression.names):
        numbers |= {math.floor(each) + step for each in numbers for step in (0.0, 1.0)}
    domains = [_domain(name, sorted(numbers), len(expression.names)) for name in expression.names]
    outcomes = OUTCOMES if ("name", "outcome") in tokens else OUTCOMES[:1]
    if not all(map(math.isfinite, numbers)) or math.prod(map(len, (*domains, outcomes))) > POINTS_MAX:
        return set()
    found = set()
    for values in itertools.product(*domains):
        series = {name: [Sample(0, value)] for name, value in zip(expression.names, values, strict=True)}
        found |= {expression.at(History(0, series, [Ending(0, outcome)]), 0) for outcome in outcomes}
    return found


def _domain(name: str, numbers: Sequence[float], count: int) -> list[float]:
    """Return values at and between the numbers, so many that `count` values can have every order there."""
    kind = name.partition("_in_place_")[0]
    if kind == "missing":
        return [0.0, 1.0]
    if kind == "failures":
        return [each for each in numbers if each >= 0 and each.is_integer()]
    steps = range(1, count + 1)
    between = [low + (high - low) * step / (count + 1) for low, high in itertools.pairwise(numbers) for step in steps]
    outside = [numbers[-1] + step * max(1.0, abs(numbers[-1])) for step in steps]
    if kind not in ("spend", "spend_usd"):
        outside += [numbers[0] - step * max(1.0, abs(numbers[0])) for step in steps]
    return [*numbers, *between, *outside]
