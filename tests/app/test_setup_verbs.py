"""`init`, `config`, and `notify`: a first set-up without and on a terminal, settings with sources, a test notice."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.app.screen import Session
from tests.app.terminal import PRICE, Type, script, turn

pytestmark = pytest.mark.usefixtures("holdfast_home")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The user's settings file, which does not exist yet."""
    return tmp_path / "config" / "holdfast" / "holdfast.toml"


@pytest.fixture
def model(type: Type) -> str:
    """A scripted model in the folder that `type` made, named by its whole path as `init` keeps it."""
    return script(Path("m.json").absolute(), turn(text="ok"), price=PRICE)


def test_init_without_a_terminal_takes_flags_and_never_overwrites_unasked(type: Type, file: Path, model: str) -> None:
    type("init").refused(2, "no terminal", "holdfast init --model")
    unpriced = script(Path("u.json").absolute(), turn(text="ok"))
    type("init", "--model", unpriced, "--budget", "5").refused(2, "no price", "nothing was written")
    assert not file.exists()
    type("init", "--model", model, "--budget", "5").went()
    assert tomllib.loads(file.read_text()) == {"model": model, "budget_usd": "5"}
    assert file.stat().st_mode & 0o077 == 0
    assert type("run", "x", "--no-sandbox").went().out == "ok\n", "the settings count"
    other = script(Path("n.json").absolute(), turn(text="ok"), price=PRICE)
    said = type("init", "--model", other)
    assert said.code == 2
    assert "--replace" in said.err
    assert tomllib.loads(file.read_text())["model"] == model
    type("init", "--model", other, "--replace").went()
    assert tomllib.loads(file.read_text()) == {"model": other, "budget_usd": "5"}
    (line,) = type("init", "--model", other, "--json").went().lines
    assert line == {"file": str(file), "model": other, "written": [], "checked": True}


def test_init_writes_nothing_when_the_model_cannot_be_asked(
    type: Type, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = script(Path("f.json").absolute(), turn(text="", error="auth"))
    said = type("init", "--model", failing)
    assert (said.code, said.out) == (1, "")
    assert "nothing was written" in said.err
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    type("init", "--model", "anthropic:claude-sonnet-5-5").refused(5, "ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret")
    type("init", "--model", "anthropic:claude-sonnet-5-5", "--no-check").went()
    assert "sk-very-secret" not in file.read_text(), "a key is never written"


def test_init_asks_on_a_terminal(file: Path, model: str) -> None:
    with Session("init", columns=120) as terminal:
        terminal.until("Model (PROVIDER:NAME):")
        terminal.type(f"{model}\n")
        terminal.until("Spending cap of a session in dollars")
        terminal.type("2.5\n")
        terminal.until("Next: holdfast run")
        assert terminal.ended() == 0
    assert tomllib.loads(file.read_text()) == {"model": model, "budget_usd": "2.5"}
    other = script(Path("n.json").absolute(), turn(text="ok"), price=PRICE)
    for answer, kept in (("n\n", model), ("y\n", other)):
        with Session("init", "--model", other, columns=200) as terminal:
            terminal.until("Replace it with")
            terminal.type(answer)
            assert terminal.ended() == 0
        assert tomllib.loads(file.read_text())["model"] == kept


def test_config_says_what_counts_and_where_it_comes_from(
    type: Type, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    type("config", "set", "max_turns", "40").went()
    said = type("config", "get", "max_turns").went()
    assert (said.out, said.err) == ("40\n", f"from {file}\n")
    assert type("config", "get", "hands.processes").went().err == "from default\n"
    monkeypatch.setenv("HOLDFAST_MAX_TURNS", "9")
    assert type("config", "get", "max_turns", "--json").went().lines == [
        {"key": "max_turns", "value": 9, "source": "HOLDFAST_MAX_TURNS"}
    ]
    assert "max_turns is 9 here all the same, from HOLDFAST_MAX_TURNS" in type("config", "set", "max_turns", "41").err
    shown = type("config", "show").went().out
    assert "HOLDFAST_MAX_TURNS\n  max_turns = 9\n" in shown
    assert "\ndefault\n" in shown
    type("config", "get", "modle").refused(2, "did you mean 'model'")
    type("config", "set", "modle", "x").refused(2, "did you mean 'model'", str(file), "unchanged")
    type("config", "get", "hands").refused(2, "hands.cpus")
    type("config", "get").refused(2, "config get takes a key")
    type("config", "show", "model").refused(2, "config show takes no key")


class Receiver(BaseHTTPRequestHandler):
    """Takes notices, as an ntfy server does."""

    taken: list[str] = []

    def do_POST(self) -> None:
        """Take one."""
        self.taken.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(403 if "forbidden" in self.taken[-1] else 200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """Its address."""
    Receiver.taken = []
    with HTTPServer(("127.0.0.1", 0), Receiver) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_notify_test_sends_to_each_target_and_names_the_one_that_fails(type: Type, server: str) -> None:
    type("notify", "test").refused(2, "no notification target", "nothing was sent")
    for name, topic in (("phone", "abc"), ("down", "forbidden")):
        type("config", "set", f"notify.{name}", f'{{kind = "ntfy", url = "{server}", topic = "{topic}"}}').went()
    type("notify", "test", "phne").refused(2, "did you mean 'phone'", "nothing was sent")
    assert type("notify", "test", "phone").went().out == "sent   phone\n"
    assert any("Holdfast: a test" in each for each in Receiver.taken)
    lines = type("notify", "test", "--json").went(5).lines
    assert [(line["target"], line["ok"]) for line in lines] == [("phone", True), ("down", False)]
