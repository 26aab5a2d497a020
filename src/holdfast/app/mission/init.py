"""`holdfast mission init`: an initializer turns a goal or an issue into a contract, in a session of its own."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread
import msgspec

from holdfast.app.call import Call, positive, sandbox_arguments
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.mission.contract import mission_settings
from holdfast.app.models import settled_model
from holdfast.app.running.drive import drive, observer_for
from holdfast.app.running.opening import check_machine, limits_of, policies_of, workspace_of
from holdfast.app.settings import egress_policy, policies
from holdfast.app.settings.config import pinned_rules
from holdfast.app.settings.mission_file import MissionFile, parse_mission_file, project_mission
from holdfast.app.settings.project import MISSION_FILE as FILE
from holdfast.app.settings.trust import require
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, HoldfastError, UsageError
from holdfast.facts.mission import Contract, Role, WorkSubmitted
from holdfast.facts.session import Agent, Destination, EgressPolicy, Rule, Workspace
from holdfast.hands.base import ExecRequest, ExecResult, HandsSpec, Network
from holdfast.hands.user import HandsUser, choose_user
from holdfast.ids import new_hands_id, system_entropy
from holdfast.kinds.mission.contract.formats.files import issue_text
from holdfast.kinds.mission.contract.protected import half
from holdfast.kinds.mission.role.submissions import FILE as CONTRACT
from holdfast.kinds.mission.role.submissions import submitted_contract, submitted_files
from holdfast.kinds.mission.role.tools import SUBMIT_CONTRACT
from holdfast.repo.base import Owner
from holdfast.service.event_lines import counted
from holdfast.service.opening import NewSession, open_session

SET_UP = "init.sh"

TOOLS = ("bash", "read", "glob", "grep", SUBMIT_CONTRACT)
"""Tools of an initializer: it reads files and runs commands, and edits nothing."""

EXAMPLE = 'holdfast mission init "a list of things to do" --repo . --model anthropic:NAME'


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("goal", metavar="GOAL", nargs="?", default="", help="The goal in words; - reads standard input")
    parser.add_argument("--repo", metavar="DIR", default=".", help="The git repository to write the files into")
    parser.add_argument("--issue", metavar="URL|FILE", default="", help="GitHub or GitLab issue, or a file")
    parser.add_argument("--model", metavar="M", help="Model as provider:name, such as anthropic:NAME")
    parser.add_argument("--base-url", metavar="URL", default="", help="URL of the model server")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="Budget in dollars")
    parser.add_argument("--unpriced", action="store_true", help="Allow models without a price under a budget")
    parser.add_argument("--max-turns", metavar="N", type=positive, help="Maximum number of model responses")
    sandbox_arguments(parser)
    parser.add_argument("--hide-tests", action="store_true", help="Hide half of the generated test files from workers")
    parser.add_argument("--prompts", metavar="DIR", help="Folder with custom prompts")
    parser.add_argument("--plain", action="store_true", help="Print plain lines, without the live view")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")


async def run(call: Call) -> int:
    """Run an initializer and write the files of its contract."""
    folder = Path(call.args.repo).absolute()
    for name in (CONTRACT, "prd.json"):
        if (folder / name).exists():
            raise UsageError(
                f"{folder} has a contract already, {name}; nothing was changed. Check it with "
                f"`{call.typed('mission', 'lint')}`, or move it away first"
            )
    file = await mission_settings(call, folder)
    async with open_runtime(call.settings) as runtime:
        goal = await goal_text(call, runtime)
        made = await _made(call, runtime, goal, folder, file)
        if made.code:
            return made.code
        if made.body.get("plain_run_would_do"):
            call.say(f"No contract was written: {_why_plain(call, goal, made)}")
            if call.json:
                why = made.body.get("why", "")
                call.emit({"type": "contract", "plain_run_would_do": True, "why": why, "written": []})
            return 0
        return _write(call, folder, goal, file, made.body)


async def contract_for(call: Call, runtime: Runtime, goal: str, folder: Path) -> Contract:
    """Return the contract that an initializer makes of a goal. Writes nothing.

    Raises `UsageError` if the goal needs no mission, or if the initializer submits no contract.
    """
    made = await _made(call, runtime, goal, folder, project_mission(folder, call.settings))
    if made.code:
        raise UsageError(f"the initializer submitted no contract; to see why: {call.typed('show', made.session_id)}")
    if made.body.get("plain_run_would_do"):
        raise UsageError(f"no mission was started: {_why_plain(call, goal, made)}")
    if submitted_files(made.body):
        raise UsageError(
            "no mission was started: the contract comes with test files, which have to be committed first. Run "
            f"{call.typed('mission', 'init', goal, '--repo', str(folder))}, commit what it writes, then mission run"
        )
    contract, _ = submitted_contract(made.body)
    return msgspec.structs.replace(contract, goal=goal, source="")


# --- the session -----------------------------------------------------------------------------------


class Made(msgspec.Struct, frozen=True):
    """The result of an initializer: its submission, or a nonzero exit status without one."""

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
    """Return the submission of a session, None without one."""
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


def _write(call: Call, folder: Path, goal: str, file: MissionFile, body: dict[str, Any]) -> int:
    contract, data = submitted_contract(body)
    contract = file.applied(contract)
    texts = {CONTRACT: data, FILE: _mission_toml(call, folder, goal, str(body.get("mission_toml", "")))}
    if str(body.get("init_sh", "")).strip():
        script = str(body["init_sh"])
        script = script if script.startswith("#!") else f"#!/bin/sh\nset -e\n{script}"
        texts[SET_UP] = f"{script.rstrip(chr(10))}\n".encode()
    texts |= {path: text.encode("utf-8", "surrogatepass") for path, text in submitted_files(body).items()}
    unseen = half(contract, texts)
    if unseen and call.args.hide_tests and b"\nhidden" not in texts[FILE]:
        texts[FILE] = f"hidden = {json.dumps(unseen)}  # no worker sees these\n".encode() + texts[FILE]
    elif unseen:
        call.note(f"workers see all tests; to hide half of them, add a line to {FILE}: hidden = {json.dumps(unseen)}")
    written: list[str] = []
    kept: list[str] = []
    for name, content in texts.items():
        (written if _put(folder, name, content, executable=name == SET_UP) else kept).append(name)
    for name in kept:
        call.note(f"{name} exists already and was left unchanged")
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
        f"Read them, check them with `{call.typed('mission', 'lint', '--repo', call.args.repo)}`, accept them with "
        f"`{call.typed('trust', call.args.repo)}`, commit them, then: "
        f"{call.typed('mission', 'run', '--repo', call.args.repo)}"
    )
    return 0


def _put(folder: Path, name: str, content: bytes, *, executable: bool) -> bool:
    """Write a new file. Return False when the path exists; any link counts as existing."""
    flags, path = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.resolve() != folder.resolve() / Path(name).parent:
            raise UsageError(f"{path} cannot be written: a folder on its path is a link; nothing was written there")
        with open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o755 if executable else 0o644)) as out:
            out.write(content)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; fix that and run the command again") from error
    return True


def _mission_toml(call: Call, folder: Path, goal: str, given: str) -> bytes:
    """Return a mission.toml with the goal and, where they are valid, the initializer's settings."""
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
        call.note(f"the settings proposed by the initializer are invalid and were left out: {error}")
        return head.encode()
    return text.encode()


# --- the goal: an argument, standard input, or an issue fetched in hands --------------------------------

BYTES_MAX = 1 << 20

FETCH_S = 90.0

_EPOCH = 1

_GITHUB = re.compile(r"/([\w.-]+)/([\w.-]+)/issues/(\d+)/?")
_GITLAB = re.compile(r"/([\w./-]+?)/-/(?:issues|work_items)/(\d+)/?")


async def goal_text(call: Call, runtime: Runtime) -> str:
    """Return the goal: the argument or, for `-`, standard input, followed by the text of the issue."""
    goal = call.args.goal
    if goal == "-":
        goal = (await anyio.to_thread.run_sync(_standard_input)).decode("utf-8", "replace")
    issue = await _issue(call, runtime, call.args.issue) if call.args.issue else ""
    text = "\n\n".join(part.strip() for part in (goal, issue) if part.strip())
    if not text:
        raise UsageError(f"the goal is empty; for example: {EXAMPLE}")
    if "\0" in text:
        raise UsageError("the goal contains NUL characters; remove them")
    return text


def _standard_input() -> bytes:
    return sys.stdin.buffer.read(BYTES_MAX) if sys.stdin is not None else b""


async def _issue(call: Call, runtime: Runtime, named: str) -> str:
    if named == "-":
        return issue_text(await anyio.to_thread.run_sync(_standard_input), "the issue on standard input")
    if "://" in named:
        return issue_text(await _fetched(call, runtime, api_address(named)), named)
    path = Path(named)
    try:
        return issue_text(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(
            f"the issue {named} cannot be read: {error.strerror}; name a file, or an https address"
        ) from error


def api_address(url: str) -> str:
    """Return the API address of an issue from its address in a browser. Raises `UsageError` for any other address."""
    parts = urlsplit(url)
    github, gitlab = _GITHUB.fullmatch(parts.path), _GITLAB.fullmatch(parts.path)
    if parts.scheme == "https" and parts.hostname and not parts.username:
        if gitlab:
            return f"https://{parts.netloc}/api/v4/projects/{quote(gitlab[1], safe='')}/issues/{gitlab[2]}"
        if github:
            own = parts.netloc not in ("github.com", "www.github.com")
            api = f"https://{parts.netloc}/api/v3" if own else "https://api.github.com"
            return f"{api}/repos/{github[1]}/{github[2]}/issues/{github[3]}"
    raise UsageError(
        f"--issue {url!r} is not the address of an issue; for example "
        "--issue https://github.com/OWNER/NAME/issues/7, or a file with its text"
    )


async def _fetched(call: Call, runtime: Runtime, address: str) -> bytes:
    """Fetch from the API inside hands that reach its host alone."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or 443
    if call.args.no_sandbox:
        raise UsageError("an issue is fetched from the sandbox; leave --no-sandbox out, or give its text as a file")
    policy = egress_policy.egress(call.settings, hosts=call.args.allow_host)
    allowed = next((each for each in policy.allow if each.host == host and port in each.ports), None)
    if allowed is None:
        raise UsageError(
            f"tools may not talk to {host}, so the issue was not fetched; allow it with --allow-host {host}, or give "
            "its text as a file: --issue FILE"
        )
    result = await _in_hands(call, runtime, address, allowed)
    head, _, body = result.output.partition("\n\n")
    if not result.ok or not body.lstrip().startswith("{"):
        why = " ".join(head.split())[:300]
        raise CannotRunSafely(
            f"the issue was not fetched: {why}; nothing was started. If it needs a login, save it as a file and "
            "pass that: --issue FILE"
        )
    return body.strip().encode()


async def _in_hands(call: Call, runtime: Runtime, address: str, allowed: Destination) -> ExecResult:
    settings = call.settings
    near = Workspace("", True, settings.user, "sandbox")
    await check_machine(call, runtime, near)
    name = f"issue-{new_hands_id(SystemClock().now_us(), system_entropy)}"
    workspace = runtime.fresh_workspace(name, near)
    try:
        uid = choose_user(workspace).uid
        gateway = await runtime.egress.open(name, EgressPolicy(allow=(allowed,)), uid=uid)
        spec = HandsSpec(
            session_id=name,
            hands_id=new_hands_id(SystemClock().now_us(), system_entropy),
            workspace=workspace,
            read_only=workspace.read_only,
            policy=policies.hands(settings),
            network=Network(gateway.socket, gateway.port, gateway.env, gateway.files),
        )
        hands = await runtime.provider(workspace, spec.policy).provision(spec, _EPOCH)
        try:
            request = ExecRequest("web_fetch", {"url": address, "raw": True}, FETCH_S, output_cap=BYTES_MAX)
            await hands.start(_EPOCH, "issue", request)
            return await hands.wait(_EPOCH, "issue")
        finally:
            with anyio.CancelScope(shield=True):
                await hands.release(_EPOCH)
    finally:
        with anyio.CancelScope(shield=True):
            await runtime.egress.close(name)
            await runtime.egress.forget(name)
            await anyio.to_thread.run_sync(runtime.discard, workspace)
