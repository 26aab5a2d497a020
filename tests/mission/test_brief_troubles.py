"""Thirteen real missions with known trouble: what their briefs say is in their logs, the decision first, 40 lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.app.cli import build_parser
from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.facts.codec import Event
from holdfast.facts.mission import CriterionChecked
from holdfast.kinds.mission.brief.audit import audit
from holdfast.kinds.mission.brief.brief import Brief
from holdfast.kinds.mission.brief.document import LINES_MAX, markdown, plain
from holdfast.service.briefs import brief_of, logs_below
from tests.app.terminal import PRICE, Said, bash, script, turn, typed
from tests.app.test_mission_lint import GIT, make

pytestmark = pytest.mark.real

PYTHON = "python3 -c"
WRITE = "sed -i 's/raise NotImplementedError/return 1/' calc.py"
CALC = "def a():\n    raise NotImplementedError\n"


def hand_in(**said: object) -> dict[str, Any]:
    """A turn that hands in."""
    return turn(tool_calls=[{"name": "hand_in", "input": {"status": "done", "notes": "as wanted", **said}}])


def verdict(name: str, issue: str = "", evidence: str = "calc.py:1: def a():") -> dict[str, Any]:
    """A turn of a judge."""
    word = {"criterion": name, "passes": True, "evidence": [evidence], "issue": issue}
    body = {"decision": "pass", "criteria": [word]}
    return turn(tool_calls=[{"name": "submit_verdict", "input": body}])


@dataclass
class Trouble:
    """A mission, what goes wrong in it, and what its brief has to say of that."""

    items: list[dict[str, Any]]
    worker: list[dict[str, Any]]
    judge: list[dict[str, Any]] = field(default_factory=list)
    policy: str = ""
    words: tuple[str, ...] = ()
    code: int = 3
    says: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    then: Callable[[Path], None] = lambda repo: None


def one(check: Any = f"{PYTHON} 'import calc; assert calc.a() == 1'", **more: object) -> list[dict[str, Any]]:
    """A contract of one item."""
    return [{"id": "net", "description": "a() is 1", "check": check, "paths": ["calc.py"], **more}]


def base_moves(repo: Path) -> None:
    """A person commits to the followed branch, and answers a worker."""
    (repo / "more.py").write_text("X = 1\n")
    for words in (("add", "more.py"), ("commit", "-qm", "a person's own")):
        subprocess.run([*GIT, *words], cwd=repo, check=True, capture_output=True)
    (item_id,) = (each["item_id"] for each in typed("inbox", "--json").lines if each.get("kind") == "question")
    typed("approve", item_id, "--note", "tabs", "--no-wake").went()
    typed("wake", "m").went(0)


GOOD = [bash(WRITE), hand_in()]
ASKS = turn(tool_calls=[{"name": "ask_person", "input": {"question": "Tabs or spaces?"}}])
NET = f"{PYTHON} 'import urllib.request as u; u.urlopen(\"https://packages.example/\")'"

TROUBLES: dict[str, Trouble] = {
    "network": Trouble(
        one(NET),
        GOOD,
        says=(
            "net.check cannot pass here: it needs the network: packages.example, by its output",
            "fails at the base too",
            "URLError",
            "`holdfast egress m --allow packages.example --no-wake`, then `holdfast approve itm_",
            "Main branch unchanged",
        ),
    ),
    "refused": Trouble(
        one(NET),
        GOOD,
        words=("--allow-host", "other.example"),
        says=("net.check cannot pass here: it needs the network: packages.example;", "refused network requests: "),
        silent=("by its output",),
    ),
    "hangs": Trouble(
        one({"command": "sleep 600", "timeout_s": 1}), GOOD, says=("it exceeded its timeout", "in 1 s"),
    ),
    "shape": Trouble(one(), [bash(WRITE), *[hand_in(status="finished")] * 6], code=0, says=("refused 5 times",),
                     silent=("without",)),
    "metric": Trouble(
        one({"metric": {"command": "echo 0.5", "target": 0.9, "direction": "at_least"}}),
        GOOD,
        says=("0.5, wants at least 0.9",),
    ),
    "contradiction": Trouble(
        [{"id": "look", "description": "looks well", "acceptance": ["a() is there."], "paths": ["calc.py"]}],
        GOOD,
        judge=[verdict("look.a-is-there", "MISSING: a is not defined at all")] * 6,
        policy='judge = "per_task"\n',
        says=("look.a-is-there", "passes and has an issue"),
    ),
    "flaky": Trouble(
        one(f"{PYTHON} 'import os, sys; sys.exit(os.urandom(1)[0] % 2)'"), GOOD * 3, code=-1, says=("net.check",)
    ),
    "budget": Trouble(
        one(), [bash("true"), *GOOD], words=("--budget", "0.4"), code=4, says=("budget", "the cap becomes $")
    ),
    "outage": Trouble(
        one(),
        [turn(text="hm", error="overloaded"), *GOOD],
        code=0,
        says=("failed model requests: 1", "overloaded"),
    ),
    "conflict": Trouble(
        [
            {"id": name, "description": f"{name}() is 1", "check": f"{PYTHON} 'import calc; calc.{name}'"}
            for name in ("b", "c")
        ],
        [bash("n=$(ls -d /workspace/.b 2>/dev/null); printf 'def b(): 1\\ndef c(): 1\\n# %s\\n' $RANDOM >> calc.py"),
         hand_in()],
        policy='scope = "list"\n',
        code=-1,
        says=("merge conflicts: ",),
    ),
    "moved": Trouble(
        one(),
        [bash(WRITE), ASKS, hand_in()],
        then=base_moves,
        says=("moves of the followed branch: 1", "answers given: 1", "new commits of the base", "net: calc.py"),
    ),
    "hidden": Trouble(
        one(),
        [bash(WRITE), ASKS, hand_in()],
        says=("worker net: Tabs or spaces?", "it goes on with your answer"),
    ),
    "rubric": Trouble(
        [
            {"id": "look", "description": "looks well", "acceptance": ["a() has a comment."], "paths": ["calc.py"]},
            {"id": "net", "description": "a() is 1", "check": f"{PYTHON} 'import calc; assert calc.a() == 1'",
             "paths": ["calc.py"], "depends": ["look"]},
        ],
        [bash(f"if grep -q '# a' calc.py; then {WRITE}; sed -i /#/d calc.py; else echo '# a' >> calc.py; fi"),
         hand_in()],
        judge=[
            verdict("look.a-has-a-comment", evidence="calc.py:3: # a"),
            verdict("net.check", evidence="calc.py:2: return 1"),
        ]
        * 2,
        policy='judge = "per_task"\n',
        code=-1,
        says=("look.a-has-a-comment", "proven by checks: 1**: net.check"),
    ),
}  # fmt: skip


def begun(trouble: Trouble, tmp_path: Path) -> tuple[Path, Said]:
    """Run it to where it stops."""
    model = script(tmp_path / "worker.json", *trouble.worker, price=PRICE)
    policy = (
        f'planner = "items"\nmax_replans = 0\nmax_attempts = 1\nmax_iterations = 2\nlessons = "off"\n{trouble.policy}'
    )
    policy += "" if "judge" in trouble.policy else 'judge = "off"\n'
    files = {"calc.py": CALC, "feature_list.json": json.dumps(trouble.items), "judge.json": "{}"}
    if trouble.judge:
        files["judge.json"] = json.dumps({"turns": trouble.judge, "price": PRICE})
        policy += f'[models]\njudge = "scripted:{tmp_path}/repo/judge.json"\n'
    files["mission.toml"] = policy
    repo = make(tmp_path / "repo", files)
    words: tuple[str | Path, ...] = (
        "mission",
        "run",
        "--repo",
        repo,
        "--session-id",
        "m",
        "--model",
        model,
        "--no-lint",
        *trouble.words,
    )
    return repo, typed(*words)


async def told(home: Path) -> tuple[Brief, list[Event], list[Any]]:
    """The brief of the mission and its logs."""
    async with open_runtime(Settings(home=str(home))) as runtime:
        row = await runtime.store.find("m")
        events, below = await runtime.store.read(row.session_id), await logs_below(runtime.store, row)
        return await brief_of(runtime.store, runtime.kinds, runtime.shelf, row), events, below


def untrue(found: Brief, events: list[Event]) -> list[str]:
    """Quotations that are in no output of their checks, and facts that stand there twice."""
    facts = {event.seq: event.fact for event in events}
    wrong = []
    for line in found.lines:
        for each in line.examples:
            checks = [facts[at.seq] for at in each.evidence if at.type == "criterion.checked"]
            outputs = " ".join(plain(check.output, 10**6) for check in checks if isinstance(check, CriterionChecked))
            if line.kind in ("waits", "unmet") and "Error: " in each.text:
                quoted = each.text.partition("runs): ")[2] or each.text.partition(": ")[2]
                wrong += [part for part in quoted.split(" / ") if part.rstrip("…") not in outputs]
    texts = [text for line in found.lines for text in sorted({line.text, *(each.text for each in line.examples)})]
    return wrong + [text for text in set(texts) if texts.count(text) > 1 and len(text) > 20]


def unknown_commands(found: Brief) -> list[str]:
    """Commands of the brief that the program does not have as they stand."""
    wrong = []
    for line in found.lines:
        for words in (words for option in line.options for words in option.commands):
            given = [{"USD": "5", "FILE": "x.json"}.get(word, word) for word in words]
            try:
                build_parser(given[0]).parse_args(given)
            except SystemExit:
                wrong.append(" ".join(words))
    return wrong


LONG = ("conflict", "refused", "metric", "hangs", "moved", "flaky", "outage")
"""Troubles of the long form, because their missions take long."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.faults] if name in LONG else []) for name in TROUBLES]
)
def test_a_mission_with_known_trouble(name: str, tmp_path: Path, holdfast_home: Path) -> None:
    trouble = TROUBLES[name]
    repo, said = begun(trouble, tmp_path)
    assert trouble.code in (said.code, -1), said
    trouble.then(repo)
    found, events, below = anyio.run(partial(told, holdfast_home))
    text = markdown(found)
    print(text)
    assert audit(found, events, below) == []
    assert untrue(found, events) == []
    assert unknown_commands(found) == []
    assert text.splitlines()[1] == ("## Decisions" if "needs nothing" not in text.splitlines()[0] else "## Status")
    assert text.count("\n") <= LINES_MAX
    assert [line for line in trouble.says if line not in text] == []
    assert [line for line in trouble.silent if line in text] == []
