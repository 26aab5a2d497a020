"""Results of the Python API: plain frozen values, with times in UTC and exact amounts in dollars."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict

import msgspec

from holdfast.app.compose import Runtime
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.base import Document, Image, Usage
from holdfast.facts.people import ItemKind, Verdict
from holdfast.kinds.run.kind import RunState
from holdfast.service.events import last_message
from holdfast.service.inbox import Shown, items
from holdfast.service.sessions import costs_of
from holdfast.service.spending import Line
from holdfast.session.costs import Costs
from holdfast.session.money import PICO
from holdfast.session.rows import ItemStatus, SessionRow
from holdfast.session.state import State

if sys.version_info >= (3, 13):
    from typing import TypeVar
else:
    from typing_extensions import TypeVar  # a dependency of anyio on these versions

T = TypeVar("T", default=Any)
"""Type of an output."""

Status = Literal["running", "runnable", "parked", "done", "failed", "cancelled"]

Dollars = str | int | float | Decimal
"""An amount of dollars. Text and `Decimal` are exact to the twelfth decimal."""

Attachment = str | PathLike[str] | Image | Document
"""A file to show to the model, by path or in memory."""


class RunOptions(TypedDict, total=False):
    """Keyword options of `run`, `stream` and `run_sync`; documented at `Holdfast.run`."""

    key: str
    workspace: str | PathLike[str]
    budget_usd: Dollars
    unpriced: bool
    max_turns: int
    max_output_tokens: int
    context_tokens: int
    criteria: Sequence[str]
    attachments: Sequence[Attachment]
    sandbox: bool
    user: str
    owner: str
    allow_hosts: Sequence[str]
    registries: bool
    secrets: Sequence[str] | None


@dataclass(frozen=True, kw_only=True)
class Item:
    """An inbox item: a request to an approver, bound to one exact action.

    `item_id` names it, also on the command line. `kind` is `tool` (a call under an `ask` rule), `question` (from the
    agent), `budget` (more money), `escalation` (work without progress) or `unknown` (a call with an unknown outcome).
    `action` is the complete action and `digest` its hash: an answer to this value is an answer to exactly that action.
    `options` are proposed answers. At `expires_at` the `default` applies, if an approver has seen the item. `cost_usd`
    is the cost of the session and of all below it so far, None when unknown; `proposed_usd` is the cap that approving a
    `budget` sets. `approvers` may answer; everyone may when it is empty.
    """

    item_id: str
    session_id: str
    kind: ItemKind
    status: ItemStatus
    title: str
    action: str
    digest: str = field(repr=False)
    why: str
    touches: str
    options: tuple[str, ...]
    opened_at: datetime
    expires_at: datetime | None
    default: Verdict | None
    cost_usd: Decimal | None
    proposed_usd: Decimal | None
    approvers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session at a glance.

    `status` is `running` while a process holds it, `runnable` when none does and there is work to do, `parked` while it
    waits for its `reason` (`person`, `budget`, `cap`, `context`, a time at `due_at`, …), else `done`, `failed` or
    `cancelled`. `turns` counts model responses, `events` the events of the log. `cost_usd` is the cost of the session
    and of all sessions below it, `own_cost_usd` its own; None when a part is unknown. `parent` is the session that
    opened this one, empty without one.
    """

    session_id: str
    key: str
    name: str
    goal: str
    model: str
    status: Status
    reason: str
    detail: str
    workspace: Path
    turns: int
    events: int
    cost_usd: Decimal | None
    own_cost_usd: Decimal | None
    created_at: datetime
    updated_at: datetime
    due_at: datetime | None
    parent: str
    owner: str


@dataclass(frozen=True, kw_only=True)
class Result(Session, Generic[T]):
    """A session with its result: `text` is the model's latest message, empty without one.

    `goal` is complete here. `usage` counts tokens; None when a model did not report all of them. `items` are its open
    inbox items. `output` is the submitted output, of the agent's `output_type`; None before it is submitted and for
    agents without one. `show` and `resume` take the type as `output_type`, else they return plain JSON data.
    """

    output: T | None = None
    text: str
    usage: Usage | None
    items: tuple[Item, ...]

    @property
    def ok(self) -> bool:
        """True when the work is done."""
        return self.status == "done"


@dataclass(frozen=True, kw_only=True)
class Spending:
    """One line of a cost report. `label` is its day, model, session, or project.

    `known_usd` is the known cost and `complete` says that no part of it is unknown. `sessions` counts sessions; it is 0
    for days.
    """

    label: str
    known_usd: Decimal
    complete: bool
    sessions: int


@dataclass(frozen=True, kw_only=True)
class Brief:
    """A report on a session and all sessions below it, from its log.

    `headline` has the status, the cost, and the number of decisions to make. `markdown` is the whole report.
    `through_seq` is the last event that it covers.
    """

    session_id: str
    headline: str
    markdown: str
    through_seq: int


@dataclass(frozen=True)
class Delta:
    """A piece of a streaming response. Deltas are not in the log; a slow reader may miss some.

    `text` continues the message (`text`) or the reasoning (`thinking`), or is the name of a tool about to be called
    (`tool`).
    """

    kind: Literal["text", "thinking", "tool"]
    text: str


def dollars(pico: int | None) -> Decimal | None:
    """Convert pico-dollars to dollars, exactly."""
    return None if pico is None else (Decimal(pico) / PICO).normalize() + Decimal(0)


def at(us: int | None) -> datetime | None:
    """Convert microseconds since 1970 to a time."""
    return None if us is None else _time(us)


def _time(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def session_of(row: SessionRow, costs: Costs, *, running: bool) -> Session:
    """Convert a session's row."""
    return Session(
        session_id=row.session_id,
        key=row.key,
        name=row.name,
        goal=row.goal,
        model=row.model,
        status="running" if running else row.status,
        reason=row.reason,
        detail=row.detail,
        workspace=Path(row.workspace),
        turns=row.turns,
        events=row.head,
        cost_usd=None if costs.tree.unpriced else dollars(costs.tree.pico),
        own_cost_usd=None if costs.own.unpriced else dollars(costs.own.pico),
        created_at=_time(row.created_us),
        updated_at=_time(row.updated_us),
        due_at=at(row.due_us) if row.status == "parked" else None,
        parent=row.parent,
        owner=row.owner,
    )


def item_of(shown: Shown) -> Item:
    """Convert an item with its full request."""
    row, asked = shown.item, shown.request
    return Item(
        item_id=row.item_id,
        session_id=row.session_id,
        kind=row.kind,
        status=row.status,
        title=row.title,
        action=asked.action,
        digest=asked.action_digest,
        why=asked.why,
        touches=asked.touches,
        options=asked.options,
        opened_at=_time(row.opened_us),
        expires_at=at(row.expires_us),
        default=asked.default,
        cost_usd=None if shown.costs.tree.unpriced else dollars(shown.costs.tree.pico),
        proposed_usd=dollars(asked.proposed_pico),
        approvers=shown.names,
    )


def spending_of(line: Line) -> Spending:
    """Convert a line of a cost report."""
    known = dollars(line.cost.pico) or Decimal(0)
    return Spending(label=line.label, known_usd=known, complete=not line.cost.unpriced, sessions=line.sessions)


async def result_of(runtime: Runtime, session_id: str, output_type: type[T] | None = None) -> Result[T]:
    """Return a session with its latest message, its output, and its open items.

    Raises `UsageError` for an output that is not of the given type.
    """
    row = await runtime.store.find(session_id)
    running = row.session_id in await runtime.store.holders()
    state: State
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    asked = await items(runtime.store, SystemClock().now_us(), session_id=row.session_id)
    about = session_of(row, (await costs_of(runtime.store, row))[row.session_id], running=running)
    given = {name: getattr(about, name) for name in Session.__dataclass_fields__}
    given["goal"] = state.created.goal if state.created else row.goal
    output = state.tenant.own.output if isinstance(state.tenant.own, RunState) else None
    if output is not None and output_type is not None:
        try:
            output = msgspec.convert(output, output_type)
        except msgspec.ValidationError as error:
            raise UsageError(
                f"the output of session {row.key or row.session_id} is of another type: {error}"
            ) from error
    return Result(
        **given,
        output=output,
        text=await last_message(runtime.store, state),
        usage=None if state.uncounted else state.usage,
        items=tuple(map(item_of, asked)),
    )
