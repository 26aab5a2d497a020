"""Models by name: provider, extra, server, key, and price."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.app.settings.config import Settings, variables
from holdfast.app.settings.digests import home_digests
from holdfast.app.settings.policies import context
from holdfast.app.settings.trust import require
from holdfast.app.settings.values import nearest
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.ids import system_entropy
from holdfast.kinds import LOOP
from holdfast.model.base import Model
from holdfast.model.names import Endpoint, ModelName, check_base_url, parse_name
from holdfast.model.prices import OwnPrice, PriceList
from holdfast.model.scripted import ScriptedModel
from holdfast.model.shared import Outages, SharedModel
from holdfast.session.money import Price


@dataclass(frozen=True)
class Remote:
    """A provider accessed over HTTP. Messages name the first of `keys`."""

    module: str
    extra: str
    base_url: str
    urls: tuple[str, ...]
    keys: tuple[str, ...]
    needs_key: bool = True


OLLAMA_URL = "http://127.0.0.1:11434/v1"
"""Default address of Ollama."""

_OPENAI = Remote(
    "holdfast.model.direct.openai", "openai", "https://api.openai.com/v1", ("OPENAI_BASE_URL",), ("OPENAI_API_KEY",)
)

REMOTES: Mapping[str, Remote] = {
    "anthropic": Remote(
        "holdfast.model.direct.anthropic",
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_BASE_URL",),
        ("ANTHROPIC_API_KEY",),
    ),
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "google": Remote(
        "holdfast.model.direct.google",
        "google",
        "https://generativelanguage.googleapis.com",
        ("GOOGLE_GEMINI_BASE_URL",),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "ollama": Remote(
        "holdfast.model.direct.openai",
        "openai",
        OLLAMA_URL,
        ("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        ("OLLAMA_API_KEY",),
        needs_key=False,
    ),
    "openai-compatible": Remote(
        "holdfast.model.direct.openai",
        "openai",
        "",
        ("OPENAI_COMPATIBLE_BASE_URL",),
        ("OPENAI_COMPATIBLE_API_KEY",),
        needs_key=False,
    ),
}
"""Provider → its module, extra, keys, and address."""

PROOF = {"oracle": "holdfast.proof.oracle.load", "anxious": "holdfast.proof.oracle.anxious"}
"""Provider of models for demos and tests → its module, which is in a higher layer."""

FILES = ("scripted", "oracle")
"""Providers whose models are read from files."""

MAKERS = {"claude": "anthropic", "gpt": "openai", "gemini": "google"}
"""First letters of models → their provider, to propose it for a name without one."""

KNOWN = "anthropic:NAME, openai:NAME, openai-chat:NAME, google:NAME, ollama:NAME, openai-compatible:NAME, scripted:FILE"
"""The accepted model names, for messages."""


def find_model(name: str, settings: Settings | None = None) -> Model:
    """Load the model of a `--model` name.

    Raises `UsageError` for an unknown name, and `CannotRunSafely` when its extra is not installed or its key is not
    set.
    """
    provider, _, rest = name.partition(":")
    if provider in FILES:
        return _of_file(name, provider, rest)
    if provider == "anxious":
        anxious: Model = _proof("anxious").AnxiousModel.from_name(name, context(settings or Settings()).line_tokens)
        return anxious
    if name == LOOP:
        loop: Model = importlib.import_module("holdfast.kinds.loop.agent").LoopModel()
        return loop
    if not name and settings is not None:
        require(settings.ignored, "model")
    check_model_name(name)
    endpoint = endpoint_of(parse_name(name))
    own = _own_price((settings or Settings()).prices, endpoint.name)
    remote = REMOTES[provider]
    try:
        family: Any = importlib.import_module(remote.module)
        listed: Any = importlib.import_module("holdfast.model.price_list")
    except ImportError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        raise CannotRunSafely(
            f"models of {provider} need an extra that is not installed; nothing was started. "
            f"Type: pip install 'holdfast[{remote.extra}]'"
        ) from error
    clock = SystemClock()
    prices: PriceList = own or listed.price_list(endpoint, clock)
    model: Model = family.connect(endpoint, prices, clock)
    return model


def settled_model(name: str, base_url: str = "") -> str:
    """Convert a model name to one that works in every folder and process, since any process may wake the session.

    A file's path becomes absolute. An address given beside the name becomes part of it, and so does the address in the
    environment for `openai-compatible`, which has no other.
    """
    provider, _, rest = name.partition(":")
    if provider in FILES:
        if base_url:
            raise UsageError(f"--base-url goes with a model that is asked over HTTP, not with {name!r}; leave it out")
        return f"{provider}:{Path(rest).absolute()}" if rest else name
    if provider not in REMOTES:
        return name
    named = parse_name(name)
    if base_url:
        given = check_base_url(base_url)
        if named.base_url and named.base_url != given:
            raise UsageError(f"--base-url {given} and the address in {name!r} differ; leave one out")
        named = ModelName(named.provider, named.model, given)
    elif provider == "openai-compatible":
        named = ModelName(named.provider, named.model, endpoint_of(named).base_url)
    return str(named)


def digests_of(settings: Settings) -> dict[str, str]:
    """Return digests of the settings that decide how sessions go on in this home."""
    remotes = REMOTES.values()
    urls = [name for remote in remotes for name in remote.urls]
    return home_digests(settings, urls, [name for remote in remotes for name in remote.keys])


def endpoint_of(name: ModelName) -> Endpoint:
    """The URL and credentials of a model. Raises `CannotRunSafely` without a key that it needs."""
    remote = REMOTES[name.provider]
    found = variables((*remote.urls, *remote.keys))
    key = next((found[variable] for variable in remote.keys if variable in found), "")
    if remote.needs_key and not key:
        others = "".join(f" (or {other})" for other in remote.keys[1:])
        raise CannotRunSafely(
            f"there is no key for {name.provider}: set {remote.keys[0]}{others} in the environment of the process that "
            "runs or wakes the session, then try again; `holdfast doctor` shows the keys and local servers it finds"
        )
    if not key.isprintable() or not key.isascii() or " " in key:
        raise CannotRunSafely(f"the value of {remote.keys[0]} cannot be a key: it has spaces or odd characters in it")
    url = name.base_url or _url_of(remote, found)
    if not url:
        raise UsageError(
            f"{name} needs the address of its server, for example: --model {name} --base-url http://127.0.0.1:8000/v1"
        )
    return Endpoint(name, url, key, remote.keys[0])


def _url_of(remote: Remote, found: Mapping[str, str]) -> str:
    for variable in remote.urls:
        if variable in found:
            text = _ollama_url(found[variable]) if variable == "OLLAMA_HOST" else found[variable]
            try:
                return check_base_url(text)
            except UsageError as error:
                raise UsageError(f"the environment variable {variable} is wrong: {error}") from error
    return remote.base_url


def _ollama_url(text: str) -> str:
    """Convert `OLLAMA_HOST` to a URL. It takes several forms: `0.0.0.0`, `host:port`, or an address."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    host = parts.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    port = parts.port or (443 if parts.scheme == "https" else 11434)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _of_file(name: str, provider: str, rest: str) -> Model:
    check_model_name(name)
    if provider == "oracle":
        oracle: Model = _proof("oracle").load_oracle(Path(rest), SystemClock())
        return oracle
    return ScriptedModel.from_file(Path(rest), SystemClock())


def _proof(provider: str) -> Any:
    """Load the provider's module, only when the user names one of its models."""
    return importlib.import_module(PROOF[provider])


def check_model_name(name: str) -> None:
    """Raise `UsageError` for a name that no process could use, with a proposal. Asks no server and reads no file."""
    provider, _, rest = name.partition(":")
    if provider in (*FILES, *PROOF) or name == LOOP:
        if provider in FILES and not rest:
            raise UsageError(f"the model {name!r} names no file; for example: --model {provider}:FILE")
        return
    if not name:
        raise UsageError(
            "no model is named: set one with `holdfast config set model NAME`, or with --model for one command; "
            "`holdfast doctor` proposes one for the keys that are here"
        )
    if provider not in REMOTES:
        owner = next((owner for start, owner in MAKERS.items() if name.startswith(start)), "")
        near = f"; {nearest(provider, (*REMOTES, *FILES))}" if ":" in name else ""
        near = f"; did you mean '{owner}:{name}'?" if owner and ":" not in name else near
        end = "" if near.endswith("?") else "."
        raise UsageError(f"unknown model {name!r}{near}{end} There are {KNOWN} (and the oracle of `holdfast demo`)")
    parse_name(name)


def shared_model(name: str, settings: Settings, folder: Path, outages: Outages | None = None) -> Model:
    """Load a model for a session. The sessions of a home share it; `folder` has a file for each model that is out.
    `outages` are those that homes on one log share.

    The file is that of the model at its server: a limit of one model says nothing about the others of its provider.
    """
    model = find_model(name, settings)
    if name.partition(":")[0] not in REMOTES:
        return model
    named = parse_name(name)
    file = folder / hashlib.sha256(f"{named} {endpoint_of(named).base_url}".encode()).hexdigest()[:16]
    return SharedModel(model, file, SystemClock(), system_entropy, outages)


def _own_price(prices: Mapping[str, Price], name: ModelName) -> OwnPrice | None:
    """The price that the user set: for this server, else for the model on any server."""
    price = prices.get(str(name)) or prices.get(f"{name.provider}:{name.model}")
    return OwnPrice(price) if price else None
