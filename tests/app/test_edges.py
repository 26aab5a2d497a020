"""Edges of a machine: missing system features, output that cannot be written, and a proxy that is down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.direct.model import proxy_hint
from tests.app.terminal import HOLDFAST, Type, script, turn

HELPS = [("--help",), ("logs", "--help"), ("--version",), ("mission", "run", "--help"), ("help",)]


def without(setting: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a Python where `setting` was run first."""
    code = f"{setting}\nimport sys\nfrom holdfast.app.cli import main\nsys.exit(main({list(words)!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("import sys; sys.modules['fcntl'] = None", "fcntl"),
        ("import sys; sys.modules['resource'] = None", "resource"),
        ("import os; del os.pidfd_open", "os.pidfd_open"),
    ],
)
def test_a_machine_without_linux_features_is_told_so_in_one_line(setting: str, name: str, holdfast_home: Path) -> None:
    for words in (("doctor",), ("run", "hello"), ("completion", "words", "")):
        done = without(setting, *words)
        assert (done.returncode, done.stdout) == (5, "")
        (line,) = done.stderr.splitlines()
        assert name in line
        assert "Linux" in line
    assert not holdfast_home.exists()
    assert without(setting, "--help").returncode == 0


@pytest.mark.parametrize("words", HELPS)
def test_help_on_a_full_disk_is_an_error_and_on_a_closed_pipe_nothing(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*HOLDFAST, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 5
    assert "No space left on device" in line
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*HOLDFAST, *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_lists_on_a_full_disk_end_with_one_line(type: Type, holdfast_home: Path) -> None:
    model = script(Path("m.json"), turn(text="Hello."))
    type("run", "hello", "--model", model, "--session-id", "k", "--no-sandbox").went()
    for words in (("logs",), ("ps", "--json"), ("completion", "bash")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*HOLDFAST, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 5, words
        assert "No space left on device" in line
    for words in (("logs",), ("config", "show")):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([*HOLDFAST, *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, ""), words


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy is set."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_a_dead_proxy_is_named_without_its_password(
    type: Type, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:secret@127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    said = type("init", "--model", "anthropic:claude-sonnet-5-5")
    assert said.code == 1
    assert "through HTTPS_PROXY=http://127.0.0.1:9; check that this proxy is running, or unset the variable" in said.err
    assert "secret" not in said.err


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"all_proxy": "http://127.0.0.1:9"}, "ALL_PROXY=http://127.0.0.1:9"),
        ({"HTTPS_PROXY": "http://p:3", "NO_PROXY": "api.example.com"}, ""),
        ({"HTTP_PROXY": "http://p:3"}, ""),
        ({}, ""),
    ],
)
def test_only_the_proxy_in_use_is_named(
    variables: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch, no_proxy: None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    hint = proxy_hint("https://api.example.com/v1")
    assert (named in hint) if named else hint == "; check that the server is running"
    assert proxy_hint("http://127.0.0.1:8000/v1") == "; check that the server is running"
