"""`holdfast loop` with real commands in real hands: what ends it, what it believes, what it puts back."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from holdfast.kinds.loop import plan
from tests.app.asking import rests
from tests.app.looping import DOES, MINE, loop, passes, plans, project, story
from tests.app.terminal import Type

pytestmark = pytest.mark.usefixtures("holdfast_home")


def test_three_items_by_priority_and_nothing_but_passes_is_changed(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(2), story(1), story(3), AGENTS__md="Use tabs.\n")
    before = (folder / "prd.json").read_text()
    went = loop(type, folder, "--json", command=f"cat > last; exec < last; {DOES}").went()
    result = went.lines[-1]
    assert (result["type"], result["status"], result["stop_reason"], result["exit_code"]) == (
        "result",
        "done",
        "done",
        0,
    )
    assert result["cost_usd"] is None, "nobody said what it cost"
    assert (folder / "prd.json").read_text() == before.replace('"passes": false', '"passes": true')
    progress = (folder / "progress.txt").read_text()
    assert [line.rpartition(" - ")[2] for line in progress.splitlines() if line.startswith("## ")] == [
        "US-001",
        "US-002",
        "US-003",
    ]
    prompt = (folder / "last").read_text()
    assert "Make US-003" in prompt
    assert "Use tabs." in prompt
    assert "- US-002: passes, by the harness's own checks" in prompt, "progress.txt is told on"
    assert "`test -e US-003` passes" in prompt
    owner = os.stat(folder).st_uid
    assert {os.stat(folder / name).st_uid for name in ("prd.json", "progress.txt")} == {owner}
    assert type("verify").went().code == 0


def test_the_stop_token_ends_nothing(type: Type, tmp_path: Path) -> None:
    """A command that only quotes its prompt and promises."""
    folder = project(tmp_path / "p", story(1), AGENTS__md="Say <promise>COMPLETE</promise> when all is done.\n")
    said = loop(type, folder, "--max-iterations", "2", command="cat; echo '<promise>COMPLETE</promise>'").went(4)
    assert "--max-turns" in said.err
    assert passes(folder) == {"US-001": False}
    assert (folder / "progress.txt").read_text().count("which decides nothing") == 2


def test_passes_and_checks_that_the_command_wrote_count_nothing(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    cheat = 'sed -i \'s/"passes": false/"passes": true/; s/test -e US-00[12]/true/\' prd.json; date +%N > busy'
    loop(type, folder, "--max-iterations", "2", command=cheat).went(4)
    assert passes(folder) == {"US-001": False, "US-002": False}
    assert "test -e US-001" in (folder / "prd.json").read_text()
    progress = (folder / "progress.txt").read_text()
    assert (
        progress.count("`passes` of US-001, US-002 was set to true; the items themselves were changed; put back") == 2
    )


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        ("rm prd.json", "prd.json was removed"),
        ("ln -sf /etc/passwd prd.json", "prd.json was removed or replaced"),
        ("echo '{' > prd.json", "made unreadable"),
        ("rm prd.json; mkdir -p prd.json/x", "prd.json was removed or replaced"),
        ("rm progress.txt", "removed or replaced progress.txt"),
        ("rm progress.txt; mkfifo progress.txt", "removed or replaced progress.txt"),
        ("echo mine > progress.txt", "took lines out of progress.txt"),
    ],
)
def test_what_the_command_breaks_is_put_back(type: Type, tmp_path: Path, breaks: str, words: str) -> None:
    folder = project(tmp_path / "p", story(1), progress__txt="# Patterns\nolder\n")
    before = (folder / "prd.json").read_text()
    loop(type, folder, command=f"{DOES}; {breaks}").went()
    assert (folder / "prd.json").read_text() == before.replace("false", "true")
    assert stat.S_ISREG((folder / "prd.json").lstat().st_mode)
    progress = (folder / "progress.txt").read_text()
    assert progress.startswith("# Patterns\nolder\n")
    assert words in progress
    assert ("mine" in progress) == ("mine" in breaks), "what was added is kept"


def test_lines_may_be_added_anywhere_in_progress(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1), progress__txt="# Patterns\nolder\n")
    loop(type, folder, command=f"{DOES}; sed -i '1a a new pattern' progress.txt").went()
    progress = (folder / "progress.txt").read_text()
    assert progress.startswith("# Patterns\na new pattern\nolder\n")
    assert "put back" not in progress


def test_a_long_progress_that_is_no_text_is_kept_byte_for_byte(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    older = b"\xff\xfe older\n" + b"".join(b"line %d\n" % number for number in range(20_000))
    (folder / "progress.txt").write_bytes(older)
    loop(type, folder, command=f"{DOES}; rm progress.txt").went()
    assert (folder / "progress.txt").read_bytes().startswith(older)
    assert (folder / "progress.txt").read_bytes().count(b"the command removed or replaced progress.txt") == 2
    assert type("verify").went().code == 0


def test_a_list_of_features_is_taken_too(type: Type, tmp_path: Path) -> None:
    text = '[{"id": "US-001", "description": "One", "steps": ["do"], "check": "test -e US-001", "passes": false}]\n'
    folder = project(tmp_path / "p", feature_list__json=text)
    loop(type, folder, "--session-id", "k").went()
    assert (folder / "feature_list.json").read_text() == text.replace("false", "true")
    loop(type, folder, "--session-id", "k").refused(2, "session k exists already", "holdfast wake k")
    assert "after 0 iterations" in loop(type, folder).went().out, "all pass already"


def test_until_decides_and_needs_no_items(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    said = loop(type, folder, "--until", "test $(wc -l < count) -ge 3", command="echo x >> count").went()
    assert "`test $(wc -l < count) -ge 3` succeeded after 3 iterations" in said.out
    assert (folder / "count").read_text() == "x\n" * 3
    assert "failed (exit status 1" in (folder / "progress.txt").read_text()


def test_until_ends_it_with_items_left_and_stands_in_for_a_check(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1, check=None), story(2))
    loop(type, folder, "--until", "test -e US-001").went()
    assert passes(folder) == {"US-001": True, "US-002": False}


def test_without_a_check_nothing_is_marked_and_a_person_is_asked(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1, check=None), story(2))
    said = loop(type, folder, "--session-id", "k").went(3)
    assert "WARNING: no check decides whether US-001 is done" in said.err
    assert passes(folder) == {"US-001": False, "US-002": True}
    assert (folder / "US-001").exists()
    (item,) = type("inbox", "--json").lines
    path = folder / "prd.json"
    path.write_text(path.read_text().replace("false", "true"))
    type("approve", item["item_id"], "--no-wake").went()
    assert "all 2 items of prd.json pass after 2 iterations" in type("wake", "k").went().out
    assert passes(folder) == {"US-001": True, "US-002": True}, "what a person set stays"


def test_no_progress_asks_a_person_and_a_no_ends_it(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    loop(type, folder, "--session-id", "k", command="echo thinking").went(3)
    assert (folder / "progress.txt").read_text().count("exit status 0") == 3
    (item,) = type("inbox", "--json").lines
    assert "The last 3 iterations changed nothing" in json.dumps(item)
    type("deny", item["item_id"], "--no-wake").went()
    assert "a person ended the loop" in type("wake", "k").went(1).err
    assert (folder / "progress.txt").read_text().count("## Iteration") == 3


def test_a_loop_goes_on_after_an_outage_of_its_command(
    type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holdfast_home: Path
) -> None:
    monkeypatch.setattr(plan, "FIRST_REST_S", 0.01)
    folder, tries = project(tmp_path / "p", story(1)), tmp_path / "tries"
    tries.touch()
    tries.chmod(0o666)
    away = f'echo x >> {tries}; [ "$(wc -l < {tries})" -gt 4 ] || {{ echo "529 overloaded"; exit 1; }}'
    went = loop(type, folder, "--on-host", "--json", command=f"{away}; {DOES}").went()
    assert passes(folder) == {"US-001": True}
    assert (folder / "progress.txt").read_text().count("the command: exit status 1") == 4
    found = [msgspec.convert(each, plan.Plan) for each in plans(holdfast_home)]
    assert [plan.rest_s(each) for each in found if each.failing] == [0.01, 0.03, 0.09, 0.27]
    told = [line["message"] for line in went.lines if line.get("error_kind") == "unavailable"]
    assert len(told) == 4
    assert all("exit status 1" in each and "529 overloaded" in each for each in told)


def test_a_long_outage_of_its_command_parks_a_loop(type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "FIRST_REST_S", 600.0)
    folder = project(tmp_path / "p", story(1))
    said = loop(type, folder, "--session-id", "k", command="exit 1").went(4)
    assert "holdfast wake k" in said.err
    assert [line["group"] for line in type("inbox", "--json").lines] == ["running"], "no person is asked"
    missing = project(tmp_path / "q", story(1))
    loop(type, missing, command="exit 127").went(3)


def test_an_approved_loop_goes_on_by_itself(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    asked = loop(type, folder, "--session-id", "k", command="! test -e now || touch US-001").went(3)
    (item,) = type("inbox", "--json").lines
    assert f"`holdfast approve {item['item_id']}` or `holdfast deny {item['item_id']}`" in asked.err
    (folder / "now").write_text("")
    said = type("approve", item["item_id"]).went()
    assert "k goes on in the background" in said.err
    rests("k", 0)
    assert passes(folder) == {"US-001": True}


def test_the_cap_on_iterations_is_exact_and_can_be_raised(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    folder = project(tmp_path / "p", *(story(number) for number in range(1, 5)))
    loop(type, folder, "--session-id", "k", "--max-iterations", "2").went(4)
    assert list(passes(folder).values()) == [True, True, False, False]
    assert "All iterations are used (2 so far); 2 of 4 items pass." in plans(holdfast_home)[-1]["say"]
    type("run", "--session-id", "k", "--max-turns", "20").went()
    assert all(passes(folder).values())
    assert (folder / "progress.txt").read_text().count("## Iteration") == 4


def test_a_folder_that_is_gone_asks_a_person_and_uses_nothing_up(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    loop(type, folder, "--session-id", "k", "--max-iterations", "1").went(4)
    folder.rename(tmp_path / "elsewhere")
    type("run", "--session-id", "k", "--max-turns", "20").went(3)
    (item,) = type("inbox", "--json").lines
    assert "cannot be opened" in json.dumps(item)
    (tmp_path / "elsewhere").rename(folder)
    type("approve", item["item_id"], "--no-wake").went()
    type("wake", "k").went()
    assert passes(folder) == {"US-001": True, "US-002": True}


def test_the_last_iteration_may_be_the_one_that_ends_it(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    loop(type, folder, "--max-iterations", "2").went()


def test_a_command_that_hangs_is_ended_and_told_to_the_next(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    hangs = "cat > prompt; if [ -e tried ]; then touch US-001; else touch tried; sleep 600; fi"
    loop(type, folder, "--timeout", "1", command=hangs).went()
    assert "the command: ended at its time limit after 1." in (folder / "progress.txt").read_text()
    assert "ended at its time limit" in (folder / "prompt").read_text()


def test_the_prompt_comes_in_the_words_too(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1, title='It\'s $(touch oops) `touch oops` "quoted" {{agents}} {prompt}'))
    command = 'printf %s "$1" > words; cat "$2" > file; cat > stdin; touch US-001'
    words = ("bash", "-c", command, "x", "{prompt}", "{prompt_file}")
    type("loop", "--workspace", folder, *MINE, "--", *words).went()
    texts = [(folder / name).read_text().strip() for name in ("words", "file", "stdin")]
    assert texts[0] == texts[1] == texts[2]
    assert "It's $(touch oops) `touch oops` " in texts[0]
    assert not (folder / "oops").exists()


def test_on_host_is_explicit_and_in_the_log(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    said = loop(type, folder, "--on-host", "--session-id", "k", "--json").went()
    created = next(line for line in said.lines if line["type"] == "session.created")
    assert created["workspace"]["isolation"] == "none"
    assert "WARNING: tools run without a sandbox" in said.err


def test_in_hands_there_is_no_network_but_what_is_allowed(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    said = loop(
        type, folder, "--allow-host", "api.example.com", "--json", command="ls /sys/class/net > nets; touch US-001"
    )
    created = next(line for line in said.went().lines if line["type"] == "session.created")
    assert [each["host"] for each in created["egress"]["allow"]] == ["api.example.com"]
    assert (folder / "nets").read_text().split() in ([], ["lo"])


def test_cost_is_what_the_command_says_and_the_budget_stops_it(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", *(story(number) for number in range(1, 6)))
    result = {"type": "result", "result": "ok", "total_cost_usd": 0.4, "usage": {"input_tokens": 7, "output_tokens": 2}}
    pays = f"{DOES}; echo '{json.dumps(result)}'"
    said = loop(type, folder, "--budget", "1.2", "--session-id", "k", "--json", command=pays).went(4)
    last = said.lines[-1]
    assert (last["stop_reason"], last["cost_usd"], last["usage"]["input_tokens"]) == ("budget", 1.2, 21)
    assert list(passes(folder).values()) == [True, True, True, False, False]
    type("run", "--session-id", "k", "--budget", "5").went()
    assert all(passes(folder).values())
    assert type("verify").went().code == 0


def test_what_a_person_says_is_told_to_the_command(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    waits = "! grep -q 'try the other way' || touch US-001"
    loop(type, folder, "--session-id", "k", command=waits).went(3)
    type("send", "k", "try the other way", "--no-wake").went()
    type("wake", "k").went()
    assert passes(folder) == {"US-001": True}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("{", ("prd.json, line 1", "not JSON")),
        ("", ("prd.json is empty",)),
        ("[]", ("prd.json",)),
        ('{"userStories": [{"id": "a", "title": "x", "passes": "yes"}]}', ("passes",)),
        ('{"userStories": [{"id": "a", "title": "x"}, {"id": "a", "title": "y"}]}', ("'a'",)),
    ],
)
def test_items_that_cannot_be_read_are_refused(
    type: Type, tmp_path: Path, holdfast_home: Path, text: str, pieces: tuple[str, ...]
) -> None:
    folder = project(tmp_path / "p", prd__json=text)
    loop(type, folder).refused(2, *pieces)
    assert type("ps", "--all", "--json").went().out == ""
    assert (folder / "prd.json").read_text() == text


def test_words_that_cannot_be_meant_are_refused(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    at = ("loop", "--workspace", folder)
    type(*at).refused(2, "the command is missing", "holdfast loop --until")
    type(*at, "--max-iterations", "0", "--", "true").refused(2, "--max-iterations")
    type(*at, "--timeout", "0", "--", "true").refused(2, "--timeout")
    type(*at, "--budget", "-1", "--", "true").refused(2, "--budget")
    type(*at, "--on-host", "--in-hands", "--", "true").refused(2, "--in-hands")
    type(*at, "--chain", "none.md", "--", "true").refused(2, "none.md cannot be read")
    empty = project(tmp_path / "empty")
    type("loop", "--workspace", empty, "--", "true").refused(2, "no prd.json or feature_list.json", "--until")
    (folder / "report.md").write_text("slow\n")
    type(*at, "--chain", folder / "report.md", "--", "true").refused(2, "--chain writes prd.json, which")
