"""Verdicts of judges: which of them count."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import Judged
from holdfast.globs import matches
from holdfast.kinds.mission.fold.state import ChildRole, MissionState, Verdict
from holdfast.kinds.mission.role.submissions import Known, Said, files_named, problems, read, read_verdict

NAMES = ("run", "read")
FILES = {"src/a.py": b"import os\n\n    return  os.sep\n", "empty.py": b""}
RUNS = (("cd /workspace && python -m a --shout hi", "HI\n2 lines\n"), ("true", ""))
KNOWN = Known(NAMES, {"run": Verdict(7, "pass")}, {7}, FILES, RUNS)
READ = "src/a.py:3: return os.sep"
WHOLE = (Judged("run", True, ("event 7",)), Judged("read", True, (READ,)))


@pytest.mark.parametrize(
    "evidence",
    [
        "src/a.py:1: import os",
        "./src/a.py:1 `import os`",
        "/workspace/src/a.py:3: return os.sep",
        "src/a.py:1-3: import os return os.sep",
        "`src/a.py:1`: import os",
        "$ python -m a --shout hi => HI",
        "$ python -m a --shout hi\nHI\n2 lines",
        "`$ cd /workspace && python -m a --shout hi` -> 2 lines",
        "$ true",
    ],
)
def test_evidence_that_can_be_looked_up_counts(evidence: str) -> None:
    said = Said("pass", (WHOLE[0], Judged("read", True, (evidence,))))
    assert problems(said, KNOWN) == ()


@pytest.mark.parametrize("evidence", ["event 7", "Event #7 says so", "#7", "event: 7"])
def test_an_event_shows_what_a_check_says_and_nothing_else(evidence: str) -> None:
    assert problems(Said("pass", (Judged("run", True, (evidence,)), WHOLE[1])), KNOWN) == ()
    said = Said("pass", (WHOLE[0], Judged("read", True, (evidence,))))
    assert "read has no check of its own" in " ".join(problems(said, KNOWN))
    with_more = Said("pass", (WHOLE[0], Judged("read", True, (evidence, READ))))
    assert problems(with_more, KNOWN) == ()


def test_what_the_work_does_is_shown_by_a_run_alone() -> None:
    known = msgspec.structs.replace(KNOWN, to_run={"read"})
    assert "read is about what the work does: run it" in " ".join(problems(Said("pass", WHOLE), known))
    for run in ("$ python -m a --shout hi => HI", "`$ true`"):
        both = (WHOLE[0], Judged("read", True, (READ, run)))
        assert problems(Said("pass", both), known) == ()
    never = Said("pass", (WHOLE[0], Judged("read", True, ("$ python -m b => HI",))))
    assert "you did not run" in " ".join(problems(never, known))
    failing = Said("fail", (WHOLE[0], Judged("read", False, ("src/a.py:2",), "it says nothing")))
    assert problems(failing, known) == (), "a fail needs no run"


def test_a_failing_criterion_needs_a_place_and_no_quotation() -> None:
    failing = (WHOLE[0], Judged("read", False, ("src/a.py:2",), "it says nothing"))
    assert problems(Said("fail", failing), KNOWN) == ()


@pytest.mark.parametrize("issue", ["MISSING: hello is not defined at all", "could be shorter"])
def test_a_pass_with_an_issue_contradicts_itself(issue: str) -> None:
    said = Said("pass", (WHOLE[0], msgspec.structs.replace(WHOLE[1], issue=issue)))
    assert "read passes and has an issue" in " ".join(problems(said, KNOWN))


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ("event 8", "event 8 is not a result"),
        ("I looked", "cannot be looked up"),
        ("src/a.py", "cannot be looked up"),
        ("it prints HI", "cannot be looked up"),
        ("src/a.py:4", "has 3 lines, so there is no line 4"),
        ("src/a.py:0", "no line 0"),
        ("src/a.py:3-1: return", "no line 3-1"),
        ("src/a.py:1-99: return", "no line 1-99"),
        ("src/a.py:1", "quote the text at src/a.py:1"),
        ("src/a.py:1: return os.sep", "does not say 'return os.sep'"),
        ("src/a.py:3: returns the right thing", "does not say"),
        ("$ python -m other => HI", "you did not run `python -m other`"),
        ("$ python -m a --shout hi => HELLO", "did not print 'HELLO'"),
        ("$ python -m a --shout hi", "give the output of `python -m a --shout hi`"),
        ("src/b.py:1", "there is no file src/b.py"),
        ("../etc/passwd:1", "there is no file ../etc/passwd"),
    ],
)
def test_evidence_that_is_not_there_is_refused(evidence: str, words: str) -> None:
    said = Said("pass", (WHOLE[0], Judged("read", True, (evidence,))))
    assert words in " ".join(problems(said, KNOWN))


def test_one_bad_piece_of_evidence_among_good_ones_is_refused_too() -> None:
    said = Said("pass", (WHOLE[0], Judged("read", True, ("src/a.py:1: import os", "src/a.py:900: x"))))
    assert len(problems(said, KNOWN)) == 1


@pytest.mark.parametrize("outcome", ["fail", "error", "timeout"])
def test_nothing_passes_whose_check_did_not(outcome: str) -> None:
    known = msgspec.structs.replace(KNOWN, verdicts={"run": Verdict(7, outcome)})  # type: ignore[arg-type]
    assert f"the outcome was {outcome} (event 7)" in problems(Said("pass", WHOLE), known)[0]
    failing = (Judged("run", False, ("event 7",), "it raises"), WHOLE[1])
    assert problems(Said("fail", failing), known) == ()


def test_a_judge_may_fail_what_a_check_passes_with_an_issue() -> None:
    failing = (Judged("run", False, ("src/a.py:2",), "the answer is written down"), WHOLE[1])
    assert problems(Said("fail", failing), KNOWN) == ()
    assert "fails without an issue" in " ".join(
        problems(Said("fail", (Judged("run", False, ("#7",)), WHOLE[1])), KNOWN)
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Said("pass", WHOLE[:1]), "read has no verdict"),
        (Said("pass"), "run has no verdict"),
        (Said("pass", (*WHOLE, WHOLE[0])), "run has 2 verdicts"),
        (Said("pass", (*WHOLE, Judged("other", True, ("#7",)))), "other is not one of your criteria"),
        (Said("fail", WHOLE), "no criterion fails"),
        (Said("restart"), "`restart` needs a `reason`"),
        (Said("escalate", reason=" "), "`escalate` needs a `reason`"),
    ],
)
def test_a_verdict_is_whole_and_agrees_with_itself(said: Said, words: str) -> None:
    assert words in " ".join(problems(said, KNOWN))


def test_to_begin_anew_or_to_ask_a_person_takes_a_reason_alone() -> None:
    assert problems(Said("restart", reason="it is built on sand"), KNOWN) == ()
    assert problems(Said("escalate", reason="two criteria exclude each other"), KNOWN) == ()


_JUDGED = some.builds(
    Judged,
    some.sampled_from(["run", "read", "other"]),
    some.booleans(),
    some.lists(some.sampled_from(["#7", "#8", READ, "src/a.py:9: x", "trust me", ""]), max_size=2).map(tuple),
    some.sampled_from(["", "it is wrong"]),
)


@given(some.lists(_JUDGED, max_size=4).map(tuple), some.sampled_from(["pass", "fail", "error", "timeout"]))
def test_what_counts_as_a_pass_has_evidence_for_everything_and_no_failed_check(
    judged: tuple[Judged, ...], outcome: str
) -> None:
    known = msgspec.structs.replace(KNOWN, verdicts={"run": Verdict(7, outcome)})  # type: ignore[arg-type]
    if not problems(Said("pass", judged), known):
        assert outcome == "pass"
        assert sorted(each.criterion for each in judged) == ["read", "run"]
        assert all(each.passes and set(each.evidence) <= {"#7", READ} and each.evidence for each in judged)
        assert not any(each.issue for each in judged)


# --- what the mission records --------------------------------------------------------------------


def mission() -> MissionState:
    """A mission with one judge."""
    criteria = (Criterion("run", "it runs", Check("true")), Criterion("read", "it reads well"))
    state = MissionState(Contract("g", (Item("i", "one", criteria=criteria),)), MissionPolicy())
    state.roles["ses_j"] = ChildRole("judge", "", "tree", NAMES)
    state.verdicts["tree"] = {"run": Verdict(7, "pass")}
    return state


def body(decision: str = "pass") -> dict[str, object]:
    """What a judge hands in."""
    judged = [{"criterion": each.criterion, "passes": True, "evidence": list(each.evidence)} for each in WHOLE]
    return {"decision": decision, "criteria": judged}


def test_a_whole_verdict_is_recorded_for_the_tree_that_was_judged() -> None:
    found = read_verdict(mission(), ChildFinished(child_id="ses_j", status="done", submitted=body()), None)
    assert (found.tree, found.decision, found.refused) == ("tree", "pass", "")


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (ChildFinished(child_id="ses_j", status="failed", submitted=body(), detail="it broke"), "it broke"),
        (ChildFinished(child_id="ses_j", status="parked", submitted=body(), reason="cap"), "is parked: cap"),
        (ChildFinished(child_id="ses_j", status="done"), "handed in nothing"),
        (ChildFinished(child_id="ses_j", status="done", submitted={"decision": "great"}), "not a verdict"),
        (ChildFinished(child_id="ses_x", status="done", submitted=body()), "not opened by this mission"),
    ],
)
def test_a_judge_that_fails_is_silent_or_strange_never_means_pass(report: ChildFinished, words: str) -> None:
    found = read_verdict(mission(), report, None)
    assert words in found.refused
    assert found.decision == "fail"


def test_a_check_that_failed_since_the_judge_looked_refuses_its_verdict() -> None:
    state = mission()
    state.verdicts["tree"]["run"] = Verdict(9, "fail")
    found = read_verdict(state, ChildFinished(child_id="ses_j", status="done", submitted=body()), None)
    assert "the outcome was fail" in found.refused


# --- files ---------------------------------------------------------------------------------------


def test_the_files_that_are_named_are_looked_up_and_hardly_any_others() -> None:
    said = Said("pass", (Judged("run", True, ("#7",)), Judged("read", True, ("a[1]*.py:3", "/workspace/b.py:1"))))
    globs = files_named(said)
    assert [name for name in ("a[1]*.py", "a1x.py", "b.py", "c.py") if matches(name, globs)] == ["a[1]*.py", "b.py"]
    assert not [name for name in ("a", "b/c") if matches(name, files_named(Said("pass", WHOLE[:1])))]


def test_nonsense_is_no_verdict() -> None:
    assert isinstance(read({"decision": "pass", "criteria": "all"}), str)
