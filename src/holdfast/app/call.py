"""One command as its verb sees it: its words, its settings, and how it says something."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

from holdfast.app.config import Settings


@dataclass
class Call:
    """One command: its words, its settings, and the two ways of saying something."""

    args: argparse.Namespace
    settings: Settings

    @property
    def json(self) -> bool:
        """Whether data is wanted as JSON lines on standard output."""
        return bool(getattr(self.args, "json", False))

    def say(self, text: str) -> None:
        """A line for people: on standard error when standard output is JSON."""
        print(text, file=sys.stderr if self.json else sys.stdout, flush=True)

    def note(self, text: str) -> None:
        """A line about progress, on standard error."""
        print(text, file=sys.stderr, flush=True)

    def emit(self, value: dict[str, Any]) -> None:
        """One JSON object on a line of standard output."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()
