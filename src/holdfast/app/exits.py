"""Exit statuses, the next step for a session, and unexpected errors as one line."""

from __future__ import annotations

import errno
import tempfile
import traceback
from collections.abc import Callable

from holdfast.clock import local_time
from holdfast.errors import CannotRunSafely, HoldfastError, StorageFull
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.shift import BudgetReached
from holdfast.log.base import Log
from holdfast.session.decide.waits import unanswered
from holdfast.session.fold.hands import RESTING
from holdfast.session.money import HOME_ACCOUNT, PICO
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

DONE = 0
FAILED = 1
USAGE = 2
NEEDS_PERSON = 3
LIMIT = 4
UNABLE = 5
DAMAGED = 6
INTERRUPTED = 130

Typed = Callable[..., str]
"""Format the words of a command as a command line that the user can run as is."""


def exit_code(status: str, reason: str) -> int:
    """The exit status for a session's status and, when parked, the reason."""
    if status == "done":
        return DONE
    if status == "parked":
        return NEEDS_PERSON if reason == "person" else LIMIT
    if status in ("failed", "cancelled"):
        return FAILED
    return INTERRUPTED


def machine_trouble(what: str) -> CannotRunSafely:
    """The error for a refusal by the operating system."""
    return CannotRunSafely(
        f"the machine refused: {what}; everything acknowledged is kept: set this right, then type it again"
    )


def name_of(row: SessionRow) -> str:
    """The display name of a session: its key, or its ID without one."""
    return row.key or row.session_id


LATEST = 20
"""Number of latest events among which the cap is found that parked a session."""

SHORT = 8
"""Characters at the end of an id that stand for it in lists and lines."""


def short_name(row: SessionRow) -> str:
    """The key of a session, or the end of its id; each verb takes either."""
    return row.key or row.session_id[-SHORT:]


async def next_step(log: Log, row: SessionRow, state: State, typed: Typed) -> str:
    """The next step for the user, as a sentence. Each command in it can be run as is."""
    answers = []
    for ask in unanswered(state):
        (event,) = await log.read(row.session_id, after=ask.seq - 1, limit=1)
        words = isinstance(event.fact, ApprovalRequested) and event.fact.needs_words
        yes = typed("answer", ask.item_id, "your words") if words else typed("approve", ask.item_id)
        answers.append(f"`{yes}` or `{typed('deny', ask.item_id)}`; `{typed('inbox', ask.item_id)}` shows all of it.")
    raised = await _raise_cap(log, row, state, typed) if (row.status, row.reason) == ("parked", "budget") else ""
    return _step(row, state, typed, answers, raised)


def _step(row: SessionRow, state: State, typed: Typed, answers: list[str], raised: str) -> str:
    name = name_of(row)
    branch = state.tenant.kind.branch(state)
    if branch is not None and row.status in ("done", "failed", "cancelled"):
        if not branch:
            return "It ended before anything was begun."
        brief = typed("brief", name)
        return f"The work is on the branch {branch}: `git merge {branch}`. `{brief}` says what happened."
    wake, say = f"`{typed('wake', name)}`", f"`{typed('send', name, 'your words')}`"
    look = f"`{typed('attach', name)}`"
    match row.status, row.reason:
        case "parked", "person":
            return _for_a_person(state, typed, wake, answers, f"Say how to go on with {say}, and watch it with {look}.")
        case "parked", "budget":
            return " ".join([raised, *(f"Or answer: {each}" for each in answers)])
        case "parked", "cap":
            more = str(2 * state.limits.max_turns)
            return f"Raise the cap: `{typed('run', '--session-id', name, '--max-turns', more)}`."
        case "parked", "context":
            again = typed("run", "go on from the files here", "--workspace", row.workspace, "--model", row.model)
            return f"Its context is full; another session can go on from the files: `{again}`."
        case "parked", "child":
            return f"`{typed('ps', '--tree')}` shows what its children wait for; it goes on with them: {wake}."
        case "parked", "job":
            return f"Its jobs go on without it, and their news wake it; `{typed('show', name)}` lists them."
        case "parked", _ if row.due_us is not None:
            return f"It can go on from {local_time(row.due_us)}: {wake}."
        case "failed", _:
            asked = f"To try again, say something with {say}, and watch it with {look}."
            return asked if state.failure is None else f"Once the cause is gone, ask again with {wake}."
        case "done" | "cancelled", _:
            return _where(row, state, typed)
        case _:
            return f"It is intact; go on with {wake}."


def _where(row: SessionRow, state: State, typed: Typed) -> str:
    """Name the place of the work of a session that is over."""
    created = state.created
    if created is not None and created.items is not None:
        show = f"`{typed('items', 'show', name_of(row))}`"
        return f"The results are in {created.items.out}; {show} says what is quarantined, and why."
    also = f", and on the branch holdfast/{row.session_id}" if created and created.run and created.run.commit else ""
    return f"The work is in {row.workspace}{also}."


def _for_a_person(state: State, typed: Typed, wake: str, answers: list[str], otherwise: str) -> str:
    if state.stop_seq:
        return f"Everything was stopped; it goes on after `{typed('stop', '--release')}`."
    if state.paused:
        return f"It rests until {wake}."
    if state.ended == RESTING:
        return f"{otherwise} Or let it go on as it is with {wake}."
    if state.failing.repeated():
        return f"Once the cause is gone, try again with {wake}."
    return " ".join(f"Answer with {each}" for each in answers) or otherwise


async def _raise_cap(log: Log, row: SessionRow, state: State, typed: Typed) -> str:
    """Name the command that raises the cap that was reached, by its account and period, to twice what it is."""
    latest = await log.read(row.session_id, after=max(0, row.head - LATEST))
    reached = next((each.fact for each in reversed(latest) if isinstance(each.fact, BudgetReached)), None)
    pico = max(reached.cap_pico, reached.wanted_pico) if reached is not None else 0
    cents = 2 * max(pico, 0 if reached is not None else state.cost_pico) * 100 // PICO + 1
    more, name = f"{cents // 100}.{cents % 100:02d}", name_of(row)
    if reached is None or (reached.account_id, reached.period) == (row.accounts[0], "total"):
        return f"Raise the cap: `{typed('run', '--session-id', name, '--budget', more)}`."
    flag = {"total": "--set", "day": "--day", "week": "--week"}[reached.period]
    if reached.account_id == row.accounts[0]:
        return f"Raise the cap: `{typed('budget', name, flag, more)}`."
    whose = ("--all",) if reached.account_id == HOME_ACCOUNT else ("--account", reached.account_id)
    return (
        f"Raise the cap of {reached.account_id}: `{typed('budget', *whose, flag, more)}`, then `{typed('wake', name)}`."
    )


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sentence_of(error: Exception) -> HoldfastError:
    """Convert an error to a `HoldfastError`. The traceback of an unexpected error goes to a file."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, OSError):
        return _about_the_machine(error)
    return _unexpected(error)


def _about_the_machine(error: OSError) -> HoldfastError:
    what = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    if error.errno in _FULL:
        return StorageFull(
            f"the disk is full ({what}); everything acknowledged is kept: free some space, then type it again"
        )
    return machine_trouble(what)


def _unexpected(error: Exception) -> HoldfastError:
    """Report a bug in Holdfast. Acknowledged events are safe in the log."""
    place = "nowhere, since no file could be written"
    try:
        handle, place = tempfile.mkstemp(prefix="holdfast-error-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        pass
    return HoldfastError(
        f"something that should not happen: {type(error).__name__}: {error}; every session is intact in the log. "
        f"The details are in {place}: please report this with them"
    )
