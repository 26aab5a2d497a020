"""What is said of test changes that maintainers made. A whole library's releases in `make faults`, by pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import CannotRunSafely
from holdfast.sim.library import PYTHON
from holdfast.sim.tampers_measure import furnished, recall
from holdfast.sim.tampers_releases import RELEASES, Said, judged, sources
from tests.mission.ratchet_mini import FILES

SUITE = "tests/test_knots.py"
TEXT = FILES[SUITE].decode()


def of(new: str, old: str = TEXT) -> Said:
    (said,), product = judged("1.1", {**FILES, SUITE: old.encode()}, {**FILES, SUITE: new.encode()})
    assert product == []
    return said


def test_an_addition_is_told_by_its_lines() -> None:
    more = of(TEXT + "\n\ndef test_more():\n    assert bend('a')\n")
    assert (more.addition, more.refused, more.wrong) == (True, False, ())
    inside = of(TEXT.replace("    knot = hitch(rope)\n", "    knot = hitch(rope)\n    knot = knot\n"))
    assert (inside.addition, inside.refused) == (False, True)
    edited = of(TEXT.replace('"jute:3"', '"jute:4"'))
    assert (edited.addition, edited.refused, edited.wrong) == (False, True, ())


def test_an_accusation_is_held_against_the_lines() -> None:
    true = of(TEXT.replace("def test_bend", "@pytest.mark.skip\ndef test_bend"))
    assert true.rules
    assert true.wrong == ()
    # Syntax knows that this one can never fail; lines do not, and what lines do not bear out counts as wrong.
    false = of(TEXT.replace("    assert tight(knot)\n", "    assert knot == knot\n"))
    assert false.rules[0].startswith("test_weakened")
    assert false.wrong == false.rules


@pytest.mark.faults
def test_releases_of_real_libraries(tmp_path: Path) -> None:
    said: list[Said] = []
    missed = []
    for name in ("tinydb", "cachetools", "pyjwt"):
        before: dict[str, bytes] = {}
        try:
            for version, files in sources(tmp_path, name, RELEASES[name], PYTHON):
                said += judged(f"{name} {version}", before, files)[0] if before else []
                before = files
        except CannotRunSafely as error:
            pytest.skip(f"no index that pip asks has {name}: {error}")
        rows = recall(name, furnished(before))
        missed += [row.name for row in rows if row.outcome == "missed" and row.kind != "special_casing"]
    assert missed == []
    assert len(said) > 85
    wrong = [each for each in said if each.wrong or (each.addition and each.refused)]
    assert len(wrong) <= len(said) / 100, wrong
