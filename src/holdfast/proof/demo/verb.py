"""`holdfast demo`: an agent rebuilds a real library, without a key or a service."""

from __future__ import annotations

import argparse

from anyio import get_cancelled_exc_class, to_thread

from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, Runtime, open_runtime
from holdfast.app.models import settled_model
from holdfast.app.running.drive import observer_for
from holdfast.app.running.opening import check_machine
from holdfast.app.settings.config import budget_pico
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, UsageError
from holdfast.facts.session import Agent, Limits, SessionCreated
from holdfast.facts.shift import ShiftStarted
from holdfast.hands.user import choose_user
from holdfast.proof.demo.brain_process import (
    KillAt,
    Watch,
    at_event,
    chain_ok,
    end_brain,
    follow,
    in_a_command,
    never,
    start_brain,
)
from holdfast.proof.demo.cluster import run_cluster
from holdfast.proof.demo.material import Material, judge, prepare, work_folder
from holdfast.proof.demo.mission.run import run_mission
from holdfast.proof.demo.report import Story, count
from holdfast.proof.oracle.faults import JUDGE_FAULTS, WORKER_FAULTS
from holdfast.proof.rebuild.library import DEFAULT_LIBRARY, parse_pin
from holdfast.service.opening import check_models

FAULTS = ", ".join((*WORKER_FAULTS, *JUDGE_FAULTS))


def demo_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("--library", metavar="NAME==VERSION", default=DEFAULT_LIBRARY, help="Library to rebuild")
    parser.add_argument("--model", metavar="M", help="Model to use instead of the oracle, such as anthropic:NAME")
    parser.add_argument("--base-url", metavar="URL", default="", help="URL of the model server")
    parser.add_argument(
        "--budget", metavar="USD", dest="budget_usd", help="Budget in dollars, with --model or --mission"
    )
    parser.add_argument("--kill-at", metavar="auto|none|SEQ", default="auto", help="When to kill the brain")
    parser.add_argument("--keep", metavar="DIR", help="New or empty folder to work in; it is kept")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")
    parser.add_argument("--mission", action="store_true", help="Run a mission that rebuilds the whole library")
    parser.add_argument(
        "--serve", action="store_true", help="Run such a mission until Ctrl-C, and show it in a browser (see `serve`)"
    )
    parser.add_argument(
        "--cluster", metavar="N", type=int, help="Run N workers on a log in PostgreSQL instead, and kill one of them"
    )
    mission = parser.add_argument_group("with --mission or --serve")
    mission.add_argument("--workers", metavar="N", type=int, help="Number of workers at a time (default: 4)")
    mission.add_argument("--fault", metavar="CLASS[:RATE]", action="append", help=f"A fault of the oracle: {FAULTS}")
    mission.add_argument("--rubric-share", metavar="F", type=float, help="Share of criteria that only a judge decides")
    mission.add_argument(
        "--with", metavar="PKG", dest="packages", action="append", help="Package that the test suite needs"
    )
    mission.add_argument("--seed", metavar="S", type=int, help="Seed of the faults (reproducible)")
    mission.add_argument("--kills", metavar="N", type=int, help="Kill the whole runtime N times at random moments")


async def demo_run(call: Call) -> int:
    """Run the demo of a session or, with --mission, of a mission, or with --cluster of several workers."""
    if call.args.cluster is not None:
        if call.args.mission or call.args.serve or call.args.model:
            raise UsageError("--cluster goes with --keep and --json only: holdfast demo --cluster 3")
        return await run_cluster(call, call.args.cluster)
    if call.args.mission or call.args.serve:
        if call.args.model or call.args.base_url or call.args.kill_at != "auto":
            raise UsageError(
                "--model, --base-url and --kill-at go with the demonstration of one session; leave them out with "
                "--mission, whose model is the oracle: holdfast demo --mission --kills 5"
            )
        return await run_mission(call)
    given = [flag for flag in _MISSION if getattr(call.args, flag) is not None]
    if given:
        flag = f"--{_MISSION[given[0]] or given[0]}"
        raise UsageError(f"{flag} goes with --mission: holdfast demo --mission {flag} …")
    return await _run_session(call)


_MISSION = {"workers": "", "fault": "", "rubric_share": "rubric-share", "packages": "with", "seed": "", "kills": ""}
"""Options that need --mission: name in the parsed arguments → name on the command line, if different."""


async def _run_session(call: Call) -> int:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    _kill_word(call.args.kill_at)
    parse_pin(call.args.library)
    async with open_runtime(call.settings) as runtime:
        limits = _limits(call, runtime)
        session_id = runtime.intake.new_session_id()
        folder = work_folder(call.args.keep, runtime.home.workspaces / session_id)
        call.note(f"fetching and stripping {call.args.library} …")
        material = await to_thread.run_sync(
            prepare, runtime.home, call.args.library, folder, session_id, abandon_on_cancel=True
        )
        await check_machine(call, runtime, material.workspace)
        choose_user(material.workspace)
        await _open(call, runtime, session_id, material, limits)
        watch = Watch(runtime, session_id, observer_for(call))
        try:
            killed_at, killed_pid, woken_s = await _live(call, runtime, watch, material)
        except get_cancelled_exc_class():
            call.note(f"stopped; the session is intact and can go on: `{call.typed('wake', session_id)}`")
            raise
        call.note("judging on a clean copy, in fresh hands …")
        row = await runtime.store.find(session_id)
        story = Story(
            session_id=session_id,
            model=call.args.model or f"oracle:{material.library.name}",
            material=material,
            counts=count(watch.events),
            verdict=await judge(runtime, material, session_id),
            killed_at=killed_at,
            killed_pid=killed_pid,
            woken_s=woken_s,
            events=row.head,
            chain_ok=await chain_ok(runtime, session_id),
            wall_s=clock.monotonic_s() - began_s,
            status=row.status,
            oracle=not call.args.model,
        )
    if call.json:
        call.emit(story.public())
    else:
        call.say("\nWhat happened\n" + "\n".join(story.lines()))
        call.say(f"  look     {call.typed('logs', session_id)}")
        call.say(f"  files    {material.workspace.path}")
    return 0 if story.delivered else 1


def _limits(call: Call, runtime: Runtime) -> Limits:
    """Return the limits of the session. The oracle's price is nominal, so only other models have a budget."""
    if not call.args.model:
        return Limits()
    limits = Limits(budget_pico=budget_pico(call.args.budget_usd or ""))
    check_models(runtime.site, (settled_model(call.args.model, call.args.base_url),), limits.budget_pico)
    return limits


def _kill_word(text: str) -> None:
    if text not in ("auto", "none") and not (text.isdecimal() and int(text) > 0):
        raise UsageError(f"--kill-at {text!r} has to be auto, none, or a sequence number such as 40")


async def _open(call: Call, runtime: Runtime, session_id: str, material: Material, limits: Limits) -> None:
    args = call.args
    model = settled_model(args.model, args.base_url) if args.model else f"oracle:{material.answers.absolute()}"
    created = SessionCreated(
        goal=material.goal,
        agent=Agent(model=model, name="demo"),
        workspace=material.workspace,
        limits=limits,
        accounts=(session_id,),
        program=PROGRAM,
    )
    await runtime.intake.open(session_id, created)


async def _live(
    call: Call, runtime: Runtime, watch: Watch, material: Material
) -> tuple[int | None, int | None, float | None]:
    """Run a brain, kill it once, and run another. Return the killed event and process, and the delay of the second."""
    first = start_brain(runtime, watch.session_id)
    try:
        killed = await follow(watch, first, _kill_at(call, watch, material))
    finally:
        end_brain(first)
    if killed is None:
        return None, None, None
    call.note(f"    SIGKILL to the brain, process {first.pid}, after event {killed.seq}; waking another …")
    killed_us = SystemClock().now_us()
    second = start_brain(runtime, watch.session_id)
    try:
        await follow(watch, second, never)
    finally:
        end_brain(second)
    shifts = [event for event in watch.events if isinstance(event.fact, ShiftStarted) and event.epoch > killed.epoch]
    if not shifts:
        raise HoldfastError(f"the second brain did not start; its output is in {runtime.home.logs}")
    return killed.seq, first.pid, (shifts[0].at_us - killed_us) / 1_000_000


def _kill_at(call: Call, watch: Watch, material: Material) -> KillAt:
    word = call.args.kill_at
    if word == "auto":
        return in_a_command(watch, material.workspace)
    return never if word == "none" else at_event(int(word))
