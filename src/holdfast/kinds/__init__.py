"""Registry of session kinds. The modules of a kind are imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from holdfast.session.state import State
from holdfast.session.tenant import Kind

_MODULES = {
    "agent": ("holdfast.session.tenant", "holdfast.brain.shift"),
    "mission": ("holdfast.kinds.mission.kind", "holdfast.kinds.mission.acts.conducting"),
    "role": ("holdfast.kinds.mission.role.kind", "holdfast.kinds.mission.acts.role"),
    "items": ("holdfast.kinds.items.kind", "holdfast.kinds.items.acts"),
    "item": ("holdfast.kinds.items.child", "holdfast.kinds.items.child"),
    "duty": ("holdfast.kinds.duty.kind", "holdfast.kinds.duty.acts.conducting"),
    "firing": ("holdfast.kinds.duty.firing", "holdfast.kinds.duty.acts.firing"),
    "run": ("holdfast.kinds.run.kind", "holdfast.kinds.run.acts"),
}
"""Name of a kind → the modules with its `KIND` and its `ACTS`."""

LOOP = "loop:command"
"""Model name of a loop session, whose model is code (`kinds.loop`, imported for this model only)."""

MISSION = "mission"
"""Name of a mission's agent."""

DUTY = "duty"
"""Name of a duty's agent."""

ITEMS = "items"
"""Name of the agent of a run over a list."""


class Registry:
    """Registry of the parts of each kind, by name."""

    def __call__(self, name: str) -> Kind[State]:
        """Return the pure part of a kind: state, fold, tools, decisions. Raises `LookupError` for an unknown kind."""
        kind: Kind[State] = _loaded(name, 0).KIND
        return kind

    def acts(self, name: str) -> Callable[[Any], object]:
        """Return the acts of a kind. Raises `LookupError` for an unknown kind."""
        acts: Callable[[Any], object] = _loaded(name, 1).ACTS
        return acts


@cache
def _loaded(name: str, part: int) -> ModuleType:
    if name not in _MODULES:
        raise LookupError(f"no kind of session is named {name!r}")
    return import_module(_MODULES[name][part])


KINDS = Registry()
"""Registry of this program. Only composition roots read it here; they pass it down."""
