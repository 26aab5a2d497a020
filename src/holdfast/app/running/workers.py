"""The two ends of the queue of hands, which are an extra and loaded when they are wanted."""

from __future__ import annotations

import importlib
from typing import Any

from holdfast.errors import CannotRunSafely

SERVE = "holdfast.hands.remote.serve"
WORKER = "holdfast.hands.remote.worker"


def serving() -> Any:
    """What serves the queue. Raises `CannotRunSafely` where the extra is not installed."""
    return _module(SERVE)


def working() -> Any:
    """What asks a queue for work. Raises `CannotRunSafely` where the extra is not installed."""
    return _module(WORKER)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "holdfast":
            raise
        raise CannotRunSafely(f"{missing} is not installed; type: pip install 'holdfast[remote]'") from None
