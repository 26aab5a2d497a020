"""Geometry of the drawings: numbers for SVG elements, which templates write. Each has a table with the same figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

LANES = ("model", "tool", "person", "harness")
BINS = 80
"""Number of columns of the activity lanes."""


class Bar(msgspec.Struct, frozen=True):
    """One bar of a chart, in the units of its view box, with its label and its value as text."""

    x: float
    y: float
    width: float
    height: float
    label: str
    value: str


class Mark(msgspec.Struct, frozen=True):
    """A mark of a gauge at `x`: its label, and the event that it is about, 0 for none."""

    x: float
    label: str
    seq: int = 0


class Gauge(msgspec.Struct, frozen=True):
    """A horizontal gauge, 400 wide: its fill, its marks, and its level (`low`, `high`, `over`)."""

    fill: float
    marks: tuple[Mark, ...]
    level: str


GAUGE_WIDTH = 400.0


def gauge(used: float, whole: float, marks: Iterable[tuple[float, str, int]] = ()) -> Gauge:
    """Return a gauge of `used` on a scale from 0 to `whole`, or to what is used if that is more."""
    scale = GAUGE_WIDTH / max(used, whole, 1)
    share = used / max(whole, 1)
    level = "low" if share < 0.6 else "high" if share < 0.85 else "over"
    placed = tuple(Mark(round(at * scale, 1), label, seq) for at, label, seq in marks)
    return Gauge(round(used * scale, 1), placed, level)


def bars(values: Sequence[tuple[str, int, str]], *, width: float = 400.0, height: float = 72.0) -> tuple[Bar, ...]:
    """Return vertical bars of `(label, number, text)`, the highest as high as the drawing. A value above 0 is seen."""
    most = max((number for _, number, _ in values), default=0)
    step = width / max(1, len(values))
    found = []
    for place, (label, number, text) in enumerate(values):
        tall = max(1.5, number / most * height) if number > 0 else 0.0
        found.append(
            Bar(round(place * step, 1), round(height - tall, 1), round(step * 0.72, 1), round(tall, 1), label, text)
        )
    return tuple(found)


def lanes(events: Sequence[tuple[str, int]], *, width: float = 800.0, row: float = 12.0) -> tuple[Bar, ...]:
    """Return the activity of `(lane, time)` as one strip of columns for each lane, over the time that they span.

    A column is higher for more events in it.
    """
    if not events:
        return ()
    first, last = events[0][1], max(at for _, at in events)
    counts: dict[tuple[int, int], int] = {}
    for lane, at_us in events:
        column = min(BINS - 1, int((at_us - first) / max(1, last - first) * BINS))
        place = (LANES.index(lane), column)
        counts[place] = counts.get(place, 0) + 1
    step = width / BINS
    found = []
    for (lane_number, column), count in sorted(counts.items()):
        tall = min(row - 2, 3.0 + 2.0 * count)
        y = lane_number * row + (row - tall) / 2
        found.append(Bar(round(column * step, 1), round(y, 1), round(step - 1.5, 1), tall, LANES[lane_number], str(count)))
    return tuple(found)
