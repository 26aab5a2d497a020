"""Digests of the settings of a home that decide how its sessions go on, to compare homes that share a log.

What a session was opened with is in its log. Here is what a brain reads beside it: own prompts, prices, the places and
keys of models, the names of secrets, and the targets of notifications. No value of a secret is digested.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.app.settings.config import Settings, variables
from holdfast.app.settings.prompts import load_prompt, load_prompts
from holdfast.errors import UsageError

_DIGITS = 16


def home_digests(settings: Settings, urls: Iterable[str], keys: Iterable[str]) -> dict[str, str]:
    """Return the digests by name, such as `price anthropic:m`.

    `urls` and `keys` are the environment variables with the places and the keys of models. Of a key only the name
    counts.
    """
    found = {f"price {model}": _digest(price) for model, price in settings.prices.items()}
    found |= {f"secret {name}": "" for name in settings.secrets}
    tables = {name: table for name, table in settings.notify.items() if isinstance(table, Mapping)}
    found |= {f"target {name}": _digest(sorted(table)) for name, table in tables.items()}
    found |= {f"variable {name}": _digest(value) for name, value in variables([*urls]).items()}
    found |= {f"variable {name}": "" for name in variables([*keys])}
    return found | {f"prompt {name}": digest[:_DIGITS] for name, digest in _prompts(settings).items()}


def _prompts(settings: Settings) -> Mapping[str, str]:
    """Return the digests of the prompts that replace ours, unless they are a project's; none if they are invalid."""
    if not settings.prompts or settings.prompt_files is not None:
        return {}
    try:
        mine = load_prompts(settings.prompts).digests
    except UsageError:
        return {}
    return {name: digest for name, digest in mine.items() if digest != load_prompt(name)[1]}


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:_DIGITS]
