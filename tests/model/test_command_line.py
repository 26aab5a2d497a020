"""Real models on the command line: keys, servers and prices as a person sets them; bad ones; what doctor finds."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import anyio
import pytest

from holdfast.app.available_models import LocalServer, look
from tests.app.terminal import Type
from tests.model.rigs import USAGE
from tests.model.test_names import VARIABLES
from tests.support.model_server import ModelServer
from tests.support.waiting import PATIENCE_S

SECRET = "sk-this-is-the-value-of-a-key"

TALK = {"match": {"userMessage": "x"}, "response": {"content": "Hello.", "usage": USAGE}}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def address(server: ModelServer) -> str:
    """Its API for OpenAI's clients."""
    return f"http://127.0.0.1:{server.port}/v1"


def test_any_process_finds_the_server_of_a_session_again(type: Type, server: ModelServer) -> None:
    server.load({**TALK, "match": {}})
    words = ("run", "x", "--session-id", "s", "--model", "openai-compatible:m", "--no-sandbox", "--json")
    done = type(*words, "--base-url", address(server)).went()
    created = done.lines[0]
    assert created["agent"]["model"] == f"openai-compatible:m@{address(server)}"
    type("send", "s", "and more", "--no-wake").went()
    type("wake", "s").went()
    assert len(server.journal()) == 2
    type("verify").went()


def test_a_price_of_ones_own_keeps_a_budget(type: Type, server: ModelServer, tmp_path: Path) -> None:
    server.load(TALK)
    words = (
        "run",
        "x",
        "--model",
        "ollama:m",
        "--base-url",
        address(server),
        "--no-sandbox",
        "--json",
        "--budget",
        "1",
    )
    type(*words).refused(2, "no price", '[prices."ollama:m@')
    config = tmp_path / "config" / "holdfast" / "holdfast.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[prices."ollama:m"]\ninput_per_mtok = 10\noutput_per_mtok = 20\n')
    result = type(*words).went().lines[-1]
    assert result["cost_usd"] == pytest.approx(100 * 10e-6 + 20 * 20e-6)
    assert result["usage"]["input_tokens"] == 100


@pytest.mark.parametrize(
    ("model", "code", "pieces"),
    [
        ("anthropic:claude-x", 5, ("ANTHROPIC_API_KEY", "holdfast doctor")),
        ("google:gemini-x", 5, ("GEMINI_API_KEY (or GOOGLE_API_KEY)",)),
        ("openai-compatible:m", 2, ("--base-url http://127.0.0.1:8000/v1",)),
        ("antropic:claude-x", 2, ("unknown model", "did you mean 'anthropic'?")),
    ],
)
def test_a_model_that_cannot_be_asked_starts_nothing(
    model: str, code: int, pieces: tuple[str, ...], type: Type
) -> None:
    type("run", "x", "--model", model, "--no-sandbox").refused(code, *pieces)
    assert type("ps", "--all", "--json").went().lines == []


@pytest.mark.parametrize(
    ("status", "pieces"), [(401, ("set OPENAI_API_KEY to a valid one",)), (404, ("has no model 'm'", "check the name"))]
)
def test_a_wrong_key_or_model_leaves_a_session_that_goes_on(
    status: int, pieces: tuple[str, ...], type: Type, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    server.load({**TALK, "match": {}})
    server.fail_next(status, message=f"no, not with {SECRET}", type="some_error")
    words = ("run", "x", "--session-id", "s", "--no-sandbox", "--json")
    done = type(*words, "--model", "openai-chat:m", "--base-url", address(server)).went(1)
    said = done.out + done.err
    assert all(piece in said for piece in pieces), said
    assert SECRET not in said
    type("verify", "s").went()
    type("send", "s", "try again", "--no-wake").went()
    type("wake", "s").went()


def test_doctor_names_keys_and_never_shows_them(type: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", SECRET)
    said = type("doctor", "--all")
    assert "GOOGLE_API_KEY is set" in said.out
    assert "ANTHROPIC_API_KEY is not set" in said.out
    assert "--model google:" in said.out
    assert SECRET not in said.out + said.err
    (public,) = type("doctor", "--json").lines
    assert public["model"].startswith("--model google:")
    assert {finding["name"] for finding in public["findings"]} >= {"model google", "model Ollama", "log"}


def test_doctor_says_when_no_model_can_be_asked(type: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://models.example:1")
    said = type("doctor")
    assert (
        "no model can be asked" in said.out
        or "a model can be asked: holdfast run GOAL --model openai-compatible" in said.out
    )
    assert "models.example" not in said.out  # doctor asks nobody but this machine


@contextmanager
def lists(*models: str, status: int = 200) -> Iterator[str]:
    """A server that lists models, as the local ones do."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"object": "list", "data": [{"id": name} for name in models] or None}).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/v1"
        http.shutdown()
        thread.join()


async def test_local_servers_are_found_with_their_models() -> None:
    with lists("qwen3:8b", "nomic-embed-text") as ollama, lists() as empty, lists(status=500) as broken:
        servers = (
            LocalServer("Ollama", ollama, "ollama"),
            LocalServer("LM Studio", empty, "openai-compatible"),
            LocalServer("vLLM", broken, "openai-compatible"),
        )
        found = await look(servers)
        by_name = {finding.name: finding for finding in found.findings}
        assert by_name["model Ollama"].level == "ok"
        assert by_name["model LM Studio"].fix == "load a model in LM Studio"
        assert "nothing answers" in by_name["model vLLM"].message
        assert found.proposal == "--model ollama:qwen3:8b"
        other = await look((LocalServer("vLLM", ollama, "openai-compatible"),))
        assert other.proposal == f"--model openai-compatible:qwen3:8b --base-url {ollama}"


async def test_a_server_that_says_nothing_does_not_hold_up_the_doctor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with anyio.fail_after(PATIENCE_S):
            found = await look(tuple(LocalServer(title, url, "ollama") for title in ("a", "b", "c", "d")))
    assert found.proposal == ""
