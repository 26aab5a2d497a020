"""Search: what users type, the order and the pages of hits, filters, and the loop that keeps the index filled."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.log.search.index import Lag, SearchIndex
from holdfast.log.sqlite.store import SqliteStore
from holdfast.service import search as module
from holdfast.service.search import Hit, Page, keep_filled, parse_search, search
from tests.log.test_search_index import fill, opened, session
from tests.support.synthetic.home import BEGIN_US, fill_home

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("typed", "phrases"),
    [
        (["Mend", "parser*"], [("mend", False), ("parser", True)]),
        (['"mend the" parser'], [("mend the", False), ("parser", False)]),
        (['parser "not closed'], [("parser", False), ("not closed", False)]),
        (['"is:parked"', "is:done"], [("is:parked", False)]),
        (["NEAR", "a", "AND", "-b", "!!"], [("near", False), ("a", False), ("and", False), ("-b", False)]),
        (["a", "a"], [("a", False)]),
    ],
)
def test_words_and_phrases(typed: list[str], phrases: list[tuple[str, bool]]) -> None:
    assert sorted(parse_search(typed).phrases) == sorted(phrases)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["is:parked"], "needs a word"),
        (['"" *'], "needs a word"),
        (["std::vector"], "double quotes"),
        (["is:lost", "a"], "cancelled"),
        ([f"w{number}" for number in range(33)], "at most 32"),
    ],
)
def test_searches_that_cannot_be_made(typed: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_search(typed)


async def ask(store: SqliteStore, index: SearchIndex, *words: str, after: str = "", limit: int | None = None) -> Page:
    return await search(store, index, parse_search(words), BEGIN_US + 90 * HOUR_US, after=after, limit=limit)


def ids(page: Page) -> list[str]:
    return [hit.session.row.session_id for hit in page.hits]


async def test_hits_are_grouped_by_session_the_best_first(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, index):
        await session(store, "ses_once", "some goal", "a heron among many other words of a long message " * 3)
        await session(store, "ses_goal", "heron goal")
        await session(store, "ses_often", "some goal", *["heron"] * 5)
        await session(store, "ses_other", "some goal", *["other words"] * 30)
        await fill(store, index)
        page = await ask(store, index, "heron")
        assert ids(page)[0] == "ses_goal", "a goal counts more"
        assert ids(page)[-1] == "ses_once"
        often = page.hits[1]
        assert (often.count, [event.kind for event in often.events]) == (5, ["user message"] * 3)
        assert [event.seq for event in often.events] == [6, 5, 4], "of equally good events the latest"
        assert (page.more, page.complete, page.lag) == (False, True, Lag(0))
        await session(store, "ses_late", "heron")
        assert (await ask(store, index, "heron")).lag.events == 1
        await store.remove([await store.find("ses_often")], "user:ann")
        assert "ses_often" not in ids(await ask(store, index, "heron")), "a removed session is shown"


async def test_pages_join_and_filters_pass_what_ps_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_home(tmp_path / "holdfast.db", 80, facts=6)
    async with opened(tmp_path) as (store, index):
        await fill(store, index)
        whole = await ask(store, index, "scripted")
        assert len(whole.hits) == 80
        paged, after = list[Hit](), ""
        while page := (await ask(store, index, "scripted", after=after, limit=30)).hits:
            paged += page
            after = page[-1].session.row.session_id
        assert tuple(paged) == whole.hits
        found = await ask(store, index, "scripted", "is:parked", "newer:50h")
        assert 0 < len(found.hits) < 24
        passing = [hit for hit in whole.hits if hit.session.row.status == "parked"]
        newer = [hit for hit in passing if hit.session.row.created_us > BEGIN_US + 40 * HOUR_US]
        assert sorted(ids(found)) == sorted(hit.session.row.session_id for hit in newer)
        assert not (await ask(store, index, "scripted", "spend:>1")).hits
        monkeypatch.setattr(module, "RANKED", 7)
        few = await ask(store, index, "scripted")
        assert (few.complete, len(few.hits)) == (False, 7), "only the latest events are ranked"
        with pytest.raises(UsageError, match="no longer"):
            await ask(store, index, "nothing", after="ses_00000000000000000000000007")
        done = next(hit for hit in whole.hits if hit.session.row.status == "done").session.row.session_id
        with pytest.raises(UsageError, match="no longer"):  # a hit of the words alone, which the filter leaves out
            await ask(store, index, "scripted", "is:parked", after=done)


async def test_the_filler_follows_the_log_and_rests_while_it_is_still(tmp_path: Path) -> None:
    fills = 0

    class Counting(SearchIndex):
        def fill(self, look: object) -> bool:
            nonlocal fills
            fills += 1
            return super().fill(look)  # type: ignore[arg-type]

    async with opened(tmp_path) as (store, plain):
        index = Counting(plain.path)
        async with anyio.create_task_group() as group:
            group.start_soon(keep_filled, store, index, SystemClock(), print)
            for number in range(3):
                await session(store, f"ses_{number}", "goal")
                with anyio.fail_after(20):
                    while (await store.look(index.lag)).events:
                        pass
            before = fills
            with anyio.move_on_after(4 * module.REST_S):
                await store.changed(await store.changed(0))
            assert fills <= before + 1
            group.cancel_scope.cancel()
        index.close()


async def test_a_filler_that_fails_says_so_and_leaves_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAILED_REST_S", 0.01)
    async with opened(tmp_path) as (store, index):
        index.path.mkdir()
        await session(store, "ses_a", "goal")
        said: list[str] = []
        again = anyio.Event()

        def tell(text: str) -> None:
            said.append(text)
            if len(said) == 1:
                index.path.rmdir()
                again.set()

        async with anyio.create_task_group() as group:
            group.start_soon(keep_filled, store, index, SystemClock(), tell)
            await again.wait()
            await session(store, "ses_b", "goal")
            with anyio.fail_after(20):
                while (await store.look(index.lag)).events:
                    pass
            group.cancel_scope.cancel()
        assert said[0].startswith("search is not up to date: the search index")
