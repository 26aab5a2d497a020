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


class Plot(msgspec.Struct, frozen=True):
    """A line through values over time: its points for SVG, and its lowest, highest, and last value as text."""

    points: str
    low: str
    high: str
    last: str


def plot(values: Sequence[tuple[int, float]], *, width: float = 400.0, height: float = 90.0) -> Plot:
    """Return the line through `(time, value)`, which are at least one, oldest first."""
    numbers = [value for _, value in values]
    low, high, first_us = min(numbers), max(numbers), values[0][0]
    across = width / max(1, values[-1][0] - first_us)
    room = height - 6
    down = room / (high - low) if high > low else 0.0
    points = " ".join(f"{(at - first_us) * across:.1f},{3 + room - (value - low) * down:.1f}" for at, value in values)
    return Plot(points, f"{low:g}", f"{high:g}", f"{numbers[-1]:g}")


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
        found.append(
            Bar(round(column * step, 1), round(y, 1), round(step - 1.5, 1), tall, LANES[lane_number], str(count))
        )
    return tuple(found)


class Node(msgspec.Struct, frozen=True):
    """A task of a graph."""

    x: float
    y: float
    name: str
    status: str


class Edge(msgspec.Struct, frozen=True):
    """A dependency, from right edge to left edge of two nodes."""

    x1: float
    y1: float
    x2: float
    y2: float


class Graph(msgspec.Struct, frozen=True):
    """Tasks in columns: each is to the right of all that it depends on."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float


NODE_WIDTH, NODE_HEIGHT, GAP_X, GAP_Y = 96.0, 24.0, 40.0, 10.0
NODES_MAX = 60


def graph(tasks: Sequence[tuple[str, str, Sequence[str]]]) -> Graph | None:
    """Return the graph of `(name, status, depends)`; None without a dependency, or for too many tasks to read."""
    known = {name for name, _, _ in tasks}
    depends = {name: [each for each in before if each in known] for name, _, before in tasks}
    if len(tasks) > NODES_MAX or not any(depends.values()):
        return None
    columns = dict.fromkeys(depends, 0)
    for _ in tasks:  # as often as the longest path can be; a cycle ends there too
        for name, before in depends.items():
            columns[name] = max([columns[name], *(min(columns[each] + 1, len(tasks)) for each in before)])
    used: dict[int, int] = {}
    nodes: dict[str, Node] = {}
    for name, status, _ in tasks:
        row = used.get(columns[name], 0)
        used[columns[name]] = row + 1
        x, y = columns[name] * (NODE_WIDTH + GAP_X) + 1, row * (NODE_HEIGHT + GAP_Y) + 1
        nodes[name] = Node(x, y, name, status)
    middle = NODE_HEIGHT / 2
    edges = tuple(
        Edge(nodes[each].x + NODE_WIDTH, nodes[each].y + middle, nodes[name].x, nodes[name].y + middle)
        for name, before in depends.items()
        for each in before
    )
    width = (max(columns.values()) + 1) * (NODE_WIDTH + GAP_X) - GAP_X + 2
    return Graph(tuple(nodes.values()), edges, width, max(used.values()) * (NODE_HEIGHT + GAP_Y) - GAP_Y + 2)
