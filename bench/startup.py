"""Cost of startup: `import holdfast` over bare Python, and the CPU time of `holdfast --help`.

python bench/startup.py [--runs N]

The three commands alternate, so that a busy machine slows all of them. Prints the medians and
compares them with the targets; exit 1 if one is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

IMPORT_TARGET_S = 0.15
HELP_TARGET_S = 0.4


def once(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one run of `command`, its children included."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.stderr is not None
    with child.stderr:
        said = child.stderr.read().decode(errors="replace")
    if child.returncode != 0:
        raise SystemExit(f"startup: {' '.join(command)} ended with {child.returncode}: {said[-500:]}")
    return wall, used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, print a table, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure what starting costs")
    parser.add_argument("--runs", type=int, default=21, help="runs of each command (at least 15)")
    runs = max(15, parser.parse_args().runs)
    commands = {
        "bare Python": [sys.executable, "-c", "pass"],
        "import holdfast": [sys.executable, "-c", "import holdfast"],
        "holdfast --help": [str(Path(sys.executable).with_name("holdfast")), "--help"],
    }
    walls: dict[str, list[float]] = {name: [] for name in commands}
    cpus: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        once(command)  # warm up the bytecode and the page cache
    for _ in range(runs):
        for name, command in commands.items():
            wall, cpu = once(command)
            walls[name].append(wall)
            cpus[name].append(cpu)

    print(f"{runs} runs each, medians in ms")
    print(f"{'':18}{'wall':>8}{'cpu':>8}")
    for name in commands:
        print(f"{name:18}{statistics.median(walls[name]) * 1e3:8.1f}{statistics.median(cpus[name]) * 1e3:8.1f}")
    over_s = statistics.median(walls["import holdfast"]) - statistics.median(walls["bare Python"])
    help_s = statistics.median(cpus["holdfast --help"])
    good = True
    for what, value_s, target_s in (
        ("import holdfast over bare Python", over_s, IMPORT_TARGET_S),
        ("CPU of holdfast --help", help_s, HELP_TARGET_S),
    ):
        verdict = "ok" if value_s <= target_s else "MISSED"
        good = good and value_s <= target_s
        print(f"{what}: {value_s * 1e3:.1f} ms, target {target_s * 1e3:.0f} ms: {verdict}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
