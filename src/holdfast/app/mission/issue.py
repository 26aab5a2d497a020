"""What a contract is made of: a goal in words, an issue from a file, or one fetched through egress.

An issue is fetched from inside the hands, through a proxy that reaches the host of its API and nothing else, and only
when the egress policy lets hands talk to that host. No secret goes with the request: an issue that needs one is given
as a file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.running.opening import check_machine
from holdfast.app.settings import egress_policy, hands_policy
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import Destination, EgressPolicy, Workspace
from holdfast.hands.base import ExecRequest, ExecResult, HandsSpec, Network
from holdfast.hands.user import choose_user
from holdfast.ids import new_hands_id, system_entropy
from holdfast.kinds.mission.contract.formats.files import issue_text

EXAMPLE = 'holdfast mission init "a list of things to do" --repo .'

BYTES_MAX = 1 << 20

FETCH_S = 90.0

_EPOCH = 1

_GITHUB = re.compile(r"/([\w.-]+)/([\w.-]+)/issues/(\d+)/?")
_GITLAB = re.compile(r"/([\w./-]+?)/-/(?:issues|work_items)/(\d+)/?")


async def goal_text(call: Call, runtime: Runtime) -> str:
    """What is wanted, in words: what was typed, what stands on standard input for `-`, and the issue behind it."""
    goal = call.args.goal
    if goal == "-":
        goal = (await anyio.to_thread.run_sync(_standard_input)).decode("utf-8", "replace")
    issue = await _issue(call, runtime, call.args.issue) if call.args.issue else ""
    text = "\n\n".join(part.strip() for part in (goal, issue) if part.strip())
    if not text:
        raise UsageError(f"the goal is empty; an example is: {EXAMPLE}")
    if "\0" in text:
        raise UsageError("the goal holds characters that are no text; write it without them")
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
    """Where the API has an issue, by the address that a browser shows. Raises `UsageError` for any other address."""
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
        f"--issue {url!r} is no address of an issue; an example is --issue https://github.com/OWNER/NAME/issues/7, or "
        "a file with its text"
    )


async def _fetched(call: Call, runtime: Runtime, address: str) -> bytes:
    """What the API answers, got from inside hands that reach its host alone."""
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
            f"the issue was not fetched: {why}; nothing was begun. Where it needs a login, save it as a file and give "
            "that: --issue FILE"
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
            policy=hands_policy.hands(settings),
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
