"""Base class of all facts, and shapes that several families share."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec


class Fact(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag_field="type",
):
    """Payload of an event: frozen, named in the past tense, without any rendering.

    The tag is the event type. Position, time, epoch, id, and actor belong to the stamped event, not to the fact (S1).
    Fields are only ever added, each with an empty default (None, "", 0, False, () or {}), and every addition raises
    `codec.SCHEMA` by one. A default that is not empty is policy and may change, so a struct that has one is stored in
    full (`omit_defaults=False`).

    `wakes`: posting this fact makes the session due at once. `reopens`: this holds even for a session that is done or
    has failed.
    """

    wakes: ClassVar[bool] = False
    reopens: ClassVar[bool] = False


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag="text", tag_field="type"):
    """A block of text inside a message."""

    text: str


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag="image", tag_field="type"):
    """An image inside a message: its media type (`image/png`) and its bytes."""

    media_type: str
    data: bytes


class Document(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
    tag="document",
    tag_field="type",
):
    """A file inside a message: its media type (`application/pdf`, `text/plain`), its bytes, its name."""

    media_type: str
    data: bytes
    name: str = ""


Block = Text | Image | Document
Content = tuple[Block, ...]
"""The content of a message, in order."""


def text_of(content: Content) -> str:
    """Join the text of a message; images and documents appear as placeholders in brackets."""
    return "\n".join(block.text if isinstance(block, Text) else named(block) for block in content)


def named(block: Image | Document) -> str:
    """Return the placeholder for an image or a document in plain text."""
    name = f" {block.name}" if isinstance(block, Document) and block.name else ""
    kind = "image" if isinstance(block, Image) else "document"
    return f"[{kind}{name} {block.media_type}, {len(block.data)} bytes]"


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Token counts of one model request. `input_tokens` excludes cache reads and writes (S15)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


OnUnknown = Literal["retry", "probe", "tell", "ask"]
"""Recovery that a tool declares for a call whose outcome is unknown (S12)."""

Isolation = Literal["hard", "soft", "none"]
"""Strength of one kind of isolation: enforced by the operating system's kernel, by a watchdog, or not at all."""


class Erased(Fact, frozen=True, tag="holdfast.erased"):
    """Placeholder in memory for an erased body. Its digest keeps the hash chain intact. Never stored."""

    digest: str


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One permission rule. `tool` is a glob over tool names; the last matching rule wins.

    `match`, if not empty, is a glob over the call's main argument (the command, the path). The rule stops matching
    `for_s` seconds after the session began, or after `uses` calls. `bound_to`, if not empty, are globs over workspace
    paths: an approval under the rule is bound to these files instead of the whole workspace.
    """

    tool: str
    decision: Literal["allow", "ask", "deny"]
    match: str = ""
    for_s: float | None = None
    uses: int | None = None
    bound_to: tuple[str, ...] = ()
