"""Two things at once: some work, and a watcher that lives as long as the work does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import anyio

T = TypeVar("T")
U = TypeVar("U")


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


async def together(works: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of all of these, run beside each other. The first error comes out as itself and ends the others."""
    results: dict[int, T] = {}

    async def one(number: int, work: Callable[[], Awaitable[T]]) -> None:
        results[number] = await work()

    try:
        async with anyio.create_task_group() as group:
            for number, work in enumerate(works):
                group.start_soon(one, number, work)
    except BaseExceptionGroup as group_error:
        raise first_error(group_error) from None
    return [results[number] for number in sorted(results)]


async def both(one: Callable[[], Awaitable[T]], other: Callable[[], Awaitable[U]]) -> tuple[T, U]:
    """The results of two works, run beside each other as in `together`."""
    works: list[Callable[[], Awaitable[Any]]] = [one, other]
    first, second = await together(works)
    return first, second


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first plain error inside nested groups."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error
