"""Holdfast: a runtime for AI agents that keep working for hours, days and weeks."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "tool": "holdfast.app.api_tools",
}
"""Public names and the modules that have them, loaded when they are asked for: `import holdfast` stays quick."""

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
