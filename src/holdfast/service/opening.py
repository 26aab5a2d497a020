"""Open or continue a session: the one code path for every face. A refused request leaves nothing behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.brain.doors import Kinds, uptime
from holdfast.brain.recall import recall
from holdfast.errors import SandboxUnavailable, UnknownSession, UsageError
from holdfast.facts.base import Usage
from holdfast.facts.duty import Duty
from holdfast.facts.items import Items
from holdfast.facts.mission import Mission, Role
from holdfast.facts.session import (
    Agent,
    EgressPolicy,
    Environment,
    HandsPolicy,
    Limits,
    People,
    Searcher,
    SessionCreated,
    SessionUpdated,
    Workspace,
)
from holdfast.facts.task import Run
from holdfast.hands.base import Provider
from holdfast.hands.user import HandsUser, choose_user, make_ready, take_over
from holdfast.log.base import Index, Snapshots
from holdfast.model.base import Model
from holdfast.service.intake import Intake
from holdfast.session.decide import is_idle
from holdfast.session.money import HOME_ACCOUNT
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

KEY_LENGTH = 200


@dataclass(frozen=True)
class Site:
    """The home and the machine that sessions are opened on, provided by the composition root.

    `provider` creates the hands of a workspace. `model` finds a model by name and raises `UsageError` or
    `CannotRunSafely` for an unusable one.
    """

    intake: Intake
    snapshots: Snapshots
    kinds: Kinds
    home: Path
    workspaces: Path
    program: str
    provider: Callable[[Workspace, HandsPolicy], Provider]
    model: Callable[[str], Model]


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved policies of a new session."""

    people: People
    hands: HandsPolicy
    egress: EgressPolicy
    environment: Environment
    searchers: tuple[Searcher, ...]


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request to open a session, with all settings resolved.

    A `workspace` without a path is created in the home. `accounts` are shared accounts beside the session's own. An
    agent needs no hands if none of its tools runs in them. `take_over` gives a named workspace to the user that tool
    calls run as.
    """

    goal: str
    agent: Agent
    workspace: Workspace
    limits: Limits
    policies: Policies
    key: str = ""
    accounts: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    mission: Mission | None = None
    role: Role | None = None
    run: Run | None = None
    items: Items | None = None
    duty: Duty | None = None
    needs_hands: bool = True
    take_over: bool = False


class Opened(msgspec.Struct, frozen=True):
    """The session of a request. `duplicate`: another process opened it first under the same key."""

    row: SessionRow
    duplicate: bool


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to an open session. None and an empty goal change nothing; another goal becomes a message."""

    goal: str = ""
    budget_pico: int | None = None
    max_turns: int | None = None
    context_tokens: int | None = None
    unpriced: bool = False


async def open_session(
    site: Site,
    new: NewSession,
    *,
    rules: Callable[[Path], str],
    prepare: Callable[[Workspace, HandsUser], Awaitable[None]] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Opened:
    """Open a session after checking everything that can be checked.

    `prepare` fills the workspace before the first event, `rules` reads the project's rules from it, and `tell` receives
    warnings. Raises `UsageError`, `CannotRunSafely`, and errors of the log.
    """
    for account in new.accounts:
        check_account(account)
    own = tuple(new.mission.policy.models.values()) if new.mission else ()
    if new.items is not None and new.items.judge:
        own += (new.items.judge,)
    cap = None if new.limits.unpriced else new.limits.budget_pico
    check_models(site, (new.agent.model, *new.agent.fallbacks, *own), cap)
    session_id = site.intake.new_session_id()
    workspace = new.workspace
    if not workspace.path:
        workspace = msgspec.structs.replace(workspace, path=str(site.workspaces / session_id), disposable=True)
    if new.needs_hands:
        for warning in await check_machine(site, workspace, new.policies.hands):
            if tell is not None:
                tell(warning)
    with _prepared(site, workspace, new, tell):
        if prepare is not None:
            await prepare(workspace, choose_user(workspace))
        created = SessionCreated(
            goal=new.goal,
            agent=new.agent,
            workspace=workspace,
            limits=new.limits,
            rules=rules(Path(workspace.path)),
            key=new.key,
            accounts=tuple(dict.fromkeys((session_id, *new.accounts, HOME_ACCOUNT))),
            program=site.program,
            criteria=new.criteria,
            people=new.policies.people,
            hands=new.policies.hands,
            egress=new.policies.egress,
            environment=new.policies.environment,
            searchers=new.policies.searchers,
            mission=new.mission,
            role=new.role,
            run=new.run,
            items=new.items,
            duty=new.duty,
        )
        receipt = await site.intake.open(session_id, created)
    if receipt.duplicate and workspace.disposable:
        shutil.rmtree(workspace.path)
    return Opened(await site.intake.index.find(receipt.session_id), receipt.duplicate)


@contextmanager
def _prepared(site: Site, workspace: Workspace, new: NewSession, tell: Callable[[str], None] | None) -> Iterator[None]:
    """Make the workspace usable for the user of tool calls. A workspace created here is removed on an error."""
    path = Path(workspace.path)

    def announce(user: HandsUser) -> None:
        if tell is not None:
            tell(f"giving {path} and everything in it to {user.name}, the user that tool calls run as (--take-over)")

    if workspace.disposable:
        path.mkdir(mode=0o700)
    try:
        if new.take_over:
            take_over(path, workspace.user, tell=announce)
        if new.needs_hands:
            make_ready(workspace, choose_user(workspace), home=site.home)
        yield
    except BaseException:
        if workspace.disposable:
            shutil.rmtree(path, ignore_errors=True)
        raise


async def continue_session(site: Site, row: SessionRow, state: State, change: Change) -> None:
    """Raise limits of a session and post another goal as a message. Raises `UsageError` for a cap below the spend.

    `state` is the session's, as folded for checking the request.
    """
    created, limits = state.created, state.limits
    assert created is not None
    update = SessionUpdated(
        budget_pico=_changed(change.budget_pico, limits.budget_pico),
        max_turns=_changed(change.max_turns, limits.max_turns),
        context_tokens=_changed(change.context_tokens, limits.context_tokens),
    )
    asked = bool(change.goal.strip()) and change.goal != created.goal
    intake = site.intake
    now_us = intake.clock.now_us()
    if update != SessionUpdated() or asked or not is_idle(state, now_us, uptime(intake.clock, intake.boot_id)):
        cap = None if change.unpriced or limits.unpriced else change.budget_pico
        check_models(site, (created.agent.model, *created.agent.fallbacks), cap)
    if update.budget_pico is not None:
        await intake.check_cap(row, update.budget_pico)
    if update != SessionUpdated():
        await intake.update(row, update)
    if asked:
        await intake.send(row, change.goal)


def _changed(wanted: int | None, current: int | None) -> int | None:
    return wanted if wanted != current else None


async def state_of(site: Site, row: SessionRow) -> State:
    """Return the folded state of a session."""
    state, _ = await recall(row.session_id, site.intake.log, site.snapshots, site.kinds)
    return state


# --- checks ----------------------------------------------------------------------------------------


async def find_by_key(index: Index, key: str) -> SessionRow | None:
    """Return the session with exactly that key or id. A prefix does not count: `job-1` is not `job-10`."""
    try:
        row = await index.find(key) if key else None
    except UnknownSession:
        return None
    return row if row is not None and key in (row.key, row.session_id) else None


def check_key(key: str, option: str) -> None:
    """Raise `UsageError` for an invalid session key. `option` is how the caller passed it, such as `--key `."""
    if not key.strip() or not key.isprintable() or key.startswith("-") or len(key) > KEY_LENGTH:
        raise UsageError(
            f"{option}{key!r} cannot be a key: use 1 to {KEY_LENGTH} printable characters, not starting with '-', "
            f"for example {option}nightly-7"
        )


def top_level(folder: Path) -> Path | None:
    """Return the top folder of the git repository that contains `folder`; None outside a repository.

    Reads names only: neither git nor a setting of the repository takes part.
    """
    here = folder.resolve()
    return next((each for each in (here, *here.parents) if os.path.lexists(each / ".git")), None)


def check_allowed(folder: Path, user_home: Path) -> None:
    """Raise `UsageError` for a folder that contains everything of the user: `/`, the home directory, its parents."""
    path, home = folder.resolve(), user_home.resolve()
    if path == Path(path.anchor) or path in (home, *home.parents):
        what = "your home directory" if path == home else "the root of the file system" if path == Path("/") else ""
        raise UsageError(
            f"an agent does not work in {path}, which {'is ' + what if what else 'contains your home directory'}; "
            "nothing was started. Change to the folder of the project, name it with --workspace, or use a new and "
            "empty folder with --scratch"
        )


def check_account(name: str) -> None:
    """Raise `UsageError` for an invalid name of a shared account."""
    kind, colon, rest = name.partition(":")
    if not (kind and colon and rest) or not name.isprintable() or len(name) > KEY_LENGTH:
        raise UsageError(f"--account {name!r} is not a shared account: use a kind and a name, such as project:web")


def check_models(site: Site, names: Iterable[str], cap_pico: int | None) -> None:
    """Raise an error for an unusable model, and under a money cap for one without a price."""
    for name in dict.fromkeys(names):
        model = site.model(name)
        if cap_pico is None or model.cost_pico(Usage(input_tokens=1)) is not None:
            continue
        example = f'[prices."{name}"] input_per_mtok = 3.0 output_per_mtok = 15.0 in your own holdfast.toml'
        if name.startswith("scripted:"):
            example = '"price": {"input_per_mtok": 3.0, "output_per_mtok": 15.0} in its file'
        raise UsageError(
            f"{name} has no price, so a money budget cannot be kept; leave --budget out, leave the model's cost out of "
            f"the count with --unpriced (in Python: unpriced=True), or give the model a price, for example {example}"
        )


async def check_machine(site: Site, workspace: Workspace, policy: HandsPolicy) -> list[str]:
    """Raise `SandboxUnavailable` now, instead of at the first tool call. Return warnings about weak isolation."""
    capabilities = await site.provider(workspace, policy).probe()
    if not capabilities.usable:
        bad = [finding for finding in capabilities.findings if finding.level in ("bad", "absent") and finding.fix]
        why = "; ".join(f"{finding.message}: {finding.fix}" for finding in bad)
        raise SandboxUnavailable(
            f"this machine cannot isolate tool calls ({why}); nothing was started. `holdfast doctor` says more; "
            "--no-sandbox (in Python: sandbox=False) runs them without isolation, and the log records that"
        )
    warnings = []
    if workspace.isolation == "none":
        warnings.append("WARNING: tools run without a sandbox (--no-sandbox); the log records it")
    weak = [finding for finding in capabilities.findings if finding.name == "landlock"]
    return warnings + [f"WARNING: {finding.message}; the log records it" for finding in weak]
