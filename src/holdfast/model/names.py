"""Names of models: `provider:name`, or `provider:name@http://host:port/v1` for a server of one's own.

The address is part of the name because any process may wake a session, and it has to find the same server.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import UsageError


class ModelName(msgspec.Struct, frozen=True):
    """A name taken apart. `base_url` is empty when the name says none."""

    provider: str
    model: str
    base_url: str = ""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" + (f"@{self.base_url}" if self.base_url else "")


class Endpoint(msgspec.Struct, frozen=True):
    """Where and as whom a model is asked. `key_variable` is the environment variable that `key` came from,
    or that it should stand in; an empty `key` says that the server wants none.
    """

    name: ModelName
    base_url: str
    key: str
    key_variable: str

    def __repr__(self) -> str:  # a key is in no log line
        return f"Endpoint({self.name}, {self.base_url})"


_ADDRESS = re.compile(r"@(?=https?://)")


def parse_name(text: str) -> ModelName:
    """The parts of a model's name. Raises `UsageError` when there is no model or the address is none."""
    provider, _, rest = text.partition(":")
    model, *address = _ADDRESS.split(rest, maxsplit=1)
    if not model:
        raise UsageError(f"the model {text!r} names no model after the colon; an example is --model {provider}:NAME")
    if not model.isprintable() or any(char.isspace() for char in model):
        raise UsageError(f"the model {text!r} has a space in its name; an example is --model {provider}:NAME")
    return ModelName(provider, model, check_base_url(address[0]) if address else "")


def check_base_url(text: str) -> str:
    """An address of a server, without a slash at its end. Raises `UsageError` for anything that is none.

    It is written into the log with the model's name, so it may carry neither a password nor a query.
    """
    example = "an example is --base-url http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"the base URL {text!r} cannot be read ({error}); {example}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"the base URL {text!r} is no http or https address; {example}")
    if not text.isprintable() or any(char.isspace() for char in text):
        raise UsageError(f"the base URL {text!r} has a space in it; {example}")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "the base URL may hold no user, password, query or fragment, since it is written into the log; "
            f"put the key into the provider's environment variable; {example}"
        )
    return text.rstrip("/")


def is_loopback(base_url: str) -> bool:
    """Whether the address is this machine, as far as its text says."""
    host = urlsplit(base_url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
