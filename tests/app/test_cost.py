"""What sessions cost: every view and report shows the same sums, for trees too and where a part has no price."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.clock import SystemClock
from holdfast.facts.base import Usage
from holdfast.facts.codec import Draft
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.session import Agent, Parent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.log.base import Post
from holdfast.log.sql.store import SqlStore
from holdfast.log.sqlite.store import SqliteStore
from holdfast.session.money import HOME_ACCOUNT, PICO
from tests.app.terminal import Type, script, turn

CENT = PICO // 100

PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 0.0}
"""With it, `turn` costs ten cents."""


Trees = dict[str, tuple[int, bool]]
"""Id of the top of a tree → its cost in cents, and True if a part of it has no price."""


async def session(
    store: SqlStore[Any], name: str, parent: SessionCreated | None, above: str, *costs: int | None
) -> SessionCreated:
    """A session of the tree that made these requests, each at that cost, and ended."""
    path = (*(parent.accounts if parent else (HOME_ACCOUNT,)),)
    root = (parent.parent.root or above) if parent and parent.parent else above
    depth = parent.parent.depth + 1 if parent and parent.parent else 1
    created = SessionCreated(
        goal=f"the part of {name}",
        agent=Agent(model="scripted:m.json", name="agent"),
        workspace=Workspace(path="/w"),
        accounts=(name, *path),
        parent=Parent(session_id=above, call_id="1.0", depth=depth, root=root) if parent else None,
    )
    await store.post(Post(name, "created", Draft(f"evt_{name}", "user:u", created)), create=True)
    shift = ShiftStarted(worker_id="wrk_1", host_id="h", boot_id="b", pid=1, program="p")
    lease = await store.acquire(name, Draft(f"evt_{name}_s", "brain", shift))
    for number, cost in enumerate(costs):
        seq = 3 + 2 * number
        begin = ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=seq - 1, max_output_tokens=10)
        end = ModelRequestEnd(request_seq=seq, outcome="ok", usage=Usage(9), cost_pico=cost, stop_reason="end_turn")
        drafts = [Draft(f"evt_{name}_{seq}", "brain", begin), Draft(f"evt_{name}_{seq + 1}", "brain", end)]
        await store.append(name, lease.epoch, drafts)
    if parent is None:
        asked = ApprovalRequested(item_id=f"itm_{name[4:]}", kind="tool", title="may it?", action="bash: make")
        await store.append(name, lease.epoch, [Draft(f"evt_{name}_i", "brain", asked)])
    await store.append(name, lease.epoch, [Draft(f"evt_{name}_e", "brain", ShiftEnded(status="done"))])
    return created


@pytest.fixture
def trees(holdfast_home: Path) -> Trees:
    """Three trees with 40 sessions below them."""
    return anyio.run(planted, holdfast_home)


async def planted(holdfast_home: Path) -> Trees:
    """Write them."""
    (holdfast_home / "workers").mkdir(parents=True, mode=0o700)
    store = await SqliteStore.open(
        holdfast_home / "holdfast.db", workers=holdfast_home / "workers", clock=SystemClock()
    )
    found = {}
    try:
        for number, (count, unknown) in enumerate(((10, 0), (10, 3), (20, 0))):
            top = f"ses_top{number:021d}"
            first = await session(store, top, None, top, 5 * CENT)
            total, parents = 5, [(first, top)]
            for child in range(count):
                above, above_id = parents[child // 4]
                name = f"ses_c{number}{child:022d}"
                costs = (2 * CENT, None if child < unknown else CENT)
                parents.append((await session(store, name, above, above_id, *costs), name))
                total += 2 if child < unknown else 3
            found[top] = (total, bool(unknown))
    finally:
        await store.close()
    return found


def dollars(cents: int) -> Any:
    return pytest.approx(cents / 100)


def test_all_views_agree(type: Type, trees: Trees) -> None:
    whole = sum(cents for cents, _ in trees.values())
    listed = {line["session_id"]: line for line in type("ps", "--all", "--json").went().lines}
    assert len(listed) == 43
    moved = {line["session_id"]: line for line in type("brief", "--since", "1h", "--json").went().lines}
    questions = {line["session_id"]: line for line in type("inbox", "--json").went().lines if line["item_id"]}
    own = {line["account_id"]: line for line in type("budget", "--json").went().lines}
    assert own[HOME_ACCOUNT]["total"]["spent_usd"] == dollars(whole)
    for top, (cents, unknown) in trees.items():
        (shown,) = type("show", top, "--json").went().lines
        (asked,) = type("inbox", f"itm_{top[4:]}", "--json").went().lines
        for view in (listed[top], moved[top], shown, asked, questions[top]):
            assert view["cost_usd"] == (None if unknown else dollars(cents))
            assert view["own_cost_usd"] == dollars(5)
        assert own[top]["total"]["spent_usd"] == dollars(cents)
        text = f"at least ${cents / 100:.4f}" if unknown else f"${cents / 100:.4f}"
        assert f"money       {text} ($0.0500 its own), no cap" in type("show", top).went().out
        assert f", {text} ($0.0500 its own) so far" in type("inbox", f"itm_{top[4:]}").went().out
        assert f"{text}; the part of" in type("brief", "--since", "1h").went().out
        column = f"${cents / 100:.4f}+" if unknown else f"${cents / 100:.4f} "
        assert re.search(rf"{top[-8:]} .* {re.escape(column)}", type("ps", "--all").went().out)
    by = {way: type("cost", "--by", way, "--json").went().lines for way in ("day", "model", "session", "project")}
    for lines in by.values():
        assert lines[-1] == {"label": "total", "cost_usd": None, "known_usd": dollars(whole)}
        assert sum(Decimal(str(line["known_usd"])) for line in lines[:-1]) == Decimal(whole) / 100
    assert {line["label"]: line["known_usd"] for line in by["session"][:-1]} == {
        top: dollars(cents) for top, (cents, _) in trees.items()
    }
    assert [line["label"] for line in by["project"]] == ["/w", "total"]


async def asking(holdfast_home: Path) -> str:
    """A tree whose top waits for an answer; return what a notice of it says of its cost."""
    async with open_runtime(Settings(home=str(holdfast_home))) as runtime:
        top = f"ses_ask{'0' * 21}"
        first = await session(runtime.store, top, None, top, 5 * CENT)
        await session(runtime.store, f"ses_b{'0' * 23}", first, top, 3 * CENT)
        lease = await runtime.store.acquire(
            top, Draft("evt_again", "brain", ShiftStarted(worker_id="w", host_id="h", boot_id="b", pid=1, program="p"))
        )
        asked = ApprovalRequested(item_id="itm_1", kind="question", title="Which?", action="Which?", cost_pico=5 * CENT)
        await runtime.store.append(top, lease.epoch, [Draft("evt_asked", "brain", asked)])
        await runtime.store.append(
            top, lease.epoch, [Draft("evt_parked", "brain", ShiftEnded(status="parked", reason="person"))]
        )
        return await runtime.costs(top)


def test_an_item_shows_what_its_tree_costs_now(type: Type, holdfast_home: Path) -> None:
    words = "$0.0800 ($0.0500 its own)"
    assert anyio.run(asking, holdfast_home) == words
    (line,) = type("inbox", "itm_1", "--json").went().lines
    assert (line["cost_usd"], line["own_cost_usd"]) == (dollars(8), dollars(5))
    assert f"{words} so far" in type("inbox", "itm_1").went().out


def test_a_report_for_people_and_for_tables(type: Type, trees: Trees) -> None:
    said = type("cost", "--by", "session").went()
    assert all(len(line) <= 80 for line in said.out.splitlines())
    assert said.out.splitlines()[-1].split() == ["total", f"${sum(c for c, _ in trees.values()) / 100:.2f}+", "3"]
    assert "had no price" in said.err
    rows = list(csv.DictReader(io.StringIO(type("cost", "--by", "session", "--csv").went().out)))
    assert [row["session"] for row in rows] == [*sorted(trees, key=lambda top: -trees[top][0]), "total"]
    assert rows[-1]["complete"] == "False"


def test_nothing_has_been_spent(type: Type) -> None:
    assert type("cost").went().out.split() == ["DAY", "COST", "total", "$0.0000"]


def test_a_cap_for_the_whole_home(type: Type, tmp_path: Path) -> None:
    """It holds sessions of all trees, and raising it lets them go on."""
    model = script(tmp_path / "m.json", turn(text="one"), price=PRICE)
    type("budget", "--all", "--day", "0.15").went()
    type("run", "x", "--model", model, "--session-id", "first").went()
    held = type("run", "x", "--model", model, "--session-id", "second").went(4)
    assert HOME_ACCOUNT in json.dumps(type("logs", "second", "--json").went().lines)
    assert "second is parked (budget): $0.0500 is left of the budget of home:all" in held.err
    assert "Raise the cap of home:all: `holdfast budget --all --day 0." in held.err
    type("budget", "--all", "--day", "5").went()
    assert type("wake", "second").went().out == "one\n"
    type("budget", "--all", "--day", "0.10").refused(2, "has spent $0.2000 within the last 24 hours already")
