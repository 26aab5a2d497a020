"""The search index: it follows the log, forgets what is removed, and survives crashes and damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import get_args

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import LogUnavailable
from holdfast.facts.base import Fact, Text
from holdfast.facts.codec import Draft
from holdfast.facts.hands import HandsRestored
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Agent, SessionCreated, SessionEventsLost, Workspace
from holdfast.facts.shift import ChildOpened
from holdfast.facts.tool import FileSeen, ToolResult
from holdfast.facts.union import AnyFact, KernelFact
from holdfast.ids import new_event_id, system_entropy
from holdfast.log.base import Post
from holdfast.log.search import index as module
from holdfast.log.search.index import Lag, SearchIndex, expression_of, search_path
from holdfast.log.search.words import END, RESULT_CHARS, START, WORDS, words_of
from holdfast.log.sqlite.store import SqliteStore


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[tuple[SqliteStore, SearchIndex]]:
    database = home / "holdfast.db"
    index = SearchIndex(search_path(database))
    async with await SqliteStore.open(database, workers=home / "workers", clock=SystemClock()) as store:
        yield store, index
    index.close()


async def post(store: SqliteStore, session_id: str, fact: AnyFact) -> None:
    event_id = new_event_id(SystemClock().now_us(), system_entropy)
    await store.post(
        Post(session_id, event_id, Draft(event_id, "user:ann", fact)), create=isinstance(fact, SessionCreated)
    )


async def session(store: SqliteStore, session_id: str, goal: str, *messages: str) -> None:
    await post(store, session_id, SessionCreated(goal=goal, agent=Agent("m"), workspace=Workspace("/w")))
    for text in messages:
        await post(store, session_id, UserMessage(content=(Text(text),)))


async def fill(store: SqliteStore, index: SearchIndex) -> None:
    while await store.look(index.fill):
        pass


def found(index: SearchIndex, *words: str) -> list[tuple[str, int]]:
    matches = index.matches(expression_of([(word, False) for word in words]), 100)
    return [(match.session_id, match.seq) for match in matches]


def stored(index: SearchIndex, word: str) -> bool:
    """Search the bytes of the file and of its write-ahead log."""
    files = [index.path, index.path.with_name(f"{index.path.name}-wal")]
    return any(word.encode() in path.read_bytes() for path in files if path.exists())


async def test_it_follows_the_log_and_shows_how_far_it_is_behind(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_a", "mend the parser", "use pelican tabs")
        before = await store.look(index.lag)
        assert before.events == 2
        assert before.since_us == (await store.read("ses_a", limit=1))[0].at_us
        await fill(store, index)
        assert await store.look(index.lag) == Lag(0)
        assert found(index, "PELICAN", "tabs") == [("ses_a", 2)]
        assert found(index, "pelican", "parser") == [], "one event has to have all words"
        await session(store, "ses_b", "another pelican")
        assert (await store.look(index.lag)).events == 1
        await fill(store, index)
        assert found(index, "pelican") == [("ses_b", 1), ("ses_a", 2)]
        excerpt = index.excerpts(expression_of([("tabs", False)]), index.matches('"tabs"', 1)).popitem()[1]
        assert [excerpt.text[start:end] for start, end in excerpt.marks] == ["tabs"]
        assert os.stat(index.path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ['"', "*", "NEAR(a", "a AND", "(", "^x", "text:a", "a\0b", "- a", "日本", "'", "{a}", '""a']
)
async def test_no_text_is_syntax(tmp_path: Path, text: str) -> None:
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_a", f"zebra {text} quagga")
        await fill(store, index)
        assert found(index, "zebra", "quagga") == [("ses_a", 1)]
        for start in (False, True):
            index.matches(expression_of([(text, start), ("zebra", start)]), 1)
        assert found(index, f"zebra {text}".replace("\0", " ")) == [("ses_a", 1)] or not text.isalnum()


async def test_no_byte_of_a_removed_session_stays(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, index):
        for number in range(30):
            await session(store, f"ses_{number}", f"goal {number}", *[f"common words {each}" for each in range(5)])
        await session(store, "ses_gone", "xylophone", *["quokka common"] * 5)
        await fill(store, index)
        assert stored(index, "xylophone")
        assert stored(index, "quokka")
        await store.remove([await store.find("ses_gone")], "user:ann")
        await fill(store, index)
        assert found(index, "quokka") == []
        assert len(found(index, "common")) == 100
        assert not stored(index, "xylophone")
        assert not stored(index, "quokka")


async def test_a_removal_does_not_wait_for_the_next_fill(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, index):
        index.forget(["ses_gone"])
        assert not index.path.exists(), "nothing to forget makes no index"
        await session(store, "ses_kept", "kept goal")
        await session(store, "ses_gone", "xylophone goal")
        await fill(store, index)
        await store.remove([await store.find("ses_gone")], "user:ann")
        index.forget(["ses_gone", "ses_never"])
        assert not stored(index, "xylophone")
        await session(store, "ses_new", "new goal")  # its event takes the place of the removed one
        await fill(store, index)
        assert found(index, "goal") == [("ses_new", 1), ("ses_kept", 1)]
        assert await store.look(index.lag) == Lag(0)


async def test_a_reader_delays_the_last_traces_and_the_next_fill_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUSY_TIMEOUT_S", 0.0)
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_gone", "xylophone goal")
        await fill(store, index)
        await store.remove([await store.find("ses_gone")], "user:ann")
        with closing(sqlite3.connect(index.path, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from documents").fetchone()
            await fill(store, index)
            assert stored(index, "xylophone"), "the reader does not hold what it reads"
            reader.execute("rollback")
        await fill(store, index)
        assert not stored(index, "xylophone")


async def test_another_log_at_the_same_place_is_noticed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_a", "first goal", "first words")
        await session(store, "ses_b", "lost goal")
        await fill(store, index)
    for path in tmp_path.glob("holdfast.db*"):
        if "search" not in path.name:
            path.unlink()
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_a", "second goal")
        await session(store, "ses_c", "third goal")
        await fill(store, index)
        assert found(index, "first") == []
        assert found(index, "goal") == [("ses_c", 1), ("ses_a", 1)]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "foreign": lambda path: path.write_bytes(b"no database at all, but long enough " * 200),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, 5_000),
    "pages": lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096)),
    "older": lambda path: _run(path, "pragma user_version = 1"),
    "tables": lambda path: _run(path, "drop table documents"),
}


def _run(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_or_older_file_is_built_again(tmp_path: Path, kind: str) -> None:
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_a", "mend the parser", "use tabs")
        await fill(store, index)
    DAMAGE[kind](index.path)
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_b", "parser again")
        await fill(store, index)
        assert found(index, "parser") == [("ses_b", 1), ("ses_a", 1)]
        assert found(index, "tabs") == [("ses_a", 2)]
        other = SearchIndex(index.path)
        other.clear()
        await session(store, "ses_c", "replaced")
        await fill(store, other)
        assert found(other, "tabs") == [("ses_a", 2)]
        assert found(index, "replaced") == [("ses_c", 1)], "another process replaced the file"
        other.close()


async def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_a", "goal")
        index.path.mkdir()
        with pytest.raises(LogUnavailable, match="the log is not affected"):
            await fill(store, index)


CHILD = """
import sys, anyio
from pathlib import Path
from tests.log.test_search_index import opened

async def main():
    async with opened(Path(sys.argv[1])) as (store, index):
        while await store.look(index.fill):
            print("filled", flush=True)

import holdfast.log.search.index as module
module.BATCH = 7
anyio.run(main)
"""


def killed_after(lines: int, home: Path) -> None:
    """Kill a process that fills the index, after it has printed some lines."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(home)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(lines):
            assert child.stdout.readline() == "filled\n"
        child.send_signal(signal.SIGKILL)


async def test_a_killed_fill_continues_where_it_was(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(60)]
    async with opened(tmp_path) as (store, _):
        await session(store, "ses_a", "goal", *words)
    for lines in (1, 3):
        killed_after(lines, tmp_path)
    async with opened(tmp_path) as (store, index):
        assert (await store.look(index.lag)).events < 61
        await fill(store, index)
        assert [found(index, word) for word in words] == [[("ses_a", number + 2)] for number in range(60)]


def test_words_of_calls_results_and_files() -> None:
    call = words_of(AgentToolUse(request_seq=1, call_id="1", name="edit", input={"path": "a.py", "n": [1, "é"]}))
    assert call is not None
    assert call.text == 'edit\npath: a.py\nn: [1, "é"]'
    long = "begin " + "x" * 100_000 + " end"
    result = words_of(ToolResult(call_id="1", outcome="ok", content=long, files=(FileSeen("src/a.py", "0"),)))
    assert result is not None
    assert len(result.text) <= RESULT_CHARS + 3
    assert result.text.startswith("begin")
    assert result.text.endswith(" end")
    assert result.files == "src/a.py"
    message = words_of(AgentMessage(request_seq=1, content=(Text(f"a{START}b{END}c\0d"),)))
    assert message is not None
    assert message.text == "a b c d"
    assert words_of(AgentMessage(request_seq=1, content=(Text(" "),))) is None
    assert words_of(AgentThinking(request_seq=1, text="hm")) is None


REPEATED: set[type[Fact]] = {ChildOpened, HandsRestored, SessionEventsLost}
"""Facts whose text another event has too, or is the harness's own note."""


def test_every_fact_with_words_of_people_agents_and_tools_is_indexed() -> None:
    telling = {"content", "goal", "note", "input"}
    kinds = {kind for kind in get_args(KernelFact) if telling & set(kind.__struct_fields__)}
    assert kinds - WORDS.keys() == REPEATED
