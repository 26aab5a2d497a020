"""Running `tests.log.child`, bare or under strace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: apt install strace")


def command(verb: str, home: Path, *rest: object) -> list[str]:
    return [sys.executable, "-m", "tests.log.child", verb, str(home), *map(str, rest)]


def run(verb: str, home: Path, *rest: object, under: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run to the end."""
    return subprocess.run(
        [*under, *command(verb, home, *rest)], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@contextmanager
def running(verb: str, home: Path, *rest: object) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end of the block."""
    child = subprocess.Popen(
        command(verb, home, *rest), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> list[str]:
    """The words of the next line that it says; it says one or ends."""
    assert child.stdout is not None
    return child.stdout.readline().split()


def tell(child: subprocess.Popen[str], word: str = "go") -> None:
    """Let it do its thing once more."""
    assert child.stdin is not None
    child.stdin.write(f"{word}\n")
    child.stdin.flush()


def acknowledged(output: str) -> list[tuple[int, str]]:
    """`(seq, id)` of what a child said was appended; a last line that was cut is not said."""
    words = [text.split() for text in output.splitlines(keepends=True) if text.endswith("\n")]
    return [(int(pair[0]), pair[1]) for pair in words if len(pair) == 2 and pair[0].isdecimal()]
