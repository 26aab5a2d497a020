"""The verbs as a newcomer types them, one after the other, and what stands on the screen."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from holdfast import __version__
from holdfast.app.cli import VERBS
from tests.app.screen import Session
from tests.app.terminal import PRICE, Said, Type, bash, kept, script, turn, typed


@pytest.fixture
def note(tmp_path: Path) -> str:
    """A model that writes a note."""
    return script(tmp_path / "m.json", bash("echo hello > note.txt; ls"), turn(text="There is a note now."))


@pytest.fixture
def priced(tmp_path: Path) -> str:
    """A model of four turns, 0.315 dollars each."""
    turns = [bash(f"echo {number} >> n") for number in (1, 2, 3)]
    return script(tmp_path / "p.json", *turns, turn(text="All four."), price=PRICE)


def test_a_first_session_from_beginning_to_end(type: Type, note: str, holdfast_home: Path) -> None:
    ran = type("run", "Write a note.", "--model", note, "--session-id", "first").went()
    assert ran.out == "There is a note now.\n"
    assert "bash: echo hello > note.txt; ls" in ran.err
    assert "first is done — 15 events, 2 turns, unknown cost\n" in ran.err
    (place,) = re.findall(r"^The work is in (.*)\.$", ran.err, re.MULTILINE)
    assert (Path(place) / "note.txt").read_text() == "hello\n"

    listed = type("ps").went()
    assert re.search(r"^first +done +\d+s +–  Write a note\.$", listed.out, re.MULTILINE)
    shown = type("show", "fir").went().out
    assert "state       done\n" in shown
    assert "money       unknown cost, no cap\n" in shown
    assert all(len(line) <= 120 for line in shown.splitlines() if str(holdfast_home.parent) not in line)
    logged = type("logs", "first", "--after", "4", "--type", "agent.tool_result", "agent.message").went().out
    assert [line.split()[4] for line in logged.splitlines()] == ["agent.tool_result", "agent.message"]
    assert "note.txt" in logged
    assert type("verify").went().out == "1 session, 15 events: all chains and rows verify\n"
    exported = type("export", "first").went().lines
    assert [event["seq"] for event in exported] == list(range(1, 16))
    assert type("verify", "first").went().out == type("verify").out


def test_a_message_to_a_finished_session_names_the_next_step(type: Type, note: str) -> None:
    type("run", "Write a note.", "--model", note, "--session-id", "first")
    sent = type("send", "first", "Thank you.", "--no-wake").went()
    assert sent.out == "posted as event 16 of first\n"
    assert sent.err == "no process is running it; go on with `holdfast wake first`\n"
    assert re.search(r"^first +runnable", type("ps").out, re.MULTILINE)
    assert type("wake", "first").went().out == "The script has no more turns: I am done.\n"
    assert "message from user:" in type("logs", "first").out


def test_a_wake_with_nothing_to_do_appends_nothing(type: Type, note: str, holdfast_home: Path) -> None:
    type("run", "Write a note.", "--model", note, "--session-id", "first")
    before = kept(holdfast_home)
    assert type("wake", "first").went().out == "There is a note now.\n"
    assert type("resume", "first").went().code == 0
    assert type("run", "--session-id", "first").went().code == 0
    assert type("run", "Write a note.", "--session-id", "first", "--model", note).went().code == 0
    assert kept(holdfast_home) == before


def test_budget_parks_and_the_named_command_raises_it(type: Type, priced: str, holdfast_home: Path) -> None:
    parked = type("run", "count", "--model", priced, "--session-id", "b", "--budget", "0.7").went(4)
    assert "b is parked (budget): $0.0700 is left of the budget, the next request may cost $0.3150" in parked.err
    before = kept(holdfast_home)
    assert type("wake", "b").went(4).err == parked.err[parked.err.index("b is parked") :]
    assert kept(holdfast_home) == before
    done = type(*_named(parked)).went()
    assert done.out == "All four.\n"
    assert "4 turns, $1.26" in done.err
    assert type("show", "b").out.count("money       $1.26 of at most $1.41\n") == 1
    again = kept(holdfast_home)
    assert type(*_named(parked)).went().code == 0, "the same cap again is no news"
    assert kept(holdfast_home) == again


def test_a_cap_below_what_was_spent_is_refused(type: Type, priced: str, holdfast_home: Path) -> None:
    parked = type("run", "count", "--model", priced, "--session-id", "b", "--budget", "0.7").went(4)
    before = kept(holdfast_home)
    type("run", "--session-id", "b", "--budget", "0.5").refused(2, "has spent $0.6300 already", "nothing was changed")
    assert kept(holdfast_home) == before
    assert type(*_named(parked)).went().out == "All four.\n"


def test_turns_park_and_the_named_command_raises_them(type: Type, priced: str) -> None:
    parked = type("run", "count", "--model", priced, "--session-id", "t", "--max-turns", "2").went(4)
    assert "t is parked (cap): the cap of 2 turns is reached" in parked.err
    assert type(*_named(parked)).went().out == "All four.\n"


def test_hints_work_for_another_home_too(type: Type, priced: str, tmp_path: Path) -> None:
    where = ("--home", str(tmp_path / "a home"), "--db", f"sqlite:///{tmp_path}/agents.db")
    parked = type("run", "count", "--model", priced, "--max-turns", "1", *where).went(4)
    assert type(*_named(parked)).went(4)
    assert type("ps").went().out.startswith("no sessions yet")


def test_a_model_file_is_found_from_every_folder(
    type: Type, priced: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    type("run", "count", "--model", "scripted:p.json", "--session-id", "k", "--max-turns", "1").went(4)
    monkeypatch.chdir("/")
    assert type("run", "--session-id", "k", "--max-turns", "9").went().out == "All four.\n"


def test_another_goal_is_a_message(type: Type, note: str) -> None:
    type("run", "Write a note.", "--model", note, "--session-id", "k")
    went = type("run", "And now?", "--session-id", "k").went()
    assert "And now?" in went.err
    assert went.out == "The script has no more turns: I am done.\n"
    assert [line["content"][0]["text"] for line in _events(type, "k", "user.message")] == ["And now?"]


def test_a_session_keeps_what_it_began_with(type: Type, note: str, priced: str, holdfast_home: Path) -> None:
    type("run", "Write a note.", "--model", note, "--session-id", "k", "--deny", "write")
    agent = Path("agent.toml")
    agent.write_text('tools = ["bash"]\n')
    before = kept(holdfast_home)
    for flags in (
        ("--workspace", "."),
        ("--model", priced),
        ("--agent", "agent.toml"),
        ("--deny", "bash"),
        ("--user", "nobody"),
        ("--no-sandbox",),
    ):
        type("run", "Write a note.", "--session-id", "k", *flags).refused(2, "session k", flags[0], "--session-id")
    assert kept(holdfast_home) == before
    type("run", "Write a note.", "--model", note, "--session-id", "k", "--deny", "write").went()
    assert kept(holdfast_home) == before


def test_a_key_is_taken_whole(type: Type, note: str) -> None:
    type("run", "ten", "--model", note, "--session-id", "job-10").went()
    type("run", "one", "--model", note, "--session-id", "job-1").went()
    assert [line["goal"] for line in type("ps", "--json").lines] == ["one", "ten"]
    type("show", "job-").refused(2, "job-", "several sessions")
    assert "goal        one" in type("show", "job-1").out


def test_denied_tools_make_no_hands(type: Type, note: str) -> None:
    for flags in (("--deny", "bash"), ("--rules", "rules.toml")):
        Path("rules.toml").write_text('[[rule]]\ntool = "*"\ndecision = "deny"\n')
        went = type("run", "Write a note.", "--model", note, "--json", *flags).went()
        kinds = [line["type"] for line in went.lines]
        assert "hands.provisioned" not in kinds
        assert "tool.dispatched" not in kinds
        assert [line["outcome"] for line in went.lines if line["type"] == "agent.tool_result"] == ["denied"]


def test_allow_after_deny_wins(type: Type, note: str) -> None:
    rules = ("--deny", "*", "--allow", "bash")
    went = type("run", "Write a note.", "--model", note, "--json", *rules).went()
    assert [line["outcome"] for line in went.lines if line["type"] == "agent.tool_result"] == ["ok"]


def test_an_agent_file(type: Type, note: str) -> None:
    Path("reviewer.toml").write_text(f'model = "{note}"\nsystem_file = "how.md"\ntools = ["read", "grep"]\n')
    Path("how.md").write_text("Look, change nothing.\n")
    type("run", "Look.", "--agent", "reviewer.toml", "--session-id", "k").went()
    (created,) = _events(type, "k", "session.created")
    assert created["agent"]["name"] == "reviewer"
    assert created["agent"]["system"] == "Look, change nothing.\n"
    (result,) = _events(type, "k", "agent.tool_result")
    assert result["outcome"] == "error", "bash is not among its tools"


def test_a_session_as_it_stood(type: Type, priced: str) -> None:
    type("run", "count", "--model", priced, "--session-id", "k", "--max-turns", "2").went(4)
    whole = type("show", "k", "--json").went().lines
    (at_the_end,) = type("show", "k", "--json", "--at", whole[0]["events"]).went().lines
    assert at_the_end == {**at_the_end, **whole[0]}
    opened = type("show", "k", "--at", "1").went().out
    assert "state       runnable\n" in opened
    assert "turns       0 of at most 2\n" in opened
    early = type("show", "k", "--at", "6").went().out
    assert "turns       1 of at most 2\nc" in early
    assert "open calls  bash 3.0\n" in early
    assert "holdfast" not in early.replace("holdfast-tests", ""), "no next step for what is past"
    last = whole[0]["events"]
    for seq in ("0", "99"):
        type("show", "k", "--at", seq).refused(2, f"no event {seq}", f"the events 1 to {last}")


def test_interrupt_and_cancel_of_sessions_that_nobody_runs(type: Type, priced: str, holdfast_home: Path) -> None:
    type("run", "count", "--model", priced, "--session-id", "k", "--max-turns", "1")
    before = kept(holdfast_home)
    assert type("interrupt", "k").went().out == "k is parked (cap): there is nothing to interrupt\n"
    assert kept(holdfast_home) == before
    type("send", "k", "go on", "--no-wake")
    assert "it stops when it is woken: `holdfast wake k`" in type("interrupt", "k").went().err
    stopped = type("wake", "k").went(3)
    assert "Say how to go on with `holdfast send k 'your words'`, and watch it with `holdfast attach k`." in stopped.err
    assert type("cancel", "k", "--reason", "enough").went().out.startswith("k is cancelled; its work is in /")
    cancelled = kept(holdfast_home)
    assert type("cancel", "k").went().out == "k was already cancelled\n"
    assert type("interrupt", "k").went().code == 0
    type("send", "k", "hello?", "--no-wake").refused(2, "was cancelled", "holdfast run")
    assert type("wake", "k").went(1).code == 1
    assert kept(holdfast_home) == cancelled


def test_a_failed_session_names_the_way_on(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "r.json", turn(text="No.", error="refusal"), turn(text="Yes."))
    failed = type("run", "Do it.", "--model", model, "--session-id", "k").went(1)
    assert "k is failed: the model refused" in failed.err
    say, go = re.findall(r"`(holdfast .*?)`", failed.err)
    type(*shlex.split(say)[1:]).went()
    assert type(*shlex.split(go)[1:]).went().out == "Yes.\n"


def test_a_provider_that_wants_patience_names_the_time(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "r.json", turn(text="At last.", error="rate_limited", retry_after_s=7200))
    parked = type("run", "Do it.", "--model", model, "--session-id", "k").went(4)
    assert re.search(r"It can go on from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: `holdfast wake k`\.", parked.err)
    before = kept(holdfast_home)
    type("wake", "k").went(4)
    assert kept(holdfast_home) == before


def test_a_full_context_names_a_way_on(type: Type, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CONTEXT_TOKENS", "20")
    parked = type("run", "Write a note.", "--model", note).went(4)
    monkeypatch.delenv("HOLDFAST_CONTEXT_TOKENS")
    assert type(*_named(parked)).went().out == "There is a note now.\n"


def test_no_sandbox_is_said_and_recorded(type: Type, note: str) -> None:
    went = type("run", "Write a note.", "--model", note, "--no-sandbox", "--session-id", "k").went()
    assert went.err.startswith("WARNING: tools run without a sandbox")
    assert "NOT SANDBOXED" in went.err
    (made,) = _events(type, "k", "hands.provisioned")
    walls = ("files", "network", "processes", "syscalls", "users")
    assert {made["isolation"][wall] for wall in walls} == {"none"}
    assert "hard" not in made["isolation"].values()


def test_doctor_version_and_help(type: Type) -> None:
    doctor = type("doctor", "--json").went()
    (found,) = doctor.lines
    assert found["usable"]
    assert {"log", "sandbox", "files"} <= {finding["name"] for finding in found["findings"]}
    plain = type("doctor").went().out
    title, isolated, asked, *lines = plain.splitlines()
    assert title.startswith(f"holdfast {__version__}, home ")
    assert isolated.startswith("tool calls are isolated here")
    assert "model can be asked" in asked
    for line in lines:
        assert re.match(r"  (ok    |hard  |soft  ) [A-Za-z ]+: |  absent |  +fix: | {14}", line), line
    assert "absent model anthropic: " in type("doctor", "--all").went().out
    assert "absent model anthropic: " not in plain
    assert type("version").out == type("--version").out == f"holdfast {__version__}\n"
    assert type("version", "--json").lines == [{"version": __version__}]
    whole = type("--help").went().out
    for verb, info in VERBS.items():
        assert re.search(rf"^ +{verb} +{re.escape(info.summary)}$", whole, re.MULTILINE), whole
        one = type(verb, "--help").went()
        assert f"Example: {info.example}" in " ".join(one.out.split())
        assert all(len(line) <= 100 for line in one.out.splitlines())
    nothing = type()
    assert (nothing.code, nothing.out) == (2, whole)


def test_it_is_a_module_too(note: str) -> None:
    assert typed("version").went().out == f"holdfast {__version__}\n"


def test_words_may_stand_before_the_verb(type: Type, note: str, tmp_path: Path) -> None:
    type("run", "x", "--model", note, "--session-id", "k", "--home", tmp_path / "other").went()
    for words in (("--home", tmp_path / "other", "ps"), (f"--home={tmp_path / 'other'}", "ps")):
        assert re.search("^k +done", type(*words).went().out, re.MULTILINE)
    loop = type("--home", tmp_path / "other", "loop", "--until", "true", "--", "--home", "x")
    assert "--home" not in loop.err.partition("holdfast loop")[2], "what is behind -- is the command's"
    assert type("help").went().out == type("--help").out
    assert type("help", "mission", "run").went().out == type("mission", "run", "--help").out
    assert type("-V").went().out == type("version").out


def test_sessions_have_short_names(type: Type, note: str) -> None:
    type("run", "the first", "--model", note, "--deny", "*").went()
    type("run", "the second", "--model", note, "--deny", "*").went()
    listed = [line.split()[0] for line in type("ps").went().out.splitlines()[1:]]
    goals = [type("show", name, "--json").went().lines[0]["goal"] for name in listed]
    assert goals == ["the second", "the first"]
    assert type("show", "last", "--json").lines[0]["goal"] == "the second"


@pytest.mark.parametrize("columns", [60, 80])
def test_a_list_fits_the_terminal(type: Type, tmp_path: Path, columns: int) -> None:
    model = script(tmp_path / "m.json", turn(tool_calls=[{"name": "ask_person", "input": {"question": "Why?"}}]))
    type("run", "word " * 60, "--model", model, "--no-sandbox").went(3)
    type("run", "word " * 60, "--model", model, "--no-sandbox", "--session-id", "a-key-of-some-length").went(3)
    with Session("ps", columns=columns) as terminal:
        assert terminal.ended() == 0
        lines = terminal.lines()
    assert len(lines) == 3, "one line for each session"
    assert all(line.endswith("…") for line in lines[1:])


def test_a_long_list_is_cut_and_says_so(type: Type, note: str) -> None:
    for number in range(22):
        type("run", f"goal {number}", "--model", note, "--deny", "*").went()
    listed = type("ps").went()
    assert len(listed.out.splitlines()) == 21
    assert listed.err == "and 2 more sessions: `holdfast ps --all`\n"
    assert len(type("ps", "--all").out.splitlines()) == 23


def _named(said: Said) -> list[str]:
    """The words of the first command that the last line names."""
    command, *_ = re.findall(r"`holdfast (.*?)`", said.err.splitlines()[-1])
    return shlex.split(command)


def _events(type: Type, name: str, kind: str) -> list[dict[str, Any]]:
    out = type("logs", name, "--json", "--type", kind).went().out
    return [json.loads(line) for line in out.splitlines()]
