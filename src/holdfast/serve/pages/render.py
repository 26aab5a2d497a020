"""Templates: every value is escaped, a missing one is an error, and hidden characters are written out."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.session.context.text import visible

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["text"] = visible


def render(request: Request, name: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page. Templates also have `visitor`, the caller of the request or None, and `path`."""
    visitor = getattr(request.state, "visitor", None)
    page = _TEMPLATES.get_template(name).render(values, visitor=visitor, path=request.url.path, status=status)
    return HTMLResponse(page, status)
