"""Run a parsed command: standard streams, settings, the event loop, signals, and errors."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from holdfast.app import exits
from holdfast.app.call import Call, ReaderGone, fitted
from holdfast.app.exits import sentence_of
from holdfast.app.settings.config import load_settings
from holdfast.app.trust_prompt import project_found, settled
from holdfast.app.wrap import drop_rest
from holdfast.brain.shift import alongside
from holdfast.errors import HoldfastError

DRIVING = ("run", "loop", "wake", "resume", "demo", "worker", "serve")
"""Verbs that stop before their work is done when standard output is closed."""

SERVING = ("hands", "worker", "serve")
"""Verbs that serve until a service manager stops them: SIGTERM ends them normally."""

ASKING = ("run", "loop", "mission", "wake", "resume", "worker", "serve")
"""Verbs that ask on a terminal whether to trust a project's settings. All others only report untrusted settings."""


class Stopped(Exception):
    """The process received a signal to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def start(run: Callable[[Call], Awaitable[int]], args: argparse.Namespace) -> int:
    """Run a verb. Any error becomes one line and an exit status, never a traceback."""
    _standard_streams()
    try:
        return anyio.run(_until_signal, run, args)
    except Stopped as stopped:
        served = stopped.number == signal.SIGTERM and args.verb in SERVING
        return exits.DONE if served else exits.INTERRUPTED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except ReaderGone:
        drop_rest(1)
        return exits.INTERRUPTED if args.verb in DRIVING else exits.DONE
    except HoldfastError as error:
        return _complain(args, error)
    except Exception as error:
        return _complain(args, sentence_of(error))


async def _until_signal(run: Callable[[Call], Awaitable[int]], args: argparse.Namespace) -> int:
    """Run the verb until it ends, or cancel it when a signal arrives."""
    wanted = [signal.SIGTERM]
    # The parent process may have made us ignore these two (`&` in a script, nohup).
    wanted += [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]

    async def work() -> int:
        here, flags = _here(), vars(args)
        call = Call(args, load_settings(here, flags))
        if args.verb != "trust" and await settled(
            call, call.settings.ignored, lambda: project_found(here, flags), asks=args.verb in ASKING
        ):
            call = Call(args, load_settings(here, flags))
        return await run(call)

    async def watch() -> None:
        with anyio.open_signal_receiver(*wanted) as signals:
            async for number in signals:
                args.stopped_by = number
                raise Stopped(number)

    return await alongside(work, watch)


def _here() -> Path:
    """The current folder, or the root folder if the current one was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def _standard_streams() -> None:
    """Open any closed standard stream, and escape characters that its encoding lacks.

    Otherwise the next file that is opened, such as the log, would get the descriptor of a closed stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complain(args: argparse.Namespace, error: HoldfastError) -> int:
    line = " ".join(str(error).split())
    try:
        print(fitted(f"holdfast {args.verb}: {line}", 2), file=sys.stderr, flush=True)
    except OSError:
        drop_rest(2)
    return error.exit_code
