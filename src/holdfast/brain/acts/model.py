"""Asking the model: reserve, stream, record; all of S13 to S15 in one place."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import msgspec

from holdfast.brain.acts.hands import begin_provisioning, provision
from holdfast.brain.alongside import alongside
from holdfast.brain.response import Response
from holdfast.brain.shift import Shift
from holdfast.errors import BudgetRefused, ModelError
from holdfast.facts.base import Usage
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.shift import ShiftEnded
from holdfast.model.base import Model, ModelRequest, StreamPart, ToolCallStart, ToolSpec
from holdfast.session.actions import AskModel, End
from holdfast.session.money import usd
from holdfast.session.policy import evaluate
from holdfast.session.tokens import BYTES_PER_TOKEN
from holdfast.session.tools import TOOLS, input_schema
from holdfast.session.window import build

OUTPUT_FLOOR_TOKENS = 256
"""A response limit is not shrunk below this to fit a budget; the session parks instead (S15)."""


class _Attempt:
    """One request on the wire: what has arrived, and when."""

    def __init__(self, shift: Shift, model: Model, request: ModelRequest, start_seq: int) -> None:
        self.shift = shift
        self.model = model
        self.request = request
        self.start_seq = start_seq
        self.reserved_pico = model.worst_case_pico(request)
        self.response = Response()
        self.stopped = False
        self.began_s = shift.doors.clock.monotonic_s()
        self.first_token_ms: float | None = None

    def _elapsed_ms(self) -> float:
        return round((self.shift.doors.clock.monotonic_s() - self.began_s) * 1000, 3)

    def take(self, part: StreamPart) -> None:
        if self.first_token_ms is None:
            self.first_token_ms = self._elapsed_ms()
        self.response.add(part)
        self.shift.doors.observer.on_delta(part)
        if isinstance(part, ToolCallStart) and self._may_run(part.name):
            begin_provisioning(self.shift)

    def _may_run(self, tool: str) -> bool:
        created = self.shift.state.created
        rules = created.agent.rules if created else ()
        return tool in TOOLS and evaluate(rules, tool)[0] == "allow"

    def estimated_usage(self) -> Usage:
        """What an unfinished attempt may have cost, by what was sent and what came."""
        if self.first_token_ms is None:
            return Usage()
        return Usage(self.request.input_tokens_estimate, self.response.characters() // BYTES_PER_TOKEN)

    def end(self, outcome: str, error: ModelError | None = None) -> ModelRequestEnd:
        finish = self.response.finish
        usage = finish.usage if finish else self.estimated_usage()
        cost = self.model.cost_pico(usage)
        if finish is None and cost is not None and self.reserved_pico is not None:
            cost = min(cost, self.reserved_pico)  # an estimate never charges more than was held (S15)
        return ModelRequestEnd(
            request_seq=self.start_seq,
            outcome=outcome,  # type: ignore[arg-type]
            usage=usage,
            cost_pico=cost,
            stop_reason=finish.stop_reason if finish else None,
            error_kind=error.kind if error else "",
            message=str(error) if error else "",
            retry_after_s=error.retry_after_s if error else None,
            first_token_ms=self.first_token_ms,
            duration_ms=self._elapsed_ms(),
        )


async def ask_model(shift: Shift, action: AskModel) -> End | None:
    """One attempt at the next response. An `End` says that money does not allow it."""
    state = shift.state
    assert state.created is not None
    agent = state.created.agent
    model = shift.model
    context = build(state, await shift.bodies(), shift.doors.prompt)
    request = ModelRequest(
        purpose="turn",
        system=context.system,
        messages=context.messages,
        tools=tuple(ToolSpec(name, TOOLS[name].description, input_schema(name)) for name in agent.tools),
        max_output_tokens=state.limits.max_output_tokens,
        responses=state.responses,
        attempt=action.attempt,
        input_tokens_estimate=state.window_tokens + sum(item.tokens for item in state.pending),
    )
    started = await _reserve(shift, model, request, action, context.digest)
    if isinstance(started, End):
        return started
    attempt = _Attempt(shift, model, started[1], started[0])
    if shift.doors.provisioning == "eager":
        await _provision_first(attempt)
    await _run(attempt)
    return None


async def _provision_first(attempt: _Attempt) -> None:
    """Have hands before the wire is touched; without them the request is cancelled, at no cost."""
    try:
        await provision(attempt.shift)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await attempt.shift.fact(attempt.end("cancelled"))
        raise


async def _reserve(
    shift: Shift, model: Model, request: ModelRequest, action: AskModel, digest: str
) -> tuple[int, ModelRequest] | End:
    """Append the request's start with its reservation; shrink the response limit to fit, else park."""
    while True:
        worst = model.worst_case_pico(request)
        if worst is None and shift.state.limits.budget_pico is not None:
            detail = f"{model.name} has no known price, so a money budget cannot be kept"
            return End(ShiftEnded(status="parked", reason="budget", detail=detail))
        start = ModelRequestStart(
            purpose=request.purpose,
            model=model.name,
            attempt=action.attempt,
            inputs_through=action.inputs_through,
            max_output_tokens=request.max_output_tokens,
            reserved_pico=worst,
            window_digest=digest,
            input_tokens_estimate=request.input_tokens_estimate,
        )
        try:
            (event,) = await shift.decision(start)
            return event.seq, request
        except BudgetRefused as refused:
            smaller = request.max_output_tokens // 2
            shrunk = msgspec.structs.replace(request, max_output_tokens=smaller)
            if smaller < OUTPUT_FLOOR_TOKENS or model.worst_case_pico(shrunk) == worst:
                left = usd(refused.left_pico) if refused.left_pico > 0 else "nothing"
                detail = f"{left} is left of the budget, the next request may cost {usd(worst)}"
                return End(ShiftEnded(status="parked", reason="budget", detail=detail))
            request = shrunk


async def _run(attempt: _Attempt) -> None:
    """Stream the attempt and record how it ended, whatever happens to this task."""
    shift = attempt.shift
    try:
        await _stream(attempt)
    except ModelError as error:
        await shift.fact(attempt.end("error", error))
        return
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await shift.fact(*attempt.response.finished_part(attempt.start_seq), attempt.end("cancelled"))
        raise
    if attempt.stopped:
        await shift.fact(*attempt.response.finished_part(attempt.start_seq), attempt.end("cancelled"))
    else:
        await shift.fact(*attempt.response.facts(attempt.start_seq), attempt.end("ok"))


async def _stream(attempt: _Attempt) -> None:
    scope = anyio.CancelScope()

    async def consume() -> None:
        with scope:
            await _consume(attempt)

    async def watch() -> None:
        await attempt.shift.until_stopped()
        attempt.stopped = attempt.response.finish is None
        scope.cancel()

    await alongside(consume, watch)


async def _consume(attempt: _Attempt) -> None:
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
