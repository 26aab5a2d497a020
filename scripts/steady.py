"""Run the whole test suite many times on fresh clones, on a quiet machine and beside loads: `make steady`.

A run is green when `make test` exits with 0 and no process of it is left. The loads are a process that uses one core
and one that writes and syncs a file. Prints one line for each run and exits with 1 unless all are green.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).parents[1]

SPIN = "while True: pass"

WRITE = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(64):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
"""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quiet", type=int, default=5, metavar="N", help="runs without a load (default: 5)")
    parser.add_argument("--loaded", type=int, default=5, metavar="N", help="runs beside the loads (default: 5)")
    asked = parser.parse_args()
    runs = [False] * asked.quiet + [True] * asked.loaded
    green = [run(number, loaded) for number, loaded in enumerate(runs, 1)]
    print(f"{sum(green)} of {len(green)} runs green")
    return 0 if all(green) else 1


def run(number: int, loaded: bool) -> bool:
    """One run on a fresh clone; whether it is green."""
    base = Path(tempfile.mkdtemp(prefix="holdfast-steady-"))
    base.chmod(0o755)  # servers of tests run as users of their own
    clone, log = base / "clone", base / "log"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(["make", "setup"], cwd=clone, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with loads(base) if loaded else nullcontext(), log.open("wb") as out:
        began = time.monotonic()
        done = subprocess.run(
            ["make", "test"], cwd=clone, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False
        )
        minutes = (time.monotonic() - began) / 60
    left = left_behind(clone)
    green = done.returncode == 0 and not left
    last = log.read_text(errors="replace").rstrip().splitlines()[-1:]
    print(f"run {number} {'loaded' if loaded else 'quiet '} {'green' if green else 'RED  '} {minutes:5.1f} min", *last)
    for pid, command in left.items():
        print(f"  left behind: {pid} {command}")
    if green:
        shutil.rmtree(base, ignore_errors=True)
    else:
        print(f"  its output is {log}")
    sys.stdout.flush()
    return green


@contextmanager
def loads(base: Path) -> Iterator[None]:
    """A process that takes a core, and one that writes to disk."""
    commands = [[sys.executable, "-c", SPIN], [sys.executable, "-c", WRITE, str(base / "written")]]
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def left_behind(clone: Path) -> dict[int, str]:
    """Processes that run a program of the clone or were started in it: pid → command."""
    needle, found = os.fsencode(clone), {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            if needle in command or needle in (entry / "environ").read_bytes():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()[:160]
        except OSError:
            continue  # it ended meanwhile
    return found


if __name__ == "__main__":
    sys.exit(main())
