"""Two things at once: some work, and a watcher that lives as long as the work does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def alongside(work: Callable[[], Awaitable[T]], watcher: Callable[[], Coroutine[Any, Any, None]]) -> T:
    """The result of `work`, with `watcher` running beside it. An error of either comes out as itself."""
    result: list[T] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watcher)
            result.append(await work())
            group.cancel_scope.cancel()
    except BaseExceptionGroup as group_error:
        raise first_error(group_error) from None
    return result[0]


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first plain error inside nested groups."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error
