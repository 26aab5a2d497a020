"""Open a session for a caller of the server, with the settings of the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from holdfast.app.compose import Runtime
from holdfast.app.models import settled_model
from holdfast.app.running.opening import check_folder, limits_of, policies_of, workspace_of
from holdfast.app.settings.agent_file import load_agent
from holdfast.app.settings.config import budget_pico, pinned_rules
from holdfast.errors import UsageError
from holdfast.serve.access import Visitor
from holdfast.serve.site import SessionWanted
from holdfast.service.opening import NewSession, check_allowed, check_key, find_by_key, open_session
from holdfast.session.rows import SessionRow
from holdfast.session.tools import with_web


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
    if not wanted.model and not settings.model:
        raise UsageError(
            "this server has no model; nothing was opened. Set one with `holdfast config set model NAME` (`holdfast "
            "doctor` proposes one), and start the server again"
        )
    workspace = workspace_of(settings, _workspace(visitor, wanted.workspace), sandbox=True)
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


def _workspace(visitor: Visitor, text: str) -> str | None:
    """The workspace of a new session, None for a fresh one in the home. Raises `UsageError`."""
    if text:
        return str(folder_of(visitor, text))
    if visitor.credential.project:
        raise UsageError(f"name a workspace in the project of your key, such as {visitor.credential.project}")
    return None


def folder_of(visitor: Visitor, text: str) -> Path:
    """Return a folder that a caller chose. Raises `UsageError` for one that it may not choose."""
    project = visitor.credential.project
    if not Path(text).is_absolute():
        raise UsageError(f"the workspace {text!r} is not an absolute path")
    if not project and not visitor.may("admin"):
        raise UsageError("only an admin, or a key of a project, chooses a workspace; leave it out for a new folder")
    if project and not Path(text).resolve().is_relative_to(project):
        raise UsageError(f"the workspace {text} is not in the project of your key, {project}")
    folder = check_folder(text)
    check_allowed(folder, Path.home())
    return folder
