"""What goes wrong on the way to a provider, for each family, through a whole session.

After each: the log has one attempt for each request that the proxy and the server saw, no money is held, and
nothing of a broken answer was acted on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import formatdate

import pytest

from holdfast.facts.model import AgentMessage, AgentToolUse, ModelRequestEnd
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.model.direct.wire import Patience
from tests.model.rigs import COMMAND, HURRY, Rig, tool_turn
from tests.support.fault_proxy import Ending, Fault, ending

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")


async def went_on(rig: Rig, kind: str) -> ModelRequestEnd:
    """The session got over a first attempt that failed in that way, and did its work once."""
    failed, *others = await rig.ends()
    assert (failed.outcome, failed.error_kind) == ("error", kind), failed
    assert [end.outcome for end in others] == ["ok", "ok"]
    assert (await rig.starts())[1].attempt == 2
    (use,) = await rig.stage.facts(AgentToolUse)
    assert use.input == {"command": COMMAND}
    assert len(await rig.stage.facts(ToolDispatched)) == 1
    assert len(await rig.stage.facts(AgentMessage)) == 2
    await rig.check_books()
    return failed


async def waited_s(rig: Rig) -> float:
    """How long it was between the first failure and the next attempt."""
    events = [event for event in await rig.stage.events() if event.type.startswith("span.model_request")]
    return (events[2].at_us - events[1].at_us) / 1_000_000


async def test_a_rate_limit_is_waited_for_as_long_as_was_asked(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.server.fail_next(429, message="slow down", type="rate_limit_error")
    rig.proxy.faults = [Fault(headers={"Retry-After": "9"})]
    await rig.run()
    failed = await went_on(rig, "rate_limited")
    assert failed.retry_after_s == 9.0
    assert 8.9 <= await waited_s(rig) <= 30


async def test_a_rate_limit_may_name_a_date(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.server.fail_next(429, message="slow down", type="rate_limit_error")
    at_s = rig.clock.now_us() / 1_000_000 + 20
    rig.proxy.faults = [Fault(headers={"Retry-After": formatdate(at_s, usegmt=True)})]
    await rig.run()
    failed = await went_on(rig, "rate_limited")
    assert failed.retry_after_s is not None
    assert 1 <= failed.retry_after_s <= 20


async def test_a_long_limit_parks_the_session_until_its_reset(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.server.fail_next(429, message="come back tomorrow", type="rate_limit_error")
    rig.proxy.faults = [Fault(headers={"Retry-After": "7200"})]
    outcome = await rig.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "provider")
    assert outcome.ended.due_us is not None
    assert outcome.ended.due_us - rig.clock.now_us() > 6_000 * 1_000_000
    await rig.check_books()


@pytest.mark.parametrize(
    ("status", "kind"), [(529, "overloaded"), (503, "overloaded"), (500, "unavailable"), (502, "unavailable")]
)
async def test_a_provider_in_trouble_is_asked_again(rig: Rig, status: int, kind: str) -> None:
    rig.server.load(*tool_turn())
    rig.server.fail_next(status, message="sorry", type="overloaded_error" if status == 529 else "api_error")
    await rig.run()
    await went_on(rig, kind)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (401, "who are you", "auth"),
        (403, "not you", "auth"),
        (404, "no such model", "unknown_model"),
        (400, "what is this", "invalid_request"),
    ],
)
async def test_what_no_retry_mends_fails_once_and_says_what_to_do(rig: Rig, status: int, said: str, kind: str) -> None:
    rig.server.load(*tool_turn())
    rig.server.fail_next(status, message=said, type="some_error")
    outcome = await rig.run()
    (end,) = await rig.ends()
    assert (end.outcome, end.error_kind) == ("error", kind)
    assert outcome.ended is not None
    assert outcome.ended.status in ("failed", "parked")
    hints = {"auth": "set TEST_API_KEY", "unknown_model": "check the name", "invalid_request": said}
    assert hints[kind] in end.message
    await rig.check_books()


async def test_a_context_that_is_too_long_is_told_apart(rig: Rig) -> None:
    words = {
        "anthropic": ("prompt is too long: 250000 tokens > 200000 maximum", "invalid_request_error"),
        "openai": ("This model's maximum context length is 128000 tokens.", "invalid_request_error"),
        "openai-chat": ("This model's maximum context length is 128000 tokens.", "invalid_request_error"),
        "google": ("The input token count (3) exceeds the maximum number of tokens allowed (2).", "INVALID_ARGUMENT"),
    }
    message, type_ = words[rig.family]
    rig.server.load(*tool_turn())
    rig.server.fail_next(400, message=message, type=type_)
    await rig.run()
    (end,) = await rig.ends()
    assert end.error_kind == "context_too_long"
    await rig.check_books()


async def test_an_account_that_is_used_up_is_told_apart(rig: Rig) -> None:
    words = {
        "anthropic": (400, "Your credit balance is too low to access the API", "invalid_request_error", ""),
        "openai": (429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
        "openai-chat": (429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
        "google": (402, "billing", "some_error", ""),
    }
    status, message, type_, code = words[rig.family]
    rig.server.load(*tool_turn())
    rig.server.fail_next(status, message=message, type=type_, **({"code": code} if code else {}))
    await rig.run()
    (end,) = await rig.ends()
    assert end.error_kind == "quota"
    await rig.check_books()


async def test_silence_before_the_answer_is_a_timeout(rig: Rig) -> None:
    await rig.impatient()
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(stall_at=-1)]
    await rig.run()
    failed = await went_on(rig, "timeout")
    assert "did not begin" in failed.message
    assert failed.first_token_ms is None


async def test_silence_in_the_answer_is_a_timeout(rig: Rig) -> None:
    await rig.impatient()
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(stall_at=within_the_call(rig))]
    await rig.run()
    failed = await went_on(rig, "timeout")
    assert "was silent" in failed.message
    assert failed.first_token_ms is not None


def in_forty(body: bytes) -> list[bytes]:
    size = len(body) // 40 + 1
    return [body[at : at + size] for at in range(0, len(body), size)]


async def test_a_slow_answer_is_waited_for(rig: Rig) -> None:
    """Together its parts take longer than a silence that is a timeout."""
    await rig.impatient(Patience(connect_s=60.0, first_s=900.0, between_s=60.0))
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(pieces=in_forty, pause_s=72.0 / HURRY / 40)]
    before_s = rig.clock.monotonic_s()
    await rig.run()
    assert rig.clock.monotonic_s() - before_s > 60.0
    assert [end.outcome for end in await rig.ends()] == ["ok", "ok"]
    await rig.check_books()
    await rig.check_calls()


@pytest.mark.parametrize("how", ["cut_at", "end_at", "garbage_at"])
async def test_a_broken_answer_is_thrown_away_and_asked_for_again(rig: Rig, how: Ending) -> None:
    rig.server.load(*tool_turn())
    rig.proxy.faults = [ending(how, within_the_call(rig))]
    await rig.run()
    await went_on(rig, "bad_stream")


_PIECE = {
    "anthropic": b'"partial_json":"/workspace all && ec"',
    "openai": b'"delta":"/workspace all && ec"',
    "openai-chat": b'"arguments":"/workspace all && ec"',
}
"""A piece in the middle of the call's arguments. Without it they are JSON still, and another command."""


def _without_a_piece(family: str, noise: bytes) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        events = body.split(b"\n\n")
        assert sum(_PIECE[family] in event for event in events) == 1
        return b"\n\n".join(noise if _PIECE[family] in event else event for event in events)

    return change


@pytest.mark.parametrize("rig", ["anthropic", "openai", "openai-chat"], indirect=True)
async def test_noise_in_place_of_a_piece_of_a_call_is_seen(rig: Rig) -> None:
    """The libraries skip lines that are no events: what is left would be a whole call that nobody asked for."""
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(rewrite=_without_a_piece(rig.family, b"<html>oops</html>"))]
    await rig.run()
    await went_on(rig, "bad_stream")


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
async def test_pieces_that_contradict_their_summary_are_not_run(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(rewrite=_without_a_piece(rig.family, b": nothing"))]
    await rig.run()
    await went_on(rig, "bad_stream")


async def test_a_connection_that_is_refused_is_tried_again(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(refuse=True)]
    await rig.run()
    failed, *others = await rig.ends()
    assert (failed.error_kind, len(others)) == ("unavailable", 2)
    assert failed.cost_pico == 0
    await rig.check_books(refused=1)


def within_the_call(rig: Rig, *, reasoning: bool = False) -> int:
    """A place in the body where the arguments of the call have begun and not ended; for Google, right before."""
    place = {"anthropic": 1_350, "openai": 2_350, "openai-chat": 950, "google": 200}[rig.family]
    return place + ({"anthropic": 200, "openai": 900, "openai-chat": 250, "google": 30}[rig.family] if reasoning else 0)


def _to_the_limit(family: str, keep: int) -> Callable[[bytes], bytes]:
    """The stream of a call that ran into the response limit after `keep` pieces of its arguments."""
    piece = {
        "anthropic": rb'"input_json_delta"',
        "openai": rb"function_call_arguments.delta",
        "openai-chat": rb'"function":\{"arguments":',
    }[family]
    whole = (b"function_call_arguments.done", b'"type":"response.output_item.done","output_index":2')

    def change(body: bytes) -> bytes:
        events = body.split(b"\n\n")
        pieces = [event for event in events if re.search(piece, event)]
        assert len(pieces) > keep
        dropped = set(pieces[keep:])
        kept = [event for event in events if event not in dropped and not any(word in event for word in whole)]
        return _ended(b"max_tokens", b"length", b"max_output_tokens")(b"\n\n".join(kept))

    return change


def _ended(anthropic: bytes, chat: bytes, responses: bytes) -> Callable[[bytes], bytes]:
    """The stream, ended for another reason, in the words of each family."""

    def change(body: bytes) -> bytes:
        ended = re.sub(rb'"stop_reason":"\w+"', b'"stop_reason":"' + anthropic + b'"', body)
        ended = re.sub(rb'"finish_reason":"\w+"', b'"finish_reason":"' + chat + b'"', ended)
        status = b'"status":"incomplete","incomplete_details":{"reason":"' + responses + b'"},"output":[],"usage"'
        ended = re.sub(rb'"status":"\w+","output":\[.*\],"usage"', status, ended)
        ended = ended.replace(b"response.completed", b"response.incomplete")
        assert ended != body
        return ended

    return change


@pytest.mark.parametrize("keep", [0, 1, 3])
@pytest.mark.parametrize("rig", ["anthropic", "openai", "openai-chat"], indirect=True)
async def test_a_call_that_ran_into_the_response_limit_is_not_run(rig: Rig, keep: int) -> None:
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(rewrite=_to_the_limit(rig.family, keep))]
    await rig.run()
    (use,) = await rig.stage.facts(AgentToolUse)
    assert use.malformed
    assert not await rig.stage.facts(ToolDispatched)
    (result,) = await rig.stage.facts(ToolResult)
    assert result.outcome == "error"
    await rig.check_books()


async def test_an_answer_at_the_limit_without_a_call_goes_on(rig: Rig) -> None:
    rig.server.load(
        {"match": {"userMessage": "Go on from there"}, "response": {"content": "the end."}},
        {"match": {"userMessage": "the goal"}, "response": {"content": "And so it was", "finishReason": "length"}},
    )
    if rig.family == "openai":
        rig.proxy.faults = [Fault(rewrite=_ended(b"max_tokens", b"length", b"max_output_tokens"))]
    await rig.run()
    assert [end.stop_reason for end in await rig.ends()] == ["max_tokens", "end_turn"]
    await rig.check_books()


async def test_a_refusal_is_an_answer_and_ends_the_work(rig: Rig) -> None:
    said = {"content": "No.", "finishReason": "content_filter"}
    rig.server.load({"match": {"userMessage": "the goal"}, "response": said})
    if rig.family in ("anthropic", "openai"):
        rig.proxy.faults = [Fault(rewrite=_ended(b"refusal", b"content_filter", b"content_filter"))]
    outcome = await rig.run()
    (end,) = await rig.ends()
    assert end.stop_reason == "refusal"
    assert outcome.ended is not None
    assert outcome.ended.status == "failed"
    await rig.check_books()


async def test_a_server_that_counts_no_tokens_is_paid_by_an_estimate(rig: Rig) -> None:
    def uncounted(body: bytes) -> bytes:
        return re.sub(rb'(Tokens|TokenCount|_tokens)":\d+', rb'\1":0', body)

    rig.server.load({"match": {"userMessage": "the goal"}, "response": {"content": "Hello. " * 30}})
    rig.proxy.faults = [Fault(rewrite=uncounted)]
    await rig.run()
    (end,) = await rig.ends()
    assert end.usage is not None
    assert end.usage.output_tokens >= 30
    assert end.cost_pico
    await rig.check_books()
