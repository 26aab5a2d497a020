"""What an approval is bound to beside the action: the rules, and the files that the action touches (S21)."""

from __future__ import annotations

import posixpath
import shlex

from holdfast.brain.acts import hands as hands_act
from holdfast.brain.shift import Shift
from holdfast.facts.model import AgentToolUse
from holdfast.hands.base import ExecRequest, Hands
from holdfast.session.policy import policy_digest
from holdfast.session.state import Call
from holdfast.session.tools import TOOLS

POLICY = "policy"
FILE = "file:"

FILES_MAX = 16
"""Files of one command that are guarded; more are not looked at."""


async def guards_of(shift: Shift, call: Call, use: AgentToolUse) -> dict[str, str]:
    """The guards of an action as things are now. Raises `HandsLost`."""
    assert shift.state.created is not None
    guards = {POLICY: policy_digest(shift.state.created.agent.rules)}
    if call.where:
        return guards
    paths = _paths(use)
    if paths:
        guards.update(await _digests(shift, call, paths))
    return guards


async def changed(shift: Shift, call: Call, use: AgentToolUse, guards: dict[str, str]) -> str:
    """What has changed since these guards were taken, in words; empty when nothing has."""
    now = await guards_of(shift, call, use)
    if now.get(POLICY) != guards.get(POLICY):
        return "the rules of this session have changed since it was asked"
    for name in sorted(now.keys() | guards.keys()):
        if now.get(name) != guards.get(name):
            return f"{name.removeprefix(FILE)} has changed since it was asked"
    return ""


def _paths(use: AgentToolUse) -> list[str]:
    """The files that an action names: that of a file tool, every word of a command that may be one."""
    path = use.input.get("file_path")
    if isinstance(path, str):
        return [path]
    command = use.input.get("command")
    if not isinstance(command, str):
        return []
    try:
        words = shlex.split(command, comments=False)
    except ValueError:
        words = command.split()
    found = [word.strip(";&|<>()") for word in words]
    return list(dict.fromkeys(word for word in found if word and not word.startswith("-") and len(word) < 1_000))


async def _digests(shift: Shift, call: Call, paths: list[str]) -> dict[str, str]:
    """The digests of those paths that are files in the hands."""
    await hands_act.provision(shift)
    hands = await hands_act.current(shift)
    found: dict[str, str] = {}
    for path in paths[: FILES_MAX * 4]:
        full = posixpath.normpath(posixpath.join(hands.identity.root, path))
        digest = await _digest(shift, hands, call, full)
        if digest and len(found) < FILES_MAX:
            found[FILE + full] = digest
    return found


async def _digest(shift: Shift, hands: Hands, call: Call, path: str) -> str:
    shift.probes += 1
    probe_id = f"{call.call_id}.guard{shift.epoch}.{shift.probes}"
    request = ExecRequest("read", {"file_path": path, "view_range": [1, 1]}, TOOLS["read"].timeout_s)
    await hands.start(shift.epoch, probe_id, request)
    result = await hands.wait(shift.epoch, probe_id)
    return result.files[0].digest if result.ok and result.files else ""
