"""Values of settings of any shape: each is taken, or refused with its key; none is an internal error."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.app.settings.agent_file import load_agent, load_rules
from holdfast.app.settings.config import NAMES, load_settings
from holdfast.app.settings.mission_file import OWN_KEYS, POLICY_KEYS, parse_mission_file
from holdfast.app.settings.user_file import KEYS, check, set_values
from holdfast.errors import UsageError
from tests.app.terminal import Type
from tests.support.trusted import trust

STRANGE = (
    '[["pip"]]',
    "[{a = 1}]",
    "{a = [1]}",
    "{worker = [[]]}", "[[[]]]", "[[]]", "[]", "{}", '"scripted:\\u0000"', "true", "-1", "0", "inf",
    "nan", "-inf", "1e308", "1" + "0" * 400, '""', '" "', '"\\u0000"', '"\\ud7ff"', "1979-05-27", "[1979-05-27]",
    "07:32:00",
    "[true]", '["none", ["none"]]', '{host = ["a"]}', '[{host = ["a"], ports = [[1]]}]', '[{name = "x"}]',
    '[{name = "a", command = "b", health = "c", ready_s = [1]}]',
)  # fmt: skip

TABLES = [
    *(f"{name} = {{}}" for name in NAMES if name not in KEYS),
    *(f"[{table}]\n{key} = {{}}" for table, keys in KEYS.items() for key in keys),
    *(f'[notify.a]\nkind = "ntfy"\n{key} = {{}}' for key in ("url", "topic", "quiet", "user")),
    "[notify.a]\nkind = {}",
    *(f"[secrets.a]\n{key} = {{}}" for key in ("from", "hosts", "header", "variable", "expires", "push", "pass_env")),
    *(f'[secrets.a]\nfrom = "env:A"\nhosts = ["a.example"]\n{key} = {{}}' for key in ("header", "expires", "paths")),
    *(f"[search.a]\n{key} = {{}}" for key in ("url", "secret")),
    *(f'[prices."a:b"]\n{key} = {{}}' for key in ("input_per_mtok", "output_per_mtok")),
]


def lines(pattern: str) -> list[str]:
    """The pattern with each strange value in the place of `{}`."""
    return [pattern.replace("{}", value) for value in STRANGE]


def key_of(pattern: str) -> str:
    """The key that gets the value."""
    return pattern.splitlines()[-1].partition(" ")[0]


@pytest.mark.parametrize("pattern", TABLES, ids=lambda pattern: " ".join(pattern.split()))
def test_a_strange_value_is_a_usage_error_in_every_file(
    pattern: str, holdfast_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, project = tmp_path / "config" / "holdfast", tmp_path / "project"
    config.mkdir(parents=True)
    project.mkdir()
    (project / "AGENTS.md").write_text("")
    refused = 0
    for text in lines(pattern):
        for folder, file in ((tmp_path, config / "holdfast.toml"), (project, project / "holdfast.toml")):
            file.write_text(text)
            try:
                check(load_settings(folder, {}))
            except UsageError as error:
                refused += key_of(pattern) in str(error) or "[" in pattern
            file.unlink()
    assert refused


@pytest.mark.parametrize("key", [*OWN_KEYS, *POLICY_KEYS.values()])
def test_a_strange_value_in_a_mission_file_names_its_key(key: str, tmp_path: Path) -> None:
    refused = named = 0
    for text in lines(f"{key} = {{}}"):
        try:
            parse_mission_file(text.encode(), tmp_path / "mission.toml")
        except UsageError as error:
            refused += 1
            named += key in str(error)
    assert refused == named > 0


@pytest.mark.parametrize("key", ["name", "model", "system", "system_file", "thinking", "tools", "fallbacks"])
def test_a_strange_value_in_an_agent_file_names_its_key(key: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    refused = named = 0
    for text in lines(f"{key} = {{}}"):
        file.write_text(text)
        try:
            load_agent(str(file), "")
        except UsageError as error:
            refused += 1
            named += key.removesuffix("_file") in str(error).replace("system prompt", key)
    assert refused == named > 0


@pytest.mark.parametrize("key", ["tool", "match", "decision", "for_s", "uses", "bound_to"])
def test_a_strange_value_in_a_rules_file_is_a_usage_error(key: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    given = {"tool": '"bash"', "decision": '"ask"', key: "{}"}
    refused = 0
    for text in lines("[[rule]]\n" + "\n".join(f"{name} = {value}" for name, value in given.items())):
        file.write_text(text)
        try:
            load_rules(str(file), ())
        except UsageError:
            refused += 1
    assert refused


def test_the_command_line_names_the_key_of_a_nested_list(type: Type, holdfast_home: Path, tmp_path: Path) -> None:
    config = tmp_path / "config" / "holdfast"
    config.mkdir(parents=True)
    (config / "holdfast.toml").write_text('[environment]\nrecipes = [["pip"]]\n')
    type("run", "hello", "--model", "scripted:none.json").refused(2, "recipes", "[environment]")
    (config / "holdfast.toml").unlink()
    Path("agent.toml").write_text('tools = [["bash"]]\n')
    type("run", "hello", "--agent", "agent.toml").refused(2, "tools in agent.toml")


# --- edits -----------------------------------------------------------------------------------------

FILE = """# mine
model = "scripted:a"   # the quick one
max_turns = 9

# Sandboxes.
[hands]
cpus = 1 # one
require_hard = [
    "memory",  # always
    "network",
]

# Phones.
[notify.phone]
kind = "ntfy"
url = "https://ntfy.example.com"
topic = "env:TOPIC"

["prices"."ollama:qwen3"]
input_per_mtok = 0
output_per_mtok = 0
"""

LIST = FILE[FILE.index("require") : FILE.index("\n# Ph")]


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("model", "openai:x", 'model = "scripted:a"   # the', 'model = "openai:x"  # the'),
        ("max_turns", "10", "max_turns = 9\n", "max_turns = 10\n"),
        ("user", "anna", "max_turns = 9\n", 'max_turns = 9\nuser = "anna"\n'),
        ("hands.cpus", "0.5", "cpus = 1 # one", "cpus = 0.5  # one"),
        ("hands.memory_bytes", "2G", '    "network",\n]\n', '    "network",\n]\nmemory_bytes = "2G"\n'),
        ("hands.require_hard", '["cpu"]', LIST, 'require_hard = ["cpu"]\n'),
        ("notify.phone.topic", "env:T2", '"env:TOPIC"', '"env:T2"'),
        ('prices."ollama:qwen3".input_per_mtok', "1.5", "input_per_mtok = 0\n", "input_per_mtok = 1.5\n"),
        ("people.owner", "42", "output_per_mtok = 0\n", 'output_per_mtok = 0\n\n[people]\nowner = "42"\n'),
        ("notify.desk", '{kind = "apprise", url = "env:D"}', "output_per_mtok = 0\n",
         'output_per_mtok = 0\n\n[notify]\ndesk = {kind = "apprise", url = "env:D"}\n'),
    ],
)  # fmt: skip
def test_an_edit_changes_one_line_and_keeps_comments_and_order(
    key: str, value: str, old: str, new: str, holdfast_home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True)
    file.write_text(FILE)
    file.chmod(0o640)
    set_values({key: value})
    assert FILE.count(old) == 1
    assert file.read_text() == FILE.replace(old, new)
    assert file.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in file.parent.iterdir()] == ["holdfast.toml"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("modle", "x", "did you mean 'model'"),
        ("hands.cpu", "2", "did you mean 'cpus'"),
        ("max_turns", "many", "max_turns"),
        ("environment.recipes", '[["pip"]]', "recipes"),
        ("model", "x\nuser = 'root'", ""),
        ("not a key", "x", "is not a key"),
        ("hands", "2", "hands"),
    ],
)
def test_an_edit_that_is_wrong_leaves_the_file(
    key: str, value: str, said: str, holdfast_home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True)
    file.write_text(FILE)
    if said:
        with pytest.raises(UsageError, match=said):
            set_values({key: value})
        assert file.read_text() == FILE
    else:  # text of several lines is one value
        set_values({key: value})
        assert tomllib.loads(file.read_text()) == {**tomllib.loads(FILE), key: value}


def test_an_edit_reaches_a_file_behind_a_link_and_one_with_other_line_ends(holdfast_home: Path, tmp_path: Path) -> None:
    file, real = tmp_path / "config" / "holdfast" / "holdfast.toml", tmp_path / "dotfiles.toml"
    file.parent.mkdir(parents=True)
    real.write_bytes(b'model = "a" # here\r\n[hands]\r\ncpus = 1\r\n')
    file.symlink_to(real)
    set_values({"hands.cpus": "2", "model": "b"})
    assert file.is_symlink()
    assert tomllib.loads(real.read_text()) == {"model": "b", "hands": {"cpus": 2}}
    assert b"# here\r\n" in real.read_bytes()


def test_a_trusted_project_says_where_a_value_comes_from(type: Type, holdfast_home: Path) -> None:
    Path("holdfast.toml").write_text("max_turns = 7\n[hands]\nrequire_hard = ['memory']\n")
    trust(Path.cwd())
    said = type("config", "show", "--json").went()
    found = {line["key"]: line for line in said.lines}
    assert found["max_turns"] == {"key": "max_turns", "value": 7, "source": str(Path.cwd() / "holdfast.toml")}
    assert found["hands.require_hard"]["source"] == str(Path.cwd() / "holdfast.toml")
    assert found["home"]["source"] == "HOLDFAST_HOME"
    assert found["model"]["source"] == "default"
