"""Guards of an approval: the rules, the workspace, and the files that the action names or runs (S21)."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from fnmatch import fnmatchcase

from holdfast.brain.acts import hands as hands_act
from holdfast.brain.shift import Shift
from holdfast.errors import HoldfastError, Refused
from holdfast.facts.model import AgentToolUse
from holdfast.hands.base import ExecRequest, Hands
from holdfast.repo.base import Change
from holdfast.session.context.text import own_programs
from holdfast.session.decide.calls import rule_for
from holdfast.session.state import Call, GrantHeld, State
from holdfast.session.tools import TOOLS
from holdfast.session.tools.effects import Effects, effects_of
from holdfast.session.tools.policy import TREE, policy_digest

POLICY = "policy"
FILE = "file:"

FILES_MAX = 64
"""Maximum paths of one call to check in the sandbox itself: those outside the workspace, and behind links."""


async def guards_of(shift: Shift, call: Call, use: AgentToolUse) -> dict[str, str]:
    """Return the current guards of an action. Raises `HandsLost`."""
    assert shift.state.created is not None
    guards = {POLICY: policy_digest(shift.state.created.agent.rules)}
    if call.where:
        return guards
    effects = _effects(shift.state, call, use)
    if effects.names or effects.writes is None:
        outside_first = sorted(effects.names, key=lambda name: not name.startswith("/"))
        paths = [*outside_first, *(f".venv/bin/{name}" for name in effects.programs)]  # of a prepared environment
        guards.update(await _digests(shift, call, paths[:FILES_MAX]))
    if not call.read_only and (effects.names or effects.writes is None) and (tree := await _tree(shift)):
        guards[TREE] = tree
    return guards


async def written_by_jobs(shift: Shift, guards: dict[str, str]) -> tuple[str, ...]:
    """Return the files that running jobs and services write, by their commands and by changes since the last call.

    Between two calls only jobs and services run, so they made every change since the last call's snapshot. With
    children at work the author is uncertain, so these changes do not count as a job's.
    """
    state = shift.state
    lines = [job.command for job in state.live_jobs()] + [each.command for each in state.services.values()]
    if not lines:
        return ()
    assert state.created is not None
    folder = state.created.workspace.path
    found = [path for line in lines for path in effects_of("bash", {"command": line}, folder=folder).writes or ()]
    if state.snapshot and not hands_act.snapshot_wanted(state) and not state.live_children():
        found += [each.path for each in await _changes(shift, state.snapshot, guards.get(TREE, ""))]
    return tuple(dict.fromkeys(path for path in found if not path.startswith("/") and path != "."))


async def changed(
    shift: Shift, call: Call, use: AgentToolUse, guards: dict[str, str], uncounted: Sequence[str], asked_seq: int
) -> str:
    """Return the reason why an answer with these guards no longer applies; empty if it still does."""
    now = await guards_of(shift, call, use)
    if now.get(POLICY) != guards.get(POLICY):
        return "the rules of this session have changed since it was asked"
    for name in sorted(now.keys() | guards.keys()):
        if name.startswith(FILE) and now.get(name) != guards.get(name):
            return f"{name.removeprefix(FILE)} has changed since it was asked"
    effects = _effects(shift.state, call, use)
    if effects.executes == () and _jobs_since(shift.state, asked_seq):
        uncounted = ("*",)  # the call runs no file of the workspace, and only jobs have run since
    return await _tree_changed(shift, call, effects, guards, now, uncounted, ())


async def outdated(shift: Shift, call: Call, use: AgentToolUse, held: GrantHeld) -> str:
    """Return the reason why a grant no longer covers this call: a file that it can execute has changed."""
    await hands_act.snapshot_before_end(shift)  # captures the changes made by the grant's last call itself
    held = next(each for each in shift.state.grants if each.seq == held.seq)
    now = await guards_of(shift, call, use)
    if now.get(POLICY) != held.guards.get(POLICY):
        return "the rules of this session have changed since the grant was given"
    effects = _effects(shift.state, call, use)
    if effects.executes == ():
        return ""
    root = shift.state.hands.root if shift.state.hands else ""
    for name, digest in sorted(now.items()):
        outside = name.startswith(FILE) and not name.removeprefix(FILE).startswith(f"{root}/")
        if outside and held.guards.get(name) != digest:
            return f"{name.removeprefix(FILE)} is not as it was when the grant was given"
    return await _tree_changed(shift, call, effects, held.guards, now, held.uncounted, effects.executes or ())


async def _tree_changed(
    shift: Shift,
    call: Call,
    effects: Effects,
    guards: dict[str, str],
    now: dict[str, str],
    uncounted: Sequence[str],
    executes: Sequence[str],
) -> str:
    """Return the first change of the workspace that counts. Changes of files that the call names always count."""
    if TREE not in now and TREE not in guards:
        return ""
    if TREE not in now or TREE not in guards:
        return "the workspace could not be compared with what it was when it was asked"
    rule = rule_for(shift.state, call, shift.doors.clock.now_us()).rule
    bound_to = rule.bound_to if rule is not None else ()
    names = [name for name in effects.names if name != "." and not name.startswith("/")]
    for change in await _changes(shift, guards[TREE], now[TREE]):
        named = any(change.path == name or change.path.startswith(f"{name}/") for name in names)
        counts = not change.ignored and not _any_fits(change.path, uncounted)
        if bound_to:
            counts = _any_fits(change.path, bound_to)
        if executes:
            counts = counts and _any_fits(posixpath.basename(change.path), executes)
        if named or counts:
            return f"{change.path} was {change.kind} since it was asked"
    return ""


def _any_fits(path: str, globs: Sequence[str]) -> bool:
    return any(path == glob or path.startswith(f"{glob}/") or fnmatchcase(path, glob) for glob in globs)


def _effects(state: State, call: Call, use: AgentToolUse) -> Effects:
    assert state.created is not None
    tool = state.tool(call.name)
    main = tool.main if tool is not None else ""
    folder, own = state.created.workspace.path, own_programs(state.created, state.hands)
    return effects_of(use.name, use.input, main=main, folder=folder, own_programs=own)


def _jobs_since(state: State, seq: int) -> bool:
    """Return True if jobs or services, and no other sessions, could write to the workspace since the event `seq`."""
    jobs = any(job.outcome is None or job.ended_seq > seq for job in state.jobs.values())
    return (jobs or bool(state.services)) and not state.live_children()


async def _tree(shift: Shift) -> str:
    """Return the snapshot of the current workspace; empty if none can be taken."""
    if shift.keeping is not None:
        await shift.keeping.wait()
    if shift.doors.shelf is None or shift.state.workspace_with:
        return ""
    try:
        return (await hands_act.take_snapshot(shift, shift.state.seq)).snapshot
    except Refused:
        raise
    except HoldfastError:
        return ""


async def _changes(shift: Shift, before: str, after: str) -> list[Change]:
    if not before or not after or before == after or shift.doors.shelf is None:
        return []
    return await shift.doors.shelf.changes(before, after)


async def _digests(shift: Shift, call: Call, paths: list[str]) -> dict[str, str]:
    """Return the digests of the paths that are files in the hands."""
    await hands_act.provision(shift)
    hands = await hands_act.current(shift)
    found: dict[str, str] = {}
    for path in paths:
        full = posixpath.normpath(posixpath.join(hands.identity.root, path))
        digest = await _digest(shift, hands, call, full)
        if digest:
            found[FILE + full] = digest
    return found


async def _digest(shift: Shift, hands: Hands, call: Call, path: str) -> str:
    shift.probes += 1
    probe_id = f"{call.call_id}.guard{shift.epoch}.{shift.probes}"
    request = ExecRequest("read", {"file_path": path, "view_range": [1, 1]}, TOOLS["read"].timeout_s)
    await hands.start(shift.fence, probe_id, request)
    result = await hands.wait(shift.fence, probe_id)
    return result.files[0].digest if result.ok and result.files else ""
