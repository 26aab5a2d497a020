"""When a provider wants to be asked again: each way of saying so, and what is not believed."""

from __future__ import annotations

import pytest
from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError

from holdfast.model.direct.model import translate
from holdfast.model.direct.wire import GarbledStream, Lines, Patience, Watch, Wire
from holdfast.model.names import Endpoint, parse_name
from tests.model.test_scripted import VirtualClock

ENDPOINT = Endpoint(parse_name("openai:m"), "http://127.0.0.1:1/v1", "the-key", "OPENAI_API_KEY")


def waited(**headers: str) -> float | None:
    """How long a rate limit with those headers asks to wait; now is the start of 1970."""
    clock = VirtualClock()
    wire = Wire(Watch(Patience(), clock))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = ModelHTTPError.for_category(ModelRateLimitError, status_code=429, model_name="m", headers=named)
    translated = translate(error, ENDPOINT, wire, clock)
    assert translated.kind == "rate_limited"
    return translated.retry_after_s


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "12"}, 12.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "Thu, 01 Jan 1970 00:01:30 GMT"}, 90.0),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "1m30.5s"}, 90.5),
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "6ms"}, 0.006),
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "2h3m"}, 7_380.0),
        (
            {
                "anthropic_ratelimit_tokens_remaining": "0",
                "anthropic_ratelimit_tokens_reset": "1970-01-01T00:10:00Z",
                "anthropic_ratelimit_requests_remaining": "40",
                "anthropic_ratelimit_requests_reset": "1970-01-01T09:00:00Z",
            },
            600.0,
        ),
        ({"retry_after": "3", "x_ratelimit_remaining": "0", "x_ratelimit_reset": "40s"}, 3.0),
        ({"retry_after": "99999999999"}, 31 * 86_400.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"x_ratelimit_remaining_requests": "7", "x_ratelimit_reset_requests": "1m"}, None),
        ({}, None),
    ],
)
def test_each_way_to_say_when(headers: dict[str, str], seconds: float | None) -> None:
    assert waited(**headers) == pytest.approx(seconds)


def test_what_a_provider_says_is_quoted_without_the_key_and_not_at_length() -> None:
    clock = VirtualClock()
    body = {"error": {"message": f"bad thing with the-key {'x' * 5000}"}}
    error = ModelHTTPError(400, "m", body)
    said = str(translate(error, ENDPOINT, Wire(Watch(Patience(), clock)), clock))
    assert "the-key" not in said
    assert "bad thing" in said
    assert len(said) < 500


@pytest.mark.parametrize(
    "stream",
    [
        b"data: 1\n\n",
        b"\xef\xbb\xbfevent: x\r\ndata: 1\r\n\r\n",
        b": ping\n\nid: 3\nretry: 5\ndata\n\n",
        b"data:1\n\n\n",
    ],
)
def test_the_lines_of_a_stream_are_let_through_however_they_are_cut(stream: bytes) -> None:
    for size in (1, 2, 3, 100):
        lines = Lines()
        for at in range(0, len(stream), size):
            lines.take(stream[at : at + size])
        lines.end()


@pytest.mark.parametrize("stream", [b"<html>\n", b"data: 1\n\ngarbage\n", b"dat: 1\n", b"\xff\xfe\n", b"data: half"])
def test_any_other_line_is_an_error(stream: bytes) -> None:
    lines = Lines()

    def read() -> None:
        lines.take(stream)
        lines.end()

    with pytest.raises(GarbledStream):
        read()
