"""The bound on input tokens, and the price of it, really are bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.facts.base import Usage
from holdfast.model.base import IMAGE_TOKENS, most_input_tokens
from holdfast.model.prices import OwnPrice
from holdfast.session.context.conversation import (
    DocumentPart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.session.money import price_per_mtok
from tests.model.rigs import request, user


def test_every_part_counts() -> None:
    least = most_input_tokens(request(user()))
    parts: list[Part] = [
        TextPart("x" * 1000),
        ImagePart("image/png", b"x"),
        DocumentPart("text/plain", b"x" * 1000),
        DocumentPart("application/pdf", b"x"),
        ToolCallPart("1.0", "bash", {"command": "x" * 1000}),
        ToolResultPart("1.0", "bash", "x" * 1000),
    ]
    for part in parts:
        more = most_input_tokens(request(user(part))) - least
        assert more >= 1000, part
    assert most_input_tokens(request(user(ImagePart("image/png", b"x")))) - least >= IMAGE_TOKENS


@given(st.text(max_size=400))
def test_a_text_counts_every_byte(text: str) -> None:
    """A tokenizer that knows none of it makes a token of each byte."""
    more = most_input_tokens(request(Message("user", (TextPart(text),)))) - most_input_tokens(request())
    assert more >= len(text.encode("utf-8"))


@given(*(st.integers(0, 10**6) for _ in range(4)), st.integers(0, 10**6))
def test_the_worst_price_is_above_every_mix_of_cached_and_plain(
    plain: int, read: int, written: int, output: int, more: int
) -> None:
    price = OwnPrice(price_per_mtok(3.0, 15.0, 0.3, 3.75))
    worst = price.worst(plain + read + written + more, output)
    cost = price.cost(Usage(plain, output, read, written))
    assert worst is not None
    assert cost is not None
    assert cost <= worst
