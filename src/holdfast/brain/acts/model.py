"""Model requests: reserve, stream, record (S13, S15)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import msgspec

from holdfast.brain.acts import hands
from holdfast.brain.acts.hands import begin_provisioning, provision
from holdfast.brain.acts.people import does_not_fit, too_soon
from holdfast.brain.response import Response
from holdfast.brain.shift import Shift, alongside
from holdfast.errors import BudgetRefused, CannotRunSafely, ModelError, TooSoon, UsageError
from holdfast.facts.base import Fact, Usage
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.shift import BreakerOpened, ShiftEnded
from holdfast.model.base import Model, ModelRequest, StreamPart, ToolCallStart, ToolSpec
from holdfast.session.actions import AskModel, End
from holdfast.session.context.text import BYTES_PER_TOKEN
from holdfast.session.context.window import build
from holdfast.session.decide.context import window_tokens
from holdfast.session.decide.providers import chain
from holdfast.session.decide.waits import standing
from holdfast.session.fold.requests import PROVIDER
from holdfast.session.tools import offered, schema_of
from holdfast.session.tools.policy import evaluate

OUTPUT_FLOOR_TOKENS = 256
"""Smallest output limit to shrink to for a budget; below it the session parks instead (S15)."""


class Attempt:
    """One model request in progress: the received data and its times. `on_part` gets each part as it arrives."""

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
        """Take in a received part."""
        if self.first_token_ms is None:
            self.first_token_ms = self._elapsed_ms()
        self.response.add(part)
        if self._on_part is not None:
            self._on_part(part)

    def estimated_usage(self, error: ModelError | None = None) -> Usage:
        """Estimate the usage of an unfinished attempt from the data sent and received."""
        if self.first_token_ms is None and (error is None or error.kind != "timeout"):
            return Usage()
        return Usage(self.request.input_tokens_estimate, self.response.characters() // BYTES_PER_TOKEN)

    def end(self, outcome: str, error: ModelError | None = None) -> ModelRequestEnd:
        """Return the end of the attempt with its cost."""
        finish = self.response.finish
        usage = finish.usage if finish else self.estimated_usage(error)
        cost = self.model.cost_pico(usage)
        if finish is None and cost is not None and self.reserved_pico is not None:
            cost = min(cost, self.reserved_pico)  # an estimate never charges more than was reserved (S15)
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
    """Append the request's start with its reservation; shrink the output limit to fit, or park.

    `name` is the model's in the agent's chain. Raises `HeadMoved` if an event arrived since the decision, or while
    other sessions use the budget or the requests of a minute.
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
            # The budget suffices, so open requests for more are superseded.
            event, *_ = await shift.decision(start, *standing(shift.state, "budget", "there is money for it now"))
            shift.room_waits = 0
            return Attempt(shift, model, request, event.seq, on_part)
        except BudgetRefused as refused:
            smaller = request.max_output_tokens // 2
            shrunk = msgspec.structs.replace(request, max_output_tokens=smaller)
            if smaller < OUTPUT_FLOOR_TOKENS or model.worst_case_pico(shrunk) == worst:
                return await does_not_fit(shift, refused)
            request = shrunk
        except TooSoon as refused:
            return await too_soon(shift, refused)


async def run(attempt: Attempt, whole: Callable[[Response], Sequence[Fact]], *, keep_part: bool) -> None:
    """Stream the attempt and record its end, even if this task is cancelled.

    `whole` makes the facts of a complete response. With `keep_part`, the finished part of an interrupted one is kept.
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


async def ask_model(shift: Shift, action: AskModel) -> End | None:
    """Attempt the next response once. Returns an `End` if the budget does not allow it."""
    state = shift.state
    assert state.created is not None
    agent = state.created.agent
    model = await model_or_rest(shift, action.model)
    if model is None:
        return None
    context = build(state, await shift.bodies(), shift.acts.prompt())
    tools = offered(agent, state.tenant.kind.tools)
    request = ModelRequest(
        purpose="turn",
        system=context.system,
        messages=context.messages,
        tools=tuple(ToolSpec(tool.name, tool.description, schema_of(tool)) for tool in tools),
        max_output_tokens=state.limits.max_output_tokens,
        responses=state.responses,
        attempt=action.attempt,
        input_tokens_estimate=window_tokens(state),
        thinking=agent.thinking,
    )
    started = await begin(
        shift,
        model,
        request,
        name=action.model,
        inputs_through=action.inputs_through,
        digest=context.digest,
        on_part=lambda part: _on_part(shift, part),
    )
    if isinstance(started, End):
        return started
    hands.begin_snapshot(shift)
    if shift.doors.provisioning == "eager":
        await _provision_first(started)
    await run(started, lambda response: response.facts(started.start_seq), keep_part=True)
    return None


def _on_part(shift: Shift, part: StreamPart) -> None:
    shift.doors.observer.on_delta(part)
    if isinstance(part, ToolCallStart) and _may_run_in_hands(shift, part.name):
        begin_provisioning(shift)


def _may_run_in_hands(shift: Shift, name: str) -> bool:
    created = shift.state.created
    tool = shift.state.tool(name)
    if created is None or tool is None or tool.where:
        return False
    return evaluate(created.agent.rules, name).decision == "allow"


async def _provision_first(started: Attempt) -> None:
    """Create the hands before the request is sent; if that fails, cancel the request at no cost."""
    try:
        await provision(started.shift)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await started.shift.fact(started.end("cancelled"))
        raise


async def model_or_rest(shift: Shift, name: str) -> Model | None:
    """Return the model of that name; None if it is unavailable here but another one of the chain is not.

    Raises `UsageError` or `CannotRunSafely` if it is the last one available.
    """
    try:
        return shift.model(name)
    except (UsageError, CannotRunSafely) as error:
        state, now_us = shift.state, shift.doors.clock.now_us()
        awake = [
            each
            for each in chain(state)
            if each != name and (each not in state.providers or state.providers[each].rest_until_us <= now_us)
        ]
        if not awake:
            raise
        until_us = now_us + int(state.limits.breakers.provider_rest_s * 1_000_000)
        await shift.decision(BreakerOpened(breaker=PROVIDER + name, detail=str(error), until_us=until_us))
        return None
