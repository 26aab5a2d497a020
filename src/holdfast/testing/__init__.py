"""Conformance kits and fakes for authors of a log, a model, a sandbox, or another door."""

from __future__ import annotations

import sys
from inspect import iscoroutinefunction
from typing import Any


def checks_of(module: str) -> dict[str, Any]:
    """The public coroutine functions that a module defines, in order, by `module.function`."""
    return {
        f"{module.rpartition('.')[2]}.{name}": value
        for name, value in vars(sys.modules[module]).items()
        if iscoroutinefunction(value) and value.__module__ == module and not name.startswith("_")
    }
