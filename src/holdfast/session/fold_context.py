"""The fold of a context's life: what was put in place of older turns (S16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.session.state import State

APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {}
