"""The home over the API: status, budgets, emergency stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
import msgspec
from starlette.responses import Response

from holdfast.errors import UsageError
from holdfast.facts.shift import Period
from holdfast.serve.api.operations import Asked, Nothing, Operation
from holdfast.serve.api.sessions import Reason
from holdfast.serve.bodies import AccountPage, Stopped, account_info
from holdfast.serve.pulse import HomeStatus
from holdfast.serve.stream import ALIVE_S, EventStream, frame
from holdfast.session.money import PICO


async def status(asked: Asked[Nothing, Nothing]) -> HomeStatus:
    """Get the counts of the home."""
    asked.whole_home()
    _, found = await asked.site.pulse.after(0)
    return found


async def streamed(asked: Asked[Nothing, Nothing]) -> Response:
    """Stream the changes of the home: `status` with new counts, `changed` where these stay. Each `id` is a time."""
    asked.whole_home()
    site = asked.site

    async def frames() -> AsyncIterator[bytes | None]:
        token, last = 0, None
        while True:
            found = None
            with anyio.move_on_after(ALIVE_S):
                token, found = await site.pulse.after(token)
            if found is None:
                yield None
            elif found == last:
                yield frame(site.clock.now_us(), "changed", b"{}")
            else:
                last = found
                yield frame(site.clock.now_us(), "status", msgspec.json.encode(found))

    return EventStream(site, frames())


async def budgets(asked: Asked[Nothing, Any]) -> AccountPage:
    """List all money accounts of the home."""
    asked.whole_home()
    now_us = asked.site.clock.now_us()
    return AccountPage([account_info(each, now_us) for each in await asked.site.store.accounts()])


async def session_budget(asked: Asked[Nothing, Any]) -> AccountPage:
    """List the accounts that a session spends from, from its own to that of the home."""
    row, site = await asked.session(), asked.site
    limited = asked.visitor.credential.project
    names = row.accounts[:1] if limited else row.accounts
    found = [await site.store.account(name) for name in names]
    return AccountPage([account_info(each, site.clock.now_us()) for each in found if each is not None])


class Cap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cap of an account; null lifts it."""

    period: Period
    cap_usd: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None


async def session_cap(asked: Asked[Nothing, Cap]) -> AccountPage:
    """Set or lift a cap of a session's own account. Sessions that wait for budget go on."""
    row = await asked.session()
    if not row.accounts:
        raise UsageError(f"session {row.session_id} has no account")
    await asked.intake.set_cap(row, row.accounts[0], asked.body.period, _pico(asked.body))
    return await session_budget(asked)


async def home_cap(asked: Asked[Nothing, Cap]) -> AccountPage:
    """Set or lift a cap of any account, such as `home`, that of all sessions."""
    asked.whole_home()
    account_id = asked.path["account"]
    if await asked.site.store.account(account_id) is None:
        raise UsageError(f"there is no account {account_id!r}; list them with GET /holdfast/v1/budgets")
    await asked.intake.set_cap(None, account_id, asked.body.period, _pico(asked.body))
    return await budgets(asked)


def _pico(cap: Cap) -> int | None:
    return None if cap.cap_usd is None else round(cap.cap_usd * PICO)


async def stopped(asked: Asked[Nothing, Reason]) -> Stopped:
    """Stop every session: none starts until the release. Safe to repeat."""
    asked.whole_home()
    done = await asked.intake.stop_all(asked.body.reason)
    return Stopped(True, [row.session_id for row in done.resting])


async def released(asked: Asked[Nothing, Reason]) -> Stopped:
    """Lift the emergency stop. Safe to repeat."""
    asked.whole_home()
    _, rows = await asked.intake.release(asked.body.reason)
    return Stopped(False, [row.session_id for row in rows])


OPERATIONS = (
    Operation("GET", "/status", status, HomeStatus),
    Operation("GET", "/stream", streamed, None, media_type="text/event-stream"),
    Operation("GET", "/budgets", budgets, AccountPage),
    Operation("POST", "/budgets/{account}", home_cap, AccountPage, body=Cap, role="admin"),
    Operation("GET", "/sessions/{session}/budget", session_budget, AccountPage),
    Operation("POST", "/sessions/{session}/budget", session_cap, AccountPage, body=Cap, role="operator"),
    Operation("POST", "/stop", stopped, Stopped, body=Reason, role="admin"),
    Operation("POST", "/release", released, Stopped, body=Reason, role="admin"),
)
