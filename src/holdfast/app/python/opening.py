"""A session opened or continued by a Python program. What is refused leaves nothing behind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from decimal import Decimal
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app.compose import PROGRAM, Runtime
from holdfast.app.models import find_model
from holdfast.app.python.agent import Agent, check_functions, declared, functions_of, runners
from holdfast.app.python.files import blocks, key_of
from holdfast.app.python.types import Attachment, Dollars
from holdfast.app.running.opening import check_folder
from holdfast.app.settings import egress_policy, hands_policy, policies
from holdfast.app.settings.config import Settings, budget_pico, count, known_key, pinned_rules
from holdfast.app.settings.trust import require
from holdfast.brain.recall import recall
from holdfast.errors import SandboxUnavailable, UnknownSession, UsageError
from holdfast.facts import session as facts
from holdfast.facts.base import Block, Usage
from holdfast.facts.session import Limits, SessionCreated, SessionUpdated, Workspace
from holdfast.facts.user import UserMessage
from holdfast.hands.user import choose_user, make_ready
from holdfast.session.rows import SessionRow
from holdfast.session.tools import offered, with_web

KEY_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class Order:
    """The options of a run, as they were given; `Holdfast.run` says what they mean."""

    key: str = ""
    workspace: str | PathLike[str] = ""
    budget_usd: Dollars | None = None
    unpriced: bool = False
    max_turns: int | None = None
    max_output_tokens: int | None = None
    context_tokens: int | None = None
    criteria: Sequence[str] = ()
    attachments: Sequence[Attachment] = ()
    sandbox: bool = True
    user: str = ""
    owner: str = ""
    allow_hosts: Sequence[str] = ()
    registries: bool = False
    secrets: Sequence[str] | None = None
    content: tuple[Block, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if self.key and (not self.key.strip() or not self.key.isprintable() or len(self.key) > KEY_LENGTH):
            raise UsageError(f"key={self.key!r} cannot be a key: it has 1 to {KEY_LENGTH} printable characters")
        if self.key.startswith("-"):
            raise UsageError(f"key={self.key!r} cannot be a key: no command could name it; leave the - in front out")
        for name in ("max_turns", "max_output_tokens", "context_tokens"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        criteria: Sequence[object] = self.criteria
        if isinstance(criteria, str) or not all(isinstance(each, str) and each.strip() for each in criteria):
            raise UsageError(f'criteria={self.criteria!r} has to be a list of sentences, such as ["all tests pass"]')
        for name in ("allow_hosts", "secrets"):
            names: object = getattr(self, name)
            if isinstance(names, str) or not all(isinstance(each, str) for each in getattr(self, name) or ()):
                raise UsageError(f'{name}={names!r} has to be a list of names, such as ["api.example.com"]')
        object.__setattr__(self, "content", blocks(self.attachments))


def order_of(options: Mapping[str, Any]) -> Order:
    """The options, checked. Raises `UsageError` for one that does not exist, naming the nearest that does."""
    for name in options:
        known_key(name, [each.name for each in fields(Order) if each.init], "the options of a run")
    return Order(**options)


def whole(name: str, value: Any) -> int:
    """A whole number from 1. Raises `UsageError`."""
    try:
        return count(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def cap_of(value: Dollars | None, default: str = "") -> int | None:
    """A money cap in pico-dollars. Raises `UsageError` unless it is an amount above zero."""
    if value is None:
        return budget_pico(default)
    known: object = value
    if isinstance(known, bool) or not isinstance(known, str | int | float | Decimal):
        raise UsageError(f"budget_usd={value!r} is not an amount of dollars; an example is budget_usd=2.50")
    try:
        cap = budget_pico(str(value))
    except UsageError as error:
        raise UsageError(f"budget_usd={value!r} is not an amount of dollars above 0, such as 2.50") from error
    if cap is None:
        raise UsageError("budget_usd is empty; leave it out for no cap, or give dollars, such as budget_usd=2.50")
    return cap


async def opened(runtime: Runtime, agent: Agent, goal: str, order: Order) -> tuple[SessionRow, int]:
    """The session for this goal, new or the one with this key, and the position from which on events are news."""
    if not isinstance(agent, Agent):
        raise UsageError(f"the agent is {agent!r}; an example is holdfast.Agent(model='anthropic:NAME')")
    if not isinstance(goal, str):
        raise UsageError(f"the goal is {goal!r}; it has to be text")
    row = await _existing(runtime, order.key)
    before = row.head if row else 0
    if row is None:
        row = await _open(runtime, agent, goal, order)
    else:
        await _continue(runtime, agent, goal, order, row)
    if order.content:
        fact = UserMessage(content=order.content)
        await runtime.intake.post(row.session_id, fact, key_of(order.content))
    return row, before


async def _existing(runtime: Runtime, key: str) -> SessionRow | None:
    try:
        row = await runtime.store.find(key) if key else None
    except UnknownSession:
        return None
    return row if row is not None and key in (row.key, row.session_id) else None


async def _open(runtime: Runtime, agent: Agent, goal: str, order: Order) -> SessionRow:
    if not goal.strip():
        raise UsageError('the goal is empty; say what is wanted, such as "fix the failing test"')
    settings = runtime.settings
    if not (agent.model or settings.model):
        require(settings.ignored, "model")
    who = declared(agent, settings.model)
    limits = Limits(
        budget_pico=cap_of(order.budget_usd, settings.budget_usd),
        max_turns=order.max_turns or settings.max_turns,
        context_tokens=order.context_tokens or settings.context_tokens,
        max_output_tokens=order.max_output_tokens or settings.max_output_tokens,
        unpriced=order.unpriced,
        context=policies.context(settings),
        breakers=policies.breakers(settings),
    )
    people = policies.people(settings)
    egress = egress_policy.egress(settings, hosts=order.allow_hosts, registries=order.registries, secrets=order.secrets)
    policy, environment = hands_policy.hands(settings), hands_policy.environment(settings)
    searchers = egress_policy.searchers(settings)
    who = with_web(who, egress, searchers)
    _check_models(who, settings, limits)
    session_id = runtime.intake.new_session_id()
    workspace = _workspace(runtime, session_id, order)
    hands = any(tool.where == "" for tool in offered(who))
    if hands:
        await _check_machine(runtime, workspace)
    with _ready(workspace, runtime.home.path, hands=hands):
        created = SessionCreated(
            goal=goal,
            agent=who,
            workspace=workspace,
            limits=limits,
            rules=pinned_rules(Path(workspace.path)),
            key=order.key,
            accounts=(session_id,),
            program=PROGRAM,
            criteria=tuple(order.criteria),
            people=msgspec.structs.replace(people, owner=order.owner) if order.owner else people,
            hands=policy,
            egress=egress,
            environment=environment,
            searchers=searchers,
        )
        receipt = await runtime.intake.open(session_id, created)
    row = await runtime.store.find(receipt.session_id)
    if receipt.duplicate:  # another process was faster with the same key
        if workspace.disposable:
            shutil.rmtree(workspace.path)
        await _continue(runtime, agent, goal, order, row)
    return row


def _check_models(who: facts.Agent, settings: Settings, limits: Limits) -> None:
    """Refuse a model that cannot be used, and a cap on one without a price."""
    for name in (who.model, *who.fallbacks):
        model = find_model(name, settings)
        if limits.budget_pico is None or limits.unpriced or model.cost_pico(Usage(input_tokens=1)) is not None:
            continue
        raise UsageError(
            f"{name} has no price, so a money budget cannot be kept; leave budget_usd out, say unpriced=True to leave "
            f'its cost out of the count, or give it a price in your own holdfast.toml: [prices."{name}"] '
            "input_per_mtok = 3.0 output_per_mtok = 15.0"
        )


def _workspace(runtime: Runtime, session_id: str, order: Order) -> Workspace:
    user = order.user or runtime.settings.user
    isolation: Any = "sandbox" if order.sandbox else "none"
    if not fspath(order.workspace):
        return Workspace(str(runtime.home.workspaces / session_id), True, user, isolation)
    return Workspace(str(check_folder(fspath(order.workspace))), False, user, isolation)


async def _check_machine(runtime: Runtime, workspace: Workspace) -> None:
    """Refuse now, rather than at the first tool call, what the machine cannot do safely."""
    capabilities = await runtime.provider(workspace, hands_policy.hands(runtime.settings)).probe()
    if not capabilities.usable:
        bad = [finding for finding in capabilities.findings if finding.level in ("bad", "absent") and finding.fix]
        why = "; ".join(f"{finding.message}: {finding.fix}" for finding in bad)
        raise SandboxUnavailable(
            f"this machine cannot isolate tool calls ({why}); nothing was started. `holdfast doctor` says more; "
            "sandbox=False runs them without isolation, and the log records that"
        )


@contextmanager
def _ready(workspace: Workspace, home: Path, *, hands: bool) -> Iterator[None]:
    """The workspace is there and its user can work in it. One that was made for this is removed on an error."""
    path = Path(workspace.path)
    if workspace.disposable:
        path.mkdir(mode=0o700)
    try:
        if hands:
            make_ready(workspace, choose_user(workspace), home=home)
        yield
    except BaseException:
        if workspace.disposable:
            path.rmdir()
        raise


async def _continue(runtime: Runtime, agent: Agent, goal: str, order: Order, row: SessionRow) -> None:
    """A second run with the same key: raise limits, post another goal as a message, or just go on."""
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    created = state.created
    assert created is not None
    _check_kept(runtime, agent, order, row, created)
    cap = cap_of(order.budget_usd) if order.budget_usd is not None else None
    change = SessionUpdated(
        budget_pico=cap if cap != state.limits.budget_pico else None,
        max_turns=order.max_turns if order.max_turns != state.limits.max_turns else None,
        context_tokens=order.context_tokens if order.context_tokens != state.limits.context_tokens else None,
    )
    if cap is not None:
        unpriced = order.unpriced or state.limits.unpriced
        _check_models(created.agent, runtime.settings, Limits(budget_pico=cap, unpriced=unpriced))
        await runtime.intake.check_cap(row, cap)
    if change != SessionUpdated():
        await runtime.intake.update(row, change)
    if goal.strip() and goal != created.goal:
        await runtime.intake.send(row, goal)


def _check_kept(runtime: Runtime, agent: Agent, order: Order, row: SessionRow, created: SessionCreated) -> None:
    """A session keeps its agent, workspace and criteria. A program that says otherwise is not ignored."""
    name = row.key or row.session_id
    before, now = created.agent, declared(agent, runtime.settings.model or created.agent.model)
    now = with_web(now, created.egress, created.searchers)
    check_functions(name, before.custom, runners(functions_of(agent)))
    more = [each.name for each in now.custom if each.name not in [spec.name for spec in before.custom]]
    differ = [
        each for each in before.__struct_fields__ if each != "custom" and getattr(before, each) != getattr(now, each)
    ]
    if differ or more:
        what = f"was not told of the tool {more[0]!r}" if more else f"has another agent: its {', '.join(differ)} differ"
        raise UsageError(f"session {name} {what}, and that does not change; give back the same agent, or another key")
    folder = fspath(order.workspace)
    if folder and str(check_folder(folder)) != row.workspace:
        raise UsageError(f"session {name} works in {row.workspace}, and that does not change; leave workspace out")
    if order.allow_hosts or order.registries or order.secrets is not None:
        raise UsageError(
            f"session {name} is there already; what it may talk to is changed with: holdfast egress {name} --allow HOST"
        )
    if order.criteria and tuple(order.criteria) != created.criteria:
        raise UsageError(f"session {name} has other criteria, and they do not change; leave criteria out")
