"""Open a mission for a caller of the server, as `holdfast mission run` does."""

from __future__ import annotations

import argparse
from dataclasses import replace

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.mission.contract import find_contract
from holdfast.app.mission.run import arguments, opened
from holdfast.app.server.opening import folder_of
from holdfast.errors import ContractInvalid, UsageError
from holdfast.serve.access import Visitor
from holdfast.serve.site import MissionWanted
from holdfast.service.opening import check_key, find_by_key
from holdfast.session.rows import SessionRow


async def open_mission_wanted(runtime: Runtime, visitor: Visitor, wanted: MissionWanted) -> SessionRow:
    """Open a mission on a contract of the repository; a known key returns its session.

    The text of the contract is checked, and its checks are not run. Nobody is asked to trust the repository's settings:
    what was not accepted does not count. Raises `UsageError` for what the caller may not choose, `ContractInvalid` with
    the findings, and the errors of `open_session`.
    """
    if wanted.key:
        check_key(wanted.key, "key ")
        existing = await find_by_key(runtime.store, wanted.key)
        if existing is not None:
            return existing
    folder = folder_of(visitor, wanted.repo) if wanted.repo else None
    if folder is None:
        raise UsageError("name the repository, as an absolute path; nothing was started")
    contract = ""
    if wanted.contract:
        place = folder / wanted.contract
        if not place.resolve().is_relative_to(folder):
            raise UsageError(f"the contract {wanted.contract!r} is not in {folder}; nothing was started")
        contract = str(find_contract(folder, str(place)))
    parser, findings = argparse.ArgumentParser(), list[str]()
    arguments(parser)
    args = parser.parse_args(["--repo", str(folder), "--json"])
    args.contract, args.session_id, args.static, args.verb = contract, wanted.key, True, "mission"
    settings = runtime.settings
    if wanted.budget_usd is not None:
        settings = replace(settings, budget_usd=f"{wanted.budget_usd:.12f}")
    call = Call(args, settings, findings.append)
    acting = replace(runtime, settings=settings, intake=runtime.intake.acting_as(visitor.caller))
    try:
        return await opened(call, acting, owner=visitor.credential.name)
    except ContractInvalid as error:
        raise ContractInvalid("\n".join((str(error), *findings))) from error
