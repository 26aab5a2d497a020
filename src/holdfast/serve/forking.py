"""Forks of sessions for pages and API."""

from __future__ import annotations

from holdfast import __version__
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.serve.access import Visitor
from holdfast.serve.site import Site
from holdfast.service.forks import Forked, Wish, existing, fork
from holdfast.service.opening import check_key, find_by_key
from holdfast.session.rows import SessionRow

PROGRAM = f"holdfast {__version__}"


async def fork_at(site: Site, visitor: Visitor, row: SessionRow, at: int, key: str) -> Forked:
    """Fork a session after an event for a caller who may see it. With a key already in use, return its fork.

    The fork keeps the money cap of the session. Raises `UsageError` for a key that names another session or fork, and
    the errors of `fork`.
    """
    if site.shelf is None or site.ground is None:
        raise CannotRunSafely("this machine has no git, which forks need; nothing was written")
    intake = site.acting_as(visitor)
    if key:
        check_key(key, "key ")
        named = await find_by_key(site.store, key)
        if named is not None and not await site.sees(visitor, named):
            raise UsageError(f"the key {key!r} is in use outside the project of your API key; choose another")
        if done := await existing(intake, row, at, key):
            return done
    point = await site.folds.point(row, at)
    if not point.kept and not point.later_seq:
        why = f" ({point.trouble})" if point.trouble else ""
        raise UsageError(
            f"session {row.session_id} cannot be forked: its workspace has no snapshot{why}; nothing was written. "
            "Snapshots are taken from the first call that may write"
        )
    account = await site.store.account(row.accounts[0]) if row.accounts else None
    wish = Wish(key, account.cap_pico if account is not None else None, PROGRAM)
    return await fork(intake, site.shelf, site.ground, row, point, wish)
