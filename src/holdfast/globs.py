"""Globs over paths of a repository, as contracts, scopes and protected paths are written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a path, relative to the root with `/` between its parts, fits any of the globs.

    A glob is for the whole path: `*` and `?` stay within a part, `**` stands for any number of parts. One that names
    a folder, with or without `/` at its end, is for everything below it too. Case counts.
    """
    return any(_compiled(glob).fullmatch(path) is not None for glob in globs)


def literal(path: str) -> str:
    """The glob that means just this path."""
    return re.sub(r"([*?\[])", r"[\1]", path)


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    parts = [part for part in glob.removeprefix("./").split("/") if part]
    pattern = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            pattern += ".*" if last else "(?:[^/]+/)*"
        else:
            pattern += _part(part) + ("" if last else "/")
    return re.compile(pattern + "(?:/.*)?", re.DOTALL)


def _part(part: str) -> str:
    out, at = "", 0
    while at < len(part):
        char = part[at]
        end = part.find("]", at + 2) if char == "[" else -1
        if end > 0:
            inside = part[at + 1 : end].replace("\\", "\\\\").replace("/", "")
            out += f"[^/{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
            at = end
        elif char == "*":
            out += "[^/]*"
        else:
            out += "[^/]" if char == "?" else re.escape(char)
        at += 1
    return out
