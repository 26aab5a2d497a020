"""`holdfast loop --chain`: from a report to a choice, to tasks, to the loop; what is wrong is asked for again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.looping import MINE, passes, project
from tests.app.terminal import Said, Type

pytestmark = pytest.mark.usefixtures("holdfast_home")

ANALYSIS = {
    "priority_item": "faster",
    "description": "Make it faster.",
    "rationale": "All of them wait.",
    "acceptance_criteria": ["It takes a second."],
    "branch_name": "feature/faster",
}
PRD = {
    "project": "x",
    "branchName": "feature/faster",
    "tasks": [
        {"id": "T-001", "title": "One", "check": "test -e T-001", "priority": 1, "passes": False},
        {"id": "T-002", "title": "Two", "check": "test -e T-002", "priority": 2, "passes": False},
    ],
}

AGENT = """
prompt=$(cat)
case "$prompt" in
  *"The file analysis.json"*) n=a ;;
  *"The file prd.json"*) n=p; printf '%s' "$prompt" > planned ;;
  *) printf '%s' "$prompt" | grep -o 'T-00[0-9]' | head -1 | xargs touch; exit ;;
esac
printf x >> tries.$n
src=$n.$(wc -c < tries.$n)
[ -e $src ] || exit 0
if [ $n = a ]; then cp $src analysis.json; else cp $src prd.json; fi
"""


def chain(type: Type, folder: Path, *words: str) -> Said:
    """A chain whose command hands in the files `a.1`, `a.2`, … and then `p.1`, … ."""
    (folder / "report.md").write_text("Everything is slow.\n")
    (folder / "agent.sh").write_text(AGENT)
    at = ("loop", "--workspace", folder, *MINE, "--chain", folder / "report.md", "--session-id", "k", *words)
    return type(*at, "--", "bash", "agent.sh")


def test_from_a_report_to_tasks_that_pass(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    early = json.loads(json.dumps(PRD))
    early["tasks"][0]["passes"] = True
    (folder / "a.1").write_text(json.dumps({**ANALYSIS, "branch_name": "../../etc"}))
    (folder / "a.2").write_text(json.dumps(ANALYSIS))
    (folder / "p.1").write_text(json.dumps(early))
    (folder / "p.2").write_text(json.dumps(PRD))
    chain(type, folder).went()
    assert passes(folder) == {"T-001": True, "T-002": True}
    assert (folder / "tries.a").read_text() == (folder / "tries.p").read_text() == "xx"
    planned = (folder / "planned").read_text()
    assert "All of them wait." in planned
    assert '"branchName": "feature/faster"' in planned
    assert "`passes` of T-001 is true" in planned, "what was wrong is told"
    progress = (folder / "progress.txt").read_text()
    assert [line.rpartition(" - ")[2] for line in progress.splitlines() if line.startswith("## ")] == [
        *("analysis", "analysis", "plan", "plan"),
        *("T-001", "T-002"),
    ]


def test_a_stage_is_asked_three_times_then_a_person(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / "p.1").write_text(json.dumps(PRD))
    chain(type, folder).went(3)
    assert (folder / "tries.a").read_text() == "xxx"
    (item,) = type("inbox", "--json").lines
    assert "analysis.json was not written" in json.dumps(item)
    (folder / "analysis.json").write_text(json.dumps(ANALYSIS))
    type("approve", item["item_id"], "--no-wake").went()
    type("wake", "k").went()
    assert passes(folder) == {"T-001": True, "T-002": True}
