"""The pure parts of `holdfast loop`: quoting, costs, what may be added to, what counts as passed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import ContractInvalid
from holdfast.facts.session import Agent
from holdfast.kinds.loop.agent import loop_agent, spec_of
from holdfast.kinds.loop.files import Kept, check_tasks, edits, guard, holds, mark, read_analysis, read_board
from holdfast.kinds.loop.outcome import Outcome, judge
from holdfast.kinds.loop.plan import LoopSpec, Means, Plan, Seen, choose, next_plan
from holdfast.kinds.loop.prompt import cut, filled, reported, shell
from tests.app.looping import story

FIRST = Plan("work", "", item="US-001")
SPEC = LoopSpec(command=("agent", "--go"), items="prd.json", template="{{item}} {{check}}")


def board_of(*stories: dict[str, object]) -> bytes:
    """A prd.json."""
    return json.dumps({"userStories": list(stories)}, indent=1).encode()


@pytest.mark.parametrize(
    ("output", "cents"),
    [
        ('{"type":"result","total_cost_usd":0.25,"usage":{}}', 25),
        ('text\n{"total_cost_usd":0.1}\n{"total_cost_usd":0.2}\ntrailing', 20),
        ('{"total_cost_usd":-1}', None),
        ('{"total_cost_usd":true}', None),
        ('{"total_cost_usd":1e400}', None),
        ('{"total_cost_usd":NaN}', None),
        ('say "total_cost_usd": 0.5 in prose', None),
        ("", None),
    ],
)
def test_a_cost_is_a_line_of_json_and_nothing_else(output: str, cents: int | None) -> None:
    assert reported(output).cost_pico == (None if cents is None else cents * 10**10)


def test_of_a_line_that_was_cut_the_cost_is_still_read() -> None:
    output = '{"type":"result","result":"long\n[… left out …]\n", "total_cost_usd": 0.5, "usage": {}}'
    assert reported(output).cost_pico is None
    assert reported(output, truncated=True).cost_pico == 5 * 10**11


NASTY = ["it's", "a b", "$(x)", "`x`", '"', "-", "", "{prompt_file}", "--in={prompt_file}!", "{prompt}'$HOME"]


def test_words_and_prompt_reach_the_command_as_they_are(tmp_path: Path) -> None:
    prompt = "a 'quote' $HOME `id` \\ {prompt_file}\nHOLDFAST_\n\nEOF"
    show = "import sys,json; print(json.dumps([sys.argv[1:], sys.stdin.read(), open(sys.argv[8]).read()]))"
    done = subprocess.run(
        ["bash", "-c", shell(["python3", "-c", show, *NASTY], prompt)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": "/nowhere"},
    )
    words, given, file = json.loads(done.stdout)
    path = words[7]
    assert words == [*NASTY[:7], path, f"--in={path}!", f"{prompt}'$HOME"]
    assert given == file == prompt + "\n"
    assert Path(path).parent == tmp_path
    assert not list(tmp_path.iterdir()), "the prompt is gone afterwards"


def test_the_status_of_the_command_is_the_status_of_the_call() -> None:
    done = subprocess.run(["bash", "-c", shell(["bash", "-c", "exit 41"], "x")], check=False)
    assert done.returncode == 41


def test_what_is_put_into_a_template_is_not_looked_at_again() -> None:
    assert filled("{{a}} {{b}} {{c}}", {"a": "{{b}}", "b": "2"}) == "{{b}} 2 {{c}}"
    assert len(cut("é" * 10_000, 1_000).encode()) < 1_100


def test_lines_may_be_added_and_none_taken() -> None:
    assert holds(b"a\nb\n", b"x\na\ny\nb\nz\n")
    assert not holds(b"a\nb\n", b"b\na\n")
    assert not holds(b"a\na\n", b"a\n")
    items = board_of(story(1))
    before = {"progress.txt": Kept.of(b"a\nb\n"), "prd.json": Kept.of(items)}
    now = {"progress.txt": b"new\nb\n", "prd.json": items + b" "}
    assert guard("prd.json", before, now)[1] == {"progress.txt": b"a\nb\nnew\n", "prd.json": items}
    assert guard("", before, {**now, "progress.txt": b"a\nb\n"})[1] == {}, "a stage writes the items"
    again = {"progress.txt": b"a\nb\nnew\n", "prd.json": items}
    assert guard("prd.json", before, again)[1] == {}, "doing it twice does nothing"


def test_marking_changes_one_word() -> None:
    data = b'[ {"description":"One" ,"passes" : false},\n\t{"description": "Two", "passes": false} ]'
    board = read_board(data, "feature_list.json")
    second = board.items[1].id
    assert mark(data, "feature_list.json", (second,)) == data.replace(b'Two", "passes": false', b'Two", "passes": true')
    assert "`passes` of" in edits(data, mark(data, "feature_list.json", (second,)), "feature_list.json")


def test_the_next_item_by_priority_and_what_it_depends_on() -> None:
    stories = [story(1, priority=3), story(2, priority=1, depends=["US-003"]), story(3, priority=2)]
    board = read_board(board_of(*stories), "prd.json")
    plan = Plan("rest", "")
    found = choose(SPEC, plan, board)
    assert found is not None
    assert found.id == "US-003"


def outcome(end: str = "ok", code: int | None = 0, content: str = "", *, timed_out: bool = False) -> Outcome:
    """How a call ended."""
    return Outcome(content, end, code, timed_out=timed_out, duration_ms=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        (outcome(), True),
        (outcome("error", 1), False),
        (outcome("ok", 0, timed_out=True), False),
        (outcome("unknown", None), False),
        (outcome("skipped", None), False),
        (outcome("cancelled", None), False),
        (None, False),
    ],
)
def test_only_a_check_that_ran_and_succeeded_passes(found: Outcome | None, passed: bool) -> None:
    board = read_board(board_of(story(1)), "prd.json")
    outcomes = {"check:0": found} if found is not None else {}
    assert judge(SPEC, board, FIRST, outcomes).passed is passed


def test_without_check_and_until_nothing_passes() -> None:
    board = read_board(board_of(story(1, check=None)), "prd.json")
    assert not judge(SPEC, board, FIRST, {"work": outcome(content="<promise>COMPLETE</promise>")}).passed


def test_a_metric_is_the_number_of_the_command_and_not_of_a_note_below_it() -> None:
    check = {"metric": {"command": "bench", "target": 0.9, "direction": "at_least"}}
    board = read_board(board_of(story(1, check=check)), "prd.json")
    note = "\n[3 processes left behind were ended]"
    assert not judge(SPEC, board, FIRST, {"check:0": outcome(content="score 0.5" + note)}).passed
    assert judge(SPEC, board, FIRST, {"check:0": outcome(content="score 0.95" + note)}).passed


@pytest.mark.parametrize(
    ("spent", "kind"), [(0, "work"), (9, "rest")], ids=["money is left", "what was said reaches the budget"]
)
def test_the_budget_counts_what_was_just_said(spent: int, kind: str) -> None:
    seen = Seen({"prd.json": board_of(story(1)), "progress.txt": None}, "", "t")
    plan = next_plan(SPEC, Plan("rest", "", cost_pico=1), seen, Means(True, 10, spent))
    assert plan.kind == kind


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"description": " "}, "description"),
        ({"acceptance_criteria": []}, "acceptance_criteria"),
        ({"acceptance_criteria": ["x", 1]}, "acceptance_criteria"),
        ({"branch_name": "-x"}, "`branch_name`"),
        ({"branch_name": "a/../b"}, "`branch_name`"),
        ({"branch_name": "a..b"}, "`branch_name`"),
        ({"branch_name": "a//b"}, "`branch_name`"),
        ({"branch_name": "a.lock"}, "`branch_name`"),
        ({"branch_name": "a\nb"}, "`branch_name`"),
    ],
)
def test_an_analysis_is_checked_field_by_field(change: dict[str, object], words: str) -> None:
    right = {
        "priority_item": "a",
        "description": "b",
        "rationale": "c",
        "acceptance_criteria": ["d"],
        "branch_name": "e/f",
    }
    assert read_analysis(json.dumps(right).encode()).branch_name == "e/f"
    with pytest.raises(ContractInvalid, match=words):
        read_analysis(json.dumps({**right, **change}).encode())


@pytest.mark.parametrize(("data", "words"), [(None, "not written"), (b"[", "not JSON"), (b"[]", "object")])
def test_an_analysis_is_an_object(data: bytes | None, words: str) -> None:
    with pytest.raises(ContractInvalid, match=words):
        read_analysis(data)


def test_a_byte_order_mark_in_an_analysis_is_no_obstacle() -> None:
    chosen = {name: "x" for name in ("priority_item", "description", "rationale", "branch_name")}
    data = json.dumps({**chosen, "acceptance_criteria": ["y"]}).encode("utf-8-sig")
    spec = LoopSpec(("true",), "prd.json", report="slow", plan_template="on {{branch}}")
    carried = Plan("work", "", stage="analysis", tries=1)
    plan = next_plan(spec, carried, Seen({"analysis.json": data}, "", "t"), Means(True, None, 0))
    assert (plan.kind, plan.stage) == ("work", "plan")
    assert "\non x\n" in str(plan.calls[0].input["command"])


def test_a_plan_needs_tasks_with_checks_that_do_not_pass_yet() -> None:
    check_tasks(json.dumps({"tasks": [story(1)]}).encode(), "prd.json", until="")
    check_tasks(json.dumps({"tasks": [story(1, check=None)]}).encode(), "prd.json", until="true")
    many = [{**story(1), "id": f"T{number}"} for number in range(51)]
    for content, words in (
        ({"userStories": [story(1)]}, "`tasks`"),
        ({"tasks": [story(1, passes=True)]}, "must be false for all tasks"),
        ({"tasks": [story(1, check=None)]}, "no `check`"),
        ({"tasks": many}, "at most 50"),
    ):
        with pytest.raises(ContractInvalid, match=words):
            check_tasks(json.dumps(content).encode(), "prd.json", until="")


def test_what_was_asked_for_is_in_the_log_word_for_word() -> None:
    agent = loop_agent(SPEC)
    assert spec_of(agent) == SPEC
    assert spec_of(Agent(model="scripted:x")) is None
