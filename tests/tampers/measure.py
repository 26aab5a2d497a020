"""`python -m tests.tampers.measure`: every tamper as a whole verification, by class; see `--help`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import anyio

from tests.tampers.ablation import PAIRS, SWITCHES, switched_off
from tests.tampers.corpus import Tamper, hiding, plain, tampers
from tests.tampers.missions import mission, one_per_class
from tests.tampers.runners import has, prepare
from tests.tampers.stage import Found, truth, whole

AT_ONCE = 2

SOME = 46
"""So many tampers, some of each class, are whole missions or are run again without each mechanism."""


class Row(NamedTuple):
    """One tamper or twin, and what came of it. `off` is the mechanism that was switched off."""

    name: str
    kind: str
    knows: bool
    twin: bool
    hides: bool
    off: str
    outcome: str
    why: str
    seconds: float


def measure(wanted: Sequence[Tamper], off: str = "", at_once: int = AT_ONCE, how: str = "whole") -> Iterable[Row]:
    """Run them, some beside each other; rows come as they are ready, in order."""
    with (
        tempfile.TemporaryDirectory(prefix="tampers-") as place,
        ProcessPoolExecutor(at_once, initializer=_begin, initargs=(off, place)) as pool,
    ):
        os.chmod(place, 0o755)
        prepare(Path(place))
        names = [(each.name, how) for each in wanted]
        for tamper, found in zip(wanted, pool.map(_one, names), strict=True):
            yield Row(
                tamper.name, tamper.kind, tamper.knows, tamper.twin, tamper.hides, off, *found[:2], round(found[2], 1)
            )


_place = Path("/nonexistent")


def _begin(off: str, place: str) -> None:
    """In each process of the pool."""
    global _place
    _place = Path(place)
    switched_off(off)


def _one(which: tuple[str, str]) -> Found:
    name, how = which
    tamper = next(each for each in (*tampers(), *plain()) if each.name == name)
    tamper = hiding(tamper) if how == "hidden" else tamper
    base = _place / name
    base.mkdir(mode=0o755)
    try:
        if how == "truth":
            right = anyio.run(truth, tamper, base, _place)
            return Found("green" if right else "red", "", 0.0)
        return anyio.run(mission if how == "mission" else whole, tamper, base, _place)
    except Exception as error:
        return Found("red", f"BROKEN {type(error).__name__}: {error}", 0.0)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def table(rows: Iterable[Row]) -> list[str]:
    """By class: how many, refused, red, green; of those written knowing, and of the twins what is not green."""
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(row)
    lines = [_line("class", ("n", "refused", "red", "green", "knowing", "green", "twins", "not green"))]
    total = [0] * 8
    for kind, all_ in sorted(by_kind.items()):
        numbers = _numbers(all_)
        total = [one + two for one, two in zip(total, numbers, strict=True)]
        lines.append(_line(kind, numbers))
    return [*lines, _line("all", total)]


def _numbers(rows: list[Row]) -> list[int]:
    bad, twins = [row for row in rows if not row.twin], [row for row in rows if row.twin]
    knowing = [row for row in bad if row.knows]
    count = {name: sum(row.outcome == name for row in bad) for name in ("refused", "red", "green")}
    return [
        len(bad), count["refused"], count["red"], count["green"], len(knowing),
        sum(row.outcome == "green" for row in knowing), len(twins), sum(row.outcome != "green" for row in twins),
    ]  # fmt: skip


def _line(kind: str, numbers: Sequence[object]) -> str:
    widths = (4, 8, 4, 6, 8, 6, 6, 10)
    return f"{kind:<18} " + " ".join(f"{number!s:>{width}}" for number, width in zip(numbers, widths, strict=True))


def main(words: Sequence[str]) -> int:
    """Print the table; the exit status is 1 when a tamper was green or a twin was not."""
    parser = argparse.ArgumentParser(prog="python -m tests.tampers.measure", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="CLASS", help="this class, or a tamper by name")
    parser.add_argument("--ablate", action="store_true", help="again with each mechanism switched off in turn")
    parser.add_argument("--off", default="", choices=("", *SWITCHES, *PAIRS), help="with this one switched off")
    parser.add_argument("--missions", action="store_true", help="as whole missions, with a scripted worker")
    parser.add_argument("--twins", action="store_true", help="the twins only")
    parser.add_argument("--hidden", action="store_true", help="with the truth as a check that the worker does not see")
    parser.add_argument("--plain", action="store_true", help="products without a tamper: broken ones, right ones")
    parser.add_argument("--truth", action="store_true", help="whether the products are what the corpus says they are")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    parser.add_argument("--why", action="store_true", help="say of each what came of it")
    given = parser.parse_args(words)
    wanted = [
        each
        for each in (plain() if given.plain else tampers())
        if (not given.only or each.kind in given.only or each.name in given.only) and (each.twin or not given.twins)
    ]
    lacking = sorted({need for each in wanted for need in each.repo.needs if not has(need)})
    if lacking:
        print(f"left out, for this machine lacks {', '.join(lacking)}", file=sys.stderr)
    wanted = [each for each in wanted if not set(each.repo.needs) & set(lacking)]
    if (given.missions or given.ablate) and not given.only:
        wanted = one_per_class([each for each in wanted if each.twin == given.twins], SOME)
    if given.hidden:
        wanted = [each for each in wanted if hiding(each).hides]
    how = "truth" if given.truth else "mission" if given.missions else "hidden" if given.hidden else "whole"
    wrong = 0
    for off in ("", *SWITCHES, *PAIRS) if given.ablate else (given.off,):
        rows = []
        for row in measure(wanted, off, how=how):
            rows.append(row)
            if given.json:
                print(json.dumps(row._asdict()), flush=True)
            elif given.why:
                twin = "twin " if row.twin else ""
                print(f"{row.outcome:<8} {row.seconds:5.1f}s {twin}{row.kind}/{row.name}  {row.why!r}", flush=True)
        print("\n".join([*([f"\nwithout {off}"] if off else []), *table(rows)]))
        green = [row.name for row in rows if row.outcome == "green" and not row.twin]
        not_green = [row.name for row in rows if row.outcome != "green" and row.twin]
        print(f"green: {' '.join(green) or 'none'}\ntwins not green: {' '.join(not_green) or 'none'}")
        wrong += 0 if off else len(green) + len(not_green)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
