"""Model names: `provider:name`, or `provider:name@http://host:port/v1` for a custom server.

The address is part of the name because any process may wake a session and must reach the same server.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import UsageError


class ModelName(msgspec.Struct, frozen=True):
    """A parsed model name. `base_url` is empty if the name has none."""

    provider: str
    model: str
    base_url: str = ""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" + (f"@{self.base_url}" if self.base_url else "")


class Endpoint(msgspec.Struct, frozen=True):
    """The address and key of a model. `key_variable` is the environment variable of `key`; an empty `key` means that
    the server needs none.
    """

    name: ModelName
    base_url: str
    key: str
    key_variable: str

    def __repr__(self) -> str:  # keep the key out of log lines
        return f"Endpoint({self.name}, {self.base_url})"


_ADDRESS = re.compile(r"@(?=https?://)")


def parse_name(text: str) -> ModelName:
    """Parse a model name. Raises `UsageError` for a missing model or an invalid address."""
    provider, _, rest = text.partition(":")
    model, *address = _ADDRESS.split(rest, maxsplit=1)
    if not model:
        raise UsageError(f"the model {text!r} has no name after the colon; an example is --model {provider}:NAME")
    if not model.isprintable() or any(char.isspace() for char in model):
        raise UsageError(f"the model {text!r} has a space in its name; an example is --model {provider}:NAME")
    return ModelName(provider, model, check_base_url(address[0]) if address else "")


def check_base_url(text: str) -> str:
    """Validate the address of a server and return it without a trailing slash. Raises `UsageError`.

    The address is logged with the model's name, so it may contain neither a password nor a query.
    """
    example = "an example is --base-url http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"the base URL {text!r} is invalid ({error}); {example}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"the base URL {text!r} is not an http or https address; {example}")
    if not text.isprintable() or any(char.isspace() for char in text):
        raise UsageError(f"the base URL {text!r} contains a space; {example}")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "the base URL must not contain a user, password, query, or fragment, since it is logged; "
            f"put the key into the provider's environment variable; {example}"
        )
    return text.rstrip("/")


def is_loopback(base_url: str) -> bool:
    """Return True if the address names this machine."""
    host = urlsplit(base_url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
