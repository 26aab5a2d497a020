"""Use cases of missions: open, replan, amend, pause, resume; and of waking any session (S3)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.errors import RepositoryUnfit, UsageError
from holdfast.facts.mission import Contract, ContractAmended, ReplanAsked
from holdfast.facts.people import UserPause, UserResume
from holdfast.facts.session import SessionCreated
from holdfast.log.base import Log, PostReceipt, Which
from holdfast.repo.repository import Repository, Standing
from holdfast.service.intake import OVER, Intake
from holdfast.service.opening import NewSession, Opened, Site, open_session
from holdfast.service.posting import Poster
from holdfast.session.fold.hands import RESTING
from holdfast.session.rows import SessionRow
from holdfast.session.state import State


def check_repository(folder: str, standing: Standing) -> None:
    """Raise `RepositoryUnfit` for a repository in which branches cannot be created or merged safely."""
    if standing.shallow:
        raise RepositoryUnfit(
            f"{folder} is a shallow clone, so branches cannot be merged soundly; nothing was changed. Fetch the rest: "
            "git fetch --unshallow"
        )
    if standing.submodules:
        raise RepositoryUnfit(
            f"{folder} has submodules, which the workers' copies would lack; nothing was changed. Run the mission in "
            "the submodule itself, or in a copy where their files are committed"
        )


async def open_mission(
    site: Site, repository: Repository, new: NewSession, *, tell: Callable[[str], None] | None = None
) -> Opened:
    """Open a mission. A number is added to its name if branches of that name exist. Raises as `open_session`."""
    assert new.mission is not None
    name, number = new.mission.name, 1
    while await repository.resolve(f"refs/heads/holdfast/{name}/main") is not None:
        number += 1
        name = f"{new.mission.name}-{number}"
    named = replace(new, mission=replace(new.mission, name=name))
    return await open_session(site, named, rules=lambda _: "", tell=tell)


async def created_of(log: Log, row: SessionRow) -> SessionCreated:
    """Return the first event of a mission. Raises `UsageError` for a session that is not a mission."""
    first, *_ = await log.read(row.session_id, limit=1)
    if not isinstance(first.fact, SessionCreated) or first.fact.mission is None:
        raise UsageError(f"{row.key or row.session_id} is not a mission; `holdfast show` describes the session")
    return first.fact


async def replan(poster: Poster, row: SessionRow, reason: str) -> PostReceipt:
    """Ask for a new plan. Raises `UsageError` for a mission that has ended."""
    await created_of(poster.log, row)
    if row.status in OVER:
        raise UsageError(f"{row.key or row.session_id} is {row.status}: there is nothing left to plan")
    return await poster.post(row.session_id, ReplanAsked(reason=reason))


async def amend(
    poster: Poster, row: SessionRow, contract: Contract, digest: str, *, reason: str, weakened: tuple[str, ...]
) -> PostReceipt:
    """Replace the contract in force. `weakened` are the criteria that became weaker or were removed."""
    await created_of(poster.log, row)
    fact = ContractAmended(contract=contract, digest=digest, author=poster.actor, reason=reason, weakened=weakened)
    return await poster.post(row.session_id, fact)


async def pause(poster: Poster, row: SessionRow, reason: str) -> list[SessionRow]:
    """Pause a mission and every unfinished session below it. Return their rows."""
    await created_of(poster.log, row)
    paused = await _unfinished(poster, row)
    for each in paused:
        await poster.post(each.session_id, UserPause(reason=reason or "its mission is paused"))
    return paused


async def pause_any(intake: Intake, row: SessionRow, reason: str = "", key: str = "") -> PostReceipt:
    """Pause a session; a mission or a run over a list with every unfinished session below it.

    It is paused first: a decision that it took meanwhile to open another session is refused (S2).
    """
    receipt = await intake.pause(row, reason, key)
    if not receipt.duplicate and await _directs(intake.log, row):
        for each in await _unfinished(intake, row):
            if each.session_id != row.session_id:
                await intake.post(each.session_id, UserPause(reason=reason or "the session above it is paused"))
    return receipt


async def resume_any(intake: Intake, row: SessionRow, reason: str = "", key: str = "") -> PostReceipt:
    """Lift the pause of a session; of a mission or a run over a list with every unfinished session below it."""
    if await _directs(intake.log, row):
        for each in await _unfinished(intake, row):
            if each.session_id != row.session_id:
                await intake.post(each.session_id, UserResume(reason=reason or "the session above it goes on"))
    return await intake.resume(row, reason, key)


async def lift(intake: Intake, row: SessionRow, state: State, key: str = "") -> PostReceipt | None:
    """Let a session go on that is paused, a new fork, parked after repeated failures, or that a failed request ended.

    A mission or a run over a list is resumed with the sessions below it. Returns None if nothing holds it up, and
    during an emergency stop, when only the release lifts a pause.
    """
    if await intake.index.stopped() is not None:
        return None
    if row.status == "failed" and state.failure is not None:
        return await intake.ask_again(row)
    failed = state.ended is not None and state.failing.repeated()
    if not (state.paused or state.ended == RESTING or failed or state.tenant.kind.awaits_wake(state)):
        return None
    return await resume_any(intake, row, "woken", key)


async def _directs(log: Log, row: SessionRow) -> bool:
    """Return True for a session whose work is done by sessions that it opens: a mission, a run over a list."""
    first, *_ = await log.read(row.session_id, limit=1)
    created = first.fact
    return isinstance(created, SessionCreated) and (created.mission is not None or created.items is not None)


async def _unfinished(poster: Poster, row: SessionRow) -> list[SessionRow]:
    rows = await poster.index.sessions(Which(root=row.session_id))
    return [each for each in rows if each.status in ("runnable", "parked")]
