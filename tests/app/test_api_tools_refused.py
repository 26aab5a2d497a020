"""Functions that cannot be tools: each is told why, and what to write, when it is defined."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from holdfast.app.python.tools import tool
from holdfast.errors import UsageError


class Size(msgspec.Struct):
    """How large."""

    width: int


class Chain(msgspec.Struct):
    """Holds itself."""

    next: Chain | None = None


def documented(kind: Any) -> Callable[..., None]:
    """A function with one parameter of that type."""

    def f(a: Any) -> None:
        """F."""

    f.__annotations__["a"] = kind
    return f


@pytest.mark.parametrize(
    "kind", [set[int], tuple[int, str], complex, bytes, Any, dict[int, str], list[set[int]], object, Decimal, "Nowhere"]
)
def test_types_that_no_model_can_give(kind: Any) -> None:
    with pytest.raises(UsageError, match=r"the function 'f' cannot be a tool: .*(a tool takes str, int|is unknown)"):
        tool(documented(kind))


def test_unions_that_nobody_could_tell_apart() -> None:
    with pytest.raises(UsageError, match="cannot be described to a model: Type unions may not"):
        tool(documented(Size | dict[str, int]))
    with pytest.raises(UsageError, match="contains itself"):
        tool(documented(Chain))


def no_type(a) -> None:  # type: ignore[no-untyped-def]
    """F."""


def any_number(*a: str) -> None:
    """F."""


def silent(a: str) -> None:
    pass


def only_arguments(a: str) -> None:
    """
    Args:
        a: something
    """


def wrong_default(a: int = "x") -> None:  # type: ignore[assignment]
    """F."""


def with_key(idempotency_key: str) -> None:
    """F."""


def fine(a: str = "") -> None:
    """F."""


def generator() -> Any:
    """F."""
    yield


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (no_type, {}, "its parameter 'a' has no type; write one, such as `a: str`"),
        (any_number, {}, r"`\*a: '?str'?` has no fixed name"),
        (silent, {}, "it has no docstring"),
        (only_arguments, {}, "it has no docstring"),
        (wrong_default, {}, "the default of 'a', 'x', is not of its type"),
        (with_key, {}, "pass `keyed=True`"),
        (fine, {"keyed": True}, "no parameter `idempotency_key: str`"),
        (fine, {"name": "two words"}, "'two words' is not a tool name"),
        (fine, {"name": "bash"}, "'bash' is a built-in tool.*name='my_bash'"),
        (fine, {"timeout_s": 0}, "timeout_s=0; use seconds above 0"),
        (fine, {"timeout_s": float("nan")}, "timeout_s=nan"),
        (fine, {"timeout_s": "5"}, "timeout_s='5'"),
        (fine, {"price_usd": "-1"}, r"costs -\$1\.00"),
        (fine, {"price_usd": float("inf")}, "price_usd='0.01'"),
        (fine, {"price_usd": "cheap"}, "'cheap' is not an amount"),
        (fine, {"on_unknown": "hope"}, "on_unknown='hope'; it is one of retry, probe, tell, ask"),
        (generator, {}, "without yield"),
        (len, {}, "cannot be a tool"),
        (Size, {}, "cannot be a tool"),
        (lambda: None, {}, "'<lambda>' is not a tool name"),
    ],
)
def test_what_cannot_be_a_tool(function: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tool(**options)(function)


def test_probes() -> None:
    @tool(on_unknown="probe")
    def send(to: str) -> None:
        """Send."""

    for part in ("spec", "runner"):
        with pytest.raises(UsageError, match=r'has on_unknown="probe" and no probe; write one under `@send\.probe`'):
            getattr(send, part)
    with pytest.raises(UsageError, match="takes 'whom', which the tool does not have; it can take to"):

        @send.probe
        def wrong(whom: str) -> bool:
            return True

    with pytest.raises(UsageError, match="on_unknown='tell', so its probe would never run"):

        @tool(fine).probe
        def never() -> bool:
            return True
