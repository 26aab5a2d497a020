"""How calls of tools end: results, exceptions, missed time limits, threads left behind."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from holdfast.app.python.tools import CONTENT_MAX, Tool, tool
from holdfast.brain.doors import CustomResult, ToolRunner
from tests.support.waiting import PATIENCE_S


class Size(msgspec.Struct):
    """How large."""

    width: int
    unit: str = "cm"


async def call(made: Tool[..., Any], _key: str = "key", **value: Any) -> CustomResult:
    """Run one call through the door that the brain knows."""
    runner: ToolRunner = made.runner
    return await runner.run("3.0", value, _key)


@tool(timeout_s=30)
async def act(how: str) -> Any:
    """Do something."""
    results: dict[str, Any] = {
        "text": "plain 日本",
        "none": None,
        "number": 3,
        "struct": [Size(1)],
        "surrogate": "a\udcffb",
        "object": object(),
        "long": "x" * 40_000 + "end",
    }
    if how == "raise":
        raise ValueError("no such thing")
    if how == "bare":
        raise KeyError
    if how == "exit":
        sys.exit(3)
    return results[how]


@pytest.mark.parametrize(
    ("how", "ok", "content"),
    [
        ("text", True, "plain 日本"),
        ("none", True, "done"),
        ("number", True, "3"),
        ("struct", True, '[{"width":1,"unit":"cm"}]'),
        ("surrogate", True, "a\\udcffb"),
        ("raise", False, "ValueError: no such thing"),
        ("bare", False, "KeyError"),
        ("exit", False, "it tried to end the program (exit status 3)"),
    ],
)
async def test_results_and_exceptions_are_content(how: str, ok: bool, content: str) -> None:
    assert await call(act, how=how) == CustomResult(ok, content)
    again = tool(name="again")(in_a_thread(act))
    assert await call(again, how=how) == CustomResult(ok, content), "the same from a thread"


def in_a_thread(made: Tool[..., Any]) -> Callable[..., Any]:
    """The same work as a function that is not async."""

    def again(how: str) -> Any:
        """Do it in a thread."""
        assert threading.current_thread() is not threading.main_thread()
        return anyio.run(made._function, how)

    return again


async def test_results_that_cannot_be_shown() -> None:
    odd = await call(act, how="object")
    assert not odd.ok
    assert odd.content.startswith("act succeeded, but its return value (object) cannot be shown as JSON")
    long = await call(act, how="long")
    assert len(long.content) < CONTENT_MAX + 100
    assert "\n[10003 characters omitted]\n" in long.content
    assert long.content.endswith("xend")


async def test_an_async_call_that_takes_too_long_is_stopped() -> None:
    stopped: list[str] = []

    async def hang() -> None:
        """Hang."""
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("stopped")

    result = await call(tool(timeout_s=0.05)(hang))
    assert result == CustomResult(False, "it was stopped in the middle after its limit of 0.05 s", unknown=True)
    assert stopped == ["stopped"]
    looked = await call(tool(timeout_s=0.05, read_only=True)(hang))
    assert not looked.unknown, "what only reads left nothing behind"
    assert "exceeded its limit of 0.05 s" in looked.content


async def test_a_thread_that_takes_too_long_is_left_behind() -> None:
    gate, ended = threading.Event(), threading.Event()

    def hang() -> None:
        """Hang."""
        gate.wait()
        ended.set()

    result = await call(tool(timeout_s=0.05)(hang))
    assert result.unknown
    assert result.content == (
        "it did not return within its limit of 0.05 s; its thread cannot be stopped and may still be running"
    )
    assert not ended.is_set()
    gate.set()
    assert ended.wait(10), "it went on"


LEFT = """
import anyio, threading
from holdfast.app.python.tools import tool
@tool(timeout_s=0.05)
def hang() -> None:
    "Hang."
    threading.Event().wait()
print(anyio.run(hang.runner.run, "1.0", {}, "").unknown)
"""


def test_a_thread_that_is_left_behind_keeps_no_process_alive() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


async def test_calls_run_side_by_side() -> None:
    meet = threading.Barrier(50)

    def together() -> int:
        """Meet."""
        return meet.wait(PATIENCE_S)

    made = tool(timeout_s=2 * PATIENCE_S)(together)
    results: list[CustomResult] = []

    async def one() -> None:
        results.append(await call(made))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(one)
    assert sorted(int(result.content) for result in results) == list(range(50))


async def test_a_thread_sees_the_context() -> None:
    variable = contextvars.ContextVar("variable", default="")
    variable.set("seen")

    def look() -> str:
        """Look."""
        return variable.get()

    assert (await call(tool(look))).content == "seen"


async def test_a_stop_of_the_program_comes_through() -> None:
    async def hang() -> None:
        """Hang."""
        await anyio.sleep_forever()

    with anyio.move_on_after(0.05) as scope:
        await call(tool(hang))
    assert scope.cancelled_caught, "it is neither a result nor a missed limit of its own"
