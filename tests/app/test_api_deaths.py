"""A program that embeds Holdfast is killed inside its own function: then it is as the tool declared (S12)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import holdfast
from holdfast.facts.base import OnUnknown
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from tests.app.embedding import BUDGET, PRICE, make_tool
from tests.app.terminal import rows, script, turn, typed

ROOT = Path(__file__).parents[2]

FREE = {"input_per_mtok": 0.0, "output_per_mtok": 0.0}


@pytest.fixture
def model(tmp_path: Path) -> str:
    """One call of the function, then a word."""
    calls = [{"name": "charge", "input": {"cents": 500}}]
    return script(tmp_path / "m.json", turn(tool_calls=calls, usage={}), turn(text="All done.", usage={}), price=FREE)


@contextmanager
def inside(folder: Path, model: str, on_unknown: OnUnknown) -> Iterator[subprocess.Popen[str]]:
    """The program, while it is inside its function. It is killed in the end, if it still runs."""
    command = [sys.executable, "-m", "tests.app.embedding", str(folder), model, on_unknown]
    paths = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    env = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def killed(folder: Path, model: str, on_unknown: OnUnknown) -> None:
    """Run the program until it is inside its function, and kill it there."""
    with inside(folder, model, on_unknown) as process:
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    (folder / "go").touch()


def calls(folder: Path) -> list[str]:
    """The calls that the function noted."""
    return (folder / "calls").read_text().splitlines()


async def facts(hf: holdfast.Holdfast, kind: type[Any]) -> list[Any]:
    """All facts of that kind in the session's log."""
    return [event.fact async for event in hf.events("k") if isinstance(event.fact, kind)]


def spent(folder: Path) -> Decimal:
    """What the ledger says of the session's account, with nothing left reserved."""
    of_session, of_home = rows(
        folder / "home" / "holdfast.db", "select spent_pico, reserved_pico from accounts order by account_id desc"
    )
    assert of_session == of_home
    pico, reserved = of_session
    assert reserved == 0
    return Decimal(pico).scaleb(-12)


@pytest.mark.parametrize(
    ("on_unknown", "probe", "times"),
    [("retry", "", 2), ("probe", "yes", 1), ("probe", "no", 2), ("probe", "nobody-knows", 1), ("tell", "", 1)],
)
async def test_what_the_tool_declared_happens(
    tmp_path: Path, model: str, on_unknown: OnUnknown, probe: str, times: int
) -> None:
    killed(tmp_path, model, on_unknown)
    (first,) = calls(tmp_path)
    key = first.split()[0]
    (tmp_path / "probe").write_text(f"{probe} {key} 500")
    async with holdfast.open(tmp_path / "home", tools=[make_tool(tmp_path, on_unknown)]) as hf:
        result = await hf.resume("k")
        assert (result.status, result.text) == ("done", "All done.")
        assert calls(tmp_path) == [first] * times, "each time under the same key"
        contexts = (tmp_path / "contexts").read_text().splitlines()
        tries = [re.search(r"attempt=(\d+), seq=(\d+)", context) for context in contexts]
        seqs = [event.seq async for event in hf.events("k") if isinstance(event.fact, ToolDispatched)]
        assert [each and each.groups() for each in tries] == [(f"{n}", f"{seq}") for n, seq in enumerate(seqs, 1)]
        same = {re.sub(r"attempt=\d+, seq=\d+", "", context) for context in contexts}
        assert len(same) == 1, "a repeated call learns the same of itself"
        assert f"idempotency_key='{key}'" in contexts[0]
        known = await facts(hf, ToolResult)
        unknown = await facts(hf, ToolOutcomeUnknown)
        dispatched = await facts(hf, ToolDispatched)
        assert [fact.attempt for fact in dispatched] == list(range(1, times + 1))
        assert all(fact.reserved_pico == 250_000_000_000 for fact in dispatched)
        told = on_unknown == "tell" or probe == "nobody-knows"
        assert (len(known), len(unknown)) == ((0, 1) if told else (1, 0))
        if probe == "yes":
            assert known[0].reconciled
        elif not told:
            assert known[0].content == "charged"
        raw = "".join([f"{event.fact}" async for event in hf.events("k")])
        assert key not in raw, "keys are in no event"
        paid = 2 if on_unknown == "retry" else 1  # nobody can say that the first one cost nothing
        assert result.cost_usd == spent(tmp_path) == paid * Decimal(PRICE)
        assert result.cost_usd <= BUDGET


async def test_no_money_to_run_it_again_waits_for_a_person(tmp_path: Path, model: str) -> None:
    killed(tmp_path, model, "retry")
    async with holdfast.open(tmp_path / "home", tools=[make_tool(tmp_path, "retry")]) as hf:
        await hf.limit("k", budget_usd="0.30")
        parked = await hf.resume("k")
        assert (parked.status, parked.reason, len(calls(tmp_path))) == ("parked", "budget", 1)
        assert [item.kind for item in parked.items] == ["budget"]
        await hf.approve(parked.items[0])
        result = await hf.resume("k")
        assert (result.status, len(calls(tmp_path))) == ("done", 2)
        assert result.cost_usd == spent(tmp_path) == 2 * Decimal(PRICE)


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_a_person_says_whether_it_is_repeated(tmp_path: Path, model: str, verdict: str) -> None:
    killed(tmp_path, model, "ask")
    async with holdfast.open(tmp_path / "home", tools=[make_tool(tmp_path, "ask")]) as hf:
        waiting = await hf.resume("k")
        assert (waiting.status, waiting.reason, len(calls(tmp_path))) == ("parked", "person", 1)
        (item,) = waiting.items
        assert (item.kind, item.status, item.action) == ("unknown", "open", "charge:\n  cents: 500")
        if verdict == "approve":
            assert (await hf.approve(item, by="anna")).status == "approved"
        else:
            assert (await hf.deny(item, "I looked: it went through.")).status == "denied"
        result = await hf.resume("k")
        assert (result.status, result.items) == ("done", ())
        assert len(calls(tmp_path)) == (2 if verdict == "approve" else 1)
        assert len(await facts(hf, ToolOutcomeUnknown)) == (0 if verdict == "approve" else 1)
        assert result.cost_usd == spent(tmp_path) == len(calls(tmp_path)) * Decimal(PRICE)
        with pytest.raises(holdfast.ItemClosed, match=r"already (approved|denied) by"):
            await hf.approve(item)


async def test_a_process_without_the_function_leaves_the_session_alone(tmp_path: Path, model: str) -> None:
    killed(tmp_path, model, "retry")
    async with holdfast.open(tmp_path / "home") as hf:
        before = (await hf.show("k")).events
        with pytest.raises(holdfast.UsageError, match=r"session k uses the function 'charge', which this program"):
            await hf.resume("k")
        assert (await hf.show("k")).events == before
    said = typed("wake", "k", "--home", tmp_path / "home")
    assert said.code == 5, said
    assert "charge" in said.err
    assert "Traceback" not in said.err
    async with holdfast.open(tmp_path / "home") as hf:
        result = await hf.resume("k", tools=[make_tool(tmp_path, "retry")])
    assert (result.status, len(calls(tmp_path))) == ("done", 2)


async def test_what_another_process_runs_is_waited_for(tmp_path: Path, model: str) -> None:
    with inside(tmp_path, model, "tell") as process:
        async with holdfast.open(tmp_path / "home", tools=[make_tool(tmp_path, "tell")]) as hf:
            assert (await hf.show("k")).status == "running"
            with anyio.move_on_after(0.5) as scope:
                await hf.resume("k")
            assert scope.cancelled_caught, "it waits as long as the other one runs"
            (tmp_path / "go").touch()
            result = await hf.resume("k")
            assert (result.status, result.text) == ("done", "All done.")
        assert process.wait(30) == 0
    assert len(calls(tmp_path)) == 1


async def test_a_process_that_hangs_loses_the_session(tmp_path: Path, model: str) -> None:
    with inside(tmp_path, model, "tell") as process:
        process.send_signal(signal.SIGSTOP)
        async with holdfast.open(tmp_path / "home", tools=[make_tool(tmp_path, "tell")]) as hf:
            result = await hf.resume("k", steal=True)
            assert result.status == "done"
            assert len(await facts(hf, ToolOutcomeUnknown)) == 1
            (tmp_path / "go").touch()
            process.send_signal(signal.SIGCONT)
            assert await anyio.to_thread.run_sync(process.wait, 30) == 0, "it sees that it is over"
            assert (await hf.show("k")).events == result.events
            assert result.cost_usd == spent(tmp_path) == Decimal(PRICE)
