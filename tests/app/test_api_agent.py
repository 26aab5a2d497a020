"""Agents as a Python program says them, and the files that messages bring along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.app.python import opening as api_files
from holdfast.app.python.agent import declared
from holdfast.facts.base import Block, Text
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionCreated
from holdfast.session.tools import DEFAULT_TOOLS
from tests.app.terminal import script, turn

PNG = b"\x89PNG\r\n\x1a\n rest"


def deploy(where: str) -> str:
    """Deploy it."""
    return where


def send(text: str) -> str:
    """Send it."""
    return text


@holdfast.tool(on_unknown="probe")
def charge(cents: int) -> str:
    """Charge it."""
    return str(cents)


# --- agents ---------------------------------------------------------------------------------------


def test_an_agent_in_the_log() -> None:
    rules = [holdfast.Rule("bash", "ask", "git push*")]
    agent = holdfast.Agent(
        "scripted:m.json",
        tools=["bash", deploy, "read"],
        rules=rules,
        allow=["*"],
        ask=["dep*"],
        deny=["read"],
        fallbacks=["scripted:n.json"],
        thinking="low",
        system="Be brief.",
    )
    fact = declared(agent, "")
    assert fact.model == f"scripted:{Path('m.json').absolute()}", "good in every folder"
    assert fact.fallbacks == (f"scripted:{Path('n.json').absolute()}",)
    assert fact.tools == ("bash", "read")
    assert [(spec.name, spec.description) for spec in fact.custom] == [("deploy", "Deploy it.")]
    assert [(rule.tool, rule.decision) for rule in fact.rules] == [
        ("bash", "ask"),
        ("*", "allow"),
        ("dep*", "ask"),
        ("read", "deny"),
    ]
    assert (fact.thinking, fact.system, fact.name) == ("low", "Be brief.", "agent")
    assert declared(holdfast.Agent(), "scripted:x").tools == DEFAULT_TOOLS


def test_an_agent_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "clerk.toml"
    (tmp_path / "prompt.md").write_text("Be kind.")
    file.write_text('model = "scripted:/m.json"\nsystem_file = "prompt.md"\ntools = ["read", "bash"]\n')
    agent = holdfast.Agent.from_file(file, tools=[deploy])
    fact = declared(agent, "")
    assert (fact.model, fact.name, fact.system) == ("scripted:/m.json", "clerk", "Be kind.")
    assert (fact.tools, [spec.name for spec in fact.custom]) == (("read", "bash"), ["deploy"])
    assert declared(holdfast.Agent.from_file(file, model="scripted:/n.json"), "").model == "scripted:/n.json"
    file.write_text('modle = "x"')
    with pytest.raises(holdfast.UsageError, match="did you mean 'model'"):
        holdfast.Agent.from_file(file)
    with pytest.raises(holdfast.UsageError, match="cannot be read"):
        holdfast.Agent.from_file(tmp_path / "gone.toml")


def test_rules_from_a_file_know_the_functions(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('[[rule]]\ntool = "deploy"\ndecision = "ask"\nuses = 2\n')
    (rule,) = declared(holdfast.Agent("scripted:/m", tools=[deploy], rules=file), "").rules
    assert (rule.tool, rule.decision, rule.uses) == ("deploy", "ask", 2)
    with pytest.raises(holdfast.UsageError, match="fits no tool"):
        holdfast.Agent("scripted:/m", tools=[send], rules=file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": "bash"}, "must be a list"),
        ({"tools": ["bush"]}, "did you mean 'bash'"),
        ({"tools": [3]}, "cannot be a tool"),
        ({"tools": [deploy, deploy]}, "has the tool 'deploy' twice"),
        ({"tools": [charge]}, 'has on_unknown="probe" and no probe'),
        ({"tools": [deploy], "ask": ["deplyo"]}, "did you mean 'deploy'"),
        ({"deny": [7]}, "deny of an agent contains 7"),
        ({"rules": [("bash", "ask")]}, "holdfast.Rule"),
        ({"rules": [holdfast.Rule("bash", "maybe")]}, "holdfast.Rule"),  # type: ignore[arg-type]
        ({"thinking": "hard"}, "is not one of off, low, medium, high"),
        ({"system": None}, "it must be text"),
        ({"fallbacks": "scripted:x"}, "must be a list"),
    ],
)
def test_agents_that_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(holdfast.UsageError, match=message):
        holdfast.Agent("scripted:/m", **options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("antropic:claude-x", "did you mean 'anthropic'"),
        ("claude-sonnet-4-5", "did you mean 'anthropic:claude-sonnet-4-5'"),
        ("gpt-5", "did you mean 'openai:gpt-5'"),
        ("openai:", "no name after the colon"),
        ("scripted:", "names no file"),
        ("m", "There are anthropic:NAME"),
    ],
)
def test_unknown_models_are_refused_when_the_agent_is_created(model: str, message: str) -> None:
    with pytest.raises(holdfast.UsageError, match=message):
        holdfast.Agent(model)
    with pytest.raises(holdfast.UsageError, match=message):
        holdfast.Agent("scripted:/m", fallbacks=[model])


# --- files ----------------------------------------------------------------------------------------


async def posted(hf: holdfast.Holdfast, session: str) -> list[tuple[Block, ...]]:
    """What people said to a session."""
    return [event.fact.content async for event in hf.events(session) if isinstance(event.fact, UserMessage)]


async def test_files_go_with_a_goal_and_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "plan.PNG").write_bytes(PNG)
    (tmp_path / "terms.pdf").write_bytes(b"%PDF-1.7 rest")
    (tmp_path / "table.csv").write_text("a,b\n")
    (tmp_path / "code.py").write_text("x = 1\n")
    agent = holdfast.Agent(script(tmp_path / "m.json", turn(text="Seen.")), tools=[])
    files = [tmp_path / name for name in ("plan.PNG", "terms.pdf", "table.csv", "code.py")]
    async with holdfast.open() as hf:
        result = await hf.run(agent, "Look.", key="k", attachments=files)
        first, second = [event.fact async for event in hf.events("k")][:2]
        assert isinstance(first, SessionCreated)
        assert isinstance(second, UserMessage), "before anything runs"
        assert second.content == (
            Text("Files that go with this:"),
            holdfast.Image("image/png", PNG),
            holdfast.Document("application/pdf", b"%PDF-1.7 rest", "terms.pdf"),
            holdfast.Document("text/csv", b"a,b\n", "table.csv"),
            holdfast.Document("text/plain", b"x = 1\n", "code.py"),
        )
        assert result.status == "done"
        await hf.run(agent, "Look.", key="k", attachments=files)
        assert len(await posted(hf, "k")) == 1, "the same files are posted once"
        await hf.send("k", "And this.", attachments=[holdfast.Image("image/png", PNG)])
        assert (await posted(hf, "k"))[1] == (
            Text("And this."),
            Text("Files that go with this:"),
            holdfast.Image("image/png", PNG),
        )


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.png", b"GIF89a", "declared as image/png has other content"),
        ("a.pdf", b"hello", "is declared as a PDF and has other content"),
        ("a.bin", b"\xff\xfe", r"nor UTF-8 text \(byte 1\)"),
        ("a.txt", b"", "is empty"),
        ("a.jpg", b"\xff\xd8\xff" + b"x" * api_files.IMAGE_MAX, "a.jpg|image/jpeg is 5.0 MB, over the limit of 5.0 MB"),
        ("a.txt", b"x" * (api_files.DOCUMENT_MAX + 1), "over the limit of 20.0 MB"),
    ],
)
def test_files_that_no_model_is_shown(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(holdfast.UsageError, match=message):
        api_files.blocks([tmp_path / name])


def test_more_files_that_no_model_is_shown(tmp_path: Path) -> None:
    for given, message in (
        ([tmp_path], "cannot be read: Is a directory"),
        ([holdfast.Image("image/tiff", b"II*")], "unsupported image type 'image/tiff'"),
        ([holdfast.Document("text/plain", b"x" * 13_000_000)] * 2, "26.0 MB together"),
    ):
        with pytest.raises(holdfast.UsageError, match=message):
            api_files.blocks(given)
