"""Registry of the kinds of sessions. The modules of a kind are imported at the first session of it."""

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
}
"""Name of a kind → the modules with its `KIND` and its `ACTS`."""

LOOP = "loop:command"
"""Model of a loop, which is an agent whose model is code (`kinds.loop`, imported for this model only)."""


class Registry:
    """Returns the parts of a kind by its name."""

    def __call__(self, name: str) -> Kind[State]:
        """The pure part of a kind: state, fold, tools, decisions. Raises `LookupError` for an unknown kind."""
        kind: Kind[State] = _loaded(name, 0).KIND
        return kind

    def acts(self, name: str) -> Callable[[Any], object]:
        """The acts of a kind. Raises `LookupError` for an unknown kind."""
        acts: Callable[[Any], object] = _loaded(name, 1).ACTS
        return acts


@cache
def _loaded(name: str, part: int) -> ModuleType:
    if name not in _MODULES:
        raise LookupError(f"no kind of session is named {name!r}")
    return import_module(_MODULES[name][part])


KINDS = Registry()
"""The registry of this program. Only composition roots read it here; they pass it down."""
