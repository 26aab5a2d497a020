"""A web page as readable text: Markdown with its links, without scripts, styles, and hidden elements."""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

LINK_MAX = 500
"""Maximum characters of a link that is kept."""

_DROPPED = frozenset("script style noscript template svg math iframe object canvas video audio select head".split())
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_BLOCKS = frozenset(
    "p div section article header footer main nav aside form fieldset figure figcaption address details summary dl dt "
    "dd table thead tbody tfoot tr ul ol blockquote pre h1 h2 h3 h4 h5 h6 hr title caption".split()
)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d])")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DECLARED = re.compile(r"<[!?][^<>]*>")
"""Removed first: an unclosed one makes the parser's time grow with the square of the page's size."""
_NESTING_MAX = 2_000
_INDENT_MAX = 8


def decoded(data: bytes, charset: str) -> str:
    """Decode a body: by its byte order mark, the server's charset, the page's own charset, or UTF-8."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(name, "replace")
    said = _CHARSET.search(data[:4096])
    for name in (charset, said.group(1).decode() if said else "", "utf-8"):
        try:
            if name and codecs.lookup(name).name not in ("utf-7", "idna", "punycode", "undefined"):
                return data.decode(name, "replace")
        except (LookupError, ValueError):
            continue
    return data.decode("utf-8", "replace")


def readable(page: str, url: str) -> tuple[str, str]:
    """Return the title of a page and its text."""
    reader = _Reader(url)
    reader.feed(_DECLARED.sub("", _COMMENT.sub("", page)).replace("<!", "&lt;!").replace("<?", "&lt;?"))
    reader.close()
    return " ".join(reader.title.split()), reader.text()


def plain(fragment: str) -> str:
    """Return a piece of HTML on one line, without its tags."""
    return " ".join(re.sub(r"[#*`>|\[\]]", "", readable(fragment, "")[1]).split())


class _Reader(HTMLParser):
    """Reads a page, tag by tag."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base = url
        self._out: list[str] = []
        self._open: list[tuple[str, bool]] = []
        self._silent = 0
        self._in_title = False
        self._pre = 0
        self._lists: list[int | None] = []
        self._links: list[tuple[str, int]] = []

    def text(self) -> str:
        """Return the text so far."""
        while self._links:
            self._link_ends()
        lines = [line.rstrip() for line in "".join(self._out).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")

    # --- tags ---------------------------------------------------------------------------------------

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        given = {name: value or "" for name, value in attrs}
        if tag == "title" and not self.title:
            self._in_title = True
        if tag == "base" and given.get("href"):
            self._base = self._absolute(given["href"]) or self._base
        if tag not in _VOID:
            silent = tag in _DROPPED or _is_hidden(given)
            if len(self._open) < _NESTING_MAX:
                self._open.append((tag, silent))
                self._silent += silent
        if not self._silent:
            self._begin(tag, given)

    def handle_endtag(self, tag: str) -> None:
        """End an element, and any element left open in it."""
        if tag == "title":
            self._in_title = False
        if not any(name == tag for name, _ in self._open):
            return
        while self._open:
            name, silent = self._open.pop()
            if not self._silent:
                self._finish(name)
            self._silent -= silent
            if name == tag:
                return

    def handle_data(self, data: str) -> None:
        """Handle text."""
        if self._in_title:
            self.title = (self.title + data)[:500]
        if self._silent or self._in_title:
            return
        if self._pre:
            self._out.append(data)
            return
        words = re.sub(r"\s+", " ", data)
        if words == " " and (not self._out or self._out[-1].endswith(("\n", " "))):
            return
        self._out.append(words.lstrip() if not self._out or self._out[-1].endswith("\n") else words)

    # --- their output -------------------------------------------------------------------------------

    def _begin(self, tag: str, given: dict[str, str]) -> None:
        if tag in _BLOCKS:
            self._break()
        if tag in ("ul", "ol"):
            self._lists.append(1 if tag == "ol" else None)
        elif tag == "a":
            if self._links:
                self._link_ends()  # links do not nest
            self._links.append((self._absolute(given.get("href", "")), len(self._out)))
        elif tag == "pre":
            self._pre += 1
            self._out.append("```\n")
        elif tag == "img" and given.get("alt", "").strip():
            self._out.append(f"[image: {' '.join(given['alt'].split())[:200]}]")
        elif tag in _MARKS_BEGIN:
            self._out.append(_MARKS_BEGIN[tag])
        elif tag == "li":
            self._item()

    def _item(self) -> None:
        if not (self._out and self._out[-1].endswith("\n")):
            self._out.append("\n")
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        mark = "- " if number is None else f"{number}. "
        self._out.append("  " * min(_INDENT_MAX, max(0, len(self._lists) - 1)) + mark)

    def _finish(self, tag: str) -> None:
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif tag == "a" and self._links:
            self._link_ends()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._out.append("" if self._out[-1].endswith("\n") else "\n")
            self._out.append("```")
        elif tag in _MARKS_END:
            self._out.append(_MARKS_END[tag])
        if tag in _BLOCKS:
            self._break()

    def _link_ends(self) -> None:
        link, at = self._links.pop()
        inner = "".join(self._out[at:])
        if link and inner.strip() and "\n" not in inner.strip():
            head = inner[: len(inner) - len(inner.lstrip())]
            self._out[at:] = [f"{head}[{inner.strip()}]({link})"]
        elif link and inner.strip():
            self._out.append(f" ({link})")

    def _break(self) -> None:
        if self._out and not self._pre:
            last = self._out[-1]
            if last.lstrip(" ") in ("- ",) or re.fullmatch(r" *\d+\. ", last):
                return  # the first block of a list item follows its marker
            self._out.append("\n" if self._lists else "\n\n")

    def _absolute(self, link: str) -> str:
        """Return a link as an absolute address; empty if it leads nowhere."""
        try:
            full = urljoin(self._base, link.strip())
        except ValueError:
            return ""
        known = full.startswith(("http://", "https://", "mailto:"))
        return "".join(full.split()) if link and not link.startswith("#") and known and len(full) <= LINK_MAX else ""


_MARKS_BEGIN = {
    **{f"h{level}": "#" * level + " " for level in range(1, 7)},
    "br": "\n",
    "hr": "---",
    "td": "| ",
    "th": "| ",
    "blockquote": "> ",
    "code": "`",
    "strong": "**",
    "b": "**",
}
_MARKS_END = {"td": " ", "th": " ", "tr": "|", "code": "`", "strong": "**", "b": "**"}


def _is_hidden(given: dict[str, str]) -> bool:
    """Return True if an element is invisible: hidden text may be aimed at models."""
    return (
        "hidden" in given or given.get("aria-hidden") == "true" or bool(_HIDDEN.search(given.get("style", "").lower()))
    )
