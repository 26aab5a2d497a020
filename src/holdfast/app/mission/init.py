"""`holdfast mission init`: an initializer turns a goal into a contract, in a session of its own.

It works on a checkout; what it hands in is checked here and written into the repository. No file that is there already
is overwritten.
"""

from __future__ import annotations

import argparse
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app.arguments import positive
from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.mission.issue import goal_text
from holdfast.app.mission.trust import mission_settings
from holdfast.app.models import settled_model
from holdfast.app.running.drive import drive, observer_for
from holdfast.app.running.opening import limits_of, policies_of, workspace_of
from holdfast.app.screen.progress import counted
from holdfast.app.settings.config import pinned_rules
from holdfast.app.settings.mission_file import MissionFile, parse_mission_file, project_mission
from holdfast.app.settings.project_files import MISSION_FILE as FILE
from holdfast.app.settings.trust import require
from holdfast.errors import HoldfastError, UsageError
from holdfast.facts.contract import Contract
from holdfast.facts.mission import Role, WorkSubmitted
from holdfast.facts.session import Agent, Rule, Workspace
from holdfast.hands.user import HandsUser
from holdfast.kinds.mission.contract.protected import half
from holdfast.kinds.mission.role.submissions import FILE as CONTRACT
from holdfast.kinds.mission.role.submissions import submitted_contract, submitted_files
from holdfast.kinds.mission.role.tools import SUBMIT_CONTRACT
from holdfast.repo.base import Owner
from holdfast.service.opening import NewSession, open_session

SET_UP = "init.sh"

TOOLS = ("bash", "read", "glob", "grep", SUBMIT_CONTRACT)
"""An initializer looks and runs; it edits nothing."""

EXAMPLE = 'holdfast mission init "a list of things to do" --repo . --model anthropic:NAME'


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this one."""
    parser.add_argument("goal", metavar="GOAL", nargs="?", default="", help="what is wanted, in words; - reads them")
    parser.add_argument("--repo", metavar="DIR", default=".", help="the git repository that the files are written into")
    parser.add_argument("--issue", metavar="URL|FILE", default="", help="an issue of GitHub or GitLab, or its text")
    parser.add_argument("--model", metavar="M", help="provider:name, such as anthropic:NAME or scripted:FILE")
    parser.add_argument("--base-url", metavar="URL", default="", help="the model's server, such as your own")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="money cap in dollars")
    parser.add_argument("--unpriced", action="store_true", help="under a cap, count only models that have a price")
    parser.add_argument("--max-turns", metavar="N", type=positive, help="cap on model responses")
    parser.add_argument("--allow-host", metavar="HOST", action="append", default=[], help="let tools talk to this host")
    parser.add_argument("--registries", action="store_true", help="let tools reach this machine's package registries")
    parser.add_argument("--secret", metavar="NAME", action="append", default=[], help="let tools use this secret")
    parser.add_argument("--user", metavar="NAME", help="run tools as this login; only root can")
    parser.add_argument("--no-sandbox", action="store_true", help="run tools without isolation; recorded in the log")
    parser.add_argument("--hide-tests", action="store_true", help="hide half of the test files that it writes")
    parser.add_argument("--prompts", metavar="DIR", help="a folder with prompts of your own")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


async def run(call: Call) -> int:
    """Have the contract made, and write its files."""
    folder = Path(call.args.repo).absolute()
    for name in (CONTRACT, "prd.json"):
        if (folder / name).exists():
            raise UsageError(
                f"{folder} has a contract already, {name}, and it is left as it is; look at it with "
                f"`{call.typed('mission', 'lint')}`, or move it away first"
            )
    file = await mission_settings(call, folder)
    async with open_runtime(call.settings) as runtime:
        goal = await goal_text(call, runtime)
        made = await _made(call, runtime, goal, folder, file)
        if made.code:
            return made.code
        if made.body.get("plain_run_would_do"):
            return _plain(call, goal, made)
        return _write(call, folder, goal, file, made.body)


async def contract_for(call: Call, runtime: Runtime, goal: str, folder: Path) -> Contract:
    """The contract that an initializer makes of a goal; nothing is written.

    Raises `UsageError` when a plain run would do, or when no contract came of it.
    """
    made = await _made(call, runtime, goal, folder, project_mission(folder, call.settings))
    if made.code:
        raise UsageError(
            f"no contract came of the goal; session {made.session_id} says why: {call.typed('show', made.session_id)}"
        )
    if made.body.get("plain_run_would_do"):
        raise UsageError(f"no mission was begun: {_why_plain(call, goal, made)}")
    if submitted_files(made.body):
        raise UsageError(
            "no mission was begun: the contract comes with test files, which have to be committed first. Type "
            f"{call.typed('mission', 'init', goal, '--repo', str(folder))}, commit what it writes, then mission run"
        )
    contract, _ = submitted_contract(made.body)
    return msgspec.structs.replace(contract, goal=goal, source="")


# --- the session -----------------------------------------------------------------------------------


class Made(msgspec.Struct, frozen=True):
    """What came of an initializer: its exit status when it did not hand in, else what it handed in."""

    session_id: str
    code: int
    body: dict[str, Any] = {}


async def _made(call: Call, runtime: Runtime, goal: str, folder: Path, file: MissionFile) -> Made:
    """Run an initializer on a checkout of the repository's latest commit."""
    settings, args = file.settings(call.settings), call.args
    repository = runtime.repository(str(folder))
    standing = await repository.look()
    model = settled_model(file.policy.models.get("initializer", "") or settings.model, args.base_url)
    if not model:
        require(settings.ignored, "model")
    turns = file.policy.turns.get("initializer", settings.max_turns)
    new = NewSession(
        goal=goal,
        agent=Agent(model=model, name="initializer", tools=TOOLS, rules=(Rule(SUBMIT_CONTRACT, "allow"),)),
        workspace=workspace_of(settings, None, sandbox=not args.no_sandbox),
        limits=limits_of(settings, unpriced=args.unpriced, max_turns=turns),
        policies=policies_of(settings, args.allow_host, args.registries, args.secret or None),
        role=Role(kind="initializer", repo=str(folder), base=standing.head),
    )

    async def checkout(workspace: Workspace, user: HandsUser) -> None:
        await repository.checkout(standing.head, Path(workspace.path), user=Owner(user.uid, user.gid))

    opened = await open_session(runtime.site, new, rules=pinned_rules, prepare=checkout, tell=call.note)
    session_id = opened.row.session_id
    call.note(f"session {session_id}")
    doors = await runtime.doors_for(session_id, observer=observer_for(call, opened.row))
    code = await drive(call, runtime, session_id, doors)
    body = await _submitted(runtime, session_id)
    return Made(session_id, code if code or body is not None else 1, body or {})


async def _submitted(runtime: Runtime, session_id: str) -> dict[str, Any] | None:
    """What was handed in, None when nothing was."""
    after = 0
    while events := await runtime.store.read(session_id, after=after, limit=1_000):
        for event in events:
            if isinstance(event.fact, WorkSubmitted):
                return event.fact.body
        after = events[-1].seq
    return None


# --- the files -------------------------------------------------------------------------------------


def _why_plain(call: Call, goal: str, made: Made) -> str:
    typed = call.typed("run", goal, "--workspace", call.args.repo)
    return f"a plain run would do ({' '.join(str(made.body.get('why', '')).split())}): {typed}"


def _plain(call: Call, goal: str, made: Made) -> int:
    call.say(f"No contract was written: {_why_plain(call, goal, made)}")
    if call.json:
        call.emit({"type": "contract", "plain_run_would_do": True, "why": made.body.get("why", ""), "written": []})
    return 0


def _write(call: Call, folder: Path, goal: str, file: MissionFile, body: dict[str, Any]) -> int:
    contract, data = submitted_contract(body)
    contract = file.applied(contract)
    texts = {CONTRACT: data, FILE: _mission_toml(call, folder, goal, str(body.get("mission_toml", "")))}
    if str(body.get("init_sh", "")).strip():
        texts[SET_UP] = _script(str(body["init_sh"]))
    texts |= {path: text.encode("utf-8", "surrogatepass") for path, text in submitted_files(body).items()}
    unseen = half(contract, texts)
    if unseen and call.args.hide_tests and b"\nhidden" not in texts[FILE]:
        texts[FILE] = f"hidden = {json.dumps(unseen)}  # no worker sees these\n".encode() + texts[FILE]
    elif unseen:
        call.note(f"workers see all tests; hide half of them by a line in {FILE}: hidden = {json.dumps(unseen)}")
    written: list[str] = []
    kept: list[str] = []
    for name, content in texts.items():
        (written if _put(folder, name, content, executable=name == SET_UP) else kept).append(name)
    for name in kept:
        call.note(f"{name} is there already and is left as it is")
    if SET_UP not in texts:
        call.note(f"no {SET_UP} was written: the initializer found nothing to set up")
    if call.json:
        call.emit({"type": "contract", "plain_run_would_do": False, "why": body.get("why", ""), "written": written,
                   "kept": kept, "items": len(contract.items), "criteria": len(contract.criteria())})  # fmt: skip
    criteria = len(contract.criteria())
    many = "1 criterion" if criteria == 1 else f"{criteria} criteria"
    call.say(f"{', '.join(written)} written: {counted(len(contract.items), 'item')}, {many}")
    if body.get("why"):
        call.say(f"The initializer says: {body['why']}")
    call.note(
        f"Read them, look with `{call.typed('mission', 'lint', '--repo', call.args.repo)}`, accept them with "
        f"`{call.typed('trust', call.args.repo)}`, commit them, then: "
        f"{call.typed('mission', 'run', '--repo', call.args.repo)}"
    )
    return 0


def _put(folder: Path, name: str, content: bytes, *, executable: bool) -> bool:
    """Write a file that is not there; False when something is. A link counts as something, wherever it leads."""
    flags, path = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.resolve() != folder.resolve() / Path(name).parent:
            raise UsageError(f"{path} cannot be written: a folder on its way is a link; nothing was written there")
        with open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o755 if executable else 0o644)) as out:
            out.write(content)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; mend that and type it again") from error
    return True


def _script(text: str) -> bytes:
    return ((text if text.startswith("#!") else f"#!/bin/sh\nset -e\n{text}").rstrip("\n") + "\n").encode()


def _mission_toml(call: Call, folder: Path, goal: str, given: str) -> bytes:
    """A mission.toml with the goal, and what the initializer wants set where that can be meant."""
    head = (
        f"# How a mission works here: docs/missions.md has each key.\ngoal = {json.dumps(goal, ensure_ascii=False)}\n"
    )
    head += f'contract = "{CONTRACT}"\n'
    try:
        values = tomllib.loads(given)
        own = "".join(line for line in head.splitlines(keepends=True) if line.partition(" =")[0] not in values)
        text = own + (given.strip() + "\n" if given.strip() else "")
        parse_mission_file(text.encode(), folder / FILE)
    except (tomllib.TOMLDecodeError, HoldfastError) as error:
        call.note(f"the settings that the initializer wanted are left out: {error}")
        return head.encode()
    return text.encode()
