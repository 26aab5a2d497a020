"""How much the ratchet sees: every tamper done to a tree, and what an inspection says about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from holdfast.facts.contract import Check, Contract, Criterion, Item
from holdfast.facts.mission import MissionPolicy
from holdfast.mission.contract_protected import DEFAULT_PROTECTED
from holdfast.mission.inspection import Inspection, inspect
from holdfast.repo.repository import FileChange
from holdfast.sim.tampers import TAMPERS, NothingToTamper, Tamper, applied

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


class Row(msgspec.Struct, frozen=True):
    """One tamper done to one tree. `listed` is named as unasked and let through, `none` found nothing to do it to."""

    tree: str
    name: str
    kind: str
    outcome: Literal["refused", "listed", "missed", "none"]
    rules: tuple[str, ...] = ()


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


def recall(tree: str, files: Mapping[str, bytes], tampers: Iterable[Tamper] = tuple(TAMPERS.values())) -> list[Row]:
    """Every tamper done to a tree on its own."""
    rows = []
    for tamper in tampers:
        try:
            edits = tamper.make(files)
        except NothingToTamper:
            rows.append(Row(tree, tamper.name, tamper.kind, "none"))
            continue
        found = held(files, *applied(files, edits))
        rules = tuple(sorted({each.rule for each in found.violations}))
        listed = any("seems to give answers" in line for line in found.unasked)
        rows.append(
            Row(tree, tamper.name, tamper.kind, "refused" if rules else "listed" if listed else "missed", rules)
        )
    return rows
