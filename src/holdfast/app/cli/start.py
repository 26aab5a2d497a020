"""Between the parsed words and a verb: streams, settings, the event loop, signals, and errors as sentences."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from holdfast.app import exits
from holdfast.app.call import Call, ReaderGone
from holdfast.app.settings.config import load_settings
from holdfast.app.trouble import sentence_of
from holdfast.app.trusting import project_found, settled
from holdfast.brain.alongside import alongside
from holdfast.errors import HoldfastError
from holdfast.session.context.visible import harmless

DRIVING = ("run", "loop", "wake", "resume", "demo", "worker")
"""Verbs that stop before their work is done when nobody reads them any more."""

ASKING = ("run", "loop", "mission", "wake", "resume", "worker")
"""Verbs that ask on a terminal whether a project's settings count; all others only say that they do not."""


class Stopped(Exception):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def start(module: Any, args: argparse.Namespace) -> int:
    """Run a verb. Whatever goes wrong becomes one line and an exit status; no traceback is ever shown."""
    _standard_streams()
    try:
        return int(anyio.run(_until_signal, module, args))
    except Stopped as stopped:
        # A verb that serves until it is stopped has done its work then.
        served = stopped.number == signal.SIGTERM
        return int(getattr(module, "ON_SIGTERM", exits.INTERRUPTED)) if served else exits.INTERRUPTED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except ReaderGone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exits.INTERRUPTED if args.verb in DRIVING else exits.DONE
    except HoldfastError as error:
        return _complain(args, error)
    except Exception as error:
        return _complain(args, sentence_of(error))


async def _until_signal(module: Any, args: argparse.Namespace) -> int:
    """Run the verb until it ends, or until a signal asks for the end: then it is cancelled, and lets go."""
    wanted = [signal.SIGTERM]
    # What ran us may have said that these two do not concern us (`&` in a script, nohup).
    wanted += [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]

    async def work() -> int:
        here, flags = _here(), vars(args)
        call = Call(args, load_settings(here, flags))
        if args.verb != "trust" and await settled(
            call, call.settings.ignored, lambda: project_found(here, vars(args)), asks=args.verb in ASKING
        ):
            call = Call(args, load_settings(here, flags))
        return int(await module.run(call))

    async def watch() -> None:
        with anyio.open_signal_receiver(*wanted) as signals:
            async for number in signals:
                raise Stopped(number)

    return await alongside(work, watch)


def _here() -> Path:
    """The folder we stand in; the root when it was removed under us."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def _standard_streams() -> None:
    """Make sure that all three are there, and that no character is too odd for them.

    A closed one would be given to the next file that is opened, such as the log.
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
    line = harmless(" ".join(str(error).split()))
    try:
        print(f"holdfast {args.verb}: {line}", file=sys.stderr, flush=True)
    except OSError:
        return error.exit_code
    return error.exit_code
