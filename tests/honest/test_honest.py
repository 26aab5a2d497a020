"""Nothing honest is refused, all of it reaches the tree that is merged, and the checks see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.honest.borders import BORDERS
from tests.honest.contracts import CONTRACTS
from tests.honest.kit import Case, Ground0
from tests.honest.library import BASE
from tests.honest.twins import TWINS


def named(cases: tuple[Case, ...]) -> list[object]:
    return [pytest.param(case, id=case.name.replace(" ", "-")) for case in cases]


def test_there_are_as_many_as_it_says() -> None:
    assert (len(BORDERS) >= 60, len(TWINS), len(CONTRACTS) >= 20) == (True, 21, True)
    names = [case.name for case in (*BORDERS, *TWINS, *CONTRACTS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", named((*BORDERS, *TWINS, *CONTRACTS)))
async def test_honest_work_is_merged(case: Case, tmp_path: Path) -> None:
    ground = Ground0(tmp_path)
    base = await ground.base({**BASE, **case.more})
    found = await ground.hand_in(base, case)
    assert found.violations == ()
    for path, content in case.edits.items():
        if path in case.dropped or content is None:
            assert path not in found.merged, path
            continue
        wanted = content.encode() if isinstance(content, str) else content
        assert found.merged[path] == wanted, path
        assert found.laid.get(path) == wanted, f"{path} is not what checks see"
