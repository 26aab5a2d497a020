"""Between the parsed words and a verb: settings, the event loop, and errors as sentences."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import anyio

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.config import load_settings
from holdfast.errors import HoldfastError


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
