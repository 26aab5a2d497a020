"""Between the parsed words and a verb: settings, the event loop, and errors as sentences."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from holdfast.app import exits
from holdfast.app.config import Settings, load_settings
from holdfast.errors import HoldfastError


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


def start(module: Any, args: argparse.Namespace) -> int:
    """Run a verb. Every error that is ours becomes one line and its exit status."""
    call: Call | None = None
    try:
        call = Call(args, load_settings(Path(os.getcwd()), vars(args)))
        return int(anyio.run(module.run, call))
    except HoldfastError as error:
        print(f"holdfast {args.verb}: {_one_line(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; every session is intact and can be woken", file=sys.stderr)
        return exits.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.DONE


def _one_line(error: HoldfastError) -> str:
    return " ".join(str(error).split())
