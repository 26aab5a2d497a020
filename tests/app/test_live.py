"""The live view, as it stands on a terminal that an emulator renders from the bytes of a real pty."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.app.live import LiveProgress, drawn
from holdfast.app.painter import Painter
from holdfast.app.panel import ROWS_MAX, Panel, Row, Words, lasted, thousands
from holdfast.clock import SystemClock
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalRequested, ApprovalSuperseded
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.facts.tool import ToolDispatched
from holdfast.facts.union import AnyFact, type_of
from holdfast.model.base import TextDelta
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from tests.app.screen import Session, Terminal
from tests.app.terminal import PRICE, Type, bash, script, spawn, turn, typed

FORBIDDEN = (b"\x1b[?1049", b"\x1b[?47", b"\x1b[?25l", b"\x1b[2J", b"\x1bc")
"""Alternate screens, a hidden cursor, a cleared screen, a reset."""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that the tool call waits for."""
    return tmp_path / "go"


@pytest.fixture
def model(tmp_path: Path, gate: Path) -> str:
    """Says something long with odd characters, waits for the gate in a tool call, says that it is done."""
    odd = "so it is " * 12 + "and in other words, 日本語のテキストもここ, \x1b[31mred\x07 \u202e: I look first."
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    return script(tmp_path / "m.json", {**bash(wait), "text": odd}, turn(text="All is done."), price=PRICE)


RUNNING = re.compile(r"^bash: until.*  [1-9]\d* s$", re.MULTILINE)
"""The row of the tool call that waits, after a second or more."""


def running(text: str) -> bool:
    """Whether the block says that the call runs."""
    return RUNNING.search(text) is not None


def run_words(model: str) -> tuple[str, ...]:
    """A run that is not sandboxed, so that its tool call sees the gate."""
    return ("run", "Write.", "--model", model, "--session-id", "k", "--budget", "2", "--no-sandbox")


def test_a_run_on_a_terminal(model: str, gate: Path) -> None:
    with Session(*run_words(model)) as terminal:
        terminal.until(running)
        lines = terminal.lines()
        (at,) = [number for number, line in enumerate(lines) if line.startswith("agent  turn 1 of 200  context [")]
        assert lines[at].endswith("$0.3150 of $2.00")
        assert lines[at + 1].startswith("bash: until [ -e ")
        assert 2 <= len(lines) - at <= ROWS_MAX
        assert lines[-1].startswith("| ")
        assert any("日本語のテキスト" in line for line in lines[at:]), terminal.text
        assert terminal.screen.cursor.y == at, "the cursor rests on the block's first row"
        gate.touch()
        assert terminal.ended() == 0
        final = r"\nAll is done\.\nk is done — \d+ events, 2 turns, \$0\.6300\nThe work is in /[^ ]+\.$"
        assert re.search(final, terminal.text), terminal.text
        assert not any(line.startswith(("agent  turn", "| ")) for line in terminal.past()), "the block is gone"
        assert sum("bash: until" in line for line in terminal.past()) == 1
        assert [each for each in FORBIDDEN if each in terminal.written] == []
        assert b"\x07" not in terminal.written
        assert b"\x1b[31m" not in terminal.written
        assert "\u202e".encode() not in terminal.written


@pytest.mark.parametrize("columns", [40, 20])
def test_narrow_terminals_and_a_resize(model: str, gate: Path, columns: int) -> None:
    with Session(*run_words(model), columns=columns, rows=18) as terminal:
        terminal.until(lambda text: bool(re.search(r" [1-9]\d* s$", text, re.MULTILINE)))
        for width in (columns, 2 * columns, columns):
            terminal.resize(width, 18)
            before = len(terminal.pieces)
            terminal.until(lambda _, before=before: len(terminal.pieces) > before)  # type: ignore[misc]
            terminal.until(lambda text, width=width: text.count("ctx [" if width < 60 else "context [") == 1)  # type: ignore[misc]
            assert sum(line.startswith("agent  turn 1") for line in terminal.lines()) == 1, terminal.text
        gate.touch()
        assert terminal.ended() == 0
        assert "k is done" in terminal.text


def test_where_nothing_is_drawn(model: str, gate: Path) -> None:
    gate.touch()
    plain = typed(*run_words(model)).went().err
    assert "\x1b" not in plain
    assert re.search(r"^ +\d\.\ds  turn 1      0\.0k tok   \$0\.0000  bash: until", plain, re.MULTILINE)
    for number, (flags, env) in enumerate(
        [((), {"TERM": "dumb"}), ((), {"TERM": ""}), (("--plain",), {}), (("--json",), {})]
    ):
        words = [f"k{number}" if word == "k" else word for word in run_words(model)]
        with Session(*words, *flags, env=env) as terminal:
            assert terminal.ended() == 0
            assert b"\x1b" not in terminal.written, terminal.text


def test_no_color_is_drawn_without_colors(model: str, gate: Path) -> None:
    for env in ({"NO_COLOR": "1"}, {}):
        gate.unlink(missing_ok=True)
        with Session(*(word if word != "k" else f"k{len(env)}" for word in run_words(model)), env=env) as terminal:
            terminal.until("agent  turn 1 of 200")
            gate.touch()
            assert terminal.ended() == 0
            colors = re.findall(rb"\x1b\[[0-9;]*(?:3[0-7]|9[0-7]|4[0-7])[0-9;]*m", terminal.written)
            assert bool(colors) != bool(env)


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM"])
def test_a_stop_leaves_the_terminal_as_it_was(model: str, gate: Path, how: str) -> None:
    with Session(*run_words(model)) as terminal:
        terminal.until(running)
        if how == "ctrl-c":
            terminal.type(how)
        else:
            os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.ended() == 130
        assert not any(line.startswith(("agent  turn", "| ", "^C")) for line in terminal.lines()), terminal.text
        assert re.fullmatch(r"k is runnable.* — \d+ events, 1 turn, \$0\.3150", terminal.lines()[-2]), terminal.text
        assert terminal.lines()[-1] == "It is intact; go on with `holdfast wake k`."
        assert not terminal.screen.cursor.hidden
        assert terminal.written.rfind(b"\x1b[?7h") > terminal.written.rfind(b"\x1b[?7l"), "lines wrap again"
    gate.touch()
    assert typed("wake", "k").went().out == "All is done.\n"


def test_a_shell_suspends_and_continues_it(model: str, gate: Path) -> None:
    shell = ("bash", "--norc", "--noprofile", "-i")
    with Session(command=shell, env={"PS1": "$ "}, rows=30) as terminal:
        terminal.until("$")
        words = " ".join(run_words(model))
        terminal.type(f"clear; {Path(os.sys.executable)} -m holdfast {words}\n")  # type: ignore[attr-defined]
        terminal.until(running)
        terminal.type("ctrl-z")
        stopped = terminal.until("Stopped")
        assert "agent  turn" not in stopped
        terminal.type("clear; fg\n")
        terminal.until("agent  turn 1 of 200")
        gate.touch()
        terminal.until("k is done")
        terminal.type("exit\n")
        assert terminal.ended() == 0


def test_attach_follows_until_the_end(model: str, gate: Path) -> None:
    typed(*run_words(model), "--detach").went()
    with Session("attach", "k") as leaving, Session("attach", "k") as staying:
        piped = spawn("attach", "k", "--json")
        for terminal in (leaving, staying):
            terminal.until(lambda text: "agent  turn 1 of 200" in text and "bash: until" in text)
        leaving.type("ctrl-c")
        assert leaving.ended() == 130
        assert "k is running in another process" in leaving.text
        assert "Follow it with `holdfast logs k -f`" in leaving.text
        gate.touch()
        assert staying.ended() == 0
        assert "→ ok in " in staying.text
        assert "\nAll is done.\nk is done — " in staying.text
        out, _ = piped.communicate(timeout=30)
        assert '"type":"agent.tool_result"' in out
        assert '"type":"result"' in out.splitlines()[-1]
        assert piped.returncode == 0


def test_attach_to_a_session_that_nobody_runs(type: Type, model: str, gate: Path) -> None:
    gate.touch()
    type(*run_words(model)[:-1], "--max-turns", "1", "--no-sandbox").went(4)
    alone = type("attach", "k").went(4)
    assert alone.err.startswith("nobody runs k now\nk is parked (cap)")
    assert "`holdfast run --session-id k --max-turns 2`" in alone.err
    (line,) = type("attach", "k", "--json").went(4).lines
    assert line["type"] == "result"
    assert line["exit_code"] == 4
    type("attach", "nobody").refused(2, "no session 'nobody'", "holdfast ps --all")


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
    return fold(empty("s"), [event(1, created)])


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
    assert "context [########..] 1.5k/2.0k" in said(panel)
    began.window_tokens = 9_000
    assert "ctx [##########] 9.0k/2.0k" in said(panel, 50)


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
    assert "2.1 (+1 more)  0 s" in said(panel)
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
    assert [thousands(number) for number in (0, 999, 3_240, 99_999)] == ["0", "999", "3.2k", "99k"]
    seconds = (-1, 59, 60, 3_599, 7_380)
    assert [lasted(each * 1_000_000) for each in seconds] == ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "2 h 03 min"]
