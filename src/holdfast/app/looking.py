"""The inbox as it stands in the log now."""

from __future__ import annotations

from dataclasses import replace

from holdfast.app.compose import Runtime
from holdfast.app.inbox import Entry, Shown, build
from holdfast.app.progress import describe
from holdfast.clock import SystemClock
from holdfast.session.items import ItemRow
from holdfast.session.state import State


async def look(runtime: Runtime) -> list[Entry]:
    """The inbox as it stands."""
    store = runtime.store
    items = [await shown_of(runtime, item) for item in await store.items()]
    return build(await store.sessions(), items, await store.holders(), SystemClock().now_us())


async def shown_of(runtime: Runtime, item: ItemRow) -> Shown:
    """An item with its question, who may answer it, and how it was answered."""
    shown = Shown(item, await runtime.intake.asked(item), await runtime.intake.who(item))
    if item.closed_seq is None:
        return shown
    (event,) = await runtime.store.read(item.session_id, after=item.closed_seq - 1, limit=1)
    return replace(shown, answered=describe(event), proof=getattr(event.fact, "proof", ""))


async def counting_answers(runtime: Runtime, state: State) -> list[str]:
    """The answers of a session that still allow or refuse something: who gave them, and what is proven about that."""
    seqs = {grant.seq for grant in state.grants} | {ask.decided_seq for ask in state.asks.values() if ask.verdict}
    found = [await runtime.store.read(state.session_id, after=seq - 1, limit=1) for seq in sorted(seqs)]
    return [describe(event) for (event,) in found]
