"""Expressions of alerts, in CEL: conditions on reported values and their history, outcomes, and spend. Pure.

Every number is a double, also one that is written without a point. The truth of an expression changes only at certain
times: when something is reported, and when that leaves a window such as the one of `delta("errors", "1h")`. So an
expression can be evaluated for any time in the past, and the next time at which it could change is known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from holdfast.errors import CannotRunSafely

LENGTH_MAX = 1_000
"""Longest expression, in characters. The library itself bounds nesting and loops."""

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
TOKEN = re.compile(
    r"""(?P<text>"[^"\\\n]*"|'[^'\\\n]*')|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)"""
    r"|(?P<name>[A-Za-z_]\w*)|(?P<other>\S)"
)
_WINDOWED = {"delta": 2, "rate": 2, "missing": 2, "spend": 1}
"""Function → its largest number of arguments; the last one is the window, the one before it a value."""

CALL = re.compile(rf"\b({'|'.join(_WINDOWED)})\s*\([^()]*\)")
"""Call of such a function, whose arguments are plain text."""

_GIVEN = ("failures", "outcome", "spend_usd")
_WORDS = frozenset(
    "as break const continue else false for function if import in let loop package namespace null return true var void "
    "while all exists exists_one filter has map size string matches contains startsWith endsWith double int uint bool "
    "bytes duration timestamp type dyn list".split()
)
"""Words of the language, which are no names of values."""


class Sample(NamedTuple):
    """A reported value."""

    at_us: int
    value: float


class Ending(NamedTuple):
    """The end of a firing."""

    at_us: int
    outcome: str
    cost_usd: float = 0.0


class History(NamedTuple):
    """Basis of an evaluation: samples by value and ended firings, since `began_us`, each in the order of time.

    `spent_usd` is everything that was spent, also by firings that are no longer in `endings`.
    """

    began_us: int
    series: Mapping[str, Sequence[Sample]]
    endings: Sequence[Ending] = ()
    spent_usd: float = 0.0


class Expression(NamedTuple):
    """A compiled expression, with the values and windows that it uses."""

    text: str
    program: Any
    names: tuple[str, ...]
    windows_us: tuple[int, ...]

    def at(self, history: History, at_us: int) -> bool | None:
        """Return its truth at a time, None while a value that decides it is not known."""
        token = _MOMENT.set((history, at_us))
        try:
            known = {name: found.value for name in self.names if (found := _latest(history, name, at_us)) is not None}
            ended = [each for each in history.endings if each.at_us <= at_us]
            later = sum(each.cost_usd for each in history.endings if each.at_us > at_us)
            given: dict[str, Any] = {"failures": _failures(ended), "spend_usd": history.spent_usd - later}
            given |= {"outcome": ended[-1].outcome} if ended else {}
            found = self.program.eval(data={**known, **given}).value()
        finally:
            _MOMENT.reset(token)
        return found if isinstance(found, bool) else None  # an error is a value too

    def changes(self, history: History) -> list[int]:
        """Return the times at which its truth may change, in order."""
        times = [history.began_us, *(each.at_us for each in history.endings)]
        every = not self.names
        times += [each.at_us for name, found in history.series.items() if every or name in self.names for each in found]
        return sorted({at + window for at in times for window in (0, *self.windows_us)})


def value_name(name: str) -> str:
    """Return the name if expressions can use it for a reported value. Raises `ValueError`."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name) or name in {*_WORDS, *_GIVEN, *_WINDOWED}:
        raise ValueError(
            f"{name!r} cannot be the name of a value: use lowercase letters, digits, and underscores, and no word of "
            "the expressions, such as outcome or rate"
        )
    return name


def window_us(text: str) -> int:
    """Return a window such as 90s, 30m, 12h, 7d, or 2w, in microseconds. Raises `ValueError`."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhdw])", text)
    if found is None or int(found[1]) * _UNITS_S[found[2]] > 366 * 86_400:
        raise ValueError(f"{text!r} is not a window of at most a year; write one such as 30m, 12h, or 7d")
    return int(found[1]) * _UNITS_S[found[2]] * 1_000_000


@lru_cache(maxsize=1024)
def parse(text: str, values: tuple[str, ...] = ()) -> Expression:
    """Compile an expression about these values, or about any if there are none.

    Raises `ValueError` if it does not parse, names something unknown, or is not a condition.
    """
    if len(text) > LENGTH_MAX:
        raise ValueError(f"the expression is longer than {LENGTH_MAX} characters")
    tokens = [(found.lastgroup or "", found[0]) for found in TOKEN.finditer(text)]
    windows, quoted = set[int](), set[str]()
    for place, (kind, token) in enumerate(tokens):
        if kind == "name" and token in _WINDOWED:
            for argument in _arguments(token, tokens[place + 1 :], text, quoted):
                windows.add(window_us(argument))
    around = zip(["", *(token for _, token in tokens)], tokens, [*(token for _, token in tokens[1:]), ""], strict=False)
    plain = {token for before, (kind, token), after in around if kind == "name" and before != "." and after != "("}
    names = plain - set(_GIVEN) - _WORDS
    for name in sorted(names | quoted):
        if values and name not in values:
            raise ValueError(
                f"the expression {text!r} names {name!r}, which is no value of the duty: {', '.join(values)}"
            )
        value_name(name)
    if not (plain - _WORDS or quoted or windows):
        raise ValueError(f"the expression {text!r} depends on no value, so it never changes")
    source = TOKEN.sub(lambda found: f"{found[0]}.0" if (found["number"] or "").isdigit() else found[0], text)
    program = _compile(source, text, tuple(sorted(names)))
    return Expression(text, program, tuple(sorted(names | quoted)), tuple(sorted(windows)))


def _arguments(function: str, rest: Sequence[tuple[str, str]], text: str, quoted: set[str]) -> Iterator[str]:
    """Yield the window of a call, and note the value that it names. Both must be plain text, to be checked."""
    end = next((place for place, (_, token) in enumerate(rest) if token == ")"), 0)
    words = [token[1:-1] for kind, token in rest[1:end] if kind == "text"]
    form = [token for kind, token in rest[1:end] if kind != "text"]
    most = _WINDOWED[function]
    fits = len(words) in ((1, 2) if function == "missing" else (most,))
    if not rest or rest[0][1] != "(" or not fits or form != [","] * (len(words) - 1):
        example = f'{function}("errors", "1h")' if most == 2 else f'{function}("24h")'
        raise ValueError(f"the expression {text!r} uses {function} without plain text; write {example}")
    quoted.update(words[:-1])
    yield words[-1]


def _compile(source: str, text: str, names: tuple[str, ...]) -> Any:
    """Compile and type-check with the library."""
    try:
        from cel_expr_python import cel  # type: ignore[import-untyped]
    except ImportError as error:
        raise CannotRunSafely("alerts need the extra 'duty': pip install 'holdfast[duty]'") from error
    numbers, texts, truth = cel.Type.DOUBLE, cel.Type.STRING, cel.Type.BOOL

    def declared(name: str, returns: Any, *overloads: int) -> Any:
        shapes = [
            cel.Overload(f"{name}_{count}", return_type=returns, parameters=[texts] * count, impl=_FUNCTIONS[name])
            for count in overloads
        ]
        return cel.FunctionDecl(name, shapes)

    functions = [
        *(declared(name, numbers, 2) for name in ("delta", "rate")),
        *(declared("missing", truth, 1, 2), declared("spend", numbers, 1)),
    ]
    variables = {**dict.fromkeys((*names, "failures", "spend_usd"), numbers), "outcome": texts}
    try:
        program = cel.NewEnv(variables=variables, functions=functions).compile(source)
    except RuntimeError as error:
        why = re.sub(r"^.*?ERROR: <input>:[-\d:]+ ", "", str(error).partition("\n")[0])
        raise ValueError(f"the expression {text!r} cannot be used: {why}") from None
    if program.return_type() != truth:
        raise ValueError(f"the expression {text!r} is no condition: it is neither true nor false; compare it")
    return program


# --- functions of the language ------------------------------------------------------------------------

_MOMENT: ContextVar[tuple[History, int]] = ContextVar("_MOMENT")
"""History and time of the evaluation in progress."""


def _latest(history: History, name: str, at_us: int) -> Sample | None:
    found = history.series.get(name, ())
    place = bisect_right(found, at_us, key=lambda each: each.at_us)
    return found[place - 1] if place else None


def _within(history: History, name: str, at_us: int, window: str) -> Sequence[Sample]:
    """Return the samples of a window, after the last one before it. Raises `LookupError` if there are none at all."""
    found = history.series.get(name, ())
    start = bisect_right(found, at_us - window_us(window), key=lambda each: each.at_us)
    end = bisect_right(found, at_us, key=lambda each: each.at_us)
    if not end:
        raise LookupError(name)
    return found[max(0, start - 1) : end]


def _delta(name: str, window: str) -> float:
    """Change of a value over a window; 0 without an earlier value."""
    found = _within(*_about(name), window)
    return found[-1].value - found[0].value


def _rate(name: str, window: str) -> float:
    """Growth of a counter per second over a window. A value below the one before it is a restart from 0."""
    found = _within(*_about(name), window)
    grown = sum(
        after.value - before.value if after.value >= before.value else after.value for before, after in pairwise(found)
    )
    return grown / (window_us(window) / 1_000_000)


def _missing(*named: str) -> bool:
    """True if a value, or any value, was not reported for as long as the window."""
    history, at_us = _MOMENT.get()
    names = named[:-1] or tuple(history.series)
    last = [found.at_us for name in names if (found := _latest(history, name, at_us)) is not None]
    return at_us - max([history.began_us, *last]) >= window_us(named[-1])


def _spend(window: str) -> float:
    """Spend of the firings that ended within a window, in USD."""
    history, at_us = _MOMENT.get()
    return sum(each.cost_usd for each in history.endings if at_us - window_us(window) < each.at_us <= at_us)


def _about(name: str) -> tuple[History, str, int]:
    history, at_us = _MOMENT.get()
    return history, name, at_us


def _failures(ended: Sequence[Ending]) -> float:
    """Number of failed firings in a row."""
    count = 0.0
    for each in reversed(ended):
        if each.outcome == "done":
            break
        count += each.outcome != "cancelled"
    return count


_FUNCTIONS: dict[str, Any] = {"delta": _delta, "rate": _rate, "missing": _missing, "spend": _spend}
