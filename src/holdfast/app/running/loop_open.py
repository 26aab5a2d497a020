"""The request of `holdfast loop`: check the arguments and the folder, and open the loop's session."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.running.opening import check_folder, existing, open_run
from holdfast.app.settings import policies
from holdfast.app.settings.config import budget_pico
from holdfast.app.settings.prompts import load_prompts
from holdfast.errors import UsageError
from holdfast.facts.session import ContextPolicy, Limits
from holdfast.kinds.loop.agent import loop_agent
from holdfast.kinds.loop.files import ANALYSIS, ITEM_FILES, PROGRESS, Board, checks_of, opened, read, read_board
from holdfast.kinds.loop.plan import PROGRESS_MAX, LoopSpec
from holdfast.kinds.loop.prompt import PART_MAX, cut
from holdfast.session.rows import SessionRow

BEGIN_AND_END = 2
"""Turns of a loop's session in addition to its iterations: one plans the first, one ends it."""

STAGES = 2

_EXAMPLE = "for example: holdfast loop --until 'make test' -- claude -p"

_NO_LINE = 10**9
"""A context limit that is never reached: the loop's own model has no context."""


async def open_loop(call: Call, runtime: Runtime) -> SessionRow:
    """Check the arguments and the folder, and open the session. Raises `UsageError`."""
    args = call.args
    if not args.command or not args.command[0].strip():
        raise UsageError(f"the command is missing: write it after --; {_EXAMPLE}")
    if any("\0" in word for word in args.command) or len(shlex.join(args.command)) > PART_MAX:
        raise UsageError(f"the command is longer than {PART_MAX} characters or not text; put it into a script")
    if args.until and not args.until.strip():
        raise UsageError(f"--until '' names no command; {_EXAMPLE}")
    if (row := await existing(runtime, args.session_id)) is not None:
        raise UsageError(
            f"session {name_of(row)} exists already; continue it with {call.typed('wake', name_of(row))}, or use "
            "another --session-id"
        )
    provider = policies.hands(call.settings).provider
    if not args.no_sandbox and (provider == "remote" or provider.startswith("ssh:")):
        raise UsageError(
            f"a loop runs on this machine, but `provider` in [hands] is {provider!r}; run `holdfast loop` there, or "
            'set provider = "" for it'
        )
    if args.no_sandbox and call.settings.environment:
        call.settings = replace(call.settings, environment={})
        call.note("[environment] is ignored: the sandbox provides it, and --on-host runs without one")
    folder = check_folder(args.workspace)
    texts = load_prompts(call.settings.prompts, str(folder), call.settings.prompt_files).texts
    report = _report(args.chain)
    board = _board(call, folder)
    spec = LoopSpec(
        command=tuple(args.command),
        items=ITEM_FILES[0] if report else board.file if board is not None else "",
        until=args.until.strip(),
        timeout_s=args.timeout,
        template=texts["loop"],
        report=report,
        analysis_template=texts["loop_analysis"] if report else "",
        plan_template=texts["loop_plan"] if report else "",
    )
    args.goal = _goal(spec)
    args.account, args.unpriced = [], False
    # When all items are marked, one extra turn runs their checks first.
    marked = board is not None and not board.unfinished() and not spec.until
    limits = Limits(
        budget_pico=budget_pico(call.settings.budget_usd),
        max_turns=args.max_iterations + BEGIN_AND_END + (STAGES if report else 0) + marked,
        context_tokens=_NO_LINE,
        context=ContextPolicy(strategy="off", line_tokens=_NO_LINE, signs=False),
        breakers=policies.breakers(call.settings),
    )
    row = await open_run(call, runtime, agent=loop_agent(spec), limits=limits)
    if limits.budget_pico is not None:
        call.note(
            "the budget counts the cost that the command reports (`total_cost_usd` in its result); a command that "
            "reports none is bounded by --max-iterations and --timeout alone"
        )
    return row


def _board(call: Call, folder: Path) -> Board | None:
    """Check the folder and read its items; None when a chain will write them, or `--until` replaces them."""
    there = [name for name in (*ITEM_FILES, ANALYSIS) if os.path.lexists(folder / name)]
    if os.path.lexists(folder / PROGRESS) and (folder / PROGRESS).lstat().st_size > PROGRESS_MAX:
        raise UsageError(
            f"{PROGRESS} is longer than {PROGRESS_MAX} bytes; move it elsewhere, then run the command again"
        )
    if call.args.chain:
        if taken := [name for name in (ITEM_FILES[0], ANALYSIS) if name in there]:
            raise UsageError(
                f"--chain writes {' and '.join(taken)}, which the folder already has; move it elsewhere, or "
                "leave --chain out to continue with it"
            )
        return None
    name = next((each for each in ITEM_FILES if each in there), "")
    if not name and call.args.until:
        return None
    if not name:
        raise UsageError(
            f"there is no prd.json or feature_list.json in {folder}, and no --until: the loop has no goal; {_EXAMPLE}"
        )
    with opened(folder) as fd:
        data = read(fd, name)
    if data is None:
        raise UsageError(f"{folder / name} is not a regular file, not readable, or larger than a megabyte; fix that")
    board = read_board(data, name)
    bare = [item.id for item in board.unfinished() if not checks_of(item)]
    if bare and not call.args.until:
        call.note(
            f"WARNING: no check decides whether {', '.join(bare[:10])}{' …' if len(bare) > 10 else ''} is done: give "
            'such items a "check", or say --until CMD; the harness sets `passes` by a check alone'
        )
    return board


def _report(name: str) -> str:
    """Read the report that starts a chain."""
    if not name:
        return ""
    try:
        with Path(name).open("rb") as stream:
            data = stream.read(1 << 20)
    except OSError as error:
        raise UsageError(
            f"the report {name} cannot be read ({error.strerror}); for example --chain report.md"
        ) from error
    text = cut(data.decode("utf-8", "replace").replace("\0", ""), PART_MAX)
    if not text.strip():
        raise UsageError(f"the report {name} is empty; for example --chain report.md")
    return text


def _goal(spec: LoopSpec) -> str:
    until = f"`{spec.until}` succeeds" if spec.until else f"all items of {spec.items} pass"
    first = "from a report: choose, plan, then loop" if spec.report else "loop"
    return f"{first} `{shlex.join(spec.command)[:200]}` until {until}"
