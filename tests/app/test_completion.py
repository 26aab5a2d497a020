"""`holdfast completion` in real shells: commands, flags, and the names of sessions and items of the right home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.app.cli import VERBS
from tests.app.terminal import Type, bash, rows, script, turn
from tests.house.test_startup import loaded_by

BASH = 'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; printf "%s\\n" "${COMPREPLY[@]}"'

FISH = "source ./script; complete -C (string join ' ' -- $argv)"

# A terminal of zsh's own: completion exists only in its line editor.
ZSH = r"""
zmodload zsh/zpty
zpty shell "zsh -f -i"
zpty -w shell "PS1=; source ./script; print READY"
zpty -r -m shell line $'*READY\r*'
zpty -w -n shell "$1"$'\t'
zpty -r -m shell line "*$2*"
print -r -- "$line"
"""


@pytest.fixture
def script_of(type: Type, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Writes the script of a shell into `script`; beside it is a home with two sessions and an item."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    model = script(Path("m.json"), turn(text="Hello."))
    type("run", "hello", "--model", model, "--session-id", "greet", "--no-sandbox").went()
    model = script(Path("n.json"), bash("true"))
    type("run", "hello", "--model", model, "--session-id", "asks", "--no-sandbox", "--ask", "bash").went(3)

    def write(*words: str | Path) -> None:
        Path("script").write_text(type("completion", *words).went().out)

    return write  # type: ignore[return-value]


def shell(*command: str) -> list[str]:
    """What a command of a shell prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)
    assert done.stderr == "", done.stderr
    return done.stdout.split()


def completed(*words: str) -> list[str]:
    """What bash proposes for the last of the words."""
    return shell("bash", "--norc", "-c", BASH, "bash", *words)


def test_bash_completes_commands_flags_values_and_names(script_of: Type, holdfast_home: Path, tmp_path: Path) -> None:
    script_of("bash")
    ((item,),) = rows(holdfast_home / "holdfast.db", "select item_id from items")
    assert set(completed("holdfast", "")) == {*VERBS}
    assert completed("holdfast", "mis") == ["mission"]
    assert completed("holdfast", "help", "mis") == ["mission"]
    assert {"run", "init", "deliver"} <= set(completed("holdfast", "mission", ""))
    assert completed("holdfast", "mission", "run", "--mod") == ["--model"]
    assert set(completed("holdfast", "show", "")) == {"greet", "asks"}
    assert completed("holdfast", "mission", "show", "gr") == ["greet"]
    assert completed("holdfast", "approve", "") == [item]
    assert completed("holdfast", "config", "s") == ["show", "set"]
    assert completed("holdfast", "completion", "") == ["bash", "zsh", "fish"]
    other = str(tmp_path / "other")
    assert completed("holdfast", "show", "--home", other, "") == []
    assert completed("holdfast", "--home", other, "show", "") == []
    assert not Path(other).exists(), "looking makes no home"
    assert completed("holdfast", "run", "--rules", "") == [], "files: left to the shell"


def test_fish_completes_the_same(script_of: Type) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script_of("fish")
    assert "mission" in shell("fish", "-c", FISH, "holdfast", "mi")
    assert "--model" in shell("fish", "-c", FISH, "holdfast", "mission", "run", "--mod")
    assert shell("fish", "-c", FISH, "holdfast", "show", "g") == ["greet"]


def test_zsh_completes_the_same(script_of: Type) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script_of("zsh")
    assert shell("zsh", "-f", "-c", ZSH, "zsh", "holdfast mission ru", "holdfast mission run")
    assert shell("zsh", "-f", "-c", ZSH, "zsh", "holdfast show gr", "holdfast show greet")


def test_a_look_up_is_quick_and_never_fails(holdfast_home: Path, type: Type, tmp_path: Path) -> None:
    loaded = loaded_by("from holdfast.app.cli import main\nassert main(['completion', 'words', 'show', '']) == 0")
    assert loaded & {"asyncio", "http", "holdfast.app.cli.start"} == set(), "no event loop"
    assert type("completion", "words", "show", "").went().out == ""
    holdfast_home.mkdir()
    (holdfast_home / "holdfast.db").write_text("no database")
    assert type("completion", "words", "show", "").went().out == ""
    (tmp_path / "config" / "holdfast").mkdir(parents=True)
    (tmp_path / "config" / "holdfast" / "holdfast.toml").write_text("broken =")
    assert type("completion", "words", "inbox", "").went().out == ""
