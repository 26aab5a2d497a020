"""Use cases of runs over a list: open one, change its list, retry quarantined items, and describe how it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.brain.recall import recall
from holdfast.errors import UsageError
from holdfast.facts.items import (
    ItemAudited,
    ItemData,
    ItemFailed,
    ItemQuarantined,
    Items,
    ItemsRemoved,
    ItemsRetried,
)
from holdfast.kinds import ITEMS
from holdfast.kinds.items import lists, output, schema
from holdfast.kinds.items.conductor import allowed
from holdfast.kinds.items.state import ItemsState, Outlook, errors, items_of, items_state, outlook
from holdfast.log.base import Log, PostReceipt, Snapshots, Which
from holdfast.service.intake import Intake
from holdfast.service.opening import NewSession, Opened, Site, open_session, state_of
from holdfast.service.posting import Poster
from holdfast.service.sessions import UNFINISHED, Store
from holdfast.session.money import usd_float
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds, State

NAMED = 5
"""Keys that a message names."""


async def open_items(
    site: Site, new: NewSession, data: Sequence[ItemData], *, tell: Callable[[str], None] | None = None
) -> Opened:
    """Open a run over a list, with its output file. Raises as `open_session`, and leaves nothing behind then.

    If the process ends in the middle, the run waits for the rest of its list: `complete` adds it.
    """
    items = new.items
    assert items is not None
    check(items, data)
    path = Path(items.out)
    try:
        output.reserve(path)
    except FileExistsError:
        raise UsageError(
            f"the output {path} exists, and nothing was started: name another file with --out, or move it away"
        ) from None
    except OSError as error:
        raise UsageError(
            f"the output {path} cannot be written ({error.strerror}), and nothing was started: name a file in a folder "
            "of yours with --out"
        ) from error
    try:
        opened = await open_session(site, new, rules=lambda _: "", tell=tell)
    except BaseException:
        path.unlink()
        raise
    if opened.duplicate:
        path.unlink()
    await complete(site.intake, opened.row, data)
    return opened


def check(items: Items, data: Sequence[ItemData]) -> None:
    """Raise `UsageError` for a run that could not succeed: its schema, its list, or settings that contradict."""
    if items.schema:
        schema.check_schema(items.schema)
    if items.context == "rolling" and items.batch > 1:
        raise UsageError("--batch and --context rolling contradict each other: leave one out")
    if items.reduce and items.reduce_command:
        raise UsageError("--reduce and --reduce-command contradict each other: leave one out")
    if not data and not items.command:
        raise UsageError("the list has no items; nothing was started")
    lists.check_fields(items.each, data, "the list")


async def complete(intake: Intake, row: SessionRow, data: Sequence[ItemData]) -> None:
    """Add the run's own list, each part once, even if the process was killed at the first try."""
    for number, part in enumerate(lists.parts_of(data, listed=True)):
        await intake.post(row.session_id, part, key=f"items:{number}")


async def run_of(site: Site, row: SessionRow) -> tuple[State, Items, ItemsState]:
    """Return a run over a list: the state, the instructions, and its own state. Raises `UsageError` for another one."""
    state = await state_of(site, row)
    if state.created is None or state.created.items is None:
        raise UsageError(f"{row.key or row.session_id} is not a run over a list; `holdfast show` describes the session")
    return state, items_of(state.created), items_state(state)


async def add(site: Site, row: SessionRow, data: Sequence[ItemData], *, replace: bool) -> None:
    """Add items, or with `replace` also change items that exist. Raises `UsageError` for a known key otherwise."""
    _, items, own = await run_of(site, row)
    _check_open(row)
    lists.check_fields(items.each, data, "the list")
    known = [item.key for item in data if item.key in own.items]
    if known and not replace:
        raise UsageError(
            f"the run has these items already: {_named(known)}; nothing was added. Change them with --replace"
        )
    for part in lists.parts_of(data, replace=replace):
        await site.intake.post(row.session_id, part)


async def remove(site: Site, row: SessionRow, keys: Sequence[str]) -> PostReceipt:
    """Remove items and their results. Raises `UsageError` for an unknown key."""
    _, _, own = await run_of(site, row)
    _check_open(row)
    _check_known(own, keys)
    return await site.intake.post(row.session_id, ItemsRemoved(keys=tuple(keys)))


async def retry(site: Site, row: SessionRow, keys: Sequence[str]) -> int:
    """Try quarantined items again, all of them without keys. Return their number."""
    _, _, own = await run_of(site, row)
    _check_open(row)
    _check_known(own, keys)
    wanted = [key for key in keys or own.items if own.items[key].status == "quarantined"]
    if other := [key for key in keys if key not in wanted]:
        raise UsageError(f"these items are not quarantined: {_named(other)}; nothing was changed")
    if not wanted:
        raise UsageError("no item is quarantined; nothing was changed")
    poster: Poster = site.intake
    await poster.post(row.session_id, ItemsRetried(keys=tuple(keys)))
    return len(wanted)


def _check_known(own: ItemsState, keys: Sequence[str]) -> None:
    if unknown := [key for key in keys if key not in own.items]:
        raise UsageError(f"the run has no such items: {_named(unknown)}; nothing was changed. `items show` lists them")


def _check_open(row: SessionRow) -> None:
    if row.status == "cancelled":
        raise UsageError(f"{row.key or row.session_id} was cancelled and accepts nothing more; start another run")


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(keys[:NAMED]) + more


# --- how it stands -----------------------------------------------------------------------------------


class Standing(msgspec.Struct, frozen=True):
    """Progress of a run over a list. `oldest_us` is when the oldest item without an outcome was added, None for none.

    `error_seconds` and `error_cost` are the shares by which the forecast was off, known at the end.
    """

    total: int
    done: int
    running: int
    todo: int
    quarantined: int
    allowed: int
    failed_tries: int
    audited: int
    refused: int
    written: int
    spent_usd: float | None
    out: str
    oldest_us: int | None = None
    rest: Outlook | None = None
    error_seconds: float | None = None
    error_cost: float | None = None


def standing(state: State) -> Standing:
    """Describe how a run stands."""
    own, items = items_state(state), items_of(state.created)
    open_ = [item.seq for item in own.items.values() if item.status not in ("done", "quarantined")]
    error_seconds, error_cost = errors(own)
    return Standing(
        total=len(own.items),
        done=own.done,
        running=sum(len(work.keys) for work in own.works.values()),
        todo=len(own.todo),
        quarantined=own.quarantined,
        allowed=allowed(own, items),
        failed_tries=own.failed_tries,
        audited=own.audited,
        refused=own.refused,
        written=own.lines,
        spent_usd=None if own.unpriced else usd_float(own.spent_pico),
        out=items.out,
        oldest_us=own.added[min(open_)] if open_ else None,
        rest=outlook(own) if open_ else None,
        error_seconds=error_seconds,
        error_cost=error_cost,
    )


async def at_work(store: Store, row: SessionRow) -> bool:
    """Return True if a process runs the run or one of its sessions; the run itself parks while they work."""
    holders = await store.holders()
    return any(each.session_id in holders for each in await store.sessions(Which(root=row.session_id)))


def progress(state: State) -> str:
    """Describe how far a run over a list is, such as `26 of 30 items done`; empty for another session."""
    if state.created is None or state.created.items is None:
        return ""
    own = items_state(state)
    return f"{own.done} of {len(own.items)} items done" + (
        f", {own.quarantined} quarantined" if own.quarantined else ""
    )


async def reasons(log: Log, state: State, limit: int) -> list[tuple[str, str, int]]:
    """Return quarantined items: key, reason, and tries."""
    found: list[tuple[str, str, int]] = []
    for key, item in items_state(state).items.items():
        if item.status == "quarantined" and len(found) < limit:
            event, *_ = await log.read(state.session_id, after=item.failed_seq - 1, limit=1)
            fact = event.fact
            assert isinstance(fact, ItemQuarantined | ItemFailed | ItemAudited)
            why = fact.why if isinstance(fact, ItemAudited) else fact.reason
            found.append((key, why, item.tries))
    return found


async def oldest_us(store: Store, snapshots: Snapshots, kinds: Kinds) -> int | None:
    """Return when the oldest item without an outcome was added, of all unfinished runs; None for none."""
    found = []
    for status in UNFINISHED:
        for row in await store.sessions(Which(top=True, status=status, words=(ITEMS,))):
            if row.name == ITEMS:
                state, _ = await recall(row.session_id, store, snapshots, kinds)
                if state.created is not None and state.created.items is not None:
                    found.append(standing(state).oldest_us)
    return min((each for each in found if each is not None), default=None)
