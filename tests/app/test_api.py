"""The Python API as a program uses it: run, stream, keys, what is refused. Real log, scripted models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast
from holdfast.facts.base import Text
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionCreated
from tests.app.api_program import call, publish, types
from tests.app.terminal import bash, script, turn, typed

# --- run and stream -------------------------------------------------------------------------------


async def test_a_run_comes_to_its_end(hf: holdfast.Holdfast, publisher: str) -> None:
    result = await hf.run(
        holdfast.Agent(publisher, tools=[publish], name="clerk"), "Publish it.", criteria=["it is out"]
    )
    assert (result.status, result.ok, result.text, result.items) == ("done", True, "It is out.", ())
    assert result.cost_usd == Decimal("0.88"), "two turns and the price of the tool"
    assert result.usage is not None
    assert (result.usage.input_tokens, result.usage.output_tokens, result.turns) == (200_000, 2_000, 2)
    assert (result.name, result.goal, result.model) == ("clerk", "Publish it.", publisher)
    assert result.workspace.is_dir()
    (listed,) = await hf.sessions()
    assert (listed.session_id, listed.status, listed.cost_usd) == (result.session_id, "done", result.cost_usd)
    assert await hf.show(result.session_id) == result
    (first, *_) = [event async for event in hf.events(result.session_id)]
    assert isinstance(first.fact, SessionCreated)
    assert first.fact.criteria == ("it is out",)
    assert [spec.name for spec in first.fact.agent.custom] == ["publish"]


async def test_a_function_with_the_tools_of_the_sandbox(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", bash("echo hello > note"), call("look"), turn(text="Seen."))
    folder = tmp_path / "work"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)

    def look() -> str:
        """Look at the note from outside."""
        return (folder / "note").read_text()

    result = await hf.run(holdfast.Agent(model, tools=["bash", look]), "x", workspace=folder)
    assert (result.status, result.workspace) == ("done", folder)
    results = [event.fact async for event in hf.events(result.session_id) if event.type == "agent.tool_result"]
    assert [getattr(fact, "content", "") for fact in results] == ["[no output]", "hello\n"]


async def test_a_function_learns_its_session_and_call(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("note", text="hello"), turn(text="Noted."))
    seen: list[holdfast.ToolContext] = []

    def note(text: str, where: holdfast.ToolContext) -> str:
        """Note a text."""
        seen.append(where)
        return text

    result = await hf.run(holdfast.Agent(model, tools=[note]), "x", key="k")
    (use,) = [event.fact async for event in hf.events("k") if event.type == "agent.tool_use"]
    (context,) = seen
    assert (context.session_id, context.session_key, context.workspace) == (result.session_id, "k", result.workspace)
    assert context.call_id == getattr(use, "call_id", "")
    assert context.idempotency_key == f"{context.session_id}:{context.call_id}"
    dispatched = [event.seq async for event in hf.events("k") if event.type == "tool.dispatched"]
    assert (context.attempt, [context.seq]) == (1, dispatched)
    (first, *_) = [event.fact async for event in hf.events("k")]
    assert isinstance(first, SessionCreated)
    (spec,) = first.agent.custom
    assert list(spec.input_schema["properties"]) == ["text"]


async def test_exceptions_are_content(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("publish", page="broken"), call("publish", pages=1), turn(text="I see."))
    result = await hf.run(holdfast.Agent(model, tools=[publish]), "x")
    facts = [event.fact async for event in hf.events(result.session_id) if event.type == "agent.tool_result"]
    first, second = (getattr(fact, "content", "") for fact in facts)
    assert first == "ValueError: no such page"
    assert second.startswith("the input of publish is not valid")
    assert result.text == "I see."


async def test_a_stream_gives_every_event_once_and_in_order(hf: holdfast.Holdfast, publisher: str) -> None:
    stream = hf.stream(holdfast.Agent(publisher, tools=[publish]), "x")
    with pytest.raises(holdfast.UsageError, match="no result yet"):
        _ = stream.result
    events = [event async for event in stream]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[0].type, events[-1].type) == ("session.created", "shift.ended")
    assert [event.type for event in events] == await types(hf, stream.session_id)
    assert stream.result.text == "It is out."


async def test_deltas_come_before_what_they_are_of(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    long = "word " * 50
    model = script(tmp_path / "m.json", {**call("publish", page="front"), "thinking": "Hm."}, turn(text=long))
    pieces = [p async for p in hf.stream(holdfast.Agent(model, tools=[publish]), "x", deltas=True)]
    kinds = [piece.kind if isinstance(piece, holdfast.Delta) else piece.type for piece in pieces]
    assert kinds.index("thinking") < kinds.index("tool") < kinds.index("agent.tool_use")
    said = [piece.text for piece in pieces if isinstance(piece, holdfast.Delta) and piece.kind == "text"]
    assert "".join(said) == f"Now publish.{long}"
    seqs = [piece.seq for piece in pieces if isinstance(piece, holdfast.Event)]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_who_leaves_a_stream_lets_go_of_the_session(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    started, stopped = anyio.Event(), []

    @holdfast.tool(on_unknown="retry")
    async def hang() -> str:
        """Hang, the first time."""
        if started.is_set():
            return "done"
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("stopped")
        raise AssertionError

    model = script(tmp_path / "m.json", call("hang"), turn(text="Over."))
    async with hf.stream(holdfast.Agent(model, tools=[hang]), "x", key="k") as stream:
        async for event in stream:
            if event.type == "tool.dispatched":
                await started.wait()
                assert (await hf.show("k")).status == "running"
                break
    assert stopped == ["stopped"]
    assert (await hf.show("k")).status == "runnable"
    assert (await hf.resume("k")).text == "Over."


async def test_an_error_of_the_run_comes_out_of_the_loop(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    async def read(model: str) -> None:
        async for event in hf.stream(holdfast.Agent(model, tools=[publish]), "x", key="k"):
            seen.append(event.seq)
            (tmp_path / "m.json").write_text("{")

    seen: list[int] = []
    with pytest.raises(holdfast.UsageError, match="unknown model"):
        await read("nosuch:thing")
    assert seen == []
    with pytest.raises(holdfast.UsageError, match="cannot be used"):
        await read(script(tmp_path / "m.json", call("publish", page="a")))
    assert seen == list(range(1, len(seen) + 1))
    assert (await hf.show("k")).status == "runnable"


async def test_an_error_in_the_block_comes_out_as_it_is(holdfast_home: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with holdfast.open():
            raise ZeroDivisionError
    async with holdfast.open() as hf:
        pass
    with pytest.raises(holdfast.UsageError, match="closed at the end"):
        await hf.sessions()


async def test_children_run_beside_it_with_the_same_functions(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    model = script(
        tmp_path / "m.json", call("spawn", goal="a part"), call("publish", page="a"), call("wait_for_children")
    )
    agent = holdfast.Agent(model, tools=[publish, "spawn", "wait_for_children"])
    result = await hf.run(agent, "All of it.", max_turns=10)
    sessions = await hf.sessions()
    assert [(each.status, each.turns > 2) for each in sessions] == [("done", True)] * 4, "three generations below it"
    assert [each.parent for each in sessions] == [*[each.session_id for each in sessions[1:]], ""]
    assert result.session_id == sessions[-1].session_id
    for each in sessions:
        facts = [event.fact async for event in hf.events(each.session_id) if event.type == "agent.tool_result"]
        assert "a is out" in [getattr(fact, "content", "") for fact in facts]


# --- keys -----------------------------------------------------------------------------------------


async def test_a_second_run_with_a_key_goes_on(hf: holdfast.Holdfast, publisher: str, tmp_path: Path) -> None:
    agent = holdfast.Agent(publisher, tools=[publish])
    first = await hf.run(agent, "Publish it.", key="job", budget_usd="1.50")
    again = await hf.run(agent, "Publish it.", key="job")
    assert again == first, "nothing is done twice"
    more = await hf.run(agent, "And thank them.", key="job", budget_usd=3, max_turns=50)
    said = [event.fact async for event in hf.events("job") if isinstance(event.fact, UserMessage)]
    assert [fact.content for fact in said] == [(Text("And thank them."),)]
    assert more.session_id == first.session_id
    assert more.status == "done"
    with pytest.raises(holdfast.UsageError, match="its system differ"):
        await hf.run(holdfast.Agent(publisher, tools=[publish], system="Be brief."), "x", key="job")
    (tmp_path / "other").mkdir()
    with pytest.raises(holdfast.UsageError, match="works in"):
        await hf.run(agent, "x", key="job", workspace=tmp_path / "other")
    with pytest.raises(holdfast.UsageError, match="has spent"):
        await hf.run(agent, "x", key="job", budget_usd="0.10")
    assert (await hf.show("job")).events == more.events


def variant(kind: str) -> holdfast.Tool[..., Any]:
    """Another form of `publish`."""

    def other(page: str, when: str = "now") -> str:
        """Publish it, said in other words.

        Args:
            page: Which one.
        """
        return f"{page} {when}"

    def missing(where: str) -> str:
        """Publish."""
        return where

    def typed_otherwise(page: int) -> str:
        """Publish."""
        return str(page)

    def needs(page: str, when: str) -> str:
        """Publish."""
        return page + when

    functions: dict[str, Any] = {"other": other, "missing": missing, "type": typed_otherwise, "needs": needs}
    if kind == "retry":
        return holdfast.tool(name="publish", on_unknown="retry")(other)
    return holdfast.tool(name="publish", on_unknown="tell", price_usd=9)(functions[kind])


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("missing", "it no longer takes 'page'"),
        ("type", "'page' has another type"),
        ("needs", "it now requires 'when'"),
        ("retry", "it was on_unknown='tell', read_only=False and is on_unknown='retry'"),
    ],
)
async def test_a_function_in_another_form_is_refused(
    hf: holdfast.Holdfast, publisher: str, kind: str, what: str
) -> None:
    waiting = await hf.run(holdfast.Agent(publisher, tools=[publish], ask=["publish"]), "x", key="k")
    with pytest.raises(holdfast.UsageError, match=f"session k declared the tool 'publish' in another form: {what}"):
        await hf.resume("k", tools=[variant(kind)])
    assert (await hf.show("k")).events == waiting.events


async def test_a_function_that_takes_more_is_accepted(hf: holdfast.Holdfast, publisher: str) -> None:
    waiting = await hf.run(holdfast.Agent(publisher, tools=[publish], ask=["publish"]), "x", key="k")
    await hf.approve(waiting.items[0])
    result = await hf.resume("k", tools=[variant("other")])
    (fact,) = [event.fact async for event in hf.events("k") if event.type == "agent.tool_result"]
    assert getattr(fact, "content", "") == "front now"
    assert result.cost_usd == Decimal("0.88"), "the price is that of the log"


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budgt_usd": 1}, "did you mean 'budget_usd'"),
        ({"budget_usd": 0}, "not an amount of dollars above 0"),
        ({"budget_usd": "much"}, "not an amount of dollars above 0"),
        ({"budget_usd": True}, "not an amount of dollars"),
        ({"max_turns": 0}, "max_turns: 0 is not a whole number"),
        ({"key": "-x"}, "cannot be a key"),
        ({"key": "a\nb"}, "cannot be a key"),
        ({"criteria": "all pass"}, "must be a list of sentences"),
        ({"workspace": "/no/such/folder"}, "does not exist"),
        ({"attachments": "plan.pdf"}, "must be a list"),
        ({"attachments": ["/no/such/file.pdf"]}, "cannot be read: No such file"),
    ],
)
async def test_what_cannot_be_meant_leaves_nothing_behind(
    hf: holdfast.Holdfast, publisher: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(holdfast.UsageError, match=message):
        await hf.run(holdfast.Agent(publisher, tools=[publish]), "x", **options)
    assert await hf.sessions() == []
    assert list((hf.home / "workspaces").iterdir()) == []


async def test_more_that_cannot_be_meant(hf: holdfast.Holdfast, publisher: str) -> None:
    agent = holdfast.Agent(publisher, tools=[publish])
    with pytest.raises(holdfast.UsageError, match="the goal is empty"):
        await hf.run(agent, " ")
    with pytest.raises(holdfast.UsageError, match="the agent is 'x'"):
        await hf.run("x", "y")  # type: ignore[arg-type]
    with pytest.raises(holdfast.UsageError, match="has no model"):
        await hf.run(holdfast.Agent(), "x")
    with pytest.raises(holdfast.UnknownSession):
        await hf.resume("nosuch")
    with pytest.raises(holdfast.UsageError, match="is not a user name"):
        await hf.seen("x", by="anna b")
    with pytest.raises(holdfast.UsageError, match="inside an event loop"):
        holdfast.run_sync(agent, "x")
    for settings, message in (
        ({"modle": "x"}, "did you mean 'model'"),
        ({"max_turns": "many"}, "not a whole number"),
        ({"people": "anna"}, "must be a dict"),
        ({"model": True}, "must be text"),
    ):
        with pytest.raises(holdfast.UsageError, match=message):
            async with holdfast.open(settings=settings):
                pass


# --- from outside ---------------------------------------------------------------------------------


def test_a_program_that_is_not_async(publisher: str, holdfast_home: Path) -> None:
    result = holdfast.run_sync(holdfast.Agent(publisher, tools=[publish]), "x", key="k")
    assert (result.status, result.text) == ("done", "It is out.")
    said = typed("show", "k", "--json").went()
    assert json.loads(said.out)["session_id"] == result.session_id
    assert "money       $0.8800, no cap\n" in typed("show", "k").went().out, "with the price of the tool"
    assert typed("verify").went().code == 0


def test_the_stub_and_the_lazy_table_say_the_same() -> None:
    stub = Path(holdfast.__file__ or "").with_suffix(".pyi").read_text()
    found = {line.split()[3]: line.split()[1] for line in stub.splitlines() if line.startswith("from")}
    assert found == holdfast._WHERE  # type: ignore[attr-defined]
    for name in found:
        assert getattr(holdfast, name).__doc__, name


def test_help_reads_well() -> None:
    done = subprocess.run([sys.executable, "-m", "pydoc", "holdfast"], capture_output=True, text=True, check=True)
    for words in ("class Agent", "class Holdfast", "Continue a session from its log", "open(home"):
        assert words in done.stdout
