"""`holdfast mission deliver`: what a mission reached, as a branch and a pull request; pushed only when told."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.mission.push import Prepared, prepare, push, said
from holdfast.app.screen.briefs import pull_request_body
from holdfast.app.settings.secrets import secret_uses
from holdfast.service import missions
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this one."""
    parser.add_argument("session", metavar="ID", help="a mission's id, key, or a unique beginning of either")
    parser.add_argument("--remote", metavar="NAME", default="origin", help="the remote to push to (origin)")
    parser.add_argument(
        "--base", metavar="BRANCH", default="", help="the branch it is for; the followed one if left out"
    )
    parser.add_argument("--push", action="store_true", help="push the branch, with a secret that allows it")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Say what there is, and push it when that is wanted."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        prepared = await _prepared(call, runtime, row)
        sent = ""
        if call.args.push:
            uses = secret_uses(call.settings)
            state = runtime.home.path / "repositories"
            sent = await push(prepared, state, runtime.egress, uses, uid=os.getuid())
        if call.json:
            call.emit(
                {
                    "session_id": row.session_id,
                    "branch": prepared.branch,
                    "commit": prepared.commit,
                    "base": prepared.base,
                    "title": prepared.title,
                    "body": prepared.body,
                    "command": prepared.command,
                    "pushed": sent,
                }
            )
        elif sent:
            call.say(sent)
        else:
            call.say(said(prepared).rstrip())
    return 0


async def _prepared(call: Call, runtime: Runtime, row: SessionRow) -> Prepared:
    created = await missions.created_of(runtime.store, row)
    mission = created.mission
    assert mission is not None
    return await prepare(
        Path(mission.repo),
        runtime.home.path / "repositories",
        mission.name,
        base=call.args.base or mission.follow,
        title=mission.contract.goal,
        body=await pull_request_body(runtime, row),
        remote=call.args.remote,
    )
