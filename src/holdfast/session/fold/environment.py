"""The fold of what stands ready for the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.environment import EnvironmentRecorded
from holdfast.facts.session import Environment
from holdfast.session.context.notes import note_of
from holdfast.session.context.tokens import estimate
from holdfast.session.fold import egress as fold_egress
from holdfast.session.state import State


def required(policy: Environment) -> bool:
    """Whether the work must not begin without it: the policy names something, rather than leave it to what is found."""
    return any(
        getattr(policy, name)
        for name in ("setup", "packages", "toolchains", "services", "recipes", "dotenv", "submodules", "lfs")
    )


def forget_failures(state: State) -> None:
    """A person spoke: what could not be made is tried again."""
    state.environment_failed = state.environment_error = ""


def _recorded(state: State, fact: EnvironmentRecorded, event: Event) -> None:
    """The model is told of another environment than before, and of one that it has to go on without."""
    for seen in fact.seen:
        if seen.verdict == "allowed" and not seen.registry:
            fold_egress.read(state, event.seq, f"what stands ready for it was made with what {seen.host} sent")
    if fact.error:
        stops = state.created is not None and required(state.created.environment)
        state.environment_error = fact.error if stops else ""
        state.environment_failed = "" if stops else fact.digest
    else:
        forget_failures(state)
    if not state.environment_error and (fact.error or fact.digest != state.environment):
        state.posted(event.seq, estimate(note_of(fact)))
    state.environment = "" if fact.error else fact.digest


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {EnvironmentRecorded: _recorded}
