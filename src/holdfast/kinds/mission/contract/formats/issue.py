"""Issues of GitHub and GitLab: what their API answers, or the text of one."""

from __future__ import annotations

from holdfast.facts.contract import Contract
from holdfast.kinds.mission.contract.formats.entry import Reading
from holdfast.kinds.mission.contract.formats.markdown import read_document
from holdfast.kinds.mission.contract.formats.positions import Node, Source, decode, parse

_RIGHT_ISSUE = 'a right form is {"title": "Greets nobody", "body": "…"}, as the API of GitHub or GitLab answers'


def is_issue(node: Node) -> bool:
    """Whether an object of JSON is an issue: it has a title and a body, or a title and a number."""
    return "title" in node.members and not node.members.keys().isdisjoint({"body", "description", "number", "iid"})


def read_issue(source: Source, node: Node) -> Contract:
    """The contract of an issue. What it ticks or accepts are its items; otherwise it is one item."""
    title, body = issue_words(source, node)
    return read_document(Source(source.name, body), title)


def issue_words(source: Source, node: Node) -> tuple[str, str]:
    """The title and the text of an issue. Raises `ContractInvalid`."""
    reading = Reading(source)
    title = reading.words(node.members["title"], "title", _RIGHT_ISSUE)
    if not title:
        source.refuse(node.members["title"].start, "the title is empty", _RIGHT_ISSUE)
    body = ""
    for key in ("body", "description"):
        found = node.members.get(key)
        if found is not None and found.value is not None:
            body = body or reading.words(found, key, _RIGHT_ISSUE)
    return title, body


def issue_text(data: bytes, name: str) -> str:
    """An issue as words: of an answer of the API its title and text, of anything else all of it."""
    source = decode(data, name)
    if not source.text.lstrip("\ufeff \t\r\n").startswith("{"):
        return source.text.strip("\ufeff \t\r\n")
    node = parse(source)
    if not is_issue(node):
        source.refuse(node.start, "this is no issue", _RIGHT_ISSUE)
    return "\n\n".join(filter(None, issue_words(source, node)))


def read_issue_text(source: Source) -> Contract:
    """The contract of an issue's text: its first line is the title."""
    text = source.text.lstrip("\ufeff \t\r\n")
    first, _, rest = text.partition("\n")
    title = first.lstrip("# ").strip()
    if not title or "\0" in text:
        source.refuse(0, "the first line has to be the title of the issue", 'a right form is "Greet nobody politely"')
    return read_document(Source(source.name, rest), title)
