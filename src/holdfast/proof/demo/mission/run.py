"""`holdfast demo --mission`: a whole mission on a real library, from a contract to a green branch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from anyio import get_cancelled_exc_class

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.running.drive import observer_for
from holdfast.app.running.opening import check_machine
from holdfast.app.server.verbs import Place, serve_home
from holdfast.app.settings.config import budget_pico
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, UsageError
from holdfast.facts.session import Workspace
from holdfast.kinds.mission.brief.audit import audit
from holdfast.proof.demo.brain_process import Watch, chain_ok
from holdfast.proof.demo.material import work_folder
from holdfast.proof.demo.mission.count import count_mission, read_family
from holdfast.proof.demo.mission.live import live, open_mission
from holdfast.proof.demo.mission.material import MissionMaterial, prepare_mission
from holdfast.proof.demo.mission.report import MissionStory
from holdfast.proof.demo.mission.truth import find_truth
from holdfast.proof.oracle.faults import Fault, parse_faults
from holdfast.proof.rebuild.library import parse_pin
from holdfast.proof.rebuild.mini import PIN
from holdfast.service.briefs import brief_of, logs_below
from holdfast.session.rows import SessionRow

WORKERS = 4
WORKERS_MAX = 64
KILLS_MAX = 1_000
BESIDE = 8
"""Sessions at a time beside the workers: the mission itself, its planner, judges, and those that a user opens."""


async def run_mission(call: Call) -> int:
    """Run the demo of a mission. With --json the last line is a result, even after an error."""
    try:
        return await _run(call)
    except HoldfastError as error:
        if call.json:
            call.emit({"type": "result", "status": "error", "exit_code": error.exit_code, "error": str(error)})
        raise


async def _run(call: Call) -> int:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    args = call.args
    parse_pin(args.library)
    if args.packages and args.library == PIN:
        raise UsageError(f"--with {args.packages[0]}: {PIN} needs no package; name a library of the package index")
    faults = parse_faults(args.fault or ())
    workers = _within("--workers", WORKERS if args.workers is None else args.workers, 1, WORKERS_MAX)
    kills = _within("--kills", args.kills or 0, 0, KILLS_MAX)
    cap = budget_pico(args.budget_usd or "")
    share = args.rubric_share or 0.0
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"--rubric-share {share:g} has to be from 0 to 1, for example --rubric-share 0.3")
    if args.serve and kills:
        raise UsageError("--kills ends the runtime, and the server with it; leave it out: holdfast demo --serve")
    async with open_runtime(call.settings) as runtime:
        session_id = runtime.intake.new_session_id()
        repo = work_folder(args.keep, runtime.home.workspaces / f"{session_id}-repo")
        await check_machine(call, runtime, Workspace(str(runtime.home.workspaces / session_id), True))
        begin = partial(_begin, call, runtime, session_id, repo, faults, share, workers, cap)
        if args.serve:
            await _served(call, runtime, session_id, workers, begin)
        material = await begin()
        watch = Watch(runtime, session_id, observer_for(call))
        try:
            lived = await live(watch, len(material.items), kills, args.seed or 0, call.note)
        except get_cancelled_exc_class():
            call.note(f"stopped; the mission is intact and can go on: `{call.typed('wake', session_id)}`")
            raise
        call.note("looking at the main line: clean clones, fresh hands, every commit …")
        row = await runtime.store.find(session_id)
        family = await read_family(runtime, session_id)
        story = MissionStory(
            session_id=session_id,
            material=material,
            counts=count_mission(family),
            truth=await find_truth(runtime, material, family[session_id], session_id),
            lived=lived,
            status=row.status,
            reason=row.reason,
            cap_pico=cap,
            brief_wrong=await _brief_wrong(runtime, row),
            chain_ok=all([await chain_ok(runtime, name) for name in family]),
            wall_s=clock.monotonic_s() - began_s,
        )
    if call.json:
        call.emit(story.public())
    else:
        call.say("\nWhat happened\n" + "\n".join(story.lines()))
        call.say(f"  look      {call.typed('mission', 'show', session_id)}")
        call.say(f"  files     {repo}, branch holdfast/demo/main")
    return story.exit_code


async def _begin(
    call: Call,
    runtime: Runtime,
    session_id: str,
    repo: Path,
    faults: tuple[Fault, ...],
    share: float,
    workers: int,
    cap: int | None,
) -> MissionMaterial:
    """Prepare the library, and open the mission on it."""
    args = call.args
    call.note(f"fetching and stripping {args.library} …")
    material = await prepare_mission(
        *(runtime, args.library, repo, session_id),
        faults=faults,
        seed=args.seed or 0,
        rubric_share=share,
        more=args.packages or (),
        say=call.note,
    )
    await open_mission(runtime, session_id, material, workers=workers, budget_pico=cap)
    return material


async def _served(
    call: Call, runtime: Runtime, session_id: str, workers: int, begin: Callable[[], Awaitable[object]]
) -> NoReturn:
    """Run the mission in this process, and show it in a browser, until cancelled."""
    try:
        await serve_home(call, runtime, workers + BESIDE, Place(), begin)
    except get_cancelled_exc_class():
        call.note(f"the mission is intact and can go on: `{call.typed('wake', session_id)}`")
        raise


def _within(flag: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise UsageError(f"{flag} {value} has to be from {low} to {high}, for example {flag} {max(low, 4)}")
    return value


async def _brief_wrong(runtime: Runtime, row: SessionRow) -> tuple[str, ...]:
    """Return statements of the mission's brief that its logs contradict, as counted by independent code."""
    store = runtime.store
    brief = await brief_of(store, runtime.kinds, runtime.shelf, row)
    return tuple(audit(brief, await store.read(row.session_id), await logs_below(store, row)))
