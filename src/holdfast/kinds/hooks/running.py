"""Runs of a project's hooks and checks: around a session's calls, and when its agent stops."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import anyio

from holdfast.brain.acts import hands as hands_act
from holdfast.brain.acts.people import new_item
from holdfast.brain.acts.results import wait
from holdfast.brain.shift import Shift
from holdfast.errors import HandsError, HandsLost
from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse
from holdfast.facts.shift import BreakerOpened
from holdfast.facts.tool import SCRIPTS, HookRan, ToolResult
from holdfast.hands.base import ExecRequest, ExecResult, Hands
from holdfast.kinds.hooks import protocol as talk
from holdfast.kinds.hooks import settings as project
from holdfast.kinds.hooks.settings import AT_STOP
from holdfast.session.context.text import action_digest

LOSSES = 2
"""Losses of hands during a call's hooks after which that call's hooks are not retried."""

INPUT_PIECE = 256 << 10


class Hooked:
    """Hooks of a session in one shift.

    `scripts` are files by path that are restored before any hook runs; `programs` among them are executable. `started`
    returns the id of the hands in which the session's `SessionStart` hooks ran last. `guarded` means that some scripts
    could not be written, so that each is compared first. `losses` counts lost hands during hooks, by call. Hooks of
    concurrent calls take turns.
    """

    def __init__(
        self,
        settings: project.Settings,
        scripts: Mapping[str, bytes],
        programs: frozenset[str],
        started: Callable[[], str],
    ) -> None:
        self.hooks = settings.hooks
        self.problems = settings.problems
        self.scripts = scripts
        self.programs = programs
        self.started = started
        self.guarded = False
        self.losses: dict[str, int] = {}
        self.starting = anyio.Lock()
        self.turn = anyio.Lock()

    @property
    def at_stop(self) -> bool:
        """True if a hook runs when the agent stops."""
        return any(hook.event in AT_STOP for hook in self.hooks)


class Ran(NamedTuple):
    """Result of hooks. `facts` are to be appended; `refusal` is the reason of a blocking hook, empty without one."""

    facts: tuple[Fact, ...] = ()
    refusal: str = ""
    cancelled: bool = False


class Asked(NamedTuple):
    """Occasion of hooks: the event, the hook input, and the call and moment that form the ids of the hook calls."""

    event: str
    told: Mapping[str, object]
    call_id: str
    moment: talk.Moment
    name: str = ""


async def before(shift: Shift, hands: Hands, use: AgentToolUse, plan: Hooked) -> ToolResult | None:
    """Run the hooks before a dispatched call. Return the call's recorded result if they block it.

    Raises `HandsLost`: the call has not started.
    """
    began = await _session_start(shift, hands, plan)
    asked = Asked(
        "PreToolUse",
        talk.about_call(use.name, use.input, hands.identity.root),
        use.call_id,
        "before",
        project.tool_name(use.name),
    )
    if plan.losses.get(use.call_id, 0) >= LOSSES:
        ran = Ran(refusal="the project's hooks before it could not run: the sandbox was lost each time")
    else:
        ran = await _run_all(shift, hands, plan, asked)
    facts = (*began.facts, *ran.facts)
    if not ran.refusal and not ran.cancelled and not began.refusal:
        if facts:
            await shift.fact(*facts)
        return None
    if ran.cancelled:
        ended = ToolResult(call_id=use.call_id, outcome="cancelled", content="Not run: a person interrupted.")
    else:
        words = ran.refusal or began.refusal
        ended = ToolResult(call_id=use.call_id, outcome="denied", content=f"Not run: {words}")
    await shift.fact(ended, *facts)
    return ended


async def after(shift: Shift, hands: Hands, use: AgentToolUse, result: ExecResult, plan: Hooked) -> tuple[Fact, ...]:
    """Run the hooks after a successful call, and return the events to record beside its result.

    If the hands are lost meanwhile, the remaining hooks are skipped for this call.
    """
    if not result.ok:
        return ()
    about = talk.about_call(use.name, use.input, hands.identity.root)
    path = about["tool_input"].get("file_path")
    about["tool_response"] = talk.about_result(use.name, result.output, path)
    asked = Asked("PostToolUse", about, use.call_id, "after", project.tool_name(use.name))
    try:
        return (await _run_all(shift, hands, plan, asked)).facts
    except HandsLost:
        return ()


async def at_stop(shift: Shift, plan: Hooked, about_id: str, sent_back: int) -> Ran:
    """Run the hooks of a stop in the session's hands. A `refusal` means that the agent must go on.

    The caller appends the facts. `about_id` is unique for each stop, and `sent_back` counts consecutive refusals: after
    several, none counts, and the harness's own checks follow. Raises `HandsLost`.
    """
    if plan.losses.get(about_id, 0) >= LOSSES:
        lost = "the sandbox was lost each time the project's hooks ran; the work goes on without them"
        return Ran((HookRan(event="Stop", command="", content=lost, call_id=about_id),))
    hands = await hands_act.current(shift)
    told: dict[str, object] = {"stop_hook_active": sent_back > 0}
    facts: list[Fact] = []
    refusals: list[str] = []
    seen: frozenset[str] = frozenset()
    for event in AT_STOP[:2]:
        asked = Asked(event, told, f"{about_id}.{event.lower()}", "stop")
        ran = await _run_all(shift, hands, plan, asked, seen=seen, about_id=about_id)
        if ran.cancelled:
            return Ran(refusal="a person interrupted", cancelled=True)
        facts += ran.facts
        refusals += [ran.refusal] if ran.refusal else []
        seen |= {hook.command for hook in project.wanted(plan.hooks, event)}
    if refusals and sent_back >= project.SENT_BACK_MAX:
        return Ran(tuple(_let_go(fact) for fact in facts))
    if refusals:
        return Ran(tuple(facts), "; ".join(refusals))
    ended = Asked("SessionEnd", {"reason": "other"}, f"{about_id}.end", "stop")
    facts += (await _run_all(shift, hands, plan, ended, about_id=about_id)).facts
    return Ran(tuple(facts))


def _let_go(fact: Fact) -> Fact:
    """Record a refusal that no longer counts and sends nothing back."""
    if not isinstance(fact, HookRan) or not fact.blocked:
        return fact
    content = f"(not sent back a {project.SENT_BACK_MAX + 1}th time) {fact.content}"
    return HookRan(
        event=fact.event,
        command=fact.command,
        exit_code=fact.exit_code,
        content=content,
        call_id=fact.call_id,
        duration_ms=fact.duration_ms,
    )


async def _session_start(shift: Shift, hands: Hands, plan: Hooked) -> Ran:
    """Report problems of the settings, and run the `SessionStart` hooks once in each hands."""
    async with plan.starting:
        hooked = plan.started()
        if hooked == hands.identity.hands_id:
            return Ran()
        first = not hooked
        facts: list[Fact] = []
        if first and plan.problems:
            said = "\n".join(f"- {each}" for each in plan.problems)
            facts.append(HookRan(event="SessionStart", command="", content=said))
        wants = project.wanted(plan.hooks, "SessionStart", "startup" if first else "resume")
        if not wants and not facts:
            return Ran()
        source = {"source": "startup" if first else "resume"}
        asked = Asked("SessionStart", source, hands.identity.hands_id, "start", source["source"])
        ran = await _run_all(shift, hands, plan, asked)
        await shift.fact(*facts, *ran.facts)
        return ran._replace(facts=())


# --- running ---------------------------------------------------------------------------------------


async def _run_all(
    shift: Shift, hands: Hands, plan: Hooked, asked: Asked, *, seen: frozenset[str] = frozenset(), about_id: str = ""
) -> Ran:
    """Run the hooks of one occasion in order. A hook that asks to stop the session opens an inbox item."""
    wanted = [hook for hook in project.wanted(plan.hooks, asked.event, asked.name) if hook.command not in seen]
    about_id = about_id or asked.call_id
    facts: list[Fact] = []
    refusals: list[str] = []
    try:
        async with plan.turn:
            if wanted and (problem := await _put_back(shift, hands, plan, wanted, f"{asked.call_id}.{asked.moment}")):
                fact = HookRan(event=asked.event, command="", blocked=True, content=problem, call_id=about_id)
                return Ran((fact,), "the project's scripts could not be restored")
            for number, hook in enumerate(wanted):
                result = None if shift.state.stopping else await _run(shift, hands, hook, asked, number)
                if result is None or result.cancelled:
                    return Ran(cancelled=True)
                fact, word = _ran(hook, asked, about_id, result)
                facts.append(fact)
                if fact.blocked:
                    refusals.append(f"`{hook.command.strip().partition(chr(10))[0][:120]}` refused it")
                if word.stops and asked.event not in AT_STOP:
                    facts += _ask(shift, hook, word)
                    break
    except HandsLost:
        plan.losses[about_id] = plan.losses.get(about_id, 0) + 1
        raise
    return Ran(tuple(facts), "; ".join(refusals))


def _ran(hook: project.Hook, asked: Asked, about_id: str, result: ExecResult) -> tuple[HookRan, talk.Word]:
    said = talk.Said(result.exit_code, *talk.apart(result.output), timed_out=result.timed_out)
    word = talk.word_of(hook, said)
    fact = HookRan(
        event=asked.event,
        command=hook.command[:500],
        exit_code=result.exit_code,
        blocked=word.blocks or (word.stops and asked.event in ("PreToolUse", "SessionStart")),
        told=word.told,
        content=word.content,
        call_id="" if asked.event == "SessionStart" else about_id,
        duration_ms=result.duration_ms,
    )
    return fact, word


def _ask(shift: Shift, hook: project.Hook, word: talk.Word) -> list[Fact]:
    """Build the inbox item for a hook that asks to stop the session."""
    item = new_item(
        shift,
        kind="escalation",
        title="stopped by a hook of the project",
        action=f"go on despite: {word.content}",
        action_digest=action_digest("hook", {"command": hook.command, "content": word.content}),
        why=word.content,
        default="deny",
    )
    return [BreakerOpened(breaker="hook", detail=word.content), item]


async def _run(shift: Shift, hands: Hands, hook: project.Hook, asked: Asked, number: int) -> ExecResult:
    """Run a hook, or find the result of an earlier run: a known call id starts nothing again."""
    call_id = talk.call_id(asked.call_id, asked.moment, number)
    given = {"command": talk.command_of(hook, hands.identity.root), "stdin": not hook.check}
    await hands.start(shift.fence, call_id, ExecRequest("bash", given, hook.timeout_s))
    if not hook.check:
        told = talk.about(asked.event, shift.state.session_id, hands.identity.root, asked.call_id, asked.told)
        await _tell(shift, hands, call_id, told)
    return await wait(shift, hands, call_id)


async def _tell(shift: Shift, hands: Hands, call_id: str, told: bytes) -> None:
    """Write a hook's input. A hook that has ended or does not read gets none."""
    try:
        for offset in range(0, len(told), INPUT_PIECE):
            piece = told[offset : offset + INPUT_PIECE]
            last = offset + INPUT_PIECE >= len(told)
            await hands.write(shift.fence, call_id, piece, offset=offset, close=last)
    except HandsLost:
        raise
    except HandsError:
        return


async def _put_back(shift: Shift, hands: Hands, plan: Hooked, wanted: Sequence[project.Hook], call_id: str) -> str:
    """Restore the project's scripts, so that an agent cannot change its own judges.

    Returns the reason if that fails, else an empty text. Scripts that the hands mount read-only need no restoring.
    """
    if not plan.scripts or shift.state.stopping or all(hook.check for hook in wanted):
        return ""
    try:
        if not plan.guarded:
            await _unpack(shift, hands, plan, plan.scripts)
            return ""
    except HandsLost:
        raise
    except HandsError:  # a special file is in their place, or they are read-only
        plan.guarded = True
    try:
        compared = {"command": talk.comparing(plan.scripts, plan.programs)}
        await hands.start(shift.fence, call_id, ExecRequest("bash", compared, project.HOOK_TIMEOUT_S))
        found = await wait(shift, hands, call_id)
        if not found.ok:
            return f"[The project's own scripts in {SCRIPTS} could not be compared: {found.output[-500:]}]"
        printed = found.output.splitlines()
        await _unpack(shift, hands, plan, [path for path in plan.scripts if path in printed])
    except HandsLost:
        raise
    except HandsError as error:
        return f"[The project's own scripts in {SCRIPTS} could not be restored: {error}]"
    return ""


async def _unpack(shift: Shift, hands: Hands, plan: Hooked, paths: Collection[str]) -> None:
    if not paths:
        return
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in paths:
            entry = tarfile.TarInfo(path)
            entry.size = len(plan.scripts[path])
            entry.mode = 0o755 if path in plan.programs else 0o644
            tar.addfile(entry, io.BytesIO(plan.scripts[path]))
    packed.seek(0)
    await hands.unpack(shift.fence, hands.identity.root, packed)
