"""Words of a bash command line: quotes removed, and `UNKNOWN` for what only the shell can know."""

from __future__ import annotations

import re
from abc import abstractmethod

from holdfast.patterns import lazy

UNKNOWN = "\0"
"""Represents text of any length in a word, spaces included."""

_GLOB = "*?["
_BACKQUOTED = lazy(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_BRACES = lazy(r"\{[^ \t\n;]*")
_EXPANSION = lazy(
    r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]|\(\([0-9 +*/%-]*\)\)"
    r"|\{#?[A-Za-z0-9_]+(?:(?::?[-+=?]|%%?|##?)[A-Za-z0-9_./ ,:*-]*|//?[A-Za-z0-9_./-]*)?\})"
)
"""Variables and expansions that run nothing: no `${x@P}`, `${!x}`, or arithmetic with names, which can."""
_OPERATOR = lazy(r"&>>|<<<|<<-|&>|&&|\|\||\|&|;;|>>|>\||>&|<&|<<|<>|[;&|<>()\n]")
BREAKS = frozenset(" \t\n;&|<>()")


class Unparsed(Exception):
    """The line uses syntax that this parser does not know."""


class Words:
    """Reader of words at a position of a line. The parser handles the commands of substitutions."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0

    @abstractmethod
    def _substitute(self, text: str) -> None:
        """Parse the commands of a substitution."""

    @abstractmethod
    def _substitute_from(self, start: int) -> None:
        """Parse the commands of a `$(` from `start` on, and advance past its end."""

    def _word(self) -> str:
        """Read one word and remove its quotes."""
        out: list[str] = []
        start = self.at
        while self.at < len(self.line) and self.line[self.at] not in BREAKS:
            char = self.line[self.at]
            if char == "\\":
                out.append(self.line[self.at + 1 : self.at + 2].replace("\n", ""))
                self.at += 2
            elif char == "'":
                out.append(self._until("'", self.at + 1))
            elif char == '"':
                self.at += 1
                out.append(self._double_quoted('"'))
            elif char in "$`":
                out.append(self._expansion(quoted=False))
            elif char == "[" and self._reserved() == "[" and self.at == start:
                out.append(char)
                self.at += 1
            elif char in _GLOB or (char == "~" and self.at == start) or self._brace():
                out.append(UNKNOWN)
                self.at += 1
            else:
                out.append(char)
                self.at += 1
        if self.at == start or self.at > len(self.line):
            raise Unparsed
        return "".join(out)

    def _brace(self) -> bool:
        """Skip a brace expansion: its result and the rest of its word are unknown."""
        rest = _BRACES.match(self.line, self.at)
        if rest is None or ("," not in rest[0] and ".." not in rest[0]):
            return False
        if any(char in rest[0] for char in "$`'\"\\"):
            raise Unparsed
        self.at = rest.end() - 1
        return True

    def _until(self, quote: str, start: int) -> str:
        end = self.line.find(quote, start)
        if end < 0:
            raise Unparsed
        self.at = end + 1
        return self.line[start:end]

    def _double_quoted(self, end: str) -> str:
        """Read text in double quotes up to `end`, or of a here-document if `end` is empty."""
        out: list[str] = []
        while self.at < len(self.line):
            char = self.line[self.at]
            if char == end:
                self.at += 1
                return "".join(out)
            if char == "\\":
                after = self.line[self.at + 1 : self.at + 2]
                out.append("" if after == "\n" else after if after in '$`"\\' else char + after)
                self.at += 2
            elif char in "$`":
                out.append(self._expansion(quoted=True))
            else:
                out.append(char)
                self.at += 1
        if end:
            raise Unparsed
        return "".join(out)

    def _expansion(self, *, quoted: bool) -> str:
        line, at = self.line, self.at
        after = line[at + 1 : at + 2]
        if line[at] == "`":
            end = _BACKQUOTED.match(line, at)
            if end is None:
                raise Unparsed
            self._substitute(re.sub(r"\\([$`\\])", r"\1", end[0][1:-1]))
            self.at = end.end()
        elif after == "(" and not line.startswith("$((", at):
            self._substitute_from(at + 2)
        elif after in ("'", '"') and not quoted:
            self.at += 1
            text = self._until("'", at + 2) if after == "'" else ""
            return UNKNOWN if "\\" in text else text
        elif match := _EXPANSION.match(line, at):
            self.at = match.end()
        elif after and after in "({[":
            raise Unparsed
        else:
            self.at += 1
            return "$"
        return UNKNOWN

    def _operator(self) -> str:
        match = _OPERATOR.match(self.line, self.at)
        return match[0] if match else ""

    def _reserved(self) -> str:
        """Return the plain word at the position, if it ends at a blank or an operator."""
        end = self.at
        while end < len(self.line) and self.line[end] not in BREAKS:
            end += 1
        return self.line[self.at : end]
