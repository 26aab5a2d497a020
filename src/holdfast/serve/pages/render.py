"""Templates of the pages: every value is escaped, and hidden characters of every text are written out."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.clock import local_time, rfc3339
from holdfast.service.event_lines import counted
from holdfast.service.inbox import span
from holdfast.session.context.text import visible, visible_line
from holdfast.session.money import usd

SHORT = 160
"""Maximum length of a text in a row; the page of its event has all of it."""


def text(value: object) -> object:
    """Write out the hidden characters of a text. Each expression of a template passes through this filter.

    Output of macros was filtered already, and is recognized by `__html__`, which no text of an event has.
    """
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def line(value: str, width: int = SHORT) -> str:
    """Return a text on one line, at most `width` characters of it."""
    flat = visible_line(" ".join(value[: 4 * width].split()))
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=PackageLoader("holdfast.serve.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "text": text,
        "line": line,
        "format_int": "{:,}".format,
        "span": span,
        "usd": usd,
        "iso": rfc3339,
        "exact": local_time,
        "clock": lambda at_us: local_time(at_us, "%H:%M:%S"),
    }
    made.globals |= {"counted": counted}
    return made


def html(template: str, **values: object) -> str:
    """Render a template to HTML."""
    return environment().get_template(template).render(values)


def render(request: Request, name: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page. Templates also have `visitor`, the caller of the request or None."""
    visitor = getattr(request.state, "visitor", None)
    return HTMLResponse(html(name, **values, visitor=visitor, status=status), status)
