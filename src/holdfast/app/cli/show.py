"""A session at a point of its log: show, fork."""

from __future__ import annotations

import argparse

from holdfast.app.call import SESSION, Call, position
from holdfast.app.cli.ps import public
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of, next_step
from holdfast.app.forking import fork_session
from holdfast.app.running.family import workspace_of
from holdfast.app.settings.config import budget_pico
from holdfast.app.workspace_files import NOW, changes, diff, files_as_of, restore, show_changes, undo
from holdfast.brain.points import point_at
from holdfast.brain.recall import recall
from holdfast.clock import local_time
from holdfast.errors import UsageError
from holdfast.service.access_lines import outside_details, outside_lines, weakness
from holdfast.service.event_lines import counted, describe, one_line
from holdfast.service.events import counting_answers, last_message
from holdfast.service.forks import Forked
from holdfast.service.opening import check_key
from holdfast.service.sessions import children, costs_of, standing
from holdfast.session.context.notes import job_name
from holdfast.session.context.text import harmless
from holdfast.session.costs import Costs, costs
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow
from holdfast.session.state import State


def show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `show`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--at", metavar="SEQ", type=position, help="Show the state after this event")
    parser.add_argument(
        "--files",
        metavar="SEQ",
        type=position,
        nargs="?",
        const=NOW,
        help="List files changed between --at and this event, earlier to later; the workspace now stands in for either",
    )
    parser.add_argument("--restore", metavar="DIR", help="Restore the files at --at into an empty folder")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def show_run(call: Call) -> int:
    """Show the session."""
    args = call.args
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(args.session)
        if args.files is not None or args.restore is not None:
            return await _files(call, runtime, row)
        if args.at is not None:
            point = await point_at(runtime.store, row, args.at, runtime.kinds)
            spent = costs([point.row])[row.session_id]
            if call.json:
                kept = {"snapshot": point.kept, "snapshot_seq": point.kept_seq}
                unkept = [ran.call_id for ran in point.unkept]
                told = await _told(runtime, point.row, point.state, spent, running=False)
                call.emit({**told, **kept, "unkept_calls": unkept})
            else:
                lines = {**_lines(point.row, point.state, spent, running=False), "files": files_as_of(point)}
                await _glance(call, runtime, point.state, lines)
            return 0
        running = row.session_id in await runtime.store.holders()
        state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
        spent = (await costs_of(runtime.store, row))[row.session_id]
        if call.json:
            call.emit(await _told(runtime, row, state, spent, running=running))
            return 0
        await _glance(call, runtime, state, _lines(row, state, spent, running=running))
        step = f"Follow it with `{call.typed('logs', name_of(row), '-f')}`."
        call.say(f"\n{step if running else await next_step(runtime.store, row, state, call.typed)}")
        return 0


async def _glance(call: Call, runtime: Runtime, state: State, lines: dict[str, str]) -> None:
    for name, value in lines.items():
        call.say(f"{name:<11} {value}")
    below = await children(runtime.store, state)
    for child, now in zip(state.children.values(), below, strict=True):
        name = f"{one_line(child.name, 30)}  " if child.name else ""
        size = f"{counted(now.row.turns, 'turn')}, {now.costs.tree}"
        call.say(f"{'child':<11} {child.child_id}  {name}{standing(now.row, running=now.running)}, {size}")
    for job in state.live_jobs():
        since = local_time(job.started_us)
        call.say(f"{'job':<11} {job_name(job)}  since {since}: {one_line(job.command, 80)}")
    for service in state.services.values():
        call.say(f"{'service':<11} {service.name}: {one_line(service.command, 80)}")
    for event in await counting_answers(runtime.store, state):
        call.say(f"{'answer':<11} {describe(event)}")
    answer = await last_message(runtime.store, state)
    if answer:
        call.say(f"\n{harmless(answer)}")


DIED = "its process ended without a word"


def _lines(row: SessionRow, state: State, spent: Costs, *, running: bool) -> dict[str, str]:
    cap = state.limits.budget_pico
    died = standing(row, running=running) == "died"
    lines = {
        "session": row.session_id + (f"  (key {row.key})" if row.key else ""),
        "state": standing(row, running=running) + (f": {row.detail or DIED}" if row.detail or died else ""),
        "goal": one_line(row.goal, 200),
        "model": row.model,
        "workspace": row.workspace,
        "began": local_time(row.created_us),
        "last event": f"{row.head}, {local_time(row.updated_us)}",
        "shifts": str(row.epoch),
        "turns": f"{state.responses} of at most {state.limits.max_turns}",
        "context": f"about {state.window_tokens} tokens of at most {state.limits.context_tokens}",
        "tokens": "unknown" if state.uncounted else f"{state.usage.input_tokens} in, {state.usage.output_tokens} out",
        "money": f"{spent}" + (", no cap" if cap is None else f" of at most {usd(cap)}"),
        "hands": _hands(state),
        "open calls": ", ".join(f"{call.name} {call.call_id}" for call in state.open_calls()) or "none",
    }
    lines |= {name: one_line(value, 200) for name, value in outside_lines(state).items()}
    if state.environment_error:
        lines["environment"] = f"not there, and the work waits for it: {one_line(state.environment_error, 160)}"
    elif state.environment or state.environment_failed:
        failed = state.environment_failed and f"; {state.environment_failed[:12]} could not be made"
        lines["environment"] = f"{state.environment[:12] or 'none'}{failed}"
    if state.pending:
        positions = ", ".join(str(item.seq) for item in state.pending)
        lines["pending"] = f"the model has not seen what came at {positions}"
    if row.parent:
        lines["parent"] = row.parent
    if row.origin:
        lines["fork of"] = f"{row.origin} at {row.origin_seq}"
    return lines


async def _told(runtime: Runtime, row: SessionRow, state: State, spent: Costs, *, running: bool) -> dict[str, object]:
    words = await last_message(runtime.store, state)
    answers = [describe(event) for event in await counting_answers(runtime.store, state)]
    return {
        **public(row, spent, running=running),
        "origin": row.origin,
        "origin_seq": row.origin_seq,
        "pending": [item.seq for item in state.pending],
        "window_tokens": state.window_tokens,
        "children": list(state.children),
        "jobs": {
            job.job_id: {"name": job.name, "command": job.command, "outcome": job.outcome or "running"}
            for job in state.jobs.values()
        },
        "services": {each.name: each.command for each in state.services.values()},
        "open_calls": [call.call_id for call in state.open_calls()],
        "hands_id": state.hands.hands_id if state.hands else None,
        "isolation": dict(state.hands.isolation) if state.hands else {},
        **outside_details(state),
        "answers": answers,
        "last_message": words,
    }


async def _files(call: Call, runtime: Runtime, row: SessionRow) -> int:
    """Handle --files and --restore."""
    args = call.args
    at = args.at if args.at is not None else row.head
    point = await point_at(runtime.store, row, at, runtime.kinds)
    if args.files is not None:
        workspace, begin, end = await workspace_of(runtime, row), point, args.files
        if end != NOW and (args.at is None or end < at):
            begin, end = await point_at(runtime.store, row, end, runtime.kinds), NOW if args.at is None else at
        show_changes(call, await changes(runtime, row, begin, end, workspace))
    if args.restore is not None:
        await restore(call, runtime, row, point, args.restore)
    return 0


def undo_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `undo`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument(
        "--to", metavar="SEQ", type=position, required=True, help="Restore the files as after this event"
    )
    parser.add_argument("--yes", action="store_true", help="Also undo changes that no snapshot has, without asking")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def undo_run(call: Call) -> int:
    """Restore the workspace as it was after an event; the present files are kept first."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        point = await point_at(runtime.store, row, call.args.to, runtime.kinds)
        if not point.kept and point.later_seq:
            later = await point_at(runtime.store, row, point.later_seq, runtime.kinds)
            point = point if later.state.mutated_seq else later  # no call had changed the files by then
        await undo(call, runtime, row, point, await workspace_of(runtime, row))
    return 0


def diff_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument(
        "--at",
        metavar="SEQ",
        type=position,
        nargs="+",
        default=[],
        help="One or two events (default: from the first snapshot to the workspace now)",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def diff_run(call: Call) -> int:
    """Show what changed in the files of the workspace, from the earlier position to the later one."""
    places = sorted(call.args.at)
    if len(places) > 2:
        example = call.typed("diff", call.args.session, "--at", "9", "20")
        raise UsageError(f"--at takes one or two events; for example: {example}")
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        begin = await point_at(runtime.store, row, places[0] if places else 1, runtime.kinds)
        if not places and not begin.kept and begin.later_seq:
            begin = await point_at(runtime.store, row, begin.later_seq, runtime.kinds)
        end = places[1] if len(places) == 2 else NOW
        patch = await diff(runtime, row, begin, end, await workspace_of(runtime, row))
    if call.json:
        call.emit({"from_seq": begin.kept_seq, "to_seq": None if end == NOW else end, "diff": patch})
        return 0
    until = "now" if end == NOW else f"after event {end}"
    call.note(f"{name_of(row)}: from the files after event {begin.kept_seq} to those {until}")
    for line in patch.splitlines():
        call.say(line, whole=True)
    if not patch:
        call.note("no file differs")
    return 0


def _hands(state: State) -> str:
    hands = state.hands
    if hands is None:
        isolation = state.created.workspace.isolation if state.created else "sandbox"
        return "none now" + (
            "; NOT SANDBOXED: tools of this session run without isolation" if isolation == "none" else ""
        )
    levels = [
        (level, [kind for kind, of in hands.isolation.items() if of == level]) for level in ("hard", "soft", "none")
    ]
    walls = "; ".join(f"{level}: {', '.join(kinds)}" for level, kinds in levels if kinds)
    weak = weakness(hands)
    return f"{hands.provider}, uid {hands.uid}; {walls}{weak and '; ' + one_line(weak, 200)}"


def fork_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fork`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--at", metavar="SEQ", type=position, required=True, help="Fork after this event")
    parser.add_argument("--key", metavar="KEY", default="", help="Key of the fork; the same key returns the same fork")
    parser.add_argument("--budget", metavar="USD", default="", help="Budget in dollars (default: that of the session)")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def fork_run(call: Call) -> int:
    """Open the fork, or find the one with this key. Does not run it."""
    if call.args.key:
        check_key(call.args.key, "--key ")
    cap = budget_pico(call.args.budget)
    async with open_runtime(call.settings) as runtime:
        origin = await runtime.store.find(call.args.session)
        done = await fork_session(runtime, origin, call.args.at, call.args.key, cap)
        account = await runtime.store.account(done.row.accounts[0])
        _say(call, done, account.cap_pico if account else None)
        return 0


def _say(call: Call, done: Forked, cap: int | None) -> None:
    row, fact = done.row, done.fact
    if call.json:
        call.emit(
            {
                "session_id": row.session_id,
                "key": row.key,
                "origin": fact.origin,
                "origin_seq": fact.origin_seq,
                "workspace": row.workspace,
                "snapshot": fact.snapshot,
                "snapshot_seq": fact.snapshot_seq,
                "unkept_calls": list(fact.unkept),
                "budget_usd": usd_float(cap),
                "duplicate": done.duplicate,
            }
        )
        return
    key = f" (key {row.key})" if row.key else ""
    call.say(
        f"{row.session_id}{key} {'was' if done.duplicate else 'is'} forked from {fact.origin} at {fact.origin_seq}"
    )
    call.say(f"workspace {row.workspace}: the files as they were after event {fact.snapshot_seq}")
    if fact.unkept:
        calls = ", ".join(fact.unkept)
        call.say(f"calls after that, whose changes to files are not in it: {calls}")
    call.say(f"it may spend {'without a cap of its own' if cap is None else 'at most ' + usd(cap)}")
    if row.head == fact.origin_seq + 1:
        name = name_of(row)
        say, wake = call.typed("send", name, "your words"), call.typed("wake", name)
        call.note(f"Nothing runs yet. Tell it how to go on with `{say}`, or let it go on as it is with `{wake}`.")
