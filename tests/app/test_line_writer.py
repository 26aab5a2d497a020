"""Lines of a long-lived process: nobody has to read them, and what was dropped is counted where it is missing."""

from __future__ import annotations

import os
import threading

import pytest

from holdfast.app.call import ReaderGone
from holdfast.app.line_writer import LineWriter
from tests.support.waiting import until

LINE = "x" * 99


def test_a_full_pipe_holds_nothing_up_and_dropped_lines_are_counted() -> None:
    read, write = os.pipe()
    writer = LineWriter(write, lambda number: f"dropped {number}", held_max=50_000)
    for number in range(3_000):
        writer.put(f"{number} {LINE}")
    lines: list[str] = []

    def reading() -> None:
        with os.fdopen(read) as file:
            lines.extend(line.rstrip("\n") for line in file)

    reader = threading.Thread(target=reading)
    reader.start()
    until(lambda: writer._size < 25_000)  # the last line finds room, so it is not dropped
    writer.put(f"last {LINE}")
    writer.close()
    os.close(write)
    reader.join()
    assert lines.pop() == f"last {LINE}"
    number = dropped = 0
    for line in lines:
        if line.startswith("dropped"):
            dropped += int(line.split()[1])
            number += int(line.split()[1])
        else:
            assert line == f"{number} {LINE}"
            number += 1
    assert number == 3_000
    assert dropped > 500


def test_a_reader_that_has_gone_is_reported() -> None:
    read, write = os.pipe()
    os.close(read)
    writer = LineWriter(write, str)
    writer.put(LINE)
    writer._thread.join()
    with pytest.raises(ReaderGone):
        writer.put(LINE)
    os.close(write)
