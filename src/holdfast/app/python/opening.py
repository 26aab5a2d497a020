"""Requests of Python programs: options and attachments checked, sessions opened or continued."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.app.compose import Runtime
from holdfast.app.python.agent import Agent, check_functions, declared, functions_of, runners
from holdfast.app.python.types import Attachment, Dollars
from holdfast.app.running.opening import check_folder, limits_of, policies_of, workspace_of
from holdfast.app.settings.config import FOUND, Settings, budget_pico, pinned_rules
from holdfast.app.settings.trust import require
from holdfast.app.settings.values import count, known_key
from holdfast.errors import UsageError
from holdfast.facts.base import Block, Document, Image, Text
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionCreated
from holdfast.facts.task import Run
from holdfast.model.prices import parse_prices
from holdfast.service.opening import (
    Change,
    NewSession,
    check_key,
    continue_session,
    find_by_key,
    open_session,
    state_of,
)
from holdfast.session.rows import SessionRow
from holdfast.session.tools import offered, with_web
from holdfast.session.tools.output import SUBMIT_OUTPUT, functions

IMAGE_MAX = 5_000_000
DOCUMENT_MAX = 20_000_000
TOTAL_MAX = 25_000_000
"""Bytes of an image, of a document, and of all attachments of a message: limits that every provider accepts."""

IMAGES = {
    ".png": ("image/png", b"\x89PNG\r\n\x1a\n"),
    ".jpg": ("image/jpeg", b"\xff\xd8\xff"),
    ".jpeg": ("image/jpeg", b"\xff\xd8\xff"),
    ".gif": ("image/gif", b"GIF8"),
    ".webp": ("image/webp", b"RIFF"),
}
"""Suffix → media type and leading bytes."""

PDF = "application/pdf"

TEXTS = {".md": "text/markdown", ".csv": "text/csv", ".html": "text/html", ".json": "application/json"}
"""Text formats with their own media type; any other UTF-8 file is `text/plain`."""


def blocks(attachments: Sequence[Attachment]) -> tuple[Block, ...]:
    """Return the content of a message with these files, empty without any.

    Raises `UsageError` for a file that cannot be read, is too large, or is of an unsupported kind.
    """
    if isinstance(attachments, str | PathLike) or not isinstance(attachments, Sequence):
        raise UsageError(f'attachments is {attachments!r}; it must be a list, such as attachments=["plan.pdf"]')
    found: list[Block] = [each if isinstance(each, Image | Document) else _read(each) for each in attachments]
    for block in found:
        _check(block)
    total = sum(len(block.data) for block in found if not isinstance(block, Text))
    if total > TOTAL_MAX:
        raise UsageError(f"the attachments are {_mb(total)} together, over the limit of {_mb(TOTAL_MAX)}; attach fewer")
    return (Text("Files that go with this:"), *found) if found else ()


def key_of(content: Sequence[Block]) -> str:
    """Return the key of files posted with a goal, so that the same files are posted once."""
    return f"attachments:{hashlib.sha256(msgspec.json.encode(content)).hexdigest()}"


def _read(given: str | PathLike[str]) -> Image | Document:
    path = Path(fspath(given))
    suffix = path.suffix.lower()
    try:
        size = path.stat().st_size
        if size > TOTAL_MAX:
            raise _too_large(str(path), size, IMAGE_MAX if suffix in IMAGES else DOCUMENT_MAX)
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the attachment {path} cannot be read: {error.strerror}; nothing was posted") from error
    if suffix in IMAGES:
        return Image(IMAGES[suffix][0], data)
    if suffix == ".pdf":
        return Document(PDF, data, path.name)
    return Document(TEXTS.get(suffix, "text/plain"), data, path.name)


def _check(block: Block) -> None:
    assert not isinstance(block, Text)
    name = (block.name if isinstance(block, Document) else "") or block.media_type
    limit = IMAGE_MAX if isinstance(block, Image) else DOCUMENT_MAX
    if len(block.data) > limit:
        raise _too_large(name, len(block.data), limit)
    if not block.data:
        raise UsageError(f"the attachment {name} is empty; nothing was posted")
    if isinstance(block, Image):
        begins = [start for kind, start in IMAGES.values() if kind == block.media_type]
        if not begins:
            raise UsageError(f"unsupported image type {block.media_type!r}; use {', '.join(_kinds())}")
        if not block.data.startswith(begins[0]):
            raise UsageError(f"an attachment declared as {block.media_type} has other content; nothing was posted")
    elif block.media_type == PDF:
        if not block.data.startswith(b"%PDF-"):
            raise UsageError(f"the attachment {name} is declared as a PDF and has other content; nothing was posted")
    else:
        _check_text(name, block.data)


def _check_text(name: str, data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the attachment {name} is neither an image ({', '.join(_kinds())}), nor a PDF, nor UTF-8 text (byte "
            f"{error.start + 1}); put it into the workspace, where the agent's tools can open it"
        ) from error


def _kinds() -> list[str]:
    return sorted({kind for kind, _ in IMAGES.values()})


def _too_large(name: str, size: int, limit: int) -> UsageError:
    return UsageError(
        f"the attachment {name} is {_mb(size)}, over the limit of {_mb(limit)}; put it into the workspace, where the "
        "agent's tools can open it"
    )


def _mb(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


@dataclass(frozen=True, kw_only=True)
class Order:
    """The options of a run as passed; documented at `Holdfast.run`."""

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
        if self.key:
            check_key(self.key, "key=")
        for name in ("max_turns", "max_output_tokens", "context_tokens"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        criteria: Sequence[object] = self.criteria
        if isinstance(criteria, str) or not all(isinstance(each, str) and each.strip() for each in criteria):
            raise UsageError(f'criteria={self.criteria!r} must be a list of sentences, such as ["all tests pass"]')
        for name in ("allow_hosts", "secrets"):
            names: object = getattr(self, name)
            if isinstance(names, str) or not all(isinstance(each, str) for each in getattr(self, name) or ()):
                raise UsageError(f'{name}={names!r} must be a list of names, such as ["api.example.com"]')
        object.__setattr__(self, "content", blocks(self.attachments))


def order_of(options: Mapping[str, Any]) -> Order:
    """Check the options. Raises `UsageError` for an unknown one and suggests the nearest known one."""
    for name in options:
        known_key(name, [each.name for each in fields(Order) if each.init], "the options of a run")
    return Order(**options)


def whole(name: str, value: Any) -> int:
    """Return a whole number from 1. Raises `UsageError`."""
    try:
        return count(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def cap_of(value: Dollars | None, default: str = "") -> int | None:
    """Return a money cap in pico-dollars. Raises `UsageError` unless it is an amount above zero."""
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


def setting_value(name: str, value: Any) -> Any:
    """Return the value of a setting, checked as in a file. Raises `UsageError`."""
    kinds = {each.name: str(each.type) for each in fields(Settings) if each.name not in FOUND}
    known_key(name, kinds, "settings")
    if name == "prices":
        return parse_prices(value, "settings")
    if kinds[name] == "int":
        try:
            return count(value)
        except ValueError as error:
            raise UsageError(f"{name} in settings: {error}") from error
    if kinds[name].startswith("dict"):
        if not isinstance(value, dict):
            raise UsageError(f"{name} in settings is {value!r}; it must be a dict, as its table in holdfast.toml")
        return value
    if isinstance(value, bool) or not isinstance(value, str | PathLike | int | float):
        raise UsageError(f"{name} in settings is {value!r}; it must be text")
    return fspath(value) if isinstance(value, PathLike) else str(value)


async def opened(runtime: Runtime, agent: Agent[Any], goal: str, order: Order) -> tuple[SessionRow, int]:
    """Open or continue the session for this goal. Return it with the position after which events are new."""
    if not isinstance(agent, Agent):
        raise UsageError(f"the agent is {agent!r}; an example is holdfast.Agent(model='anthropic:NAME')")
    if not isinstance(goal, str):
        raise UsageError(f"the goal is {goal!r}; it must be text")
    row = await find_by_key(runtime.store, order.key)
    before = row.head if row else 0
    if row is None:
        row = await _open(runtime, agent, goal, order)
    else:
        await _continue(runtime, agent, goal, order, row)
    if order.content:
        fact = UserMessage(content=order.content)
        await runtime.intake.post(row.session_id, fact, key_of(order.content))
    return row, before


async def _open(runtime: Runtime, agent: Agent[Any], goal: str, order: Order) -> SessionRow:
    if not goal.strip():
        raise UsageError('the goal is empty; state one, such as "fix the failing test"')
    settings = runtime.settings
    if not (agent.model or settings.model):
        require(settings.ignored, "model")
    who = declared(agent, settings.model)
    limits = limits_of(
        settings,
        budget_pico=cap_of(order.budget_usd, settings.budget_usd),
        max_turns=order.max_turns or settings.max_turns,
        context_tokens=order.context_tokens or settings.context_tokens,
        max_output_tokens=order.max_output_tokens or settings.max_output_tokens,
        unpriced=order.unpriced,
    )
    given = policies_of(settings, order.allow_hosts, order.registries, order.secrets)
    if order.owner:
        given = replace(given, people=replace(given.people, owner=order.owner))
    who = with_web(who, given.egress, given.searchers)
    new = NewSession(
        goal=goal,
        agent=who,
        workspace=workspace_of(settings, fspath(order.workspace) or None, sandbox=order.sandbox, user=order.user),
        limits=limits,
        policies=given,
        key=order.key,
        criteria=tuple(order.criteria),
        run=Run() if agent.output_type is not None else None,
        needs_hands=any(tool.where == "" for tool in offered(who)),
    )
    done = await open_session(runtime.site, new, rules=pinned_rules)
    if done.duplicate:
        await _continue(runtime, agent, goal, order, done.row)
    return done.row


async def _continue(runtime: Runtime, agent: Agent[Any], goal: str, order: Order, row: SessionRow) -> None:
    """Apply a second run with the same key: raise limits, post another goal as a message, or just continue."""
    state = await state_of(runtime.site, row)
    assert state.created is not None
    _check_kept(runtime, agent, order, row, state.created)
    change = Change(
        goal=goal,
        budget_pico=cap_of(order.budget_usd) if order.budget_usd is not None else None,
        max_turns=order.max_turns,
        context_tokens=order.context_tokens,
        unpriced=order.unpriced,
    )
    await continue_session(runtime.site, row, state, change)


def _check_kept(runtime: Runtime, agent: Agent[Any], order: Order, row: SessionRow, created: SessionCreated) -> None:
    """Refuse options that contradict the session's agent, workspace, or criteria, which do not change."""
    name = row.key or row.session_id
    before, now = created.agent, declared(agent, runtime.settings.model or created.agent.model)
    now = with_web(now, created.egress, created.searchers)
    check_functions(name, functions(before), runners(functions_of(agent)))
    more = [each.name for each in functions(now) if each.name not in [spec.name for spec in before.custom]]
    differ = [
        each for each in before.__struct_fields__ if each != "custom" and getattr(before, each) != getattr(now, each)
    ]
    if [each for each in before.custom if each.name == SUBMIT_OUTPUT] != [
        each for each in now.custom if each.name == SUBMIT_OUTPUT
    ]:
        differ.append("output_type")
    if differ or more:
        what = f"does not have the tool {more[0]!r}" if more else f"has another agent: its {', '.join(differ)} differ"
        raise UsageError(f"session {name} {what}, and that does not change; pass the same agent, or another key")
    folder = fspath(order.workspace)
    if folder and str(check_folder(folder)) != row.workspace:
        raise UsageError(f"session {name} works in {row.workspace}, and that does not change; leave workspace out")
    if order.allow_hosts or order.registries or order.secrets is not None:
        raise UsageError(
            f"session {name} exists already; change its hosts and secrets with: holdfast egress {name} --allow HOST"
        )
    if order.criteria and tuple(order.criteria) != created.criteria:
        raise UsageError(f"session {name} has other criteria, and they do not change; leave criteria out")
