"""`search_log`: a session's own past, also what its context shows no more."""

from __future__ import annotations

from typing import Any

from holdfast.brain.acts.harness import AROUND, search
from holdfast.facts.model import ContextCompacted
from holdfast.facts.session import ContextPolicy, Limits
from holdfast.facts.tool import ToolResult
from tests.brain.stage import Stage, turn

TOOLS = ("bash", "search_log")
SMALL = Limits(context=ContextPolicy(strategy="compaction", line_tokens=4_000, keep_tokens=1_000, signs=False))


def look(query: str, **more: Any) -> dict[str, Any]:
    """A turn that searches."""
    return turn("I look it up.", ("search_log", {"query": query, **more}))


def work(number: int, words: str = "") -> dict[str, Any]:
    """A turn that says something long."""
    return turn(f"Step {number} {words} " + "word " * 500, ("bash", {"command": f"do {number}"}))


async def last_result(stage: Stage) -> str:
    """What the last call was answered."""
    result: ToolResult = (await stage.facts(ToolResult))[-1]
    assert result.outcome == "ok"
    return result.content


async def test_what_a_summary_stands_for_is_found_word_for_word() -> None:
    stage = Stage(
        [work(0, "The needle is under the third stone."), *(work(n) for n in range(1, 9)), look("NEEDLE stone")],
        limits=SMALL,
        tools=TOOLS,
        compaction=[turn("a summary with a needle and a stone")] * 9,
    )
    await stage.run()
    assert await stage.facts(ContextCompacted)
    found = await last_result(stage)
    assert "The needle is under the third stone." in found
    assert "a summary" not in found
    assert found.count("\n\n[") == 0, "only the words themselves"


async def test_earlier_searches_are_not_found() -> None:
    stage = Stage([turn("A rare word: xylem.", ("bash", {"command": "ls"})), look("xylem"), look("xylem")], tools=TOOLS)
    await stage.run()
    assert (await last_result(stage)).count("xylem") == 1


async def test_newest_first_and_further_back_with_before() -> None:
    stage = Stage([*(turn(f"mark {n}", ("bash", {"command": "ls"})) for n in range(4)), turn("Done.")], tools=TOOLS)
    await stage.run()
    head = len(await stage.events())
    found = await search(stage.store, stage.session_id, "mark", before=head, limit=2)
    assert found.index("mark 3") < found.index("mark 2")
    assert "mark 1" not in found
    assert "`before` goes further back" in found
    place = int(found.split("[")[2].split("]")[0])
    again = await search(stage.store, stage.session_id, "mark", before=place, limit=2)
    assert again.index("mark 1") < again.index("mark 0")
    assert "mark 2" not in again
    assert (await search(stage.store, stage.session_id, " ", before=head, limit=2)).startswith("The query is empty")
    assert "Nothing before" in await search(stage.store, stage.session_id, "mark nowhere", before=head, limit=2)


async def test_long_entries_are_shown_around_the_word() -> None:
    stage = Stage([turn("a " * 5_000 + "needle" + " b" * 5_000)])
    await stage.run()
    found = await search(stage.store, stage.session_id, "needle", before=99, limit=5)
    assert "needle" in found
    assert len(found) < 2 * AROUND + 100


async def test_erased_bodies_are_passed_over() -> None:
    stage = Stage([turn("the secret needle", ("bash", {"command": "ls"})), turn("another needle")])
    await stage.run()
    secret = next(event.seq for event in await stage.events() if "the secret needle" in str(event.fact))
    stage.store.rewrite(stage.session_id, secret, None)
    found = await search(stage.store, stage.session_id, "needle", before=99, limit=5)
    assert "another needle" in found
    assert "secret" not in found


async def test_a_huge_log_is_looked_through_in_parts() -> None:
    stage = Stage([turn("old needle", ("bash", {"command": "ls"})), *(work(n) for n in range(6)), turn("Done.")])
    await stage.run()
    head = len(await stage.events())
    found = await search(stage.store, stage.session_id, "needle", before=head, limit=5, most=20)
    assert found.startswith("Nothing")
    before = int(found.split("`before` ")[1].split(" ")[0])
    while "old needle" not in found:
        found = await search(stage.store, stage.session_id, "needle", before=before, limit=5, most=20)
        before = int(found.split("`before` ")[1].split(" ")[0]) if "`before` " in found else 0
        assert before or "old needle" in found
