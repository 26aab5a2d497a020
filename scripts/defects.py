"""Plant known defects, one at a time, and see whether the tests of their rooms find each: `make defects`.

It says whether a faster or smaller suite still finds what the former one found: `ARGS="--tree DIR"` plants the same
defects in another version of this project. The tests that fail there without a defect are left out first. Prints one
line for each defect and exits with 1 unless all are found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Defect(NamedTuple):
    """A text that occurs once in the source, what takes its place, and the rooms of tests that should find it."""

    rooms: str
    text: str
    planted: str


DEFECTS = (
    Defect("log", "if receipt.session_id != post.session_id:", "if False:"),
    Defect("log", "if fact.accounts[1:] != origin.accounts[1:]:", "if False:"),
    Defect("log", "if isinstance(fact, ANSWERS) and key != item_key(fact.item_id):", "if False:"),
    Defect("log", "if at_us > self._caps_at.get(", "if at_us < self._caps_at.get("),
    Defect("session", "if state.environment_error and not state.interrupted:", "if state.environment_error:"),
    Defect("session", 'if last.stop_reason == "max_tokens":', "if False:"),
    Defect("session", "and is_over(state, job.seq, job.deadline_us, now_us)", ""),
    Defect("session", 'policy.strategy != "compaction" and _conversation', "_conversation"),
    Defect("session", "if state.tries >= state.limits.max_attempts:", "if state.tries > state.limits.max_attempts:"),
    Defect("session", 'policy.ask == "tainted" and not is_tainted', 'policy.ask == "tainted" and is_tainted'),
    Defect(
        "session",
        "ask.expires_us if ask.default is not None and ask.seen_us else",
        "ask.expires_us if ask.default else",
    ),
    Defect("session", "booted_us < state.booted_us - CLOCK_STEP_US", "booted_us < state.booted_us"),
    Defect("session brain", "if not call.read_only and not fact.place:", "if not fact.place:"),
    Defect("brain", "if action_digest(use.name, use.input) != item.action_digest:", "if False:"),
    Defect("brain", 'if call.on_unknown == "probe" and status.expectation is not None:', "if False:"),
    Defect("brain", "or hands_act.kept(state, park) or any(call.attempt", "or any(call.attempt"),
    Defect("egress", "if address.ipv4_mapped is not None:", "if False:"),
    Defect("egress", "if len(lengths) > 1 or any(", "if any("),
    Defect("egress", "if not may_push(self._use.push, ref, delete=delete):", "if False:"),
    Defect("hands", 'return so_far._replace(lost=record["reason"])', "return so_far"),
    Defect(
        "mission",
        "gain(metric, value) >= gain(metric, best(mission, name))",
        "gain(metric, value) >= gain(metric, value)",
    ),
    Defect(
        "mission", "if mission.round < mission.policy.max_replans:", "if mission.round <= mission.policy.max_replans:"
    ),
    Defect("mission", "if tried >= mission.policy.max_attempts", "if tried > mission.policy.max_attempts"),
    Defect("mission", 'if fact.outcome != "pass" and any(effect', "if any(effect"),
    Defect("mission", 'if policy.dependencies == "refuse":', "if False:"),
    Defect("repo", 'or b".." in parts', ""),
    Defect("repo", "or is_git_name(part) for part in path", "for part in path"),
    Defect("repo", "if not is_hex(commit) or not ref.startswith(OURS[0]):", "if not is_hex(commit):"),
    Defect("model", "max(0.0, at.timestamp() - clock.now_us()", "max(0.0, clock.now_us() - at.timestamp()"),
    Defect("environment", "if not os.path.islink(each):", "if True:"),
)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--tree", type=Path, default=ROOT, metavar="DIR", help="version to plant in (default: this one)"
    )
    parser.add_argument(
        "--only", type=int, nargs="+", metavar="N", help="numbers of the defects to plant (default: all)"
    )
    asked = parser.parse_args()
    chosen = [(number, each) for number, each in enumerate(DEFECTS, 1) if not asked.only or number in asked.only]
    with tempfile.TemporaryDirectory(prefix="holdfast-defects-") as base:
        os.chmod(base, 0o755)  # servers of tests run as users of their own
        copy = Path(base) / "copy"
        shutil.copytree(asked.tree, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__"))
        failing: dict[str, list[str]] = {}
        places = where(copy, DEFECTS)
        found = [_found(copy, places[number - 1], number, defect, failing) for number, defect in chosen]
    print(f"{sum(found)} of {len(found)} defects found")
    return 0 if all(found) else 1


def _found(copy: Path, place: Path, number: int, defect: Defect, failing: dict[str, list[str]]) -> bool:
    """Whether a test finds the defect. `failing` keeps the tests of each room that fail without one."""
    if defect.rooms not in failing:
        _, failing[defect.rooms] = tests(copy, defect.rooms, [])
        for name in failing[defect.rooms]:
            print(f"fails without a defect, and is left out: {name}")
    sound = place.read_text()
    place.write_text(sound.replace(defect.text, defect.planted))
    began = time.monotonic()
    try:
        status, names = tests(copy, defect.rooms, failing[defect.rooms], "-x")
    finally:
        place.write_text(sound)
    seconds = time.monotonic() - began
    file = place.relative_to(copy / "src" / "holdfast")
    said = names[0] if names else f"pytest ended with {status}"
    print(
        f"{number:2} {'found ' if names else 'MISSED'} {seconds:5.0f} s  {file}: {defect.text}  ({said})",
        flush=True,
    )
    return bool(names)  # with -x, pytest ends with 1 or 2


def where(tree: Path, defects: Sequence[Defect]) -> list[Path]:
    """The file of the source that holds each text. Raises `LookupError` for one that occurs nowhere, or again."""
    sources = {file: file.read_text() for file in (tree / "src").rglob("*.py")}
    places = []
    for defect in defects:
        files = [file for file, text in sources.items() for _ in range(text.count(defect.text))]
        if len(files) != 1:
            raise LookupError(f"{defect.text!r} does not occur exactly once in {tree / 'src'}: {files}")
        places += files
    return places


def tests(copy: Path, rooms: str, left_out: list[str], *options: str) -> tuple[int, list[str]]:
    """Run the tests of some rooms; returns the exit status of pytest, and the tests that failed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "4",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    command += [f"--deselect={name}" for name in left_out]
    command += [f"tests/{room}" for room in rooms.split()]
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=copy, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.returncode, re.findall(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)", done.stdout, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
