"""Scripted sessions and what is captured of them: live views, lists, briefs, and every help."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.app.cli import VERBS, build_parser
from tests.app.looping import MINE, project, story
from tests.app.terminal import PRICE, bash, rows, script, turn
from tests.app.test_mission_lint import make
from tests.captures.terminals import Typed, shown

WIDTHS = (80, 60)

LAST = 6
"""Last lines that are captured of an attached view: what it shows before depends on when it looks."""

TEST = 'seq 1 40; until [ -e go ]; do sleep 0.02; done; echo "40 passed"\n'
"""A test suite that ends when the scene has been captured."""

AGENT = """id=$(grep -o 'US-00[0-9]' | head -1)
echo "I read the item $id and the code that it is about."
if [ $id = US-002 ] && [ ! -e tried ]; then touch tried; echo "The form is not there yet: I begin with it."; exit; fi
if [ $id = US-002 ]; then until [ -e go ]; do sleep 0.02; done; fi
touch $id
echo "All of $id is done, and its check passes here."
echo '{"total_cost_usd": 0.0125}'
"""
"""A coding agent that needs two iterations for the second item."""

ITEMS = [
    {"id": "greet", "description": "hello() greets by name", "check": "python3 -c 'import a; a.hello()'"},
    {"id": "leave", "description": "bye() takes its leave", "check": "python3 -c 'import a; a.bye()'"},
]

MODULE = "def hello():\n    raise NotImplementedError\n\n\ndef bye():\n    raise NotImplementedError\n"


class Scene(NamedTuple):
    """One capture: its name, the columns, the lines, and how often the terminal had to wrap one."""

    name: str
    columns: int
    lines: list[str]
    wraps: int


class Stage:
    """A home with scripted sessions, and the captures made of it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.scenes: list[Scene] = []
        self.texts: list[str] = []
        """Everything that agents say, do, and get in the live views."""

    def model(self, name: str, *turns: dict[str, object]) -> str:
        """A model with this script."""
        self.texts += [json.dumps(turns, ensure_ascii=False)]
        return script(self.base / f"{name}.json", *turns, price=PRICE)

    def folder(self, name: str, **files: str) -> Path:
        """A folder that the sandbox may write to."""
        folder = project(self.base / name, **files)
        folder.chmod(0o777)
        return folder

    def live(self, name: str, folder: Path, *words: str, key: str, gate: Path, ready: str) -> None:
        """Capture a view in the foreground at 80 columns and attached at 60, while it shows `ready` and at its end."""
        at = words.index("--budget")
        with Typed(folder, *words[:at], "--session-id", key, *words[at:], columns=80) as wide:
            wide.until(lambda text: re.search(ready, text) is not None)
            with Typed(folder, "attach", key, columns=60) as narrow:
                for terminal in (narrow, wide):
                    terminal.until(lambda text: re.search(ready, text) is not None)
                    self.scenes.append(Scene(name, terminal.screen.columns, terminal.past(), terminal.screen.wraps))
                gate.touch()
                for terminal, lines in ((wide, 200), (narrow, LAST)):
                    terminal.ended()
                    end = terminal.past()[-lines:]
                    self.scenes.append(Scene(f"{name}-end", terminal.screen.columns, end, terminal.screen.wraps))

    def show(self, name: str, *words: str, folder: Path | None = None) -> None:
        """Capture what a command prints, at each width."""
        for columns in WIDTHS:
            terminal = shown(folder or self.base, *words, columns=columns)
            self.scenes.append(Scene(name, columns, terminal.past(), terminal.screen.wraps))


def play(stage: Stage) -> None:
    """Capture everything."""
    run(stage)
    _loop(stage)
    _mission(stage)
    _waiting(stage)
    _lists(stage)
    ask_for_help(stage, list(helps()))


def run(stage: Stage) -> None:
    """Capture a run in which tests fail at first."""
    folder = stage.folder("work", test__sh=TEST, parser__py="print('x')\n")
    first = "I run the tests first, to see which of them fail, and change nothing before I know why they do."
    second = "Three tests fail: the parser drops the last line of a file without a newline. I fix that."
    model = stage.model(
        "run",
        {**bash("seq 1 40; echo '3 failed, 37 passed'; exit 1"), "text": first},
        {**bash("sed -i s/x/y/ parser.py; sh test.sh"), "text": second},
        turn(text="All 40 tests pass: the parser keeps the last line now."),
    )
    words = ("run", "Fix the failing tests.", "--model", model, "--budget", "2", "--workspace", ".")
    stage.live("run", folder, *words, key="fix", gate=folder / "go", ready=r"running  bash: sed .* [1-9] s ")


def _loop(stage: Stage) -> None:
    titles = ("A visitor can sign up", "A visitor sees a form with two fields", "The form says what is wrong")
    folder = project(
        stage.base / "shop", *(story(at, title=title) for at, title in enumerate(titles, 1)), agent__sh=AGENT
    )
    folder.chmod(0o777)
    stage.texts += [AGENT, *titles, "test -e US-001 US-002 US-003 Iteration 1 2 3: sh agent.sh"]
    words = ("loop", *MINE, "--budget", "1", "--", "sh", "agent.sh")
    ready = r"(?s)attempt 2.*running  bash: sh age.*  \d+ s .*0125\+"
    stage.live("loop", folder, *words, key="shop", gate=folder / "go", ready=ready)


def _mission(stage: Stage) -> None:
    gate = stage.base / "merge"
    flags = stage.base / "flags"
    flags.mkdir()
    flags.chmod(0o777)
    second = f"[ ! -e {flags}/first ] || until [ -e {gate} ]; do sleep 0.02; done; touch {flags}/first"
    build = f"{second}; sed -i 's/raise NotImplementedError/return 1/' a.py\n"
    policy = 'planner = "items"\njudge = "off"\nworkers = 1\n'
    items = json.dumps([{**item, "passes": False} for item in ITEMS], indent=2) + "\n"
    repo = make(
        stage.base / "repo", {"a.py": MODULE, "build.sh": build, "mission.toml": policy, "feature_list.json": items}
    )
    model = stage.model(
        "worker",
        {**bash("sh build.sh"), "text": "Both functions raise now. I write them, then run the check of this item."},
        turn(tool_calls=[{"name": "hand_in", "input": {"status": "done", "notes": "it greets", "findings": []}}]),
    )
    stage.texts += [items, "greet.check leave.check merged merging handed in done"]
    words = ("mission", "run", "--model", model, "--budget", "5", "--no-sandbox")
    stage.live(
        "mission",
        repo,
        *words,
        key="greet",
        gate=gate,
        ready=r"(?s)worker leave  bash: sh build.sh +[1-9] s.*1 of 2 met",
    )


def _waiting(stage: Stage) -> None:
    """A question, an action to approve, a failure, and a session whose process died."""
    folder = stage.folder("later")
    options = ["Postgres", "SQLite"]
    asks = turn(tool_calls=[{"name": "ask_person", "input": {"question": "Which database?", "options": options}}])
    long = "Make the nightly import of orders from the old shop work again, and say what was wrong with it."
    quiet = ("--scratch", "--json")
    shown(folder, "run", long, "--model", stage.model("ask", asks), "--session-id", "import", *quiet, columns=80)
    push = bash("git push origin main && curl https://deploy.example.com/hooks/production")
    shown(folder, "run", "Release 2.0.", "--model", stage.model("push", push), "--ask", "bash", *quiet, columns=80)
    refuses = stage.model("no", turn(text="No.", error="refusal"))
    shown(folder, "run", "Do it.", "--model", refuses, "--session-id", "refused", *quiet, columns=80)
    died = stage.model("died", bash("touch begun; sleep 600"))
    there = ("--session-id", "died", "--no-sandbox", "--workspace", ".")
    with Typed(folder, "run", "Count to a million.", "--model", died, *there, columns=80) as terminal:
        terminal.until("running  bash: touch")


def _lists(stage: Stage) -> None:
    stage.show("ps", "ps")
    stage.show("ps-tree", "ps", "--tree")
    stage.show("show", "show", "fix")
    stage.show("show-waiting", "show", "import")
    stage.show("show-died", "show", "died")
    stage.show("inbox", "inbox", "--plain")
    for columns in WIDTHS:
        with Typed(stage.base, "inbox", columns=columns) as terminal:
            terminal.until("q quit")
            stage.scenes.append(Scene("inbox-picker", columns, terminal.lines(), terminal.screen.wraps))
            terminal.type("q")
            terminal.ended()
    home = Path(os.environ["HOLDFAST_HOME"])
    ((item,),) = rows(home / "holdfast.db", "select item_id from items where title not like '%database%' limit 1")
    stage.show("inbox-item", "inbox", item)
    stage.show("brief", "brief", "fix")
    stage.show("brief-mission", "brief", "greet")
    stage.show("brief-all", "brief", "--since", "1h")
    stage.show("mission-show", "mission", "show", "greet")
    stage.show("logs", "logs", "fix", "--type", "agent.message", "agent.tool_use", "agent.tool_result")
    stage.show("diff", "diff", "fix")
    stage.show("money", "cost")
    stage.show("budget", "budget")
    stage.show("error", "show", "nobody")


def helps() -> Iterator[tuple[str, ...]]:
    """The words of every command that has a help."""

    def below(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, each in action.choices.items():
                    yield from below(each, (*words, name))

    yield ()
    for verb in VERBS:
        (whole,) = (each for each in build_parser(verb)._actions if isinstance(each, argparse._SubParsersAction))
        yield from below(whole.choices[verb], (verb,))


def ask_for_help(stage: Stage, commands: list[tuple[str, ...]]) -> None:
    """Capture the help of commands."""
    for words in commands:
        stage.show(f"help-{'-'.join(words) or 'all'}", *words, "--help")
