"""Living documents: nearest wins, zones that leave people's words alone, and what the log tells about a mission."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.facts.mission import (
    CriterionChecked,
    FlakeNoted,
    LessonApplied,
    LessonProposed,
    MissionEscalated,
    MissionReplanned,
    PlanRefused,
    VerificationEnded,
)
from holdfast.facts.task import (
    BatchRefused,
    FindingNoted,
    RatchetViolated,
    RepoConflicted,
    RepoMerged,
    TaskEnded,
    TaskHandedIn,
    TaskJudged,
    TaskStarted,
    Violation,
)
from holdfast.kinds.mission import documents
from holdfast.kinds.mission.documents import PLAN_BEGIN, PLAN_END
from tests.mission.telling import Telling

FILES = {
    "AGENTS.md": b"root rules",
    "CLAUDE.md": b"not read beside it",
    "src/CLAUDE.md": b"src rules",
    "src/app/AGENTS.md": b"app rules",
    "src/application/AGENTS.md": b"another folder's",
    "docs/AGENTS.md": b"docs rules",
}


def test_the_nearest_wins() -> None:
    assert documents.chain(FILES, "src/app/core.py") == ("AGENTS.md", "src/CLAUDE.md", "src/app/AGENTS.md")
    assert documents.nearest(FILES, "src/app/core.py") == "src/app/AGENTS.md"
    assert documents.nearest(FILES, "src/other/deep/x.py") == "src/CLAUDE.md"
    assert documents.nearest(FILES, "README.md") == "AGENTS.md"
    assert documents.nearest({}, "README.md") == ""


def test_rules_for_some_paths_stand_from_far_to_near() -> None:
    rules = documents.rules_of(FILES, ["src/app/core.py", "src/app/text.py"])
    assert [line for line in rules.splitlines() if line.endswith(" rules")] == ["root rules", "src rules", "app rules"]
    assert "## In src/app/" in rules
    assert "docs" not in rules
    assert documents.rules_of({}, ["a.py"]) == ""


def test_a_plan_in_the_rules_is_no_rule() -> None:
    text = documents.with_plan("# Rules\n\nBe kind.\n", "- [ ] core")
    assert documents.rules_of({"AGENTS.md": text.encode()}, []) == "# Rules\n\nBe kind."
    assert documents.zones(text) == documents.Zones("# Rules\n\nBe kind.\n", "- [ ] core")


@pytest.mark.parametrize("odd", [PLAN_BEGIN, PLAN_END, f"{PLAN_END} then {PLAN_BEGIN}", "", "no newline"])
def test_marks_that_are_no_pair_are_words(odd: str) -> None:
    assert documents.zones(odd) == documents.Zones(odd)
    assert odd.strip() in documents.with_plan(odd, "a plan")


PIECES = st.lists(st.sampled_from([PLAN_BEGIN, PLAN_END, "words", "\n", "  ", "# Title\n", "ä"]), max_size=8)


@given(PIECES, st.text(alphabet="ab \n-", max_size=20))
def test_what_people_wrote_stays(pieces: list[str], plan: str) -> None:
    text = "".join(pieces)
    once = documents.with_plan(text, plan)
    before, old, after = text.partition(PLAN_BEGIN)
    if old and PLAN_END in after:
        assert once.startswith(before + PLAN_BEGIN)
        assert once.endswith(PLAN_END + after.partition(PLAN_END)[2])
    else:
        assert once.startswith(text.rstrip())
    if PLAN_BEGIN not in text:
        assert documents.zones(once).plan == plan.strip()
        assert documents.with_plan(once, plan) == once, "the same plan changes nothing"
        assert documents.with_plan(once, "other") == documents.with_plan(text, "other"), "and none stands there twice"


def merged(told: Telling) -> None:
    """One task is on the main line."""
    seq = told.tell(
        TaskStarted(task_id="core", child_id="ses_a", attempt=1, base="c" * 40, ref="refs/heads/holdfast/demo/core"),
        CriterionChecked(verification_id="v", tree="u" * 40, criteria=("add",), outcome="pass", runs=1),
        RepoMerged(batch=1, ref="r", commit="d" * 40, tree="u" * 40, onto="c" * 40, tasks=("core",), passed=("add",)),
    )
    assert seq == 6


def test_progress_says_what_is_done_which_checks_and_what_is_next() -> None:
    told = Telling()
    merged(told)
    text = documents.progress(told.told)
    assert "1/2 criteria pass on refs/heads/holdfast/demo/main at dddddddddddd." in text
    assert "## Done\n\n- core: adding (merged as dddddddddddd, event 6)" in text
    assert "## Checks that pass\n\n- add: `pytest -q t.py::a` (event 6)" in text
    assert "## Checks that do not pass yet\n\n- tone: a judge reads the work" in text
    assert "## Next\n\n- text: shouting <! -- /holdfast:plan -- > | twice (planned)" in text


def test_the_plan_has_the_graph_with_its_states() -> None:
    told = Telling()
    merged(told)
    told.refuse("text", "ses_b", "checks", "tone is not met: x")
    lines = documents.plan(told.told).splitlines()
    assert any(line.endswith("one task for each item. 1 of 2 tasks are merged.") for line in lines)
    assert "Goal: make the library whole" in lines
    assert "| core | merged | - | add ✓ | adding |" in lines
    assert lines[-1].startswith("| text | working, worker 0, sent back 1 times | core | tone | shouting <! -- ")
    assert lines[-1].endswith("\\| twice |"), "nobody's title makes a column"


def test_the_plan_zone_has_a_version_and_follows_the_planner() -> None:
    told = Telling()
    merged(told)
    first = documents.with_plan("Rules.\n", documents.plan_zone(told.told))
    assert "- [x] core: adding\n- [ ] text: shouting" in first
    seq = told.tell(MissionReplanned(round=1, tasks=(), dropped=("text",), child_id="ses_p", why="no tone"))
    second = documents.with_plan(first, documents.plan_zone(told.told))
    assert f"Plan 1 of the mission demo (event {seq}), by its planner ses_p." in second
    assert "text" not in second
    assert documents.zones(second).rules == "Rules.\n"
    assert second.count(PLAN_BEGIN) == second.count(PLAN_END) == 1


def test_lab_notes_have_every_dead_end_with_its_event() -> None:
    told = Telling()
    tree, violation = "u" * 40, Violation("test_deleted", "tests/t.py", "it is gone")
    facts = {
        told.refuse("core", "ses_a", "checks", "add is not met: add gives the sum"): "sent back (checks): add is not",
        told.tell(RatchetViolated(task_id="core", tree=tree, violations=(violation,))): "tests/t.py: test_deleted it",
        told.tell(
            TaskHandedIn(task_id="core", child_id="ses_a", status="blocked", notes="no\nnetwork")
        ): "is blocked according to its worker: no network",
        told.tell(TaskEnded(task_id="core", status="failed", why="too hard", best="b" * 40)): "given up as failed: too",
        told.tell(RepoConflicted(task_id="text", onto="d" * 40, commit="e" * 40, paths=("a.py",))): "did not merge",
        told.tell(
            BatchRefused(batch=1, onto="d" * 40, tree=tree, tasks=("core", "text"), failed=("add",))
        ): "merging core, text would have broken add",
        told.tell(TaskJudged(child_id="ses_j", tree=tree, decision="pass", refused="no evidence")): "no evidence",
        told.tell(PlanRefused(child_id="ses_p", problems=("a circle",))): "a plan was refused: a circle",
        told.tell(MissionReplanned(round=1, tasks=(), why="two are left")): "plan 1 began because two are left",
        told.tell(MissionEscalated(why="plans are used up")): "a user was asked how to go on: plans",
        told.tell(VerificationEnded(verification_id="v", effect="e", tree=tree, error="no hands")): "no hands",
        told.tell(
            FindingNoted(task_id="core", child_id="ses_a", text="it wants <!-- x --> first")
        ): "<! -- x -- > first",
        told.tell(FlakeNoted(criterion="add", tree=tree, runs=4, failures=1)): "1 of 4 runs failed",
        told.tell(LessonProposed(line="Run it.", evidence=(4, 5), key="k")): "because of events 4, 5): Run it.",
    }
    lines = documents.lab_notes(told.told).splitlines()
    for seq, words in facts.items():
        assert [line for line in lines if line.startswith(f"- event {seq}") and words in line], words
    assert lines.index("## Dead ends") < lines.index("## Findings")


def test_the_same_log_makes_the_same_bytes_and_a_long_one_is_bounded() -> None:
    one, other = Telling(), Telling()
    for told in (one, other):
        merged(told)
        for number in range(900):
            told.tell(FindingNoted(task_id="core", child_id="ses_a", text=f"finding {number} " + "x" * 1_000))
    made = documents.all_of(one.told, "Rules.\n")
    assert made == documents.all_of(other.told, "Rules.\n")
    assert sorted(made) == ["AGENTS.md", "lab-notes.md", "plan.md", "progress.txt"]
    notes = made["lab-notes.md"].decode()
    assert "finding 899" in notes
    assert "(500 earlier ones are in the log only)" in notes
    assert len(notes) < 200_000


def test_lessons_that_were_taken_stand_in_a_zone_of_their_own() -> None:
    told = Telling()
    assert documents.LESSONS_BEGIN not in documents.all_of(told.told, "Rules.\n")["AGENTS.md"].decode()
    told.tell(LessonApplied(line="Run it.", by="user:eva"), LessonApplied(line="Run it.", by="policy"))
    agents = documents.all_of(told.told, "Rules.\n", ["And <!-- this -->."])["AGENTS.md"].decode()
    zone = agents.partition(documents.LESSONS_BEGIN)[2].partition(documents.LESSONS_END)[0]
    assert zone == "\n- Run it.\n- And <! -- this -- >.\n"
    assert agents.startswith("Rules.\n")
    assert told.told.mission.lessons == ["Run it."]
    assert documents.learned(told.told.mission.lessons) == "## Learned in this mission\n\n- Run it."
    assert documents.learned([]) == ""
