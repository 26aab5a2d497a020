"""Record news of jobs in the log, and start a process for the session if needed. Run by supervisors of hands.

A supervisor runs `python -m holdfast.app.news --home DIR SESSION` when a job has news and no brain waits for it. The
outcome comes from the hands, never from the arguments (S10), and is posted under a key, so a second post has no effect.
It exits with 0 when a process has the session or none needs to; the supervisor retries after any other status.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import anyio

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.detached import START_S, begin
from holdfast.app.exits import name_of, sentence_of
from holdfast.app.home import is_attended, is_served
from holdfast.app.models import FILES, endpoint_of
from holdfast.app.settings.config import database_path, load_settings
from holdfast.brain.acts.results import gather
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.errors import Fenced, HandsError, HandsLost, HoldfastError
from holdfast.facts.session import SessionError
from holdfast.log.base import Which
from holdfast.model.names import parse_name
from holdfast.service.posting import Caller
from holdfast.session.decide import is_idle
from holdfast.session.rows import SessionRow
from holdfast.session.state import State
from holdfast.session.tools.output import functions

LOOK_AFTER_S = 60.0
"""Interval at which a process polls jobs whose hands are silent, since their supervisor may be gone."""

ASKED = 100
"""Sessions polled at a time. If more wait for jobs, they take turns."""

SYSTEM = Caller("system")


async def take_in(runtime: Runtime, session_id: str) -> bool:
    """Post the news of a session's jobs and services from its hands; return True if there was any.

    Raises `HandsError` when the hands do not answer now. Hands of another home are asked by that.
    """
    if await runtime.store.is_elsewhere(session_id):
        return False
    state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
    if state.created is None or not (state.live_jobs() or state.services):
        return False
    poster = runtime.intake.acting_as(SYSTEM)
    provider = runtime.provider(state.created.workspace)
    try:
        found = await gather(provider, state, state.fence)
    except Fenced:  # a brain has acquired the session and polls by itself
        return False
    for news in found:
        await poster.post(session_id, news.fact, news.key)
    return bool(found)


async def look_after(runtime: Runtime, only: str = "") -> NoReturn:
    """Until cancelled, record news of jobs that no supervisor reported, for one session or for all."""
    clock = SystemClock()
    before = None
    while True:
        with contextlib.suppress(HoldfastError):  # retried in the next round
            rows = await runtime.store.sessions(Which(reason="job"), before=before, limit=None if only else ASKED)
            before = rows[-1] if len(rows) == ASKED and not only else None
            for row in rows:
                if only in ("", row.session_id, row.root):
                    with contextlib.suppress(HoldfastError):
                        await take_in(runtime, row.session_id)
        await clock.sleep(LOOK_AFTER_S)
    raise AssertionError("nobody ends this but by cancelling it")


async def end_jobs(runtime: Runtime, session_id: str) -> int:
    """End the running jobs and services of a session without a brain, for the emergency stop. Return their number."""
    state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
    at_work = state.hands_at_work()
    if state.created is None or not at_work:
        return 0
    if await runtime.store.is_elsewhere(session_id):
        raise HandsError("they run at another home: end them there with `holdfast stop --all`")
    provider = runtime.provider(state.created.workspace)
    running = [(job.hands_id, job.call_id) for job in state.live_jobs()]
    running += [(each.hands_id, each.call_id) for each in state.services.values() if not each.standing]
    for hands_id, call_id in running:
        identity = state.hands_known.get(hands_id)
        if identity is not None:
            with contextlib.suppress(HandsLost, Fenced):
                hands = await provider.attach(identity)
                await hands.kill(state.fence, call_id)
                await hands.wait(state.fence, call_id)
    await take_in(runtime, session_id)
    return len(running)


async def _see_to(call: Call, runtime: Runtime, session_id: str) -> None:
    """Start a process for the session if it has work to do. Raises `HoldfastError` if none can be started."""
    store = runtime.store
    row = await store.find(session_id)
    state, _ = await recall(session_id, store, store, runtime.kinds)
    if session_id in await store.holders() or is_idle(state, SystemClock().now_us(), runtime.up()):
        return
    if state.paused or row.status not in ("runnable", "parked") or await store.stopped() is not None:
        return
    database = database_path(call.settings)
    if is_served(runtime.home, database) or await is_attended(runtime.home, store, session_id, database):
        return
    problem = _cannot(state)
    if problem:
        await _say(runtime, row, state, problem)
        return
    with anyio.fail_after(2 * START_S):
        await begin(call, runtime, row)


def _cannot(state: State) -> str:
    """The known reason why no process started here could continue the session; empty if there is none."""
    assert state.created is not None
    agent = state.created.agent
    if wanted := functions(agent):
        return f"it needs functions of the program that opened it ({', '.join(tool.name for tool in wanted)})"
    try:
        if agent.model.partition(":")[0] not in FILES:
            endpoint_of(parse_name(agent.model))
    except HoldfastError as error:
        return str(error)
    return ""


async def _say(runtime: Runtime, row: SessionRow, state: State, problem: str) -> None:
    """Record the problem in the log, once per news. The session is due, and waking it later loses nothing."""
    message = (
        f"a job has news, and no process could be started for it here: {problem}. Nothing is lost; go on with: "
        f"holdfast wake {name_of(row)}"
    )
    poster = runtime.intake.acting_as(SYSTEM)
    latest = max((job.news_seq() for job in state.jobs.values()), default=0)
    await poster.post(row.session_id, SessionError(kind="NobodyToWake", message=message), f"nobody:{latest}")


async def _main(args: argparse.Namespace) -> int:
    settings = load_settings(Path(args.project), vars(args))
    async with open_runtime(settings) as runtime:
        try:
            await take_in(runtime, args.session)
        except HandsError as error:  # the log may still have unprocessed news
            await _see_to(Call(args, settings), runtime, args.session)
            raise error
        await _see_to(Call(args, settings), runtime, args.session)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the command. Any failure is one line on standard error and an exit status that requests a retry."""
    parser = argparse.ArgumentParser(prog="holdfast.app.news", allow_abbrev=False)
    parser.add_argument("--home", required=True)
    parser.add_argument("--db")
    parser.add_argument("--prompts")
    parser.add_argument("--project", default="/")
    parser.add_argument("session")
    args = parser.parse_args(words)
    try:
        return anyio.run(_main, args)
    except Exception as error:
        print(f"news of {args.session}: {' '.join(str(sentence_of(error)).split())}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
