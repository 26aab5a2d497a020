"""Parser for bash command lines: the simple commands of a line, without running or guessing anything.

A part of a word that only the shell can know (a variable, a glob, the output of a command) becomes `UNKNOWN`, which
stands for any text. A line that uses syntax outside this subset (functions, `case`, arrays, `[[`) is not parsed at all.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from holdfast.patterns import lazy
from holdfast.session.tools.shell_words import BREAKS, UNKNOWN, Unparsed, Words

DEPTH_MAX = 16
LENGTH_MAX = 100_000

_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = lazy(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_REDIRECTS = frozenset(("<", ">", ">>", ">|", ">&", "<&", "<>", "<<", "<<-", "<<<", "&>", "&>>"))
_RESERVED = frozenset(
    "if then elif else fi while until do done for case esac select function [[ ]] } in coproc".split()
)
_OPENING = frozenset("if then elif else while until do {".split())


class Redirect(NamedTuple):
    """A redirection to or from a file. `op` is the operator without its descriptor."""

    op: str
    target: str


class Simple(NamedTuple):
    """One simple command. `cwd` is relative to where the line starts, None if unknown.

    `assigns` are the variables set for it, `text` is its here-document or here-string, `source` its original text.
    """

    words: tuple[str, ...]
    assigns: tuple[tuple[str, str], ...]
    redirects: tuple[Redirect, ...]
    cwd: str | None
    text: str | None
    source: str


def parse(line: str, cwd: str | None = "", depth: int = 0) -> list[Simple]:
    """Return every simple command of a line, in order, those of substitutions first. Raises `Unparsed`."""
    if UNKNOWN in line or len(line) > LENGTH_MAX:
        raise Unparsed
    parser = _Parser(line, cwd, depth)
    parser.list_until(frozenset())
    if parser.at < len(line):
        raise Unparsed
    return parser.finish()


class _Parser(Words):
    def __init__(self, line: str, cwd: str | None, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise Unparsed
        super().__init__(line)
        self.cwd = cwd
        self.depth = depth
        self.found: list[Simple] = []
        self._documents: list[tuple[str, bool, bool, list[str]]] = []
        self._texts: list[tuple[int, list[str]]] = []

    def list_until(self, ends: frozenset[str]) -> None:
        """Parse lists of pipelines up to one of the reserved words `ends`, a `)`, or the end of the line."""
        while True:
            self._blank(newlines=True)
            if self.at == len(self.line) or self.line[self.at] == ")" or self._reserved() in ends:
                return
            if self._reserved() in _RESERVED and self._reserved() not in ("if", "while", "until", "for"):
                raise Unparsed
            self._and_or()
            self._blank()
            operator = self._operator()
            if operator in (";", "&"):
                self.at += 1
            elif operator not in ("\n", ")", "") or (not operator and self.at < len(self.line)):
                raise Unparsed

    def _and_or(self) -> None:
        """Parse pipelines joined by `&&` and `||`. A `cd` applies only to commands joined to it by `&&`."""
        began = self.cwd
        while True:
            self._pipeline()
            self._blank()
            operator = self._operator()
            if operator not in ("&&", "||"):
                break
            self.at += 2
            if operator == "||" and self.cwd != began:
                self.cwd = None
            self._blank(newlines=True)
        if self.cwd != began:
            self.cwd = None  # it may have failed, or run in the background

    def _pipeline(self) -> None:
        began, count = self.cwd, 0
        while True:
            self._blank()
            while self._reserved() == "!" and not count:
                self.at += 1
                self._blank()
            self._command()
            self._blank()
            if self._operator() not in ("|", "|&"):
                break
            self.at += len(self._operator())
            count += 1
            self._blank(newlines=True)
            self.cwd = began
        if count:
            self.cwd = began

    def _command(self) -> None:
        word = self._reserved()
        if word in ("if", "while", "until", "for", "{"):
            self._compound(word)
        elif self._operator() == "(":
            if self.line.startswith("((", self.at):
                raise Unparsed
            began = self.cwd
            self.at += 1
            self.list_until(frozenset())
            self._expect(")")
            self.cwd = began
            self._trailing_redirects()
        elif word in _RESERVED:
            raise Unparsed
        else:
            self._simple()

    def _compound(self, word: str) -> None:
        """Parse a group, condition, or loop. If it changes the directory, `cwd` is unknown for all of its commands."""
        began, first = self.cwd, len(self.found)
        self._keyword(word)
        if word == "{":
            self.list_until(frozenset("}"))
            self._keyword("}")
        elif word == "if":
            self.list_until(frozenset(("then",)))
            self._keyword("then")
            self.list_until(frozenset(("elif", "else", "fi")))
            while (branch := self._reserved()) != "fi":
                if branch not in ("elif", "else"):
                    raise Unparsed
                self._keyword(branch)
                if branch == "elif":
                    self.list_until(frozenset(("then",)))
                    self._keyword("then")
                self.list_until(frozenset(("elif", "else", "fi")))
            self._keyword("fi")
        else:
            if word == "for":
                self._for_words()
            else:
                self.list_until(frozenset(("do",)))
            self._blank(newlines=True)
            self._keyword("do")
            self.list_until(frozenset(("done",)))
            self._keyword("done")
        if self.cwd != began:
            self.cwd = None
        if any(command.cwd != began for command in self.found[first:]):
            self.found[first:] = [command._replace(cwd=None) for command in self.found[first:]]
        self._trailing_redirects()

    def _for_words(self) -> None:
        self._blank()
        name = _NAME.match(self.line, self.at)
        if name is None:
            raise Unparsed
        self.at = name.end()
        self._blank(newlines=True)
        if self._reserved() == "in":
            self._keyword("in")
            self._blank()
            while self._operator() not in (";", "\n"):
                self._word()
                self._blank()
        if self._operator() == ";":
            self.at += 1
        self._note(((), ((name[0], UNKNOWN),), ()), name.start())

    def _trailing_redirects(self) -> None:
        start, redirects = self.at, []
        while self._blank() or self._redirect_here():
            redirects.append(self._redirect([]))
        if redirects:
            self._note(((), (), tuple(each for each in redirects if each)), start)

    def _simple(self) -> None:
        start = self.at
        words: list[str] = []
        assigns: list[tuple[str, str]] = []
        redirects: list[Redirect] = []
        text: list[str] = []
        while True:
            self._blank()
            if self._redirect_here():
                redirect = self._redirect(text)
                redirects += [redirect] if redirect else []
                continue
            operator = self._operator()
            if self.at == len(self.line) or (operator and operator not in _REDIRECTS):
                if operator == "(":
                    raise Unparsed  # a function, or an array
                break
            assignment = None if words else _ASSIGNMENT.match(self.line, self.at)
            if assignment:
                self.at = assignment.end()
                value = "" if self.at == len(self.line) or self.line[self.at] in BREAKS else self._word()
                if self.line.startswith("(", self.at):
                    raise Unparsed
                assigns.append((assignment[1], value))
            else:
                words.append(self._word())
        if not words and not assigns and not redirects:
            raise Unparsed
        self._note((tuple(words), tuple(assigns), tuple(redirects)), start, text)
        if words and words[0] in ("cd", "pushd", "popd"):
            self._change_directory(words)

    def _note(
        self,
        parts: tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[Redirect, ...]],
        start: int,
        text: list[str] | None = None,
    ) -> None:
        if text:
            self._texts.append((len(self.found), text))
        self.found.append(Simple(*parts, self.cwd, None, self.line[start : self.at].strip()))

    def _substitute(self, text: str) -> None:
        self.found += parse(text, self.cwd, self.depth + 1)

    def _substitute_from(self, start: int) -> None:
        inner = _Parser(self.line, self.cwd, self.depth + 1)
        inner.at = start
        inner.list_until(frozenset())
        inner._expect(")")
        if self._documents and "\n" in self.line[start : inner.at]:
            raise Unparsed  # a here-document may begin inside
        self.found += inner.finish()
        self.at = inner.at

    def finish(self) -> list[Simple]:
        """Return the commands with their here-documents, which were read after them."""
        for index, text in self._texts:
            self.found[index] = self.found[index]._replace(text=text[-1])
        self._texts = []
        return self.found

    def _change_directory(self, words: list[str]) -> None:
        known = len(words) == 2 and words[0] == "cd" and UNKNOWN not in words[1] and words[1][:1] not in ("-", "")
        if not known or (self.cwd is None and not words[1].startswith("/")):
            self.cwd = None
        else:
            path = posixpath.normpath(posixpath.join(self.cwd or "", words[1]))
            self.cwd = "" if path == "." else path

    # --- redirections ------------------------------------------------------------------------------

    def _redirect_here(self) -> bool:
        return lazy(r"(?:[0-9]+(?=[<>]))?(?:[<>](?!\()|&>)").match(self.line, self.at) is not None

    def _redirect(self, text: list[str]) -> Redirect | None:
        while self.line[self.at].isdigit():
            self.at += 1
        op = self._operator()
        self.at += len(op)
        self._blank()
        if op in ("<<", "<<-"):
            start = self.at
            delimiter = self._word()
            quoted = self.line[start : self.at] != delimiter
            if UNKNOWN in delimiter:
                raise Unparsed
            self._documents.append((delimiter, quoted, op == "<<-", text))
            text.append("")
            return None
        target = self._word()
        if op == "<<<":
            text.append(target + "\n")
            return None
        if op in (">&", "<&") and re.fullmatch(r"[0-9]*-?", target):
            return None
        return Redirect(op, target)

    def _read_documents(self) -> None:
        """Read the bodies of here-documents, at the newline after the line that named them."""
        waiting, self._documents = self._documents, []
        for delimiter, quoted, tabs, text in waiting:
            lines = []
            while True:
                if self.at >= len(self.line):
                    break  # bash treats the end of the input as the end of the document
                end = self.line.find("\n", self.at)
                end = len(self.line) if end < 0 else end
                row = self.line[self.at : end]
                self.at = min(end + 1, len(self.line))
                row = row.lstrip("\t") if tabs else row
                if row == delimiter:
                    break
                lines.append(row + "\n")
            body = "".join(lines)
            if not quoted:
                inner = _Parser(body, self.cwd, self.depth + 1)
                body = inner._double_quoted("")
                self.found += inner.found
            text[-1] = body

    # --- tokens -------------------------------------------------------------------------------------

    def _blank(self, *, newlines: bool = False) -> bool:
        """Skip blanks, comments and, if requested, newlines. Always False, for use in a condition."""
        while self.at < len(self.line):
            char = self.line[self.at]
            if char in " \t":
                self.at += 1
            elif self.line.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#" and (not self.at or self.line[self.at - 1] in BREAKS):
                end = self.line.find("\n", self.at)
                self.at = len(self.line) if end < 0 else end
            elif char == "\n" and newlines:
                self.at += 1
                self._read_documents()
            else:
                break
        return False

    def _keyword(self, word: str) -> None:
        if self._reserved() != word:
            raise Unparsed
        self.at += len(word)
        if word in _OPENING:
            self._blank(newlines=True)

    def _expect(self, text: str) -> None:
        if not self.line.startswith(text, self.at):
            raise Unparsed
        self.at += len(text)
