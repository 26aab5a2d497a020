"""Globs over paths of a repository, for contracts, scopes, and protected files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def matches(path: str, globs: Iterable[str]) -> bool:
    """True if a path, relative to the root and separated by `/`, matches any of the globs.

    A glob matches the whole path: `*` and `?` do not match `/`, `**` matches any number of parts. A glob that matches a
    folder, with or without `/` at its end, matches everything below it too. Case-sensitive.
    """
    return any(_compiled(glob).fullmatch(path) is not None for glob in globs)


def literal(path: str) -> str:
    """Escape a path to the glob that matches only this path."""
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
