"""The Python API: `holdfast.open` and the opened home, `Holdfast`."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NoReturn, Unpack, overload

import anyio
import msgspec
from anyio.abc import TaskGroup

from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.forking import fork_session
from holdfast.app.python.agent import Agent, check_functions, functions_of, runners
from holdfast.app.python.drive import Begun, Stream, serve_all, to_rest
from holdfast.app.python.opening import blocks, cap_of, opened, order_of, setting_value, whole
from holdfast.app.python.tools import Runner
from holdfast.app.python.types import (
    Attachment,
    Brief,
    Delta,
    Dollars,
    Item,
    Result,
    RunOptions,
    Session,
    Spending,
    T,
    item_of,
    result_of,
    session_of,
    spending_of,
)
from holdfast.app.settings.config import load_settings
from holdfast.brain.doors import NoObserver
from holdfast.brain.recall import recall
from holdfast.brain.wake import wake
from holdfast.clock import DAY, SystemClock, local_time
from holdfast.errors import EmergencyStop, HoldfastError, LeaseHeld, UsageError
from holdfast.facts.codec import Event
from holdfast.facts.people import Verdict
from holdfast.facts.session import SessionUpdated
from holdfast.kinds.mission.brief.document import markdown
from holdfast.service.answers import Answer
from holdfast.service.briefs import brief_of
from holdfast.service.events import PAGE
from holdfast.service.events import events as page_of
from holdfast.service.inbox import items, shown
from holdfast.service.intake import Intake
from holdfast.service.missions import pause_any, resume_any
from holdfast.service.opening import check_key
from holdfast.service.sessions import costs_of, sessions
from holdfast.service.spending import WAYS, By, spending
from holdfast.session.fold.hands import RESTING
from holdfast.session.rows import SessionRow
from holdfast.session.tools.output import functions


class Holdfast:
    """An opened home, from `holdfast.open`: runs, watches, steers, and answers sessions.

    A session is named by its id, its key, or a unique prefix of either. `by` names the user on whose behalf the program
    acts, as recorded in the log (default: the user who runs the program). All methods raise subclasses of
    `HoldfastError` whose message says what is safe and what to do next.
    """

    def __init__(self, runtime: Runtime, group: TaskGroup, tools: Sequence[Callable[..., Any]] = ()) -> None:
        self._runtime = runtime
        self._group = group
        self._tools: dict[str, Runner] = runners(tools)
        self._closed = False

    @property
    def home(self) -> Path:
        """The folder that holds everything."""
        return self._runtime.home.path

    # --- running --------------------------------------------------------------------------------------

    async def run(self, agent: Agent[T], goal: str, **options: Unpack[RunOptions]) -> Result[T]:
        """Run an agent on a goal until the session stops: done, failed, or waiting.

        `key`: your own name for the session. A second run with the same key continues that session: it raises the
        given caps, and posts another goal as a message. `workspace`: the folder to work in (default: a fresh one). An
        `AGENTS.md` there is pinned in every context. `criteria`: sentences that define when the work is done, pinned
        too. `attachments`: images and documents for the goal: paths, `holdfast.Image`, `holdfast.Document`.

        `budget_usd`: a money cap in dollars for the session and all below it. `unpriced`: accept a model without a
        price under such a cap; its cost is not counted. `max_turns`, `max_output_tokens`, `context_tokens`: caps on
        responses, on the tokens of one, and on the context. At a cap the session parks. `sandbox=False` runs tools
        without isolation. `user`: run tools as this login (root only). `owner`: the user who answers its items.
        `allow_hosts`: hosts that tools may connect to, such as `["api.example.com"]`, in addition to the user's
        `[egress]`; `registries` allows package registries. `secrets`: expose only these secrets (default: all).

        Raises `UsageError` for invalid options, `CannotRunSafely` without a sandbox, key, or extra, and errors of the
        log. Cancelling it releases the session, which can be resumed.
        """
        begun = await self._begun(agent, goal, options)
        await to_rest(self._runtime, begun.session_id, begun.tools, NoObserver())
        return await result_of(self._runtime, begun.session_id, agent.output_type)

    @overload
    def stream(
        self, agent: Agent[Any], goal: str, *, deltas: Literal[False] = False, **options: Unpack[RunOptions]
    ) -> Stream[Event]: ...

    @overload
    def stream(
        self, agent: Agent[Any], goal: str, *, deltas: Literal[True], **options: Unpack[RunOptions]
    ) -> Stream[Event | Delta]: ...

    def stream(
        self, agent: Agent[Any], goal: str, *, deltas: bool = False, **options: Unpack[RunOptions]
    ) -> Stream[Any]:
        """Run as `run` does, and yield events as they happen: `async for event in hf.stream(agent, goal)`.

        `event.fact` is the payload, one of the classes of `holdfast.facts`, and `event.type` its name. With `deltas`,
        `Delta`s come between the events: pieces of a streaming response.
        """

        async def begin() -> Begun:
            return await self._begun(agent, goal, options)

        return Stream(self._open(), self._group, begin, deltas=deltas)

    async def resume(
        self,
        session: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        steal: bool = False,
        output_type: type[T] | None = None,
    ) -> Result[T]:
        """Continue a session from its log until it stops. Lifts a pause. Safe at any time.

        `tools` are the functions that the session uses; those of agents that this program has already run, and those
        of `holdfast.open`, need not be passed. While another process runs the session, this waits for its stop;
        `steal` takes it from a process that hangs. Raises `UsageError` for a function that is missing or does not fit
        the session's declaration.
        """
        row = await self._row(session)
        state, _ = await recall(row.session_id, self._runtime.store, self._runtime.store, self._runtime.kinds)
        assert state.created is not None
        given = {**self._tools, **runners(tools)}
        check_functions(row.key or row.session_id, functions(state.created.agent), given)
        self._tools = given
        if (state.paused or state.ended == RESTING) and not state.stop_seq:
            await resume_any(self._runtime.intake, row)
        await to_rest(self._runtime, row.session_id, given, NoObserver(), steal=steal)
        return await result_of(self._runtime, row.session_id, output_type)

    async def serve(self, *, limit: int = 16, on_error: Callable[[str, HoldfastError], None] | None = None) -> NoReturn:
        """Run due sessions of this home, up to `limit` side by side, until cancelled.

        Works as `holdfast worker` does, with the functions of this program: a session that waits for an answer or a
        time continues once it is answered or due. Sessions that use other functions are left to the programs that have
        them. `on_error` receives the id and the error of a failed session, or an empty id for an error of the log; the
        others continue.
        """
        await serve_all(self._open(), lambda: self._tools, whole("limit", limit), on_error)

    async def _begun(self, agent: Agent[Any], goal: str, options: RunOptions) -> Begun:
        runtime = self._open()
        order = order_of(options)
        row, before = await opened(runtime, agent, goal, order)
        self._tools = {**self._tools, **runners(functions_of(agent))}
        return Begun(row.session_id, before, self._tools, steal=False)

    # --- reading --------------------------------------------------------------------------------------

    async def sessions(self) -> list[Session]:
        """Return all sessions, newest first."""
        return [session_of(each.row, each.costs, running=each.running) for each in await sessions(self._open().store)]

    async def show(self, session: str, *, output_type: type[T] | None = None) -> Result[T]:
        """Return a session with its latest message, its output, and its open items."""
        return await result_of(self._runtime, (await self._row(session)).session_id, output_type)

    async def events(self, session: str, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """Yield the events of a session after position `after`, oldest first, whichever process runs it.

        With `follow` it continues with new events until the caller leaves the loop.
        """
        session_id = (await self._row(session)).session_id
        store = self._runtime.store
        while True:
            page = await page_of(store, session_id, after=after)
            for event in page:
                yield event
            after = page[-1].seq if page else after
            if len(page) < PAGE:
                if not follow:
                    return
                await store.wait(session_id, after)

    async def brief(self, session: str, *, since: datetime | None = None) -> Brief:
        """Return the brief of a session and all sessions below it, from its start or from a time on."""
        row, runtime = await self._row(session), self._runtime
        since_us = None if since is None else int(since.timestamp() * 1_000_000)
        found = await brief_of(runtime.store, runtime.kinds, runtime.shelf, row, since_us=since_us)
        return Brief(
            session_id=row.session_id,
            headline=found.headline,
            markdown=markdown(found),
            through_seq=found.through_seq,
        )

    async def cost(self, by: By = "day") -> list[Spending]:
        """Return the cost of all sessions by `day` (local time), `model`, `session`, or `project`, as `holdfast cost`.

        The sum is the same whatever `by` is. Raises `UsageError` for another value.
        """
        if by not in WAYS:
            raise UsageError(f"by={by!r} is not one of {', '.join(WAYS)}")
        found = await spending(self._open().store, by, partial(local_time, form=DAY))
        return [spending_of(line) for line in found]

    # --- steering -------------------------------------------------------------------------------------

    async def send(
        self, session: str, text: str, *, attachments: Sequence[Attachment] = (), key: str = "", by: str = ""
    ) -> None:
        """Post a message. A running session reads it at its next model request, any other when it is resumed.

        With a `key`, a second message of that key is dropped.
        """
        row = await self._row(session)
        await self._intake(by).send(row, text, attachments=blocks(attachments), key=key)

    async def interrupt(self, session: str, reason: str = "", *, by: str = "") -> None:
        """Interrupt the agent; the session then waits for a message."""
        await self._intake(by).interrupt(await self._row(session), reason)

    async def pause(self, session: str, reason: str = "", *, by: str = "") -> None:
        """Pause a session at its next safe boundary until it is resumed, a mission or a list with all below it."""
        await pause_any(self._intake(by), await self._row(session), reason)

    async def fork(self, session: str, at: int, *, key: str = "", budget_usd: Dollars | None = None) -> Session:
        """Open a fork of a session after its event `at`, with its files as of then. `resume` runs it.

        With a `key`, a second call returns the same fork. `budget_usd` is its cap (default: that of the session).
        Raises `UsageError` for an event that does not exist, and `CannotRunSafely` without a snapshot of the files.
        """
        row = await self._row(session)
        if key:
            check_key(key, "key=")
        cap = cap_of(budget_usd) if budget_usd is not None else None
        forked = (await fork_session(self._runtime, row, whole("at", at), key, cap)).row
        return session_of(forked, (await costs_of(self._runtime.store, forked))[forked.session_id], running=False)

    async def cancel(self, session: str, reason: str = "", *, by: str = "") -> None:
        """End a session for good, in the process that runs it, or here without one."""
        row = await self._row(session)
        if row.status == "cancelled":
            return
        await self._intake(by).cancel(row, reason)
        state, _ = await recall(row.session_id, self._runtime.store, self._runtime.store, self._runtime.kinds)
        assert state.created is not None
        try:
            await wake(row.session_id, self._runtime.doors(state.created.workspace))
        except (LeaseHeld, EmergencyStop):
            return  # the process that holds it ends it, or the release of the emergency stop does

    async def limit(
        self, session: str, *, budget_usd: Dollars | None = None, max_turns: int | None = None, by: str = ""
    ) -> None:
        """Change the caps of a session. Raises `UsageError` for a money cap below what is spent."""
        row = await self._row(session)
        cap = cap_of(budget_usd) if budget_usd is not None else None
        if cap is not None:
            await self._runtime.intake.check_cap(row, cap)
        change = SessionUpdated(
            budget_pico=cap, max_turns=whole("max_turns", max_turns) if max_turns is not None else None
        )
        if change != SessionUpdated():
            await self._intake(by).update(row, change)

    # --- answering ------------------------------------------------------------------------------------

    async def inbox(self, *, open_only: bool = True) -> list[Item]:
        """Return the inbox items of all sessions, oldest first; without `open_only` closed ones too."""
        return [item_of(each) for each in await items(self._open().store, SystemClock().now_us(), open_only=open_only)]

    async def seen(self, item: Item | str, *, by: str = "") -> None:
        """Record that an approver was shown an item: its default may apply from now on."""
        intake = self._intake(by)
        await intake.seen(await self._runtime.store.item(_id(item)))

    async def approve(
        self,
        item: Item | str,
        note: str = "",
        *,
        by: str = "",
        for_s: float | None = None,
        uses: int | None = None,
        match: str | None = None,
        budget_usd: Dollars | None = None,
    ) -> Item:
        """Approve an item; for a question, `note` is the answer.

        With `for_s` seconds, a number of `uses`, or both, further calls of that tool are allowed too: with exactly the
        same main argument, or with one that matches the glob `match`. `budget_usd` replaces the proposed cap. The
        session continues when it is resumed, or where it is served. Raises `ItemClosed` for an item that is already
        closed, and `UsageError` for invalid arguments or a user who may not answer.
        """
        row = await self._open().store.item(_id(item))
        grant = None
        if (for_s, uses, match) != (None, None, None):
            grant = await self._intake(by).grant_for(row, for_s=for_s, uses=uses, match=match)
        cap = cap_of(budget_usd) if budget_usd is not None else None
        digest = item.digest if isinstance(item, Item) else ""
        answer = Answer(verdict="approve", note=note, digest=digest, grant=grant, budget_pico=cap)
        return await self._answered(row.item_id, answer, by)

    async def deny(self, item: Item | str, note: str = "", *, by: str = "") -> Item:
        """Deny an item; the model reads the note. Raises as `approve` does."""
        verdict: Verdict = "deny"
        digest = item.digest if isinstance(item, Item) else ""
        return await self._answered(_id(item), Answer(verdict=verdict, note=note, digest=digest), by)

    async def _answered(self, item_id: str, answer: Answer, by: str) -> Item:
        runtime = self._open()
        row = await runtime.store.item(item_id)
        await self._intake(by).answer(row, answer)
        return item_of(await shown(runtime.store, await runtime.store.item(row.item_id), SystemClock().now_us()))

    # --- internals ------------------------------------------------------------------------------------

    def _open(self) -> Runtime:
        if self._closed:
            raise UsageError("this home was closed at the end of its `async with` block; open it again")
        return self._runtime

    async def _row(self, session: str) -> SessionRow:
        return await self._open().store.find(session)

    def _intake(self, by: str) -> Intake:
        intake = self._open().intake
        if not by:
            return intake
        name = by.removeprefix("user:")
        if not name or not name.isprintable() or any(char.isspace() for char in name):
            raise UsageError(f'by={by!r} is not a user name; an example is by="anna"')
        return intake.acting_as(msgspec.structs.replace(intake.caller, actor=f"user:{name}"))


def _id(item: Item | str) -> str:
    return item.item_id if isinstance(item, Item) else item


@asynccontextmanager
async def open(
    home: str | PathLike[str] | None = None,
    *,
    tools: Sequence[Callable[..., Any]] = (),
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Holdfast]:
    """Open a home: `async with holdfast.open() as hf:`.

    `home` is the folder that holds everything (default: that of the settings, else of this user). `tools` are functions
    that sessions here use, so that they need not be passed to `resume`. `settings` are keys of holdfast.toml that
    override its files and the `HOLDFAST_*` variables: `{"model": "anthropic:NAME"}`.

    Many programs may open the same home at once. At the end of the block, sessions that still run here are released;
    they can be resumed. Raises `UsageError` for an unknown setting, and `CannotRunSafely` or `LogDamaged` for a home
    that cannot be used.
    """
    given = dict(settings or {})
    if home is not None:
        given["home"] = fspath(home)
    loaded = load_settings(Path.cwd(), {name: setting_value(name, value) for name, value in given.items()})
    for each in loaded.ignored:
        warnings.warn(each.note(), stacklevel=4)
    async with open_runtime(loaded, via="api") as runtime:
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            hf = Holdfast(runtime, group, tools)
            try:
                yield hf
            except Exception as error:  # raised directly instead of inside a group
                failed = error
            finally:
                hf._closed = True
                group.cancel_scope.cancel()
        if failed is not None:
            raise failed
