"""The page that starts a session or a mission. A form that is refused comes back with its fields and the reason."""

from __future__ import annotations

import math
from pathlib import PurePath

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import HoldfastError, UsageError
from holdfast.kinds import MISSION
from holdfast.kinds.mission.contract.contents import slug
from holdfast.serve.access import Visitor
from holdfast.serve.gate import explain, form_of, visitor_of
from holdfast.serve.pages.frame import frame
from holdfast.serve.pages.reads import viewer_of
from holdfast.serve.pages.render import render
from holdfast.serve.site import MissionWanted, SessionWanted, Site
from holdfast.session.rows import SessionRow

BUDGET_MAX = 1e9


class Fields(msgspec.Struct, frozen=True):
    """The form. `once` makes the key of what is opened, so that sending the form again opens nothing more."""

    what: str = "session"
    once: str = ""
    goal: str = ""
    workspace: str = ""
    repo: str = ""
    contract: str = ""
    budget: str = ""
    name: str = ""

    def key(self) -> str:
        """The key of the session or mission."""
        words = self.goal if self.what == "session" else PurePath(self.repo).name
        return self.name.strip() or f"{slug(words)}-{self.once[:8]}"

    def names(self, row: SessionRow) -> bool:
        """True if the session of this key can be the one that this form opened."""
        return row.name == MISSION if self.what == "mission" else " ".join(self.goal.split()).startswith(row.goal)

    def budget_usd(self) -> float | None:
        """The budget, None for the server's default. Raises `UsageError`."""
        if not self.budget.strip():
            return None
        try:
            usd = float(self.budget)
        except ValueError:
            usd = math.nan
        if not 0 < usd <= BUDGET_MAX:
            raise UsageError(f"{self.budget[:30]!r} is no amount of dollars, such as 2.50; nothing was started")
        return usd


class _Pages:
    """The routes of one home."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def show(self, request: Request) -> Response:
        """The empty form."""
        return await self._form(request, Fields(once=self.site.entropy(4).hex()))

    async def start(self, request: Request) -> Response:
        """Open a session or a mission, and go to its page."""
        visitor, sent = visitor_of(request), await form_of(request)
        form = Fields(**{name: sent.get(name, "") for name in Fields.__struct_fields__})
        try:
            row = await self._open(visitor, form)
            if not await self.site.sees(visitor, row) or not form.names(row):
                raise UsageError(f"the name {form.key()!r} is in use; nothing was started. Choose another one")
        except HoldfastError as error:
            status, _, message = explain(error)
            return await self._form(request, form, message, status)
        # The fragment replaces that of the form.
        place = "missions/{}#main" if form.what == "mission" else "sessions/{}"
        return RedirectResponse("/" + place.format(row.session_id), 303)

    async def _open(self, visitor: Visitor, form: Fields) -> SessionRow:
        if form.what == "mission":
            mission = MissionWanted(
                repo=form.repo.strip(),
                contract=form.contract.strip(),
                key=form.key(),
                budget_usd=form.budget_usd(),
            )
            return await self.site.opening_mission(visitor, mission)
        if not form.goal.strip():
            raise UsageError("the session has no goal; nothing was started. Say what it should do")
        wanted = SessionWanted(
            goal=form.goal.replace("\r\n", "\n").strip(),
            workspace=form.workspace.strip(),
            key=form.key(),
            budget_usd=form.budget_usd(),
        )
        return await self.site.opening(visitor, wanted)

    async def _form(self, request: Request, form: Fields, message: str = "", status: int = 200) -> Response:
        visitor = visitor_of(request)
        project = str(visitor.credential.project or "")
        made = await frame(self.site.store, viewer_of(visitor), "", self.site.clock.now_us())
        return render(
            request,
            "start.html",
            status=status,
            frame=made,
            form=form,
            message=message,
            project=project,
            chooses=visitor.may("admin") or bool(project),
        )


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes of the page."""
    pages = _Pages(site)
    return [Route("/start", pages.show, methods=["GET"]), Route("/start", pages.start, methods=["POST"])]
