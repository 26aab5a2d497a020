"""What a repository may set unasked, what it may not, and how a user accepts it."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

import holdfast
from holdfast.app.settings.config import load_settings, trust_store
from holdfast.app.settings.project import ALWAYS, LOWERED
from holdfast.clock import local_time
from holdfast.errors import NotTrusted
from tests.app.terminal import Said, Type, bash, created, script, spawn, turn
from tests.support.trusted import trust

PAGE = (Path(__file__).parents[2] / "docs" / "trust.md").read_text()

SECRET = "only-for-the-user"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server of a stranger on this machine, which nothing may talk to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def asked(server: socket.socket) -> bool:
    """Whether anything connected."""
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


# --- a cloned repository ---------------------------------------------------------------------------


def test_a_model_address_of_a_clone_gets_no_key(
    type: Type, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    Path("holdfast.toml").write_text(f'model = "openai:x@http://127.0.0.1:{listener.getsockname()[1]}/v1"\n')
    for words in (("run", "x"), ("run", "x", "--workspace", "."), ("run", "x", "--detach")):
        said = type(*words).went(5)
        assert "model is set only in" in said.err
        assert "holdfast trust" in said.err
    assert not asked(listener)


def prompt(path: str, text: str = "", link: Path | None = None) -> bool:
    """A prompt in the clone: a text, or a link."""
    Path(path).parent.mkdir(parents=True)
    if link is None:
        Path(path).write_text(text)
    else:
        Path(path).symlink_to(link)
    return True


def linked(path: str, to: str) -> bool:
    """A link in the clone."""
    Path(path).symlink_to(to)
    return True


PROMPTS: dict[str, Callable[[Path], object]] = {
    "the folder is a link": lambda secret: Path("p").symlink_to(secret.parent),
    "a prompt is a link": lambda secret: prompt("p/worker.md", link=secret),
    "a folder above is a link": lambda secret: prompt("real/p/worker.md", "x") and linked("q", "real"),
    "a prompt of its own": lambda secret: prompt("p/worker.md", SECRET),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_of_a_clone_are_not_read(name: str, type: Type, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    secret = tmp_path / "private" / "worker.md"
    secret.write_text(SECRET)
    model = script(Path("m.json"), turn(text="ok"))
    settings = 'prompts = "q/p"\n' if "above" in name else 'prompts = "p"\n'
    Path("holdfast.toml").write_text(settings)
    PROMPTS[name](secret)
    said = type("run", "x", "--model", model, "--session-id", "k").went()
    assert re.search("ignored (all settings )?in .*prompts", said.err)
    shift = next(line for line in map(json.loads, type("export", "k").out.splitlines()) if "prompt_digests" in line)
    Path("holdfast.toml").unlink()
    type("run", "x", "--model", model, "--session-id", "plain").went()
    assert shift["prompt_digests"] == next(
        line["prompt_digests"]
        for line in map(json.loads, type("export", "plain").out.splitlines())
        if "prompt_digests" in line
    )
    if "link" in name:
        Path("holdfast.toml").write_text(settings)
        type("trust", ".", "--yes").refused(5, "symbolic link")


RAISED = {
    "max_turns = 1000000000000": "max_turns",
    "budget_usd = 1000000": "budget_usd",
    "context_tokens = 10000000": "context_tokens",
    "max_output_tokens = 900000": "max_output_tokens",
    "[breakers]\ntool_failures = 1000000": "breakers.tool_failures",
    "[breakers]\nidle_turns = 1000000": "breakers.idle_turns",
    "[breakers]\nspend_per_hour_usd = 1000": "breakers.spend_per_hour_usd",
    "[context]\nsigns = false": "context.signs",
    '[context]\nstrategy = "off"': "context.strategy",
}

OWN = "max_turns = 50\nbudget_usd = 5\n[breakers]\nspend_per_hour_usd = 1\n"


@pytest.mark.parametrize("text", RAISED)
def test_a_clone_raises_no_cap_and_no_breaker(text: str, type: Type, tmp_path: Path) -> None:
    model = script(Path("m.json"), turn(text="ok"), price={"input_per_mtok": 0.1, "output_per_mtok": 0.1})
    args = ("run", "x", "--model", model, "--session-id")
    type(*args, "plain").went()
    Path("holdfast.toml").write_text(text)
    said = type(*args, "clone").went()
    key = RAISED[text]
    if key in ("budget_usd", "breakers.spend_per_hour_usd"):  # any cap is lower than none
        assert "ignored" not in said.err
    else:
        assert f"holdfast.toml: {key};" in said.err
        assert created(type, "clone")["limits"] == created(type, "plain")["limits"]


@pytest.mark.parametrize("text", ["budget_usd = 6", "[breakers]\nspend_per_hour_usd = 2"])
def test_a_clone_raises_no_cap_of_the_users_own(text: str, tmp_path: Path) -> None:
    mine = tmp_path / "config" / "holdfast"
    mine.mkdir(parents=True, mode=0o700)
    (mine / "holdfast.toml").write_text(OWN)
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "holdfast.toml").write_text(text)
    settings = load_settings(tmp_path / "clone", {})
    assert (settings.budget_usd, settings.breakers) == ("5", {"spend_per_hour_usd": 1})


def test_what_an_agent_writes_into_accepted_settings_does_not_count(type: Type) -> None:
    Path("holdfast.toml").write_text("max_turns = 300\n")
    trust()
    first = script(Path("../m.json"), bash("echo 'max_turns = 900' > holdfast.toml"), turn(text="ok"))
    words = ("--workspace", ".", "--no-sandbox", *(("--user", "root") if os.getuid() == 0 else ()))
    type("run", "x", "--model", first, "--session-id", "one", *words).went()
    assert Path("holdfast.toml").read_text() == "max_turns = 900\n"
    second = script(Path("../n.json"), turn(text="ok"))
    said = type("run", "x", "--model", second, "--session-id", "two").went()
    assert "max_turns; you have not accepted it" in said.err
    assert created(type, "one")["limits"]["max_turns"] == 300
    assert created(type, "two")["limits"].get("max_turns", 200) == 200


LINKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "AGENTS.md": ("AGENTS.md", ("run", "x", "--workspace", ".")),
    "an agent's system prompt": ("how.md", ("run", "x", "--agent", "agent.toml")),
    "an agent's system prompt elsewhere": ("", ("run", "x", "--agent", "outside.toml")),
    "a contract": ("prd.json", ("mission", "lint", "--static")),
    "a mission.toml": ("mission.toml", ("mission", "lint", "--static", "prd.json")),
}


@pytest.mark.parametrize("name", LINKS)
def test_nothing_in_a_repository_is_read_through_a_link(name: str, type: Type, tmp_path: Path) -> None:
    link, words = LINKS[name]
    secret = tmp_path / "secret"
    secret.write_text('[{"description": "only-for-the-user"}]' if link == "prd.json" else SECRET)
    model = script(Path("m.json"), turn(text="ok"))
    Path("agent.toml").write_text(f'model = "{model}"\nsystem_file = "how.md"\n')
    Path("outside.toml").write_text(f'model = "{model}"\nsystem_file = "../secret"\n')
    if link:
        Path(link).symlink_to(secret)
    if name == "a mission.toml":
        Path("prd.json").write_text('[{"description": "x"}]')
    if words[0] == "run" and "--agent" not in words:
        words = (*words, "--model", model, "--no-sandbox", *(("--user", "root") if os.getuid() == 0 else ()))
    said = type(*words)
    assert said.code in (0, 1, 2, 5)
    assert SECRET not in said.out + said.err
    if said.code == 0:
        assert SECRET not in type("export", type("ps", "--json", "--all").lines[0]["session_id"]).out


# --- the user --------------------------------------------------------------------------------------


def test_trust_shows_accepts_lists_and_forgets(type: Type) -> None:
    Path("holdfast.toml").write_text('model = "openai:x@http://127.0.0.1:9/v1"\nmax_turns = 20\n')
    type("trust").refused(2, "no terminal", "--yes")
    shown = type("trust", "--json")
    assert shown.code == 2
    (line,) = shown.lines
    assert {each["key"]: (each["old"], bool(each["danger"])) for each in line["changes"]} == {
        "model": ("", True),
        "max_turns": (200, False),
    }
    said = type("trust", ".", "--yes").went()
    assert "model: none -> openai:x@http://127.0.0.1:9/v1" in said.out
    assert "max_turns: 200 -> 20" in said.out
    assert "accepted already" in type("trust").went().out
    (entry,) = type("trust", "--list", "--json").lines
    assert entry["uid"] == os.getuid()
    at_us = int(datetime.fromisoformat(entry["accepted"]).timestamp() * 1_000_000)
    listed = type("trust", "--list").went().out
    assert listed.startswith(local_time(at_us))
    assert str(Path("holdfast.toml").absolute()) in listed
    Path("below").mkdir()
    assert "forgotten" in type("trust", "below", "--forget").went().out
    assert "nothing was accepted" in type("trust", "--forget").went().out
    assert "you have accepted no" in type("trust", "--list").went().out
    type("trust").refused(2, "no terminal")


def test_trust_refuses_what_it_cannot_do(type: Type) -> None:
    type("trust").refused(2, "there are no project settings")
    type("trust", "gone").refused(2, "there is no folder 'gone'")
    type("trust", "--list", "--forget").refused(2, "exclude each other")
    Path("holdfast.toml").write_text("modle = 3\n")
    type("trust", "--yes").refused(2, "did you mean 'model'?")
    Path("holdfast.toml").write_text('[notify.x]\nkind = "webhook"\n')
    type("trust", "--yes").refused(2, "counts only in your own")


def on_terminal(answer: bytes, *words: str) -> Said:
    """Type a command on a terminal, and an answer once it asks."""
    main, other = pty.openpty()
    with spawn(*words, stdin=other, stdout=other, stderr=other) as process:
        os.close(other)
        heard = b""
        while b"[y/N]" not in heard:
            heard += os.read(main, 1024)
        os.write(main, answer)
        try:
            while piece := os.read(main, 4096):
                heard += piece
        except OSError:  # the other side is closed
            pass
        code = process.wait(60)
    os.close(main)
    return Said(code, heard.decode(), "")


@pytest.mark.parametrize(
    ("answer", "counts"), [(b"y\n", True), (b"\n", False), (b"n\n", False), (b"yes please\n", False)]
)
def test_a_terminal_asks(answer: bytes, counts: bool, type: Type, tmp_path: Path) -> None:
    model = script(Path("m.json"), turn(text="ok"))
    Path("holdfast.toml").write_text("max_turns = 1000\n")
    said = on_terminal(answer, "run", "x", "--model", model, "--session-id", "k", "--plain")
    assert said.code == 0
    assert "max_turns: 200 -> 1000" in said.out
    assert created(type, "k")["limits"].get("max_turns", 200) == (1000 if counts else 200)
    assert bool(trust_store().entries()) == counts
    if not counts:
        assert on_terminal(answer, "trust").code == 1


def test_control_characters_are_shown(type: Type) -> None:
    Path("holdfast.toml").write_text('model = "openai:x\\u001b[2K\\u202e@http://127.0.0.1:9/v1"\n')
    said = type("trust", "--yes")
    assert "\x1b" not in said.out
    assert "\u202e" not in said.out


def test_a_workspace_must_not_hold_the_users_settings(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(Path("m.json"), turn(text="ok"))
    for folder in (tmp_path, tmp_path / "config", tmp_path / "config" / "holdfast"):
        folder.mkdir(exist_ok=True)
        type("run", "x", "--model", model, "--workspace", folder).refused(5, "contains your settings folder")


async def test_a_program_obeys_the_same_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    model = script(tmp_path / "m.json", turn(text="ok"))
    monkeypatch.chdir(folder)
    Path("holdfast.toml").write_text('max_turns = 1000\nmodel = "openai:x"\n[environment]\nsetup = ["true"]\n')
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with holdfast.open() as hf:
            with pytest.raises(NotTrusted, match="model is set only in"):
                await hf.run(holdfast.Agent(), "x")
            with pytest.raises(NotTrusted, match=r"environment\.setup is set only in"):
                await hf.run(holdfast.Agent(model), "x")
    said = [str(each.message) for each in told if each.category is UserWarning]
    assert ["you have not accepted it" in each for each in said] == [True]
    Path("holdfast.toml").write_text('max_turns = 1000\n[environment]\nsetup = ["true"]\n')
    trust()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with holdfast.open() as hf:
            assert (await hf.run(holdfast.Agent(model), "x")).text == "ok"


def test_the_page_has_every_harmless_key_and_no_other() -> None:
    part = PAGE.split("## Harmless keys\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    keys = {name for row in rows for name in re.findall(r"`([a-z_.]+)`", row.split("|")[1])}
    assert keys == {*ALWAYS, *LOWERED, "turns", "hooks"}
