"""The browsers that receive notices: a page to subscribe this one, and the files that the browser itself asks for."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.notify.web_push import Device, Devices, public_key
from holdfast.serve.gate import form_of, require, visitor_of
from holdfast.serve.pages.frame import frame
from holdfast.serve.pages.reads import viewer_of
from holdfast.serve.pages.render import render
from holdfast.serve.site import Site

STATIC = Path(__file__).parent / "static"

LABEL_MAX = 120


class _Pages:
    """The routes of one home."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.devices = Devices(site.home)

    async def show(self, request: Request) -> Response:
        """List the caller's browsers; an admin sees those of all users."""
        visitor = visitor_of(request)
        mine = "" if visitor.may("admin") else visitor.credential.name
        made = await frame(self.site.store, viewer_of(visitor), "Inbox", self.site.clock.now_us())
        key = public_key(self.devices.key()) if self.site.push else ""
        found = self.devices.all(mine)
        return render(request, "devices.html", frame=made, devices=found, key=key, targets=self.site.push)

    async def add(self, request: Request) -> Response:
        """Keep the browser of this request."""
        name, form = require(request, "viewer").credential.name, await form_of(request)
        endpoint, p256dh, auth = (form.get(field, "") for field in ("endpoint", "p256dh", "auth"))
        label = form.get("label", "")[:LABEL_MAX]
        self.devices.add(Device(endpoint, p256dh, auth, name, label, self.site.clock.now_us()))
        return RedirectResponse("/devices", 303)

    async def remove(self, request: Request) -> Response:
        """Forget a browser: one's own, or as an admin any."""
        visitor, form = visitor_of(request), await form_of(request)
        mine = "" if visitor.may("admin") else visitor.credential.name
        for each in self.devices.all(mine):
            if each.device_id == form.get("device"):
                self.devices.remove(each.device_id)
        return RedirectResponse("/devices", 303)


async def worker_script(request: Request) -> Response:
    """The script that shows a notice while no page is open. Its address gives it all pages of this server."""
    return FileResponse(STATIC / "worker.js", media_type="text/javascript")


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes of the browsers that receive notices."""
    pages = _Pages(site)
    return [
        Route("/devices", pages.show, methods=["GET"]),
        Route("/devices", pages.add, methods=["POST"]),
        Route("/devices/remove", pages.remove, methods=["POST"]),
        Route("/worker.js", worker_script, methods=["GET"]),
    ]
