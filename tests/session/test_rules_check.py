"""Rules of AGENTS.md that code can check: what is recognised, and what breaks them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse, ModelRequestStart
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.signs.rules import GRACE_TURNS, RULES_MAX, Deed, check, deeds_of, parse, runs


def broken(rule: str, *deeds: Deed) -> bool:
    """Whether the deeds break the rule."""
    rules = parse(rule)
    assert len(rules) == 1, "the rule is understood"
    return bool(check(rules, deeds))


def run(command: str, seq: int = 5) -> Deed:
    """A command that ran."""
    return Deed(seq, "run", command, "ok")


def edit(path: str, seq: int = 3) -> Deed:
    """A file that was changed."""
    return Deed(seq, "edit", path, "ok")


TURN, END = Deed(8, "turn"), Deed(9, "end")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("- Never run `git push*`.", "never_run"),
        ("* Do not use `rm -rf` or `sudo`", "never_run"),
        ("- Never edit `tests/**`", "never_edit"),
        ("1. Don’t touch tests/golden/.", "never_edit"),
        ("- [ ] Do not modify files in `migrations/`!", "never_edit"),
        ("**Never** edit `a.py`", "never_edit"),
        ("Only edit files under `src/`.", "only_edit"),
        ("- Only change code in src/ and docs/", "only_edit"),
        ("- Always run `make test` after editing `src/**`.", "run_after"),
        ("- Run `make lint` after each change.", "run_after"),
        ("- Always run `make check` before finishing.", "run_at_end"),
        ("- Always run `make test` before committing.", "run_before"),
        ("- Always run `make test` before running `deploy.sh`", "run_before"),
    ],
)
def test_what_is_recognised(line: str, kind: str) -> None:
    (rule,) = parse(f"# Rules\n\n{line}\n")
    assert rule.kind == kind
    assert rule.line == line.strip()


@pytest.mark.parametrize(
    "line",
    [
        "- Prefer small functions.",
        "- Never use tabs.",
        "- Never run `make all` without asking.",
        "- Don't change the tests.",
        "- Do not write long comments in code.",
        "- Only edit when you must.",
        "- Run the tests often.",
        "",
    ],
)
def test_what_is_left_to_the_model(line: str) -> None:
    assert parse(line) == ()


def test_fenced_text_is_no_rule() -> None:
    assert parse("```\nNever run `x`\n```\n") == ()


@pytest.mark.parametrize(
    ("command", "hit"),
    [
        ("git push", True),
        ("git push --force origin main", True),
        ("cd repo && git push", True),
        ("FOO=1 sudo git push", True),
        ("/usr/bin/git push", True),
        ("make && (git push)", True),
        ("git pull", False),
        ("echo git push", False),
        ("git log --grep push", False),
        ("git push-all", True),
    ],
)
def test_a_forbidden_command(command: str, hit: bool) -> None:
    assert broken("- Never run `git push*`", run(command)) is hit


@pytest.mark.parametrize(
    ("path", "hit"),
    [
        ("tests/test_a.py", True),
        ("/workspace/tests/deep/test_a.py", True),
        ("./src/../tests/a", True),
        ("src/tests.py", False),
        ("src/tests/a.py", False),
    ],
)
def test_a_forbidden_file(path: str, hit: bool) -> None:
    assert broken("- Never edit `tests/**`", edit(path)) is hit
    assert broken("- Only edit files under `src/`", edit(path)) is hit


def test_the_plainest_ways_to_change_a_file_by_command_are_seen() -> None:
    rule = "- Never edit `tests/**`"
    for command in (
        "echo x > tests/a",
        "rm -rf tests",
        "sed -i s/a/b/ tests/a.py",
        "cp a tests/a",
        "cat x | tee tests/y",
    ):
        assert broken(rule, run(command)), command
    for command in ("cat tests/a", "pytest tests/ > out.txt", "grep -r x tests 2>&1"):
        assert not broken(rule, run(command)), command


def test_a_command_after_an_edit_may_come_a_little_later() -> None:
    rule = "- Always run `make test` after editing `src/**`"
    late = [TURN] * (GRACE_TURNS + 1)
    assert broken(rule, edit("src/a.py"), *late)
    assert not broken(rule, edit("src/a.py"), *late[1:]), "not judged yet"
    assert not broken(rule, edit("src/a.py"), *late[1:], run("make test ARGS=-q"), *late)
    assert not broken(rule, edit("docs/a.md"), *late)
    assert broken(rule, edit("src/a.py"), END)
    assert not broken(rule, edit("src/a.py"), run("make test"), END)


def test_a_command_before_the_end_and_before_another() -> None:
    at_end, before = "- Always run `make check` before finishing", "- Always run `make test` before committing"
    assert broken(at_end, run("make check"), edit("a"), END)
    assert not broken(at_end, edit("a"), run("make check"), END)
    assert not broken(at_end, END), "nothing was changed"
    assert broken(before, run("make test"), edit("a"), run("git commit -m x"))
    assert not broken(before, edit("a"), run("make test && git commit -m x"))
    assert broken(before, edit("a"), run("git commit -m x && make test"))


def test_a_breach_names_the_line_and_the_places() -> None:
    rules = parse("- Never run `git push`")
    (breach,) = check(rules, [run("git push", 7), run("ls", 8), run("git push -f", 9)])
    assert breach.line == "- Never run `git push`"
    assert breach.evidence == (7, 9)
    assert breach.detail == "ran `git push` and 1 more"


def test_deeds_are_what_ran() -> None:
    def use(call_id: str, name: str, **value: object) -> Fact:
        return AgentToolUse(request_seq=1, call_id=call_id, name=name, input=value)

    facts: list[Fact] = [
        ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=0, max_output_tokens=1),
        use("a", "bash", command="ls"),
        use("b", "bash", command="git push"),
        use("c", "edit", file_path="a.py", old_string="x", new_string="y"),
        use("d", "write", file_path="b.py", content=""),
        use("e", "bash", command="make"),
        use("f", "bash", command="later"),
        ToolResult(call_id="a", outcome="error", content=""),
        ToolResult(call_id="b", outcome="denied", content=""),
        ToolResult(call_id="c", outcome="error", content=""),
        ToolResult(call_id="d", outcome="ok", content=""),
        ToolOutcomeUnknown(call_id="e", reason="", content=""),
        ShiftEnded(status="parked", reason="person"),
        ShiftEnded(status="done"),
    ]
    deeds = deeds_of(enumerate(facts, 1))
    assert [(deed.seq, deed.kind, deed.main) for deed in deeds] == [
        (1, "turn", ""),
        (2, "run", "ls"),
        (5, "edit", "b.py"),
        (6, "run", "make"),
        (14, "end", ""),
    ]


WORDS = st.sampled_from(
    ["never", "run", "only", "edit", "always", "after", "before", "`a b`", "`", "*", "src/", "each", "\n", "- ", "`["]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(WORDS, max_size=40).map(" ".join)), st.text(), st.text())
def test_no_text_breaks_it(rules: str, command: str, path: str) -> None:
    found = parse(rules)
    assert len(found) <= RULES_MAX
    check(found, [edit(path), run(command), *[TURN] * 20, END])
    runs(command, [path])


def test_a_long_text_is_read_fast_and_bounded() -> None:
    assert len(parse("- Never run `x`\n" * 5_000)) == RULES_MAX
    assert parse("- always run " + "`a` after " * 10_000) == ()
