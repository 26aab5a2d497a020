"""What can be a secret's value: one line of text that is long enough to be found again in what comes back."""

from __future__ import annotations

from holdfast.vault.base import Secret

BYTES_MAX = 8192
"""No secret is longer, in bytes."""

BYTES_MIN = 8
"""A shorter one cannot be told from ordinary text, so that it could not be taken out of answers."""


def checked(data: bytes) -> Secret | str:
    """The secret in what a source gave, without the line's end; or what is wrong with it, in words without it.

    Nothing is raised: an exception would hold the bytes that could not be read.
    """
    if len(data) > BYTES_MAX + 2:
        return f"it is longer than {BYTES_MAX} bytes"
    text = data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if not text.strip():
        return "it is empty"
    if "\n" in text or "\r" in text:
        return "it has more than one line, and only one line can be put into a request"
    if not text.isprintable() or "�" in text or text != text.strip():
        return "it has characters that cannot be put into a request, or blanks around it"
    if len(text.encode()) < BYTES_MIN:
        return f"it is shorter than {BYTES_MIN} bytes, too short to be found again in answers and taken out of them"
    return Secret(text)
