"""Routes of forms: answers to items, messages and commands to sessions, the emergency stop. Each ends at a page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import UsageError
from holdfast.facts.shift import BriefRead
from holdfast.serve.forking import fork_at
from holdfast.serve.gate import form_of, require, visitor_of
from holdfast.serve.site import Site
from holdfast.service import missions
from holdfast.service.answers import Answer, asked
from holdfast.session.home import HOME

COMMANDS = ("message", "interrupt", "pause", "resume", "fork")


class Acts:
    """The forms of one home."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def answer(self, request: Request) -> Response:
        """Answer an item. The form carries the digest of the action that it showed."""
        visitor, form = visitor_of(request), await form_of(request)
        item, _ = await self.site.find_item(visitor, request.path_params["item"])
        intake = self.site.acting_as(visitor)
        note = form.get("words", "")
        wanted = await asked(self.site.store, item)
        if wanted.action_digest and not form.get("digest"):
            raise UsageError(f"the form does not say which action it showed; nothing was changed. Open {item.item_id}")
        if form.get("option"):
            number = _number(form["option"], len(wanted.options), "answer")
            note = wanted.options[number - 1]
        grant = None
        if form.get("uses") or form.get("for_s"):
            grant = await intake.grant_for(
                item,
                for_s=float(_number(form["for_s"], 7 * 86_400, "time")) if form.get("for_s") else None,
                uses=_number(form["uses"], 1_000, "number of uses") if form.get("uses") else None,
            )
        verdict = form.get("verdict", "")
        if verdict not in ("approve", "deny"):
            raise UsageError("the form has no verdict; nothing was changed. Choose approve or deny")
        given = Answer(verdict=verdict, note=note, digest=form.get("digest", ""), grant=grant)  # type: ignore[arg-type]
        await intake.answer(item, given)
        return RedirectResponse(f"/?done={item.item_id}", 303)

    async def command(self, request: Request) -> Response:
        """Send a message or a command to a session."""
        visitor, form = visitor_of(request), await form_of(request)
        row = await self.site.find(visitor, request.path_params["session"])
        intake = self.site.acting_as(visitor)
        match request.path_params["command"]:
            case "message":
                await intake.send(row, form.get("text", ""))
            case "interrupt":
                await intake.interrupt(row)
            case "pause":
                await missions.pause_any(intake, row)
            case "resume":
                await missions.resume_any(intake, row)
            case "fork":
                at = _number(form.get("at", ""), row.head, "event")
                done = await fork_at(self.site, visitor, row, at, form.get("key", ""))
                return RedirectResponse(f"/sessions/{done.row.session_id}", 303)
            case other:
                raise UsageError(f"there is no command {other[:30]!r}; nothing was changed. Use {', '.join(COMMANDS)}")
        return RedirectResponse(f"/sessions/{row.session_id}#end", 303)

    async def steer(self, request: Request) -> Response:
        """Pause or resume a mission, or ask for a new plan."""
        visitor, form = visitor_of(request), await form_of(request)
        row = await self.site.find(visitor, request.path_params["session"])
        intake = self.site.acting_as(visitor)
        match request.path_params["command"]:
            case "pause":
                await missions.pause(intake, row, "")
            case "resume":
                await missions.resume_any(intake, row)
            case "replan":
                await missions.replan(intake, row, form.get("reason", ""))
            case other:
                raise UsageError(f"there is no command {other[:30]!r}; nothing was changed. Use pause, resume, replan")
        return RedirectResponse(f"/missions/{row.session_id}", 303)

    async def read(self, request: Request) -> Response:
        """Note that the caller has read the brief up to the time at which it was made."""
        form = await form_of(request)
        through_us = _number(form.get("through", ""), self.site.clock.now_us(), "time")
        await self.site.acting_as(visitor_of(request)).post(HOME, BriefRead(through_us=through_us))
        return RedirectResponse("/brief", 303)

    async def stop(self, request: Request) -> Response:
        """Stop everything, or lift the stop."""
        intake = self.site.acting_as(require(request, "admin"))
        form = await form_of(request)
        if form.get("what") == "stop":
            await intake.stop_all(form.get("reason", ""))
        elif form.get("what") == "release":
            await intake.release(form.get("reason", ""))
        else:
            raise UsageError("the form does not say what to do; nothing was changed. Open /stop again")
        return RedirectResponse("/fleet", 303)


def _number(text: str, most: int, what: str) -> int:
    """Return a number of a form. Raises `UsageError`."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or not 1 <= int(text) <= most:
        raise UsageError(f"{text[:30]!r} is no {what} from 1 to {most}; nothing was changed")
    return int(text)


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes of forms."""
    acts = Acts(site)
    return [
        Route("/inbox/{item}", acts.answer, methods=["POST"]),
        Route("/sessions/{session}/{command}", acts.command, methods=["POST"]),
        Route("/missions/{session}/{command}", acts.steer, methods=["POST"]),
        Route("/brief/read", acts.read, methods=["POST"]),
        Route("/stop", acts.stop, methods=["POST"]),
    ]
