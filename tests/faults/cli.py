"""The command line as a user types it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.app.terminal import in_scratch
from tests.support.waiting import PATIENCE_S


def holdfast(home: Path, *words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """`holdfast words… --home home`, started; `before` is what the command runs under."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", "holdfast", *in_scratch(words), "--home", str(home)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit status, output and errors; a hang fails."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{process.args!r} hangs: {out[-2000:]}\n{err[-2000:]}") from None
    return process.returncode, out, err
