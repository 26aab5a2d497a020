"""Forks of a home's sessions, for the command line and Python programs."""

from __future__ import annotations

from functools import partial

from holdfast.app.compose import PROGRAM, Runtime
from holdfast.app.workspace_files import shelf_of
from holdfast.brain.points import point_at
from holdfast.errors import UsageError
from holdfast.log.worker_locks import is_live
from holdfast.service import forks
from holdfast.service.forks import Forked, Ground, Wish
from holdfast.service.opening import check_models
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow


def ground_of(runtime: Runtime) -> Ground:
    """Return the place of forks in this home."""
    return Ground(runtime.home.workspaces, runtime.worker.worker_id, partial(is_live, runtime.home.workers))


async def fork_session(runtime: Runtime, origin: SessionRow, at: int, key: str, cap_pico: int | None) -> Forked:
    """Open a fork after the event at `at`, or find the one with that key. Does not run it.

    `cap_pico` is its money cap; None for that of the session. Raises `UsageError` for a position that does not exist,
    and `CannotRunSafely` without a snapshot of the workspace; then nothing was written.
    """
    if origin.session_id == HOME:
        raise UsageError(f"{HOME} is the log of the home itself and never ran; `holdfast ps --all` lists sessions")
    if key and (done := await forks.existing(runtime.intake, origin, at, key)):
        return done
    point = await point_at(runtime.store, origin, at, runtime.kinds)
    if cap_pico is None and origin.accounts:
        account = await runtime.store.account(origin.accounts[0])
        cap_pico = account.cap_pico if account else None
    elif cap_pico is not None and not point.state.limits.unpriced:
        check_models(runtime.site, (origin.model,), cap_pico)
    shelf, ground = shelf_of(runtime), ground_of(runtime)
    return await forks.fork(runtime.intake, shelf, ground, origin, point, Wish(key, cap_pico, PROGRAM))
