"""What the live view draws, byte by byte, and what it says."""

from __future__ import annotations

import os
from collections.abc import Iterator

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.app.screen.activity import Act, Glance, Worker
from holdfast.app.screen.live import LiveProgress, Painter, drawn
from holdfast.app.screen.panel import Panel, Row, Words, lasted
from holdfast.clock import SystemClock
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalRequested, ApprovalSuperseded, UserInterrupt
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.facts.union import AnyFact, type_of
from holdfast.kinds import KINDS
from holdfast.model.base import TextDelta
from holdfast.session.costs import Cost
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from tests.app.screen import Terminal

# --- what is drawn --------------------------------------------------------------------------------


@pytest.fixture
def pane() -> Iterator[Terminal]:
    """A terminal of 60 columns that this process draws on."""
    terminal = Terminal(60, 12)
    yield terminal
    terminal.close()


def painter_on(terminal: Terminal, *, color: bool = False) -> Painter:
    """A painter of that terminal."""
    return Painter(terminal.stream(), color=color)


def drained(terminal: Terminal) -> Terminal:
    """Render all that was written so far."""
    before = -1
    while len(terminal.pieces) != before:
        before = len(terminal.pieces)
        terminal.pump()
    return terminal


CHARS = st.text(st.sampled_from("ab 日本語é한\x1b\x07\u202e🙂|-"), max_size=70)
GROWING = st.text(st.sampled_from("ab日"), max_size=7)
FRAMES: st.SearchStrategy[list[tuple[list[str], list[str], int]]] = st.one_of(
    st.lists(
        st.tuples(st.lists(CHARS, max_size=2), st.lists(CHARS, min_size=1, max_size=4), st.sampled_from([60, 60, 33])),
        max_size=8,
    ),
    # Blocks of one height, with nothing above them: only what changed is written.
    st.lists(st.tuples(st.just([]), st.lists(GROWING, min_size=3, max_size=3), st.just(60)), max_size=8),
)


@settings(max_examples=100)
@given(FRAMES)
def test_frames_of_anything_leave_exactly_the_last(frames: list[tuple[list[str], list[str], int]]) -> None:
    """However frames follow each other, the screen is the lines so far and the last block, each cut to fit."""
    terminal, said = Terminal(60, 12), list[str]()
    painter = painter_on(terminal)
    whole = painter_on(terminal)
    for above, rows, width in frames:
        terminal.resize(width, 12)
        painter.paint(above, [Row((("> " + row, ""),)) for row in rows])
        drained(terminal)
        said += above
    after = Terminal(terminal.screen.columns, 12)
    if frames:
        _, rows, width = frames[-1]
        whole = painter_on(after)
        whole.paint((), [Row((("> " + row, ""),)) for row in rows])
        drained(after)
        cursor = terminal.screen.cursor
        assert terminal.screen.display[cursor.y :] == [*after.screen.display, *[" " * width] * 12][: 12 - cursor.y]
        assert cursor.x == 0
    painter.clear()
    shown = [line for line in drained(terminal).past() if line.startswith(">")]
    assert shown == []
    if all(width == 60 for _, _, width in frames):
        assert len(terminal.past()) <= len(said)
    terminal.close()
    after.close()


def test_a_frame_writes_only_what_changed(pane: Terminal) -> None:
    painter = painter_on(pane)
    rows = [Row((("agent  turn 1 of 200", "bold"),)), Row((("bash: make test", ""),), "  1 s")]
    painter.paint((), rows)
    first = len(drained(pane).written)
    painter.paint((), rows)
    assert len(drained(pane).written) == first, "the same again is not written"
    painter.paint((), [rows[0], Row(rows[1].spans, "  2 s")])
    ticked = drained(pane).written[first:]
    assert pane.lines() == ["agent  turn 1 of 200", "bash: make test  2 s"]
    assert len(ticked) <= 40, ticked


def test_a_stopped_screen_holds_nobody_up(pane: Terminal) -> None:
    painter = painter_on(pane)
    assert painter.ready()
    while painter.ready():
        os.write(pane.slave, b"x" * 64)
    assert not painter.ready()
    while select_ready(pane):
        pane.pump()
    assert painter.ready()


def select_ready(terminal: Terminal) -> bool:
    """Whether something is left to render."""
    before = len(terminal.pieces)
    terminal.pump()
    return len(terminal.pieces) > before


def test_a_terminal_that_is_gone_is_no_error(pane: Terminal) -> None:
    painter = painter_on(pane)
    os.close(pane.master)
    os.close(pane.slave)
    pane.master = pane.slave = -1
    painter.paint(["a"], [Row((("b", ""),))])
    painter.clear()
    assert not painter.ready()


async def test_a_slow_stream_costs_few_bytes(pane: Terminal) -> None:
    """Twelve words a second for two seconds: at most five writes and 600 bytes in each."""
    clock = SystemClock()
    live = LiveProgress(clock, painter_on(pane, color=True))
    pause_s, words = 1 / 12, 24

    async def look() -> tuple[State, list[Event]]:
        return state(), []

    async def stream() -> None:
        for number in range(words):
            live.on_delta(TextDelta(f"word{number} "))
            await clock.sleep(pause_s)
            pane.pump()

    began_s = clock.monotonic_s()
    await drawn(live, look, stream)
    wall_s = clock.monotonic_s() - began_s
    drained(pane)
    assert len(pane.pieces) <= 5 * wall_s + 3, "about four frames a second"
    assert len(pane.written) <= 600 * wall_s, len(pane.written) / wall_s
    assert pane.lines() == [], "nothing of the block is left"


async def test_a_view_that_fails_stops_no_work(pane: Terminal) -> None:
    live = LiveProgress(SystemClock(), painter_on(pane))

    async def look() -> tuple[State, list[Event]]:
        raise RuntimeError("the view is broken")

    async def work() -> str:
        while b"broken" not in pane.written:
            pane.pump()
            await SystemClock().sleep(0)
        live.on_events([event(2, ApprovalExpired(item_id="i", verdict="deny"))])
        live.above("a line of another origin")
        return "done"

    assert await drawn(live, look, work) == "done"
    text = " ".join(drained(pane).text.split())
    assert "the live view stopped (RuntimeError: the view is broken)" in text
    assert "a line of another origin" in text


async def test_news_that_make_no_sense_hide_no_result(pane: Terminal) -> None:
    live = LiveProgress(SystemClock(), painter_on(pane))
    seen = anyio.Event()

    async def look() -> tuple[State, list[Event]]:
        seen.set()
        return state(), []

    async def work() -> None:
        await seen.wait()
        live.on_events([event(2, ToolResult(call_id="9.9", outcome="ok", content=""))])
        live.on_events([event(3, UserInterrupt())])
        raise ZeroDivisionError("how the work ended")

    with pytest.raises(ZeroDivisionError, match="how the work ended"):
        await drawn(live, look, work)
    text = " ".join(drained(pane).text.split())
    assert "the live view stopped (KeyError: '9.9')" in text
    assert "interrupted by brain" in text


# --- what it says ---------------------------------------------------------------------------------


def event(seq: int, fact: AnyFact) -> Event:
    """An event of a session that never was."""
    return Event("s", seq, 1, SystemClock().now_us(), b"", f"e{seq}", "brain", type_of(fact), fact)


def state(context_tokens: int = 150_000) -> State:
    """A session that has just begun."""
    created = SessionCreated(
        goal="x",
        agent=Agent(model="m", name="tester"),
        workspace=Workspace(path="/w"),
        limits=Limits(context_tokens=context_tokens),
    )
    return fold(empty("s", KINDS), [event(1, created)])


def said(panel: Panel, width: int = 80) -> str:
    """The block as text."""
    return "\n".join("".join(text for text, _ in row.spans) + row.tail for row in panel.rows(width))


def asked(seq: int, item_id: str) -> Event:
    """A question to a person."""
    return event(seq, ApprovalRequested(item_id=item_id, kind="question", title="?", action="?"))


def test_what_waits_for_a_person_is_counted() -> None:
    panel = Panel(SystemClock(), len)
    panel.begin(fold(state(), [asked(2, "a")]), [], 80)
    assert "1 waits for you" in said(panel)
    panel.take(asked(3, "b"), 80)
    assert "2 wait for you" in said(panel)
    panel.take(event(4, ApprovalDecided(item_id="a", verdict="deny")), 80)
    assert "1 waits for you" in said(panel)
    panel.take(event(5, ApprovalExpired(item_id="b", verdict="deny")), 80)
    assert "for you" not in said(panel)
    panel.take(asked(6, "c"), 80)
    panel.take(event(7, ApprovalSuperseded(item_id="c", reason="changed")), 80)
    assert "for you" not in said(panel)
    counted = Panel(SystemClock(), len, lambda: 7)
    counted.begin(state(), [], 80)
    assert "7 wait for you" in said(counted)


def test_the_gauge_is_held_against_the_line() -> None:
    panel = Panel(SystemClock(), len)
    began = state(context_tokens=2_000)
    began.window_tokens = 1_500
    panel.begin(began, [], 80)
    assert said(panel).endswith("  $0.0000  context 75%")
    began.window_tokens = 9_000
    assert said(panel, 60).endswith("  $0.0000  ctx 450%")


def test_the_status_line_has_the_cost_of_the_tree_and_the_own_beside_it() -> None:
    panel = Panel(SystemClock(), len)
    began = state()
    began.cost_pico = 250_000_000_000
    panel.begin(began, [], 80)
    assert "  $0.2500  context 0%" in said(panel)
    panel.see(Glance(Cost(500_000_000_000), (Worker("worker one", Act("bash: make", SystemClock().now_us())),)))
    row, status = said(panel).splitlines()
    assert row == "worker one  bash: make  0 s"
    assert status.endswith("  $0.7500  (own $0.2500)  context 0%")
    assert len(status) == 79
    assert said(panel, 34).splitlines()[-1].endswith("  $0.7500"), "the cost stays where there is little room"


def test_no_more_than_a_few_workers_have_a_row() -> None:
    panel = Panel(SystemClock(), len)
    panel.begin(state(), [], 80)
    workers = tuple(Worker(f"w{number}", Act("parked (provider)", 0, ongoing=False)) for number in range(9))
    panel.see(Glance(Cost(), workers))
    rows = said(panel).splitlines()
    assert rows[:2] == ["w0  parked (provider)", "w1  parked (provider)"]
    assert rows[6] == "and 3 more"
    assert len(rows) == 8


def test_a_gap_asks_for_the_log_again() -> None:
    panel = Panel(SystemClock(), len)
    panel.begin(state(), [], 80)
    panel.take(event(5, ApprovalExpired(item_id="i", verdict="deny")), 80)
    assert panel.behind
    panel.begin(state(), [], 80)
    assert not panel.behind


def test_several_running_calls() -> None:
    panel = Panel(SystemClock(), len)
    dispatched = [
        ToolDispatched(
            call_id=f"2.{number}", attempt=1, hands_id="h", action_digest="", on_unknown="retry", timeout_s=9.0
        )
        for number in (0, 1)
    ]
    panel.begin(state(), [event(number, fact) for number, fact in enumerate(dispatched, 1)], 80)
    assert said(panel).startswith("running  2.1 (+1 more)  0 s ")
    assert panel.ticking


@given(st.lists(st.text(st.sampled_from("ab \n日"), max_size=20), max_size=20), st.integers(10, 40))
def test_words_fit_and_pieces_make_no_difference(pieces: list[str], width: int) -> None:
    def measure(text: str) -> int:
        return sum(2 if char == "日" else 1 for char in text)

    one, many = Words(measure), Words(measure)
    one.add("".join(pieces), width)
    for piece in pieces:
        many.add(piece, width)
    assert one.rows() == many.rows()
    assert all(measure(row.rstrip()) <= width for row in one.rows())
    assert len(one.rows()) <= 2


def test_numbers_for_people() -> None:
    seconds = (-1, 59, 60, 3_599, 7_380)
    assert [lasted(each * 1_000_000) for each in seconds] == ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "2 h 03 min"]
