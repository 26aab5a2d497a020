"""One attempt at a model request, whatever it is for: reserve, stream, record; all of S13 to S15 in one place."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import msgspec

from holdfast.brain.acts.money import does_not_fit
from holdfast.brain.alongside import alongside
from holdfast.brain.response import Response
from holdfast.brain.shift import Shift
from holdfast.errors import BudgetRefused, ModelError
from holdfast.facts.base import Fact, Usage
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.shift import ShiftEnded
from holdfast.model.base import Model, ModelRequest, StreamPart
from holdfast.session.actions import End
from holdfast.session.context.tokens import BYTES_PER_TOKEN
from holdfast.session.decide.people import standing

OUTPUT_FLOOR_TOKENS = 256
"""A response limit is not shrunk below this to fit a budget; the session parks instead (S15)."""


class Attempt:
    """One request on the wire: what has arrived, and when. `on_part` sees each part as it comes."""

    def __init__(
        self,
        shift: Shift,
        model: Model,
        request: ModelRequest,
        start_seq: int,
        on_part: Callable[[StreamPart], None] | None = None,
    ) -> None:
        self.shift = shift
        self.model = model
        self.request = request
        self.start_seq = start_seq
        self.reserved_pico = model.worst_case_pico(request)
        self.response = Response()
        self.stopped = False
        self.began_s = shift.doors.clock.monotonic_s()
        self.first_token_ms: float | None = None
        self._on_part = on_part

    def _elapsed_ms(self) -> float:
        return round((self.shift.doors.clock.monotonic_s() - self.began_s) * 1000, 3)

    def take(self, part: StreamPart) -> None:
        """A part has come."""
        if self.first_token_ms is None:
            self.first_token_ms = self._elapsed_ms()
        self.response.add(part)
        if self._on_part is not None:
            self._on_part(part)

    def estimated_usage(self, error: ModelError | None = None) -> Usage:
        """What an unfinished attempt may have cost, by what was sent and what came.

        A provider that was given time and said nothing may have worked all the same, and bill what it read.
        """
        if self.first_token_ms is None and (error is None or error.kind != "timeout"):
            return Usage()
        return Usage(self.request.input_tokens_estimate, self.response.characters() // BYTES_PER_TOKEN)

    def end(self, outcome: str, error: ModelError | None = None) -> ModelRequestEnd:
        """How it ended, and what it cost."""
        finish = self.response.finish
        usage = finish.usage if finish else self.estimated_usage(error)
        cost = self.model.cost_pico(usage)
        if finish is None and cost is not None and self.reserved_pico is not None:
            cost = min(cost, self.reserved_pico)  # an estimate never charges more than was held (S15)
        return ModelRequestEnd(
            request_seq=self.start_seq,
            outcome=outcome,  # type: ignore[arg-type]
            usage=usage if finish is None or finish.counted else None,
            cost_pico=cost,
            stop_reason=finish.stop_reason if finish else None,
            error_kind=error.kind if error else "",
            message=str(error) if error else "",
            retry_after_s=error.retry_after_s if error else None,
            first_token_ms=self.first_token_ms,
            duration_ms=self._elapsed_ms(),
        )


async def begin(
    shift: Shift,
    model: Model,
    request: ModelRequest,
    *,
    name: str,
    inputs_through: int,
    digest: str,
    through_seq: int = 0,
    on_part: Callable[[StreamPart], None] | None = None,
) -> Attempt | End:
    """Append the request's start with its reservation; shrink the response limit to fit, else park.

    `name` is the model's in the agent's chain. Raises `HeadMoved` when anything came since it was decided, or
    when others hold the money for now.
    """
    while True:
        worst = model.worst_case_pico(request)
        limits = shift.state.limits
        if worst is None and limits.budget_pico is not None and not limits.unpriced:
            detail = f"{model.name} has no known price, so a money budget cannot be kept"
            return End(ShiftEnded(status="parked", reason="budget", detail=detail))
        start = ModelRequestStart(
            purpose=request.purpose,
            model=name,
            attempt=request.attempt,
            inputs_through=inputs_through,
            max_output_tokens=request.max_output_tokens,
            reserved_pico=worst,
            window_digest=digest,
            input_tokens_estimate=request.input_tokens_estimate,
            through_seq=through_seq,
        )
        try:
            # Money fits: whoever is asked for more need not answer any more.
            event, *_ = await shift.decision(start, *standing(shift.state, "budget", "there is money for it now"))
            shift.money_waits = 0
            return Attempt(shift, model, request, event.seq, on_part)
        except BudgetRefused as refused:
            smaller = request.max_output_tokens // 2
            shrunk = msgspec.structs.replace(request, max_output_tokens=smaller)
            if smaller < OUTPUT_FLOOR_TOKENS or model.worst_case_pico(shrunk) == worst:
                return await does_not_fit(shift, refused)
            request = shrunk


async def run(attempt: Attempt, whole: Callable[[Response], Sequence[Fact]], *, keep_part: bool) -> None:
    """Stream the attempt and record how it ended, whatever happens to this task.

    `whole` makes the facts of a whole response. With `keep_part` the finished part of an interrupted one is kept.
    """
    shift = attempt.shift
    try:
        await _stream(attempt)
    except ModelError as error:
        await shift.fact(attempt.end("error", error))
        return
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await shift.fact(*_part(attempt, keep_part), attempt.end("cancelled"))
        raise
    if attempt.stopped:
        await shift.fact(*_part(attempt, keep_part), attempt.end("cancelled"))
    else:
        await shift.fact(*whole(attempt.response), attempt.end("ok"))


def _part(attempt: Attempt, keep_part: bool) -> Sequence[Fact]:
    return attempt.response.finished_part(attempt.start_seq) if keep_part else ()


async def _stream(attempt: Attempt) -> None:
    scope = anyio.CancelScope()

    async def consume() -> None:
        with scope:
            await _consume(attempt)

    async def watch() -> None:
        await attempt.shift.until_stopped()
        attempt.stopped = attempt.response.finish is None
        scope.cancel()

    await alongside(consume, watch)


async def _consume(attempt: Attempt) -> None:
    stream: AsyncIterator[StreamPart] = attempt.model.stream(attempt.request)
    try:
        async for part in stream:
            attempt.take(part)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            with anyio.CancelScope(shield=True), contextlib.suppress(ModelError):
                await close()
    if attempt.response.finish is None:
        raise ModelError("bad_stream", "the response ended in the middle")
