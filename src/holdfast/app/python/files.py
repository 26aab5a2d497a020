"""Files that a message brings along: pictures and documents, by their suffix, checked before anything is posted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

import msgspec

from holdfast.app.python.types import Attachment
from holdfast.errors import UsageError
from holdfast.facts.base import Block, Document, Image, Text

IMAGE_MAX = 5_000_000
DOCUMENT_MAX = 20_000_000
TOTAL_MAX = 25_000_000
"""Bytes of a picture, of a document, and of all that one message brings: what every provider takes."""

IMAGES = {
    ".png": ("image/png", b"\x89PNG\r\n\x1a\n"),
    ".jpg": ("image/jpeg", b"\xff\xd8\xff"),
    ".jpeg": ("image/jpeg", b"\xff\xd8\xff"),
    ".gif": ("image/gif", b"GIF8"),
    ".webp": ("image/webp", b"RIFF"),
}
"""Suffix → media type, and how such a file begins."""

PDF = "application/pdf"

TEXTS = {".md": "text/markdown", ".csv": "text/csv", ".html": "text/html", ".json": "application/json"}
"""Texts with a media type of their own; any other file that is UTF-8 is `text/plain`."""


def blocks(attachments: Sequence[Attachment]) -> tuple[Block, ...]:
    """The content of a message with these files, empty without any.

    Raises `UsageError` for a file that cannot be read, is too large, or is of a kind that no model is shown.
    """
    if isinstance(attachments, str | PathLike) or not isinstance(attachments, Sequence):
        raise UsageError(f'attachments is {attachments!r}; it has to be a list, such as attachments=["plan.pdf"]')
    found: list[Block] = [each if isinstance(each, Image | Document) else _read(each) for each in attachments]
    for block in found:
        _check(block)
    total = sum(len(block.data) for block in found if not isinstance(block, Text))
    if total > TOTAL_MAX:
        raise UsageError(f"the attachments are {_mb(total)} together, and a message takes {_mb(TOTAL_MAX)}; send fewer")
    return (Text("Files that go with this:"), *found) if found else ()


def key_of(content: Sequence[Block]) -> str:
    """The key under which files are posted beside a goal: the same ones are posted once."""
    return f"attachments:{hashlib.sha256(msgspec.json.encode(content)).hexdigest()}"


def _read(given: str | PathLike[str]) -> Image | Document:
    path = Path(fspath(given))
    suffix = path.suffix.lower()
    try:
        size = path.stat().st_size
        if size > TOTAL_MAX:
            raise _too_large(str(path), size, IMAGE_MAX if suffix in IMAGES else DOCUMENT_MAX)
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the attachment {path} cannot be read: {error.strerror}; nothing was posted") from error
    if suffix in IMAGES:
        return Image(IMAGES[suffix][0], data)
    if suffix == ".pdf":
        return Document(PDF, data, path.name)
    return Document(TEXTS.get(suffix, "text/plain"), data, path.name)


def _check(block: Block) -> None:
    assert not isinstance(block, Text)
    name = (block.name if isinstance(block, Document) else "") or block.media_type
    limit = IMAGE_MAX if isinstance(block, Image) else DOCUMENT_MAX
    if len(block.data) > limit:
        raise _too_large(name, len(block.data), limit)
    if not block.data:
        raise UsageError(f"the attachment {name} is empty; nothing was posted")
    if isinstance(block, Image):
        begins = [start for kind, start in IMAGES.values() if kind == block.media_type]
        if not begins:
            raise UsageError(f"no model is shown {block.media_type!r}; a picture is {', '.join(_kinds())}")
        if not block.data.startswith(begins[0]):
            raise UsageError(f"an attachment says that it is {block.media_type} and is none; nothing was posted")
    elif block.media_type == PDF:
        if not block.data.startswith(b"%PDF-"):
            raise UsageError(f"the attachment {name} says that it is a PDF and is none; nothing was posted")
    else:
        _check_text(name, block.data)


def _check_text(name: str, data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the attachment {name} is neither a picture ({', '.join(_kinds())}), nor a PDF, nor UTF-8 text (byte "
            f"{error.start + 1}); put it into the workspace, where the agent's tools can open it"
        ) from error


def _kinds() -> list[str]:
    return sorted({kind for kind, _ in IMAGES.values()})


def _too_large(name: str, size: int, limit: int) -> UsageError:
    return UsageError(
        f"the attachment {name} is {_mb(size)}, and {_mb(limit)} is the most; put it into the workspace, where the "
        "agent's tools can open it"
    )


def _mb(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"
