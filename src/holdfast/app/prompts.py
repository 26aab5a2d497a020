"""The prompts: files of this package, versioned by their content."""

from __future__ import annotations

import hashlib
from importlib import resources


def load_prompt(name: str) -> tuple[str, str]:
    """A prompt's text and the SHA-256 hex of its bytes."""
    data = resources.files("holdfast.prompts").joinpath(f"{name}.md").read_bytes()
    return data.decode(), hashlib.sha256(data).hexdigest()
