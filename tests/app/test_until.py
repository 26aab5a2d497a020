"""A run is done when its checks pass in fresh hands: whatever its model says, and whenever its process is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.asking import facts, item_of
from tests.app.families import until
from tests.app.terminal import Type, bash, ended, script, spawn, turn

pytestmark = pytest.mark.usefixtures("holdfast_home")

CHECK = ("--until", "grep -q right answer.txt", "--session-id", "k")


def hooks(type: Type) -> list[tuple[str, bool]]:
    """Each check that ran: its command, and whether it failed."""
    return [(fact["command"], fact.get("blocked", False)) for fact in facts(type, "hook.ran")]


def wrong(times: int) -> list[dict[str, object]]:
    """Turns of a model that claims to be done so often, and is not."""
    claims = [(bash(f"echo wrong {number} >> answer.txt"), turn(text="Done.")) for number in range(times)]
    return [each for claim in claims for each in claim]


def test_done_is_not_believed_before_the_checks_pass(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", *wrong(5), bash("echo right > answer.txt"), turn(text="Now it is."))
    said = type("run", "x", "--model", model, *CHECK, "--until", "cat answer.txt && exit 0").went()
    assert said.out == "Now it is.\n"
    both = [("grep -q right answer.txt", True), ("cat answer.txt && exit 0", False)]
    assert hooks(type) == both * 5 + [(both[0][0], False), both[1]]


def test_the_output_of_a_failed_check_goes_back_to_the_model(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Done."), bash("touch it"), turn(text="Here."))
    type("run", "x", "--model", model, "--session-id", "k", "--until", "ls -d it || (echo 'no it'; exit 3)").went()
    (failed, _) = facts(type, "hook.ran")
    assert failed["exit_code"] == 3
    assert "no it" in failed["content"]
    requests = facts(type, "span.model_request_start")
    assert requests[1]["input_tokens_estimate"] > requests[0]["input_tokens_estimate"]


def test_after_the_last_try_a_user_is_asked(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", *wrong(4), bash("echo right > answer.txt"), turn(text="Now it is."))
    said = type("run", "x", "--model", model, *CHECK, "--until-tries", "2").went(3)
    assert "grep -q right answer.txt" in said.err
    assert [failed for _, failed in hooks(type)] == [True] * 3
    type("approve", item_of(said)).went()
    type("wake", "k").went()
    assert [failed for _, failed in hooks(type)] == [True] * 4 + [False]


def test_a_user_who_denies_ends_the_session_as_failed(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", *wrong(3))
    said = type("run", "x", "--model", model, *CHECK, "--until-tries", "1").went(3)
    type("deny", item_of(said)).went()
    type("wake", "k").went(1)
    assert [end["status"] for end in facts(type, "shift.ended")][-1] == "failed"


def test_a_check_sees_no_process_of_the_agent_and_changes_no_file_of_it(type: Type, tmp_path: Path) -> None:
    """The agent's server answers the agent, but no check; what a check writes is gone."""
    model = script(tmp_path / "m.json", bash("echo made > made; (sleep 99 & echo $! > pid)"), turn(text="Done."))
    check = "cat made && ! kill -0 $(cat pid) 2>/dev/null && echo changed > made && touch left"
    said = type("run", "x", "--model", model, "--session-id", "k", "--until", check, "--json").went()
    assert said.lines[-1]["status"] == "done"
    work = Path(json.loads(type("show", "k", "--json").out)["workspace"])
    assert (work / "made").read_text() == "made\n"
    assert not (work / "left").exists()


def test_a_kill_during_a_check_proves_nothing(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Done."), bash("touch it"), turn(text="Here."))
    workspaces, slow = holdfast_home / "workspaces", tmp_path / "slow"
    slow.touch()
    check = f"if [ -e {slow} ]; then sleep 600; fi; test -e it"
    words = ("--no-sandbox", "--session-id", "k", "--until", check)
    brain = spawn("run", "x", "--model", model, *words)
    try:
        until(lambda: any(workspaces.glob("ses_*-until-*/.")), brain)
    finally:
        brain.kill()
        ended(brain)
    assert hooks(type) == []
    slow.unlink()
    type("wake", "k").went()
    assert hooks(type) == [(check, True), (check, False)]
    assert list(workspaces.glob("ses_*-until-*")) == []


def test_a_second_run_keeps_its_checks(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Done."))
    type("run", "x", "--model", model, "--session-id", "k", "--until", "true").went()
    type("run", "--session-id", "k", "--until", "false").refused(2, "--until", "true")
    type("run", "y", "--model", model, "--until", " ").refused(2, "--until", "pytest -q")
