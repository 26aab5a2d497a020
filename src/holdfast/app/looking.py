"""The inbox as it stands in the log now."""

from __future__ import annotations

from holdfast.app.compose import Runtime
from holdfast.app.inbox import Entry, Shown, build
from holdfast.clock import SystemClock
from holdfast.session.items import ItemRow


async def look(runtime: Runtime) -> list[Entry]:
    """The inbox as it stands."""
    store = runtime.store
    items = [await shown_of(runtime, item) for item in await store.items()]
    return build(await store.sessions(), items, await store.holders(), SystemClock().now_us())


async def shown_of(runtime: Runtime, item: ItemRow) -> Shown:
    """An item with its question and who may answer it."""
    return Shown(item, await runtime.intake.asked(item), await runtime.intake.who(item))
