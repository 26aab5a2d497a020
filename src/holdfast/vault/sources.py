"""Where a secret is, as people write it: `env:NAME`, `file:PATH`, `keyring:SERVICE/NAME`, or a command's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Kind = Literal["env", "file", "keyring", "command", "given"]

EXAMPLES = (
    'from = "env:GITHUB_TOKEN", "file:~/.config/holdfast/github", "keyring:holdfast/github" '
    'or ["command:pass", "show", "github"]'
)
"""One of each, for messages."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
"""What a secret can be called."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one secret is. `place` has one word, or the words of a command.

    `expires_us` is when it counts no more, None for never. `variables` are those of the environment that its command
    is given beside the usual ones. Kind `given` holds the value itself, for fakes alone.
    """

    name: str
    kind: Kind
    place: tuple[str, ...]
    expires_us: int | None = None
    variables: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {self.described()!r})"

    def described(self) -> str:
        """The reference as a person wrote it; of a command the program alone, since arguments may be private."""
        if self.kind == "given":
            return "given"
        return f"{self.kind}:{self.place[0]}{' …' if len(self.place) > 1 else ''}"


def read_reference(value: Any) -> tuple[Kind, tuple[str, ...]]:
    """What `from` says. Raises `ValueError` with an example; the message does not repeat a value that is no reference,
    since it may be the secret itself.
    """
    words: Sequence[object] = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = tuple(word for word in words if isinstance(word, str) and "\0" not in word)
    if not texts or len(texts) != len(words):
        raise ValueError(f"it has to say where the secret is: {EXAMPLES}")
    kind, colon, rest = texts[0].partition(":")
    if kind == "command" and colon:
        return "command", _command(rest, texts, alone=isinstance(value, str))
    if len(texts) > 1 or not colon or kind not in ("env", "file", "keyring"):
        raise ValueError(f"it has to say where the secret is, not what it is: {EXAMPLES}")
    if kind == "env":
        if _VARIABLE.fullmatch(rest) is None:
            raise ValueError('it names no environment variable; an example is from = "env:GITHUB_TOKEN"')
        return "env", (rest,)
    if kind == "file":
        if not rest.startswith(("/", "~/")):
            raise ValueError('its file needs a whole path; an example is from = "file:~/.config/holdfast/github"')
        return "file", (rest,)
    service, slash, name = rest.rpartition("/")
    if not (service and slash and name) or not rest.isprintable() or rest.startswith("-"):
        raise ValueError('a keyring needs a service and a name; an example is from = "keyring:holdfast/github"')
    return "keyring", (service, name)


def _command(program: str, words: tuple[str, ...], *, alone: bool) -> tuple[str, ...]:
    if not program.strip() or (alone and any(char.isspace() for char in program)):
        raise ValueError(
            'a command is a list of words, since no shell reads it; an example is from = ["command:pass", "show", '
            '"github"]'
        )
    return (program, *words[1:])


def variable_name(value: Any) -> str:
    """The name of an environment variable. Raises `ValueError`."""
    if not isinstance(value, str) or _VARIABLE.fullmatch(value) is None:
        raise ValueError(f'{value!r} is no name of an environment variable, such as "GITHUB_TOKEN"')
    return value
