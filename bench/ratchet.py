"""What the ratchet sees and what it says wrongly: tampers on real libraries, and the releases of real libraries.

    python bench/ratchet.py [--cache DIR] [--library NAME]… [--json] [--all]

Recall is per class of tampers, each done on its own to the newest release of three libraries with a workflow, a
Makefile, a feature list and data added. What touches a file that decides about the work has to be refused, all of it.
Special-casing touches no such file; how much of it is listed for a judge is reported as it is. False alarms are counted
over changed files of tests between releases, as `holdfast.sim.tampers_releases` defines them; at most 1 % of them.
`--all` prints every false alarm and everything said about product code.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from holdfast.facts.task import Violation
from holdfast.sim.library import PYTHON
from holdfast.sim.tampers_measure import Row, furnished, recall
from holdfast.sim.tampers_releases import ASKS, RELEASES, Said, judged, sources

TAMPERED = ("tinydb", "cachetools", "marshmallow")
"""Libraries that are tampered with: without parametrization, with mixed-in test classes, with much of everything."""

CHANGES, FALSE_ALARMS = 300, 0.01


def measure(cache: Path, names: list[str]) -> tuple[list[Row], list[Said], list[tuple[str, Violation]], Counter[str]]:
    """All of it: recall, words on test files, words on product files, and how many files of each there were."""
    rows: list[Row] = []
    said: list[Said] = []
    product: list[tuple[str, Violation]] = []
    sizes: Counter[str] = Counter()
    for name in names:
        before: dict[str, bytes] | None = None
        for version, files in sources(cache, name, RELEASES[name], PYTHON):
            if before is not None:
                tests, others = judged(f"{name} {version}", before, files)
                said += tests
                product += [(f"{name} {version}", each) for each in others]
                sizes["product"] += sum(
                    path.endswith(".py") and before.get(path) != content for path, content in files.items()
                )
            before = files
        if name in TAMPERED and before is not None:
            rows += recall(name, furnished(before))
    return rows, said, product, sizes


def show(rows: list[Row]) -> bool:
    """The table of recall. Returns whether all that touches a file that decides about the work was refused."""
    print(f"{'class':<22}{'tampers':>8}{'done':>6}{'refused':>9}{'listed':>8}{'missed':>8}   recall")
    good = True
    for kind in dict.fromkeys(row.kind for row in rows):
        mine = [row for row in rows if row.kind == kind and row.outcome != "none"]
        count = Counter(row.outcome for row in mine)
        seen = (count["refused"] + count["listed"]) / max(1, len(mine))
        good = good and (kind == "special_casing" or count["refused"] == len(mine) > 0)
        names = len({row.name for row in rows if row.kind == kind})
        outcomes = "".join(f"{count[each]:>8}" for each in ("refused", "listed", "missed"))
        print(f"{kind:<22}{names:>8}{len(mine):>6} {outcomes}   {seen:.0%}")
    never = {row.name for row in rows} - {row.name for row in rows if row.outcome != "none"}
    if never:
        print(f"nothing to do these to: {', '.join(sorted(never))}")
    missed = [f"{row.name} on {row.tree}" for row in rows if row.outcome == "missed"]
    print(f"missed: {', '.join(missed) or 'none'}")
    return good


def main() -> None:
    """Measure, print, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure the ratchet")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "holdfast-bench-releases")
    parser.add_argument("--library", action="append", choices=sorted(RELEASES), help="only these")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--all", action="store_true", help="every false alarm, and what is said of product code")
    args = parser.parse_args()
    names = args.library or list(RELEASES)
    rows, said, product, sizes = measure(args.cache, names)
    additions = [each for each in said if each.addition]
    refused = [each for each in additions if each.refused]
    wrong = [each for each in said if each.wrong and each not in refused]
    rate = (len(refused) + len(wrong)) / max(1, len(said))
    asked = [each for each in said if each.refused and all(rule.split(":", 1)[0] in ASKS for rule in each.rules)]
    figures = {
        "changes": len(said),
        "additions": len(additions),
        "additions_refused": len(refused),
        "accused_wrongly": len(wrong),
        "false_alarm_rate": rate,
        "let_through": sum(not each.refused for each in said),
        "asked": len(asked),
        "accused": sum(each.refused for each in said) - len(asked),
        "product_files": sizes["product"],
        "product_files_refused": len({(change, each.path) for change, each in product}),
    }
    if args.json:
        print(json.dumps({"figures": figures, "missed": [row.name for row in rows if row.outcome == "missed"]}))
    else:
        good = show(rows)
        print()
        for key, value in figures.items():
            print(f"{key.replace('_', ' '):<24}{value:>10.4g}")
        print(Counter(rule.split(":", 1)[0] for each in said for rule in {r.split(":", 1)[0] for r in each.rules}))
    if args.all:
        for each in refused:
            print(f"addition refused: {each.change} {each.path}: {each.rules[:3]}")
        for each in wrong:
            print(f"accused wrongly: {each.change} {each.path}: {each.wrong[:3]}")
        for change, violation in product:
            print(f"product: {change} {violation.path}: {violation.rule} {violation.detail}")
    good = show(rows) if args.json else good
    enough = len(said) >= CHANGES or bool(args.library)
    sys.exit(0 if good and enough and rate <= FALSE_ALARMS else 1)


if __name__ == "__main__":
    main()
