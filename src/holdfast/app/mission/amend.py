"""`holdfast mission amend`: put another contract in force. Weaker criteria need --weaken."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from holdfast.app.call import SESSION, Call
from holdfast.app.compose import open_runtime
from holdfast.app.exits import name_of
from holdfast.app.mission.contract import load_contract, mission_settings
from holdfast.brain.recall import recall
from holdfast.errors import UsageError
from holdfast.kinds.mission.contract.amend import Amendment, compare
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.kinds.mission.fold.state import mission_of, of_mission
from holdfast.service import missions
from holdfast.service.event_lines import counted
from holdfast.service.intake import OVER


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("contract", metavar="FILE", help="The new contract")
    parser.add_argument("--reason", metavar="TEXT", default="", help="The reason, recorded in the log")
    parser.add_argument("--weaken", action="store_true", help="Accept a weaker contract than the sealed one")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def run(call: Call) -> int:
    """Compare the contracts and post the new one."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        created = await missions.created_of(runtime.store, row)
        assert created.mission is not None
        if row.status in OVER:
            raise UsageError(f"{name_of(row)} is {row.status}: its contract is final")
        state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
        folder = Path(created.mission.repo)
        before = of_mission(state).contract if mission_of(state) is not None else created.mission.contract
        contract, _ = load_contract(Path(call.args.contract), folder)
        contract = (await mission_settings(call, folder)).applied(contract)
        # The new contract keeps the goal and the source of the sealed one, whatever its file name is.
        contract = msgspec.structs.replace(contract, goal=before.goal, source=before.source)
        found = compare(before, contract)
        if not found.changes and contract == before:
            raise UsageError(f"{call.args.contract} equals the sealed contract of {name_of(row)}; nothing was changed")
        _tell(call, found)
        allowed = created.people.approvers or ((state.owner,) if state.owner else ())
        if found.needs_person and allowed and runtime.intake.actor.removeprefix("user:") not in allowed:
            raise UsageError(f"only {' and '.join(allowed)} may make this contract weaker; nothing was changed")
        if found.needs_person and not call.args.weaken:
            raise UsageError(
                f"it is weaker than the sealed contract ({counted(len(found.weaker), 'change')}); nothing was changed. "
                "Pass --weaken to accept that"
            )
        receipt = await missions.amend(
            runtime.intake,
            row,
            contract,
            contract_digest(contract),
            reason=call.args.reason,
            weakened=tuple(found.weaker),
        )
        if call.json:
            call.emit({"session_id": row.session_id, "seq": receipt.seq, **msgspec.to_builtins(found)})
        call.say(
            f"recorded as event {receipt.seq} of {name_of(row)}: {len(found.weaker)} weaker, "
            f"{len(found.stricter)} stricter, {len(found.added)} new"
        )
    return 0


def _tell(call: Call, found: Amendment) -> None:
    for name, why in found.weaker.items():
        call.note(f"weaker   {name}: {why}")
    for name, why in found.stricter.items():
        call.note(f"stricter {name}: {why}")
    for name in found.added:
        call.note(f"new      {name}")
