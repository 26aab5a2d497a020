"""What approvals and grants are bound to, with real sandboxes, snapshots, and jobs (S21)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.app.settings.agent_file import load_rules
from holdfast.errors import UsageError
from holdfast.facts.session import Rule
from holdfast.session.tools.jobs import JOB_TOOLS
from tests.app.asking import facts, item_of, rests, types
from tests.app.terminal import Type, bash, script, turn, typed
from tests.app.test_jobs import comes

LOGS = "until [ -e finish ]; do date >> run.dat; sleep 0.05; done"
TOOLS = ("bash", "write", *JOB_TOOLS)


def _asks(folder: Path, *turns: dict[str, object]) -> tuple[str, Path]:
    """Run a session in a workspace with two scripts until it asks; its item and the workspace."""
    work = folder / "work"
    work.mkdir()
    (work / "deploy.sh").write_text(". ./lib.sh\n")
    (work / "lib.sh").write_text("touch finish\n")
    agent = folder / "agent.toml"
    named = ", ".join(f'"{name}"' for name in TOOLS)
    agent.write_text(f'name = "a"\nmodel = "{script(folder / "m.json", *turns)}"\ntools = [{named}]\n')
    words = ("--agent", agent, "--workspace", work, "--take-over", "--session-id", "k")
    return item_of(typed("run", "x", *words, "--ask", "bash", "--allow", "job_*").went(3)), work


def _grows(file: Path) -> None:
    """Wait until a file grows."""
    size = file.stat().st_size if file.exists() else 0
    comes(lambda: file.exists() and file.stat().st_size > size)


def _finishes(work: Path) -> None:
    """Wait until the approved script ran, and the session has come to its end after the job's."""
    comes((work / "finish").exists)
    comes(lambda: typed("attach", "k").code == 0)


def test_a_job_that_writes_logs_does_not_supersede_an_approval(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    job = {"name": "job_start", "input": {"name": "log", "command": LOGS, "timeout_s": 3_000}}
    item, work = _asks(tmp_path, turn(tool_calls=[job]), bash("sh deploy.sh"), turn(text="Done."), turn(text="Over."))
    assert facts(type, "approval.requested")[0]["uncounted"] == ["run.dat"]
    _grows(work / "run.dat")
    type("approve", item).went()
    _finishes(work)
    assert types(holdfast_home).count("approval.superseded") == 0


def test_what_a_script_reads_is_bound_though_a_job_runs(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    job = {"name": "job_start", "input": {"name": "log", "command": LOGS, "timeout_s": 3_000}}
    item, work = _asks(tmp_path, turn(tool_calls=[job]), bash("sh deploy.sh"), turn(text="Done."), turn(text="Over."))
    (work / "lib.sh").write_text("touch finish other\n")
    type("approve", item).went()
    rests(code=3)
    assert not (work / "finish").exists()
    (over,) = facts(type, "approval.superseded")
    assert "lib.sh was changed" in over["reason"]
    type("approve", item_of(type)).went()
    _finishes(work)
    assert types(holdfast_home).count("approval.requested") == 2


def test_a_grant_for_pytest_outlives_edits_of_what_it_does_not_load(
    type: Type, tmp_path: Path, holdfast_home: Path
) -> None:
    def write(name: str) -> dict[str, object]:
        return turn(tool_calls=[{"name": "write", "input": {"file_path": name, "content": "x = 1\n"}}])

    run = bash("pytest -q || true")
    edits = [step for name in ("NOTES.md", "docs/a.rst", "data.json", "b.txt") for step in (write(name), run)]
    item, _ = _asks(tmp_path, run, *edits, write("test_b.py"), run, turn(text="Done."))
    type("approve", item, "--uses", "5").went()
    rests(code=3)
    assert types(holdfast_home).count("tool.dispatched") == 10, "five runs and five edits"
    assert types(holdfast_home).count("approval.requested") == 2
    assert "test_b.py was added" in facts(type, "approval.superseded")[0]["reason"]
    type("approve", item_of(type)).went()
    assert rests().out == "Done.\n"


def test_a_rules_file_names_the_files_that_count(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    head = '[[rule]]\ntool = "bash"\ndecision = "ask"\nbound_to = '
    file.write_text(f'{head}["Makefile", "deploy/*"]\n')
    assert load_rules(str(file), ()) == (Rule("bash", "ask", bound_to=("Makefile", "deploy/*")),)
    for wrong in ('"Makefile"', "[1]", "true"):
        file.write_text(f"{head}{wrong}\n")
        with pytest.raises(UsageError, match="bound_to that is no list of globs"):
            load_rules(str(file), ())
