"""What people say to a mission from outside: another plan, another contract, rest (S3)."""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.facts.contract import Contract, ContractAmended
from holdfast.facts.mission import ReplanAsked
from holdfast.facts.session import SessionCreated
from holdfast.facts.user import UserPause, UserResume
from holdfast.fleet.posting import Poster
from holdfast.log.base import Log, PostReceipt, Which
from holdfast.session.rows import SessionRow


async def created_of(log: Log, row: SessionRow) -> SessionCreated:
    """The first event of a mission. Raises `UsageError` for a session that is none."""
    first, *_ = await log.read(row.session_id, limit=1)
    if not isinstance(first.fact, SessionCreated) or first.fact.mission is None:
        raise UsageError(
            f"{row.key or row.session_id} is an ordinary session and no mission; `holdfast show` says more of it"
        )
    return first.fact


async def replan(poster: Poster, row: SessionRow, reason: str) -> PostReceipt:
    """Ask for a new plan. Raises `UsageError` for a mission that is over."""
    await created_of(poster.log, row)
    if row.status in ("done", "failed", "cancelled"):
        raise UsageError(f"{row.key or row.session_id} is {row.status}: there is nothing left to plan")
    return await poster.post(row.session_id, ReplanAsked(reason=reason))


async def amend(
    poster: Poster, row: SessionRow, contract: Contract, digest: str, *, reason: str, weakened: tuple[str, ...]
) -> PostReceipt:
    """Put another contract in force, by a person. `weakened` are the criteria that became weaker or went."""
    await created_of(poster.log, row)
    fact = ContractAmended(contract=contract, digest=digest, author=poster.actor, reason=reason, weakened=weakened)
    return await poster.post(row.session_id, fact)


async def family(poster: Poster, row: SessionRow) -> list[SessionRow]:
    """The mission and all sessions below it that are not over."""
    rows = await poster.index.sessions(Which(root=row.session_id))
    return [each for each in rows if each.status in ("runnable", "parked")]


async def pause(poster: Poster, row: SessionRow, reason: str) -> list[SessionRow]:
    """Have a mission rest with everything below it."""
    await created_of(poster.log, row)
    resting = await family(poster, row)
    for each in resting:
        await poster.post(each.session_id, UserPause(reason=reason or "its mission rests"))
    return resting


async def resume(poster: Poster, row: SessionRow, reason: str) -> list[SessionRow]:
    """Have it all go on."""
    going = await family(poster, row)
    for each in going:
        await poster.post(each.session_id, UserResume(reason=reason or "its mission goes on"))
    return going
