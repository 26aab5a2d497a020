"""Words that cannot be meant: one line that says what to type, the exit status, and nothing changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.app.terminal import PRICE, Type, bash, kept, script, turn
from tests.support.trusted import trust

RUN = ("run", "x", "--model", "scripted:m.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test leaves the home that the others copy."""
    return tmp_path_factory.mktemp("made") / "home"


@pytest.fixture
def before(type: Type, holdfast_home: Path, made: Path) -> dict[str, object]:
    """A home with a session `kept` in it, files to refer to, and how it all stands."""
    script(Path("m.json"), bash("true"), turn(text="ok"))
    script(Path("priced.json"), turn(text="ok"), price=PRICE)
    if not made.exists():
        type("run", "x", "--model", "scripted:m.json", "--session-id", "kept", "--deny", "*").went()
        shutil.copytree(holdfast_home, made)
    else:
        shutil.copytree(made, holdfast_home)
    return kept(holdfast_home)


USAGE: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("frobnicate",), ("unknown command 'frobnicate'", "`holdfast help` lists the commands", "holdfast --help")),
    (("gc",), ("unknown command 'gc'; `holdfast help` lists the commands",)),
    (("ls",), ("unknown command 'ls'", "did you mean 'ps'?")),
    (("run", "x", "--modle", "y"), ("--modle", "did you mean --model?")),
    (("--home",), ("missing command after --home",)),
    (("--home", "elsewhere"), ("missing command after --home",)),
    (("wkae", "kept"), ("unknown command 'wkae'", "did you mean 'wake'?", "holdfast wake 7f3k9q")),
    (("--frob",), ("--frob", "holdfast --help")),
    (("run", "x", "--frob"), ("holdfast run: ", "--frob", "holdfast run ")),
    (("ps", "--al"), ("holdfast ps: ", "--al", "holdfast ps is:parked")),
    (("ps", "is:lost"), ("unknown status in 'is:lost'", "parked")),
    (("ps", "its:parked"), ("unknown filter 'its:parked'", "is:STATUS", "older:AGE")),
    (("ps", "is:done", "--tree"), ("--tree", "takes no filters")),
    (("run",), ("the goal is empty", 'holdfast run "fix the failing test"')),
    (("run", " \t"), ("the goal is empty",)),
    (("run", "--session-id", "new"), ("no session 'new' yet", "the goal is empty")),
    (("run", "bad \udcff goal"), ("'bad \\udcff goal'", "not valid UTF-8")),
    (("show", "\udcff"), ("not valid UTF-8",)),
    (("run", "x"), ("no model is named", "config set model", "--model")),
    (("run", "x", "--model", "nobody:large"), ("unknown model 'nobody:large'", "scripted:FILE")),
    (("run", "x", "--model", "scripted:"), ("names no file", "--model scripted:FILE")),
    (("run", "x", "--model", "scripted:gone.json"), ("gone.json", "No such file", "--model scripted:FILE")),
    ((*RUN, "--workspace", "/nowhere/at/all"), ("/nowhere/at/all", "mkdir -p")),
    ((*RUN, "--workspace", "m.json"), ("m.json is not a folder",)),
    ((*RUN, "--workspace", ""), ("--workspace", "names no folder")),
    ((*RUN, "--budget", "0"), ("--budget 0", "--budget 2.50")),
    ((*RUN, "--budget", "-1"), ("--budget -1", "--budget 2.50")),
    ((*RUN, "--budget", "lots"), ("'lots'", "--budget 2.50")),
    ((*RUN, "--budget", "nan"), ("'nan'", "--budget 2.50")),
    ((*RUN, "--budget", "Infinity"), ("'Infinity'", "--budget 2.50")),
    ((*RUN, "--budget", "1e30"), ("more than the ledger can hold", "--budget 2.50")),
    ((*RUN, "--budget", "1e999999999"), ("not an amount", "--budget 2.50")),
    ((*RUN, "--budget", "2"), ("has no price", "leave --budget out")),
    ((*RUN, "--max-turns", "0"), ("--max-turns", "'0'", "such as 40")),
    ((*RUN, "--max-turns", "many"), ("--max-turns", "'many'", "such as 40")),
    ((*RUN, "--max-turns", "9" * 30), ("--max-turns", "such as 40")),
    ((*RUN, "--session-id", ""), ("--session-id ''", "--session-id nightly-7")),
    ((*RUN, "--session-id", "two\nlines"), ("--session-id", "nightly-7")),
    ((*RUN, "--session-id=-x"), ("--session-id '-x'", "nightly-7")),
    ((*RUN, "--session-id", "k" * 300), ("--session-id", "1 to 200")),
    ((*RUN, "--deny", "bsh"), ("--deny 'bsh' fits no tool", "did you mean 'bash'?")),
    ((*RUN, "--allow", "zzz"), ("--allow 'zzz' fits no tool", "grep, job_log")),
    ((*RUN, "--agent", "gone.toml"), ("gone.toml", "No such file")),
    ((*RUN, "--rules", "gone.toml"), ("gone.toml", "No such file")),
    ((*RUN, "--take-over"), ("--take-over needs a folder", "--workspace DIR")),
    (("run", "--session-id", "kept", "--budget", "2"), ("has no price",)),
    (("run", "--session-id", "kept", "--budget", "0"), ("--budget 0",)),
    (("show", "nobody"), ("no session 'nobody'", "holdfast ps --all")),
    (("show", ""), ("no session ''",)),
    (("wake",), ("ID", "holdfast wake 7f3k9q")),
    (("wake", "nobody"), ("no session 'nobody'",)),
    (("send", "kept"), ("TEXT", 'holdfast send 7f3k9q "use tabs"')),
    (("send", "kept", "  "), ("the message is empty",)),
    (("logs", "kept", "--type", "agent.mesage"), ("did you mean 'agent.message'?",)),
    (("logs", "kept", "--after", "-1"), ("--after", "such as 40")),
    (("logs", "kept", "--after", "x"), ("--after", "such as 40")),
    (("ps", "--db", "agents.db"), ("--db 'agents.db'", "sqlite:////var/lib/agents.db")),
    (("ps", "--db", "sqlite:///"), ("--db 'sqlite:///'",)),
    (("ps", "--db", "sqlite:///nowhere/at/all.db"), ("nowhere/at does not exist", "mkdir -p")),
    (("ps", "--db", "sqlite:///tmp/x.db"), ("does not exist", "--db sqlite:////tmp/x.db")),
    (("demo", "--kill-at", "noon"), ("--kill-at 'noon'", "such as 40")),
    (("demo", "--library", "tinydb"), ("--library", "NAME==VERSION", "tinydb==4.9.0")),
    (("demo", "--keep", "."), ("--keep", "not an empty folder")),
    (("sim", "--seeds", "0"), ("--seeds 0",)),
]


@pytest.mark.parametrize(("words", "pieces"), USAGE, ids=lambda value: " ".join(value)[:40] if value else "-")
def test_usage(
    type: Type, before: dict[str, object], holdfast_home: Path, words: tuple[str, ...], pieces: tuple[str, ...]
) -> None:
    type(*words).refused(2, *pieces)
    assert kept(holdfast_home) == before


SCRIPTS = {
    "": "line 1, column 1",
    "{": "line 1, column 2",
    "[]": "Expected `object`",
    '{"turns": 3}': "`script.turns`",
    '{"turns": [{"txt": "x"}]}': "`txt`",
    '{"turns": [{"tool_calls": [{"name": ""}]}]}': "length",
    '{"turns": [{"delay_s": -1}]}': ">= 0",
    '{"turns": [{"delay_s": NaN}]}': "NaN",
    '{"turns": [{"error": "tired"}]}': "'tired'",
    '{"turns": [{"retry_after_s": 3}]}': "`error`",
    '{"turns": [], "price": {"input_per_mtok": 3}}': "output_per_mtok",
    "\udcff": "UTF-8",
    "[" * 100_000: "JSON",
}


def test_malformed_model_files(type: Type, before: dict[str, object], holdfast_home: Path) -> None:
    for text, piece in SCRIPTS.items():
        Path("bad.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        type("run", "x", "--model", "scripted:bad.json").refused(2, "bad.json", piece, '{"turns": [{"text": ')
    type("run", "x", "--model", "scripted:.").refused(2, "Is a directory")
    assert kept(holdfast_home) == before


AGENTS = {
    "modle = 'x'": ("unknown key 'modle'", "did you mean 'model'?"),
    "tools = ['bsh']": ("'bsh'", "did you mean 'bash'?"),
    "tools = [3]": ("the tool 3",),
    "tools = 'bash'": ("tools", "has to be a list"),
    "system = 3": ("system", "has to be a text"),
    "system_file = 'gone.md'": ("gone.md",),
    "model": ("not TOML",),
}

RULES = {
    "[[rules]]\ntool='bash'\ndecision='deny'": ("unknown key 'rules'", "did you mean 'rule'?"),
    "rule = 'x'": ("has no tool", "[[rule]] tool ="),
    "[[rule]]\ndecision='deny'": ("has no tool",),
    "[[rule]]\ntool='bash'\ndecision='never'": ("allow, ask or deny",),
    "[[rule]]\ntool='bash'\ndecison='deny'": ("'decison'", "did you mean 'decision'?"),
    "[[rule]]\ntool='bsh'\ndecision='deny'": ("'bsh' fits no tool", "did you mean 'bash'?"),
}


def test_agent_and_rules_files(type: Type, before: dict[str, object], holdfast_home: Path) -> None:
    for flag, cases in (("--agent", AGENTS), ("--rules", RULES)):
        for text, pieces in cases.items():
            Path("bad.toml").write_text(text)
            type(*RUN, flag, "bad.toml").refused(2, "bad.toml", *pieces)
    assert kept(holdfast_home) == before


def test_project_rules_that_are_no_text(type: Type, before: dict[str, object], holdfast_home: Path) -> None:
    folder = Path("project")
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, 65_534, 65_534)
        folder.parent.absolute().chmod(0o755)
    (folder / "AGENTS.md").write_bytes(b"\xff\xfe")
    type(*RUN, "--workspace", "project").refused(2, "AGENTS.md")
    assert kept(holdfast_home) == before


SETTINGS = {
    "modle = 'x'": ("unknown key 'modle'", "did you mean 'model'?"),
    "max_turns = 0": ("max_turns", "such as 40"),
    "max_turns = 2.5": ("max_turns", "such as 40"),
    "max_turns = true": ("max_turns", "such as 40"),
    "model = ['x']": ("model", "has to be text"),
    "budget_usd = -1.5": ("-1.5", "--budget 2.50"),
    "= 3": ("not TOML",),
}


def test_settings_files(type: Type, before: dict[str, object], holdfast_home: Path) -> None:
    for text, pieces in SETTINGS.items():
        Path("holdfast.toml").write_text(text)
        type("run", "x", "--model", "scripted:priced.json").refused(2, *pieces)
    assert kept(holdfast_home) == before


def test_the_later_setting_wins(type: Type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(Path("m.json"), turn(text="from the file"))
    script(Path("n.json"), turn(text="from the user's file"))
    script(Path("o.json"), turn(text="from the environment"))
    script(Path("p.json"), turn(text="from the flag"))
    here = Path.cwd()
    user = tmp_path / "config" / "holdfast"
    user.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.parent))
    Path("holdfast.toml").write_text(f"model = 'scripted:{here}/m.json'\nmax_turns = 7\n")
    trust()
    assert type("run", "x").went().out == "from the file\n"
    (user / "holdfast.toml").write_text(f"model = 'scripted:{here}/n.json'\n")
    assert type("run", "x", "--session-id", "k", "--scratch").went().out == "from the user's file\n"
    monkeypatch.setenv("HOLDFAST_MODEL", "scripted:o.json")
    assert type("run", "x").went().out == "from the environment\n"
    assert type("run", "x", "--model", "scripted:p.json").went().out == "from the flag\n"
    assert "turns       1 of at most 7\n" in type("show", "k").out


def test_environment_variables(type: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MODLE", "x")
    type("ps").refused(2, "HOLDFAST_MODLE", "did you mean 'model'?")
    monkeypatch.delenv("HOLDFAST_MODLE")
    monkeypatch.setenv("HOLDFAST_MAX_TURNS", "many")
    type("ps").refused(2, "HOLDFAST_MAX_TURNS", "'many'", "such as 40")


def test_an_ambiguous_beginning(type: Type, before: dict[str, object]) -> None:
    type("run", "x", "--model", "scripted:m.json", "--deny", "*").went()
    type("wake", "ses_").refused(2, "'ses_' matches several sessions", "type more of it")


def test_other_databases(type: Type, before: dict[str, object], holdfast_home: Path) -> None:
    type("ps", "--db", "postgresql://localhost:1/agents").refused(5, "cannot be reached")
    type("ps", "--db", "postgresql://ann:secret@localhost:1/agents").refused(2, "~/.pgpass")
    type("ps", "--db", "sqlite:///.").refused(5, "Is a directory")
    assert kept(holdfast_home) == before
