"""One command as its verb sees it: its words, its settings, and how it says something."""

from __future__ import annotations

import argparse
import errno
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from holdfast.app.settings.config import Settings
from holdfast.brain.doors import ObserverGone
from holdfast.errors import CannotRunSafely, StorageFull
from holdfast.session.context.text import harmless, visible_json


class ReaderGone(ObserverGone):
    """Whoever read our standard output has closed it; there is nobody left to tell."""


@dataclass
class Call:
    """One command: its words, its settings, and the two ways of saying something."""

    args: argparse.Namespace
    settings: Settings
    above: Callable[[str], None] | None = None
    """Where notes go while something is drawn on the terminal."""

    @property
    def json(self) -> bool:
        """Whether data is wanted as JSON lines on standard output."""
        return bool(getattr(self.args, "json", False))

    def say(self, text: str) -> None:
        """A line for people: on standard error when standard output is JSON."""
        if self.json:
            self.note(text)
        else:
            _put(sys.stdout, harmless(text))

    def note(self, text: str) -> None:
        """A line about progress, on standard error. When nobody can read it any more, it is dropped."""
        if self.above is not None:
            self.above(text)
            return
        try:
            print(harmless(text), file=sys.stderr, flush=True)
        except OSError:
            return

    def emit(self, value: dict[str, Any]) -> None:
        """One JSON object on a line of standard output, with hidden characters as `\\uXXXX`."""
        _put(sys.stdout, visible_json(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))

    def typed(self, *words: str) -> str:
        """A command that can be typed as it stands, for the same home and log as this one."""
        for flag in ("home", "db"):
            if value := getattr(self.args, flag, None):
                words += (f"--{flag}", value)
        return shlex.join(("holdfast", *words))


def _put(stream: TextIO, line: str) -> None:
    """Raises `ReaderGone`, or `CannotRunSafely` for an output that cannot be written."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        kind = StorageFull if full else CannotRunSafely
        raise kind(
            f"standard output cannot be written ({error.strerror}); sessions are kept in the log and intact: "
            "send the output elsewhere and type it again"
        ) from None
