"""`holdfast show`: one session at a glance."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.cli.logs import position
from holdfast.app.cli.ps import public
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.drive import last_message
from holdfast.app.exits import name_of, next_step
from holdfast.app.progress import harmless, one_line
from holdfast.brain.recall import recall
from holdfast.clock import rfc3339
from holdfast.errors import UsageError
from holdfast.facts.codec import genesis
from holdfast.session.fold import empty, fold
from holdfast.session.money import usd
from holdfast.session.rows import SessionRow, first_row, next_row
from holdfast.session.state import State


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--at", metavar="SEQ", type=position, help="as it stood after that event")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def _then(runtime: Runtime, row: SessionRow, seq: int) -> tuple[SessionRow, State]:
    """Row and state as they were after the event at `seq`, from the log alone."""
    if not 1 <= seq <= row.head:
        raise UsageError(f"--at {seq}: {name_of(row)} has the events 1 to {row.head}; an example is --at {row.head}")
    first, *others = await runtime.store.read(row.session_id, prev=genesis(row.session_id), limit=seq)
    then = first_row(first)
    for event in others:
        then = next_row(then, event)
    return then, fold(empty(row.session_id), [first, *others])


async def run(call: Call) -> int:
    """Show it."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        holder: str | None = None
        if call.args.at is not None:
            row, state = await _then(runtime, row, call.args.at)
        else:
            holder = (await runtime.store.holders()).get(row.session_id)
            state, _ = await recall(row.session_id, runtime.store, runtime.store)
        if call.json:
            call.emit({**public(row, running=holder is not None), **_details(state)})
            return 0
        state_text = "running" if holder else row.status + (f" ({row.reason})" if row.reason else "")
        lines = {
            "session": row.session_id + (f"  (key {row.key})" if row.key else ""),
            "state": state_text + (f": {row.detail}" if row.detail else ""),
            "goal": one_line(row.goal, 200),
            "model": row.model,
            "workspace": row.workspace,
            "began": rfc3339(row.created_us),
            "last event": f"{row.head}, {rfc3339(row.updated_us)}",
            "shifts": str(row.epoch),
            "turns": f"{state.responses} of at most {state.limits.max_turns}",
            "context": f"about {state.window_tokens} tokens of at most {state.limits.context_tokens}",
            "tokens": f"{state.usage.input_tokens} in, {state.usage.output_tokens} out",
            "money": _money(state),
            "hands": _hands(state),
            "open calls": ", ".join(f"{call.name} {call.call_id}" for call in state.open_calls()) or "none",
        }
        for name, value in lines.items():
            call.say(f"{name:<11} {value}")
        answer = await last_message(runtime, state)
        if answer:
            call.say(f"\n{harmless(answer)}")
        if call.args.at is not None:
            return 0
        step = f"Follow it with `{call.typed('logs', name_of(row), '-f')}`."
        call.say(f"\n{step if holder else next_step(row, state, call.typed)}")
        return 0


def _money(state: State) -> str:
    spent = usd(state.cost_pico)
    if state.unpriced:
        spent = f"{spent} and what had no price" if state.cost_pico else "unknown, its model has no price"
    cap = state.limits.budget_pico
    return spent + (f" of at most {usd(cap)}" if cap is not None else ", no cap")


def _hands(state: State) -> str:
    hands = state.hands
    if hands is None:
        isolation = state.created.workspace.isolation if state.created else "sandbox"
        return "none now" + ("; NOT SANDBOXED when there are" if isolation == "none" else "")
    levels = [
        (level, [kind for kind, of in hands.isolation.items() if of == level]) for level in ("hard", "soft", "none")
    ]
    walls = "; ".join(f"{level}: {', '.join(kinds)}" for level, kinds in levels if kinds)
    return f"{hands.provider}, uid {hands.uid}; {walls}"


def _details(state: State) -> dict[str, object]:
    return {
        "window_tokens": state.window_tokens,
        "open_calls": [call.call_id for call in state.open_calls()],
        "hands_id": state.hands.hands_id if state.hands else None,
        "isolation": dict(state.hands.isolation) if state.hands else {},
    }
