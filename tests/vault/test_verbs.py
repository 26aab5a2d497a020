"""`holdfast secret` and `holdfast egress` as they are typed; values go in and never come out."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import termios
from pathlib import Path

import pytest

from tests.app.conftest import type_
from tests.app.terminal import HOLDFAST, Said, Type, bash, script, turn
from tests.vault.rigs import keyring_home

pytestmark = pytest.mark.real

__all__ = ["type_"]

CANARY = "canary-Value+/0123456789"

TABLES = """
[egress]
allow = ["docs.example.com", {host = "git.example.com", ports = [443, 8443], methods = ["GET"]}]
registries = true

[secrets.payments]
from = "env:PAYMENTS"
hosts = ["api.example.com"]
variable = "PAYMENTS_KEY"

[secrets.forge]
from = "keyring:holdfast/forge"
hosts = ["git.example.com", "api.example.com"]
basic = true
paths = ["/team/web.git/*"]
push = ["refs/heads/agent/*"]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own settings file, with a keyring beside it."""
    for name, value in keyring_home(tmp_path / "config").items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    file = tmp_path / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir()
    file.write_text(TABLES)
    monkeypatch.setenv("PAYMENTS", CANARY)
    return file


def _set(*words: str, value: str) -> Said:
    done = subprocess.run(
        [*HOLDFAST, "secret", "set", *words], input=value, capture_output=True, text=True, check=False
    )
    assert CANARY not in done.stdout + done.stderr
    return Said(done.returncode, done.stdout, done.stderr)


def test_a_secret_is_listed_and_checked_without_its_value(
    type: Type, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = type("secret", "list", "--json").went()
    assert [(line["name"], line["from"], line["hosts"]) for line in listed.lines] == [
        ("payments", "env:PAYMENTS", ["api.example.com"]),
        ("forge", "keyring:holdfast …", ["git.example.com", "api.example.com"]),
    ]
    assert "as PAYMENTS_KEY" in type("secret", "list").went().out
    assert type("secret", "check", "payments").went().out == "ok   payments\n"
    bad = type("secret", "check").went(5)
    assert "BAD  forge: " in bad.out
    assert "type: holdfast secret set forge" in bad.out
    monkeypatch.delenv("PAYMENTS")
    assert "PAYMENTS is not set" in type("secret", "check", "payments", "--json").went(5).lines[0]["problem"]
    assert CANARY not in listed.out + bad.out


def test_a_secret_goes_into_the_keyring_and_out_of_it(type: Type, own: Path) -> None:
    said = _set("forge", value=CANARY + "\n").went()
    assert said.out == "forge is kept at keyring:holdfast/forge\n"
    assert (own.parents[1] / "holdfast.forge.entry").read_text() == CANARY
    assert type("secret", "check", "forge").went().out == "ok   forge\n"
    assert type("secret", "remove", "forge").went().out == "forge is removed from keyring:holdfast/forge\n"
    assert "there was nothing" in type("secret", "remove", "forge").went().out


def test_a_new_secret_goes_into_a_file_of_the_home(type: Type, own: Path, holdfast_home: Path) -> None:
    said = _set("fresh", value=CANARY).went()
    file = holdfast_home / "secrets" / "fresh"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert f'[secrets.fresh] from = "file:{file}"' in said.err
    own.write_text(f'[secrets.fresh]\nfrom = "file:{file}"\nhosts = ["api.example.com"]\n')
    assert type("secret", "check").went().out == "ok   fresh\n"
    assert _set("fresh", value="another-value-1").went().out == f"fresh is kept at file:{file}\n"
    assert file.read_text() == "another-value-1\n"
    type("secret", "remove", "fresh").went()
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "pieces"),
    [
        (["set"], 2, ["say which secret"]),
        (["set", "../x"], 2, ["cannot be the name"]),
        (["remove", "forg"], 2, ["did you mean 'forge'"]),
        (["check", "forg"], 2, ["did you mean 'forge'"]),
        (["remove", "payments"], 5, ["comes from an environment variable (env:PAYMENTS)"]),
        (["get", "payments"], 2, ["invalid choice"]),
        (["list", "--keyring"], 2, ["for `set` alone"]),
    ],
)
def test_what_cannot_be_meant(type: Type, own: Path, words: list[str], code: int, pieces: list[str]) -> None:
    type("secret", *words).refused(code, *pieces)


@pytest.mark.parametrize("value", ["", "short", f"{CANARY}\n{CANARY}\n", f"{CANARY}\x07", CANARY * 1000])
def test_what_cannot_be_kept_is_not(own: Path, holdfast_home: Path, value: str) -> None:
    _set("fresh", value=value).refused(5, "nothing was stored")
    assert not (holdfast_home / "secrets").exists()
    nothing = subprocess.run(
        [*HOLDFAST, "secret", "set", "fresh"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (nothing.returncode, b"it is empty" in nothing.stderr) == (5, True)
    _set("payments", value=CANARY).refused(5, "comes from an environment variable")


def _at_a_terminal(keys: bytes) -> tuple[int, bytes, bool]:
    """`secret set fresh` at a terminal with these keys: the exit status, what is seen, whether echo is on again."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *HOLDFAST, "secret", "set", "fresh"], stdin=side, stdout=side, stderr=side
    )
    said = b""
    while b"value of fresh" not in said:
        said += os.read(main, 1024)
    os.write(main, keys)
    code = process.wait(30)
    echoes = bool(termios.tcgetattr(side)[3] & termios.ECHO)
    os.close(side)
    with contextlib.suppress(OSError):  # the other side is gone
        while piece := os.read(main, 1024):
            said += piece
    os.close(main)
    return code, said, echoes


def test_a_terminal_asks_without_echo(own: Path, holdfast_home: Path) -> None:
    code, said, echoes = _at_a_terminal(CANARY.encode() + b"\n")
    assert (code, echoes) == (0, True)
    assert CANARY.encode() not in said
    assert (holdfast_home / "secrets" / "fresh").read_text() == CANARY + "\n"


@pytest.mark.parametrize(("keys", "code", "why"), [(b"\x03", 130, b""), (b"\x04", 5, b"it is empty")])
def test_whoever_gives_up_has_the_echo_back(own: Path, holdfast_home: Path, keys: bytes, code: int, why: bytes) -> None:
    ended, said, echoes = _at_a_terminal(keys)
    assert (ended, echoes) == (code, True), said
    assert why in said
    assert not (holdfast_home / "secrets").exists()


# --- egress ----------------------------------------------------------------------------------------


def _session(type: Type, tmp_path: Path, *words: str) -> None:
    model = script(tmp_path / "m.json", turn(text="Done."))
    type("run", "x", "--model", model, "--session-id", "k", "--no-sandbox", *words).went()


def test_run_gives_a_session_what_was_said(type: Type, own: Path, tmp_path: Path) -> None:
    _session(type, tmp_path, "--allow-host", "more.example.com:8443", "--secret", "payments")
    (told,) = type("egress", "k", "--json").went().lines
    assert [place["host"] for place in told["policy"]["allow"]] == [
        "docs.example.com",
        "git.example.com",
        "more.example.com",
    ]
    assert [use["name"] for use in told["policy"]["secrets"]] == ["payments"]
    assert told["policy"]["registries"] is True
    shown = type("egress", "k").went().out
    assert "may talk to  git.example.com:443,8443  (methods GET)" in shown
    assert "may use      the secret payments for api.example.com" in shown
    assert CANARY not in shown + type("export", "k").went().out
    type("run", "x", "--session-id", "k", "--allow-host", "a.example.com").refused(2, "holdfast egress k --allow HOST")


def test_a_policy_is_changed_while_the_session_stands(type: Type, own: Path, tmp_path: Path) -> None:
    _session(type, tmp_path)
    shown = type("egress", "k", "--allow", "a.example.com", "--deny", "git.example.com", "--no-wake").went().out
    assert "may talk to  a.example.com:443" in shown
    assert "git.example.com" not in shown
    assert "the secret forge for api.example.com" in shown
    type("egress", "k", "--no-secret", "forge", "--registries", "off", "--deny", "docs.example.com:443").went()
    (told,) = type("egress", "k", "--secret", "forge", "--json").went().lines
    assert [place["host"] for place in told["policy"]["allow"]] == ["a.example.com"]
    assert [use["name"] for use in told["policy"]["secrets"]] == ["payments", "forge"]
    assert told["policy"]["registries"] is False
    updates = [line for line in type("export", "k").went().lines if line["type"] == "session.updated"]
    assert len(updates) == 3
    assert updates[-1]["egress"] == told["policy"]
    (told,) = type("egress", "k", "--deny", "api.example.com", "--json").went().lines
    assert [(use["name"], use["hosts"]) for use in told["policy"]["secrets"]] == [("forge", ["git.example.com"])]


def test_the_log_of_the_home_talks_to_nobody(type: Type, own: Path) -> None:
    type("stop", "--all").went()
    type("egress", "ses_home", "--allow", "a.example.com").refused(2, "log of the home itself")


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (["--allow", "*.example.com"], ["name each host exactly"]),
        (["--allow", "https://a.example.com/"], ["name the host alone"]),
        (["--deny", "b.example.com"], ["may not talk to it anyway"]),
        (["--deny", "docs.example.com:8443"], ["may not talk to it anyway"]),
        (["--secret", "paymnts"], ["did you mean 'payments'"]),
        (["--no-secret", "paymnts"], ["does not use a secret 'paymnts'"]),
        (["--registries", "maybe"], ["invalid choice"]),
    ],
)
def test_changes_that_cannot_be_meant_change_nothing(
    type: Type, own: Path, tmp_path: Path, words: list[str], pieces: list[str]
) -> None:
    _session(type, tmp_path)
    before = type("export", "k").out
    type("egress", "k", "--allow", "fine.example.com", *words).refused(2, *pieces)
    assert type("export", "k").out == before


def test_bad_tables_refuse_a_run_and_leave_nothing(type: Type, own: Path, tmp_path: Path, holdfast_home: Path) -> None:
    own.write_text('[secrets.a]\nfrom = "canary-Value+/0123456789"\nhosts = ["a.example.com"]\n')
    model = script(tmp_path / "m.json", turn(text="Done."))
    said = type("run", "x", "--model", model, "--no-sandbox").refused(2, "from in [secrets.a]", "not the secret itself")
    assert CANARY not in said.err
    assert list((holdfast_home / "workspaces").iterdir()) == []


def test_a_fork_and_a_child_keep_the_policy(type: Type, own: Path, tmp_path: Path) -> None:
    agent = tmp_path / "lead.toml"
    agent.write_text('name = "lead"\ntools = ["bash", "spawn", "search_log"]\n')
    call = {"name": "spawn", "input": {"goal": "part", "tools": ["search_log"]}}
    model = script(tmp_path / "m.json", bash("echo 1 > file"), turn(tool_calls=[call]), turn(text="Done."))
    words = ("--session-id", "k", "--no-sandbox", "--agent", agent, "--allow-host", "more.example.com")
    type("run", "x", "--model", model, *words).went()
    (mine,) = type("egress", "k", "--json").went().lines
    (opened,) = [line for line in type("export", "k").went().lines if line["type"] == "child.opened"]
    type("fork", "k", "--at", opened["seq"], "--key", "f").went()
    for other in (opened["child_id"], "f"):
        assert type("egress", other, "--json").went().lines[0]["policy"] == mine["policy"]
