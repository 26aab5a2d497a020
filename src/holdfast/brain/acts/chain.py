"""Models of the chain that cannot even be asked: a missing key is no reason to stop while others can."""

from __future__ import annotations

from holdfast.brain.shift import Shift
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.budget import BreakerOpened
from holdfast.model.base import Model
from holdfast.session.decide.providers import chain
from holdfast.session.fold.requests import PROVIDER


async def model_or_rest(shift: Shift, name: str) -> Model | None:
    """The model of that name. None when it cannot be had here and another one of the chain may be: it rests then.

    Raises `UsageError` or `CannotRunSafely` when it is the last that is awake.
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
