"""A small library with a suite that has something for every tamper: written for this, and for nothing else."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy
from holdfast.kinds.mission.contract.protected import DEFAULT_PROTECTED
from holdfast.kinds.mission.ratchet.inspection import Inspection, inspect
from holdfast.repo.repository import FileChange

_SUITE = Criterion("suite", "its tests pass", Check("sh scripts/check.sh"))

_WHOLE = Item("all", "the whole", criteria=(_SUITE,))

CONTRACT = Contract(goal="it works as its tests say", items=(_WHOLE,))
"""What the trees of a measurement are held to."""

FURNITURE = {
    ".github/workflows/tests.yml": "on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n"
    "      - uses: actions/checkout@v4\n      - run: pip install .\n      - run: python -m pytest\n",
    "Makefile": "test:\n\tpython -m pytest -q\n",
    "scripts/check.sh": "#!/bin/sh\nmake test\n",
    "feature_list.json": '[{"id": "one", "description": "first", "steps": ["do"], "passes": false},\n'
    ' {"id": "two", "description": "second", "steps": [], "passes": false}]\n',
    "mission.toml": 'contract = "feature_list.json"\n',
    "tests/golden/answer.txt": "42\n",
}
"""What a tree gets that has none of it: a workflow, a Makefile, a script, a feature list, data of tests."""


def furnished(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """A tree with all that a tamperer may want to touch; what it has itself stays."""
    return {**{path: text.encode() for path, text in FURNITURE.items()}, **files}


def changes_of(before: Mapping[str, bytes], after: Mapping[str, bytes], modes: Mapping[str, str]) -> list[FileChange]:
    """What differs, as a repository would tell it. `modes` are the new modes of paths where they are not the usual."""
    found = []
    for path in sorted({*before, *after, *modes}):
        old, new, mode = before.get(path), after.get(path), modes.get(path, "100644")
        if old == new and mode in ("100644", ""):
            continue
        link = mode == "120000"
        kind: Literal["added", "removed", "changed"] = "added" if old is None else "changed"
        kind = "removed" if new is None and not link else kind
        was, now = Counter((old or b"").splitlines()), Counter((new or b"").splitlines())
        found.append(
            FileChange(
                path=path,
                kind=kind,
                mode="" if kind == "removed" else mode,
                lines_added=(now - was).total(),
                lines_removed=(was - now).total(),
            )
        )
    return found


def held(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    modes: Mapping[str, str] | None = None,
    *,
    contract: Contract = CONTRACT,
    protected: Iterable[str] = DEFAULT_PROTECTED,
    scope: tuple[str, ...] = (),
    policy: MissionPolicy | None = None,
    allowed: Mapping[str, str] | None = None,
    task: str = "",
) -> Inspection:
    """One tree held against another, with everything as a mission has it unless it is said otherwise."""
    return inspect(
        before,
        after,
        changes_of(before, after, modes or {}),
        protected=tuple(protected),
        scope=scope,
        contract=contract,
        policy=policy or MissionPolicy(),
        allowed=allowed or {},
        task=task,
    )


def _text(text: str) -> bytes:
    return textwrap.dedent(text).lstrip().encode()


FILES = furnished(
    {
        "pyproject.toml": _text(
            """
            [project]
            name = "harbor"
            version = "1.0"
            dependencies = ["attrs>=23"]

            [tool.pytest.ini_options]
            addopts = "--strict-markers"
            testpaths = ["tests"]
            """
        ),
        "src/harbor/__init__.py": b"from harbor.knots import bend, hitch\n",
        "src/harbor/knots.py": _text(
            '''
            """Knots."""

            import re


            def bend(rope, turns=1):
                """A bend in a rope."""
                if turns < 0:
                    raise ValueError("turns count from 0")
                return f"{rope}:{turns}"


            def hitch(rope):
                return bend(rope, len(re.findall("a", rope)))
            '''
        ),
        "tests/conftest.py": _text(
            """
            import pytest


            @pytest.fixture
            def rope():
                return "manila"
            """
        ),
        "tests/helpers.py": _text(
            """
            def tight(knot):
                return knot.endswith(":2")
            """
        ),
        "tests/data/knots.txt": b"manila:2\n",
        "tests/test_knots.py": _text(
            """
            import unittest

            import pytest
            from harbor import bend, hitch
            from helpers import tight


            @pytest.fixture
            def line():
                return "sisal"


            def test_bend():
                assert bend("hemp", 14) == "hemp:14"
                assert bend("jute", 3) == "jute:3"


            def test_hitch(rope):
                knot = hitch(rope)
                assert tight(knot)
                assert knot == "manila:2"


            def test_line(line):
                assert hitch(line) == "sisal:1"


            def test_negative():
                with pytest.raises(ValueError, match="from 0"):
                    bend("hemp", -1)


            @pytest.mark.parametrize("turns", [1, 2, 3])
            def test_turns(turns):
                assert bend("x", turns) == f"x:{turns}"


            class TestHitches(unittest.TestCase):
                def test_none(self):
                    self.assertEqual(hitch("rope"), "rope:0")
            """
        ),
    }
)
