"""Provide the HTTP server with what it needs of an opened home."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from holdfast.app.compose import Runtime
from holdfast.app.forking import ground_of
from holdfast.app.models import settled_model
from holdfast.app.running.opening import check_folder, limits_of, policies_of, workspace_of
from holdfast.app.settings.agent_file import load_agent
from holdfast.app.settings.config import budget_pico, pinned_rules
from holdfast.app.settings.targets import read_targets
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.ids import system_entropy
from holdfast.serve.access import Access, Visitor
from holdfast.serve.site import SessionWanted, Site
from holdfast.service.opening import NewSession, check_allowed, check_key, find_by_key, open_session
from holdfast.session.rows import SessionRow
from holdfast.session.tools import with_web


def site_of(runtime: Runtime, access: Access, url: str) -> Site:
    """Return the home as routes need it."""

    async def opening(visitor: Visitor, wanted: SessionWanted) -> SessionRow:
        return await open_wanted(runtime, visitor, wanted)

    return Site(
        store=runtime.store,
        intake=runtime.intake,
        kinds=runtime.kinds,
        clock=SystemClock(),
        entropy=system_entropy,
        home=runtime.home.path,
        access=access,
        url=url,
        opening=opening,
        shelf=runtime.shelf,
        push=tuple(each.name for each in read_targets(runtime.settings.notify) if each.kind == "push"),
        ground=ground_of(runtime),
        secret=runtime.secret,
    )


async def open_wanted(runtime: Runtime, visitor: Visitor, wanted: SessionWanted) -> SessionRow:
    """Open a session for a caller of the server, with the settings of the server; a known key returns its session.

    Raises `UsageError` for what the caller may not choose, and the errors of `open_session`.
    """
    settings = runtime.settings
    if wanted.key:
        check_key(wanted.key, "key ")
        existing = await find_by_key(runtime.store, wanted.key)
        if existing is not None:
            return existing
    if wanted.model and not visitor.may("admin"):  # a name may hold an address, which would receive the provider's key
        raise UsageError("only an admin chooses the model; leave it out, and the default of the server is used")
    workspace = workspace_of(settings, _folder(visitor, wanted.workspace), sandbox=True)
    policies = policies_of(settings, (), False)
    people = msgspec.structs.replace(policies.people, owner=visitor.credential.name)
    policies = msgspec.structs.replace(policies, people=people)
    agent = load_agent("", settled_model(wanted.model or settings.model))
    limits = limits_of(settings, unpriced=False)
    if wanted.budget_usd is not None:
        limits = msgspec.structs.replace(limits, budget_pico=budget_pico(f"{wanted.budget_usd:.12f}"))
    if wanted.max_turns is not None:
        limits = msgspec.structs.replace(limits, max_turns=wanted.max_turns)
    new = NewSession(
        goal=wanted.goal,
        agent=with_web(agent, policies.egress, policies.searchers),
        workspace=workspace,
        limits=limits,
        policies=policies,
        key=wanted.key,
    )
    site = replace(runtime.site, intake=runtime.intake.acting_as(visitor.caller))
    return (await open_session(site, new, rules=pinned_rules)).row


def _folder(visitor: Visitor, text: str) -> str | None:
    """The workspace of a new session, None for a fresh one in the home. Raises `UsageError`."""
    project = visitor.credential.project
    if not text:
        if project:
            raise UsageError(f"name a workspace in the project of your key, such as {project}")
        return None
    if not Path(text).is_absolute():
        raise UsageError(f"the workspace {text!r} is not an absolute path")
    if not project and not visitor.may("admin"):
        raise UsageError("only an admin, or a key of a project, chooses a workspace; leave it out for a new folder")
    if project and not Path(text).resolve().is_relative_to(project):
        raise UsageError(f"the workspace {text} is not in the project of your key, {project}")
    folder = check_folder(text)
    check_allowed(folder, Path.home())
    return str(folder)
