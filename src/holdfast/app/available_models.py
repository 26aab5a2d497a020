"""Find the models that this machine can use: API keys, local servers, installed extras. Contacts only loopback."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio

from holdfast.app.models import REMOTES, endpoint_of
from holdfast.app.settings.config import variables
from holdfast.errors import HoldfastError
from holdfast.hands.base import Finding
from holdfast.model.base import Model, ModelRequest
from holdfast.model.names import ModelName, is_loopback
from holdfast.session.context.conversation import Message, TextPart

PROPOSED = {
    "anthropic": "anthropic:claude-sonnet-5-5",
    "openai": "openai:gpt-6.1-terra",
    "google": "google:gemini-4-argon",
}
"""Provider → the model proposed to a user who has its key: listed in the price list, and suited to long work."""

_LOOK_S = 0.5
"""A local server that does not answer within this time counts as absent."""

_MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class LocalServer:
    """A program that may serve models on this machine."""

    title: str
    url: str
    provider: str


@dataclass(frozen=True)
class Served:
    """A server that answered, and the models that it offers."""

    server: LocalServer
    models: tuple[str, ...]

    def flags(self) -> str:
        """The flags that select the server's first model."""
        if self.server.provider == "ollama":
            return f"--model ollama:{self.models[0]}"
        return f"--model openai-compatible:{self.models[0]} --base-url {self.server.url}"


@dataclass(frozen=True)
class Look:
    """The models found. `proposal` has the flags for a default model, empty if there is none."""

    findings: tuple[Finding, ...]
    proposal: str


def local_servers() -> tuple[LocalServer, ...]:
    """The addresses of common local servers; for Ollama the one in its variables, if it is on this machine."""
    servers = [
        LocalServer("LM Studio", "http://127.0.0.1:1234/v1", "openai-compatible"),
        LocalServer("vLLM", "http://127.0.0.1:8000/v1", "openai-compatible"),
    ]
    try:
        ollama = endpoint_of(ModelName("ollama", "any")).base_url
    except HoldfastError:
        ollama = REMOTES["ollama"].base_url
    if is_loopback(ollama):
        servers.insert(0, LocalServer("Ollama", ollama, "ollama"))
    return tuple(servers)


async def look(servers: Sequence[LocalServer] | None = None) -> Look:
    """Look for keys and extras, and query the local servers, all concurrently."""
    served: dict[str, Served] = {}

    async def ask(server: LocalServer) -> None:
        models = await _models_of(server.url)
        if models is not None:
            served[server.title] = Served(server, models)

    asked = local_servers() if servers is None else servers
    async with anyio.create_task_group() as group:
        for server in asked:
            group.start_soon(ask, server)
    hosted = [_hosted(provider) for provider in PROPOSED]
    local = [_local(server, served.get(server.title)) for server in asked]
    ready = [f"--model {PROPOSED[provider]}" for provider in PROPOSED if _key_of(provider) and not _missing(provider)]
    if not _missing("ollama"):
        ready += [
            served[server.title].flags() for server in asked if server.title in served and served[server.title].models
        ]
    return Look((*hosted, *local), ready[0] if ready else "")


async def ask_once(model: Model) -> None:
    """Send the cheapest request there is, to see that key, address, and name of the model are right.

    Raises `ModelError`.
    """
    hello = Message("user", (TextPart("Answer with the word ok."),))
    request = ModelRequest("turn", "", (hello,), (), max_output_tokens=16, responses=0, attempt=1)
    async for _ in model.stream(request):
        pass


def _key_of(provider: str) -> str:
    """The name of the variable that holds the provider's key, empty without one."""
    found = variables(REMOTES[provider].keys)
    return next((variable for variable in REMOTES[provider].keys if variable in found), "")


def _missing(provider: str) -> str:
    """The command that installs the provider's missing extra, or an empty string."""
    library = {"anthropic": "anthropic", "openai": "openai", "google": "google.genai"}[REMOTES[provider].extra]
    for module in ("pydantic_ai", "genai_prices", library):
        try:
            found = importlib.util.find_spec(module)
        except ImportError:
            found = None
        if found is None:
            return f"pip install 'holdfast[{REMOTES[provider].extra}]'"
    return ""


def _hosted(provider: str) -> Finding:
    variable, missing, name = _key_of(provider), _missing(provider), f"model {provider}"
    if not variable:
        return Finding(name, "absent", f"{REMOTES[provider].keys[0]} is not set")
    if missing:
        return Finding(name, "absent", f"{variable} is set, its extra is not installed", missing)
    return Finding(name, "ok", f"{variable} is set; for example --model {PROPOSED[provider]}")


def _local(server: LocalServer, served: Served | None) -> Finding:
    name, missing = f"model {server.title}", _missing(server.provider)
    if served is None:
        return Finding(name, "absent", f"nothing answers at {server.url}")
    if not served.models:
        hint = "ollama pull qwen3" if server.provider == "ollama" else f"load a model in {server.title}"
        return Finding(name, "absent", f"it answers at {server.url} and has no model", hint)
    if missing:
        return Finding(name, "absent", f"it answers at {server.url}, its extra is not installed", missing)
    count = f"{len(served.models)} model{'s' if len(served.models) > 1 else ''}"
    return Finding(name, "ok", f"{count} at {server.url}; for example {served.flags()}")


async def _models_of(url: str) -> tuple[str, ...] | None:
    """The models that an OpenAI-compatible server lists; None if no such server answers."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        return None
    request = f"GET {parts.path}/models HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: application/json\r\n\r\n"
    data = b""
    with anyio.move_on_after(_LOOK_S):
        try:
            async with await anyio.connect_tcp(parts.hostname, parts.port or 80) as stream:
                await stream.send(request.encode())
                while len(data) < _MOST_BYTES:
                    data += await stream.receive()
        except anyio.EndOfStream:
            return _listed(data)
        except (OSError, anyio.BrokenResourceError):
            return None
    return None


def _listed(data: bytes) -> tuple[str, ...] | None:
    head, _, body = data.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        return None
    try:
        entries = json.loads(body)["data"] or []
        names = tuple(str(entry["id"]) for entry in entries)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return tuple(name for name in names if name.isprintable() and " " not in name and "embed" not in name)
