"""Detection quality of signs: anxious workers, five kinds of loop, and healthy sessions without a false alarm.

python bench/signs.py [--sessions N] [--healthy N] [--first SEED] [--json]

Seeded workers that are independent of the detector generate sessions as facts. The thresholds were chosen on
seeds below `HELD_OUT`; the measurement uses seeds, and phrases, from there on. A sign counts if it comes
within 5 turns of the onset: the turn that completes a loop's second round, or the first anxious turn. For an anxious
worker that stops earlier, the sign must come before the stop. A sign resets the context, as the brain does. A sign
in a healthy session is a false reset; two in one session are a false stop, which would ask the user.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import msgspec

from holdfast.facts.model import ContextReset, Handoff
from holdfast.facts.session import Breakers, ContextPolicy
from holdfast.session.signs import sign
from holdfast.session.signs.trace import Step, note

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.synthetic.events import HELD_OUT, Tale
from tests.support.synthetic.healthy import KINDS, healthy
from tests.support.synthetic.troubled import LOOPS, anxious, looping

WITHIN = 5
RECALL, RESETS_IN_50, STOPS = 0.90, 1.0, 0.01

FILLS = (0.5, 0.6, 0.7, 0.8, 0.9)


class Seen(msgspec.Struct, frozen=True):
    """A sign: at which turn of the session, of what kind, in words."""

    turn: int
    kind: str
    detail: str


class Row(msgspec.Struct, frozen=True):
    """What was measured of one kind of session. `false` are signs before anything was wrong."""

    kind: str
    sessions: int
    turns: int
    seen: int = 0
    right_kind: int = 0
    median_turns: float = 0.0
    false: int = 0
    stopped: int = 0


def signs_of(tale: Tale, *, once: bool = False) -> list[Seen]:
    """The signs in a session, each followed by a reset."""
    steps: list[Step] = []
    policy, breakers = ContextPolicy(), Breakers()
    out: list[Seen] = []
    for index, told in enumerate(tale.turns):
        for seq, fact in told.facts:
            note(steps, fact, seq)
        found = sign(steps, told.fill, policy, breakers)
        if found is None:
            continue
        out.append(Seen(index, found.kind, found.detail))
        if once and index >= tale.onset:
            break
        seq = told.facts[-1][0]
        note(steps, ContextReset(cause="loop", through_seq=seq, handoff=Handoff()), seq)
    return out


def troubled_row(kind: str, tales: list[Tale], wanted: str) -> Row:
    """Recall of what is wrong."""
    seen = right = false = 0
    after: list[int] = []
    for tale in tales:
        began = next(index for index, told in enumerate(tale.turns) if told.bad)
        signs = signs_of(tale, once=True)
        false += sum(each.turn < began for each in signs)
        first = next((each for each in signs if each.turn >= began), None)
        if first is not None and first.turn <= tale.onset + WITHIN:
            seen += 1
            right += first.kind == wanted
            after.append(first.turn - tale.onset)
    turns = sum(len(tale.turns) for tale in tales)
    return Row(kind, len(tales), turns, seen, right, statistics.median(after) if after else -1.0, false)


def healthy_row(kind: str, tales: list[Tale]) -> Row:
    """False alarms."""
    found = [signs_of(tale) for tale in tales]
    turns = sum(len(tale.turns) for tale in tales)
    return Row(
        kind, len(tales), turns, false=sum(bool(each) for each in found), stopped=sum(len(each) > 1 for each in found)
    )


def measure(first: int, sessions: int, healthy_sessions: int) -> list[Row]:
    """All rows. `sessions` of each troubled kind, `healthy_sessions` of all healthy kinds together."""
    rows = [
        troubled_row(f"anxious:{fill}", [anxious(first + seed, fill) for seed in range(sessions)], "anxiety")
        for fill in FILLS
    ]
    for kind in LOOPS:
        rows.append(troubled_row(f"loop: {kind}", [looping(first + seed, kind) for seed in range(sessions)], "loop"))
    each = -(-healthy_sessions // len(KINDS))
    for kind in KINDS:
        rows.append(healthy_row(f"healthy: {kind}", [healthy(first + seed, kind) for seed in range(each)]))
    return rows


def verdict(rows: list[Row]) -> dict[str, float]:
    """The figures that have a target: the least recall of a row, false resets in 50 sessions, share of false stops.

    The rows are the five loops and the anxious workers of each fill.
    """
    troubled = [row for row in rows if not row.kind.startswith("healthy")]
    anxious_rows = [row for row in troubled if row.kind.startswith("anxious")]
    anxious_recall = sum(row.seen for row in anxious_rows) / sum(row.sessions for row in anxious_rows)
    calm = [row for row in rows if row.kind.startswith("healthy")]
    sessions = sum(row.sessions for row in calm)
    return {
        "recall_least": min(row.seen / row.sessions for row in troubled),
        "recall_anxious": anxious_recall,
        "recall": sum(row.seen for row in troubled) / sum(row.sessions for row in troubled),
        "false_resets_in_50": 50 * sum(row.false for row in calm) / sessions,
        "false_stops": sum(row.stopped for row in calm) / sessions,
    }


def good(figures: dict[str, float]) -> bool:
    """Whether they hold the targets."""
    return (
        figures["recall_least"] >= RECALL
        and figures["false_resets_in_50"] <= RESETS_IN_50
        and figures["false_stops"] <= STOPS
    )


def show(rows: list[Row], figures: dict[str, float], took_s: float) -> None:
    """The table."""
    for row in rows:
        head = f"{row.kind:24} {row.sessions:5} sessions {row.turns:7} turns"
        if row.kind.startswith("healthy"):
            print(f"{head}  false resets {row.false}, false stops {row.stopped}")
        else:
            print(
                f"{head}  seen {row.seen / row.sessions:6.1%}, of these as what it is "
                f"{row.right_kind / max(1, row.seen):4.0%}, median {row.median_turns:.0f} turns after onset, "
                f"{row.false} false before"
            )
    print(
        f"least recall within {WITHIN} turns {figures['recall_least']:.1%} (target {RECALL:.0%}), "
        f"anxious {figures['recall_anxious']:.1%}, over all {figures['recall']:.1%}"
    )
    print(
        f"false resets in 50 healthy sessions {figures['false_resets_in_50']:.2f} (target {RESETS_IN_50:.0f}), "
        f"false stops {figures['false_stops']:.2%} (target {STOPS:.0%}); "
        f"{took_s:.0f} s: {'ok' if good(figures) else 'MISSED'}"
    )


def main() -> None:
    """Measure, print, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure the signs")
    parser.add_argument("--sessions", type=int, default=200, help="sessions of each troubled kind")
    parser.add_argument("--healthy", type=int, default=1_100, help="healthy sessions, of all kinds together")
    parser.add_argument("--first", type=int, default=HELD_OUT, help="the first seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    args = parser.parse_args()
    began = time.perf_counter()
    rows = measure(args.first, args.sessions, args.healthy)
    figures = verdict(rows)
    if args.json:
        print(json.dumps({"rows": [msgspec.structs.asdict(row) for row in rows], **figures}))
    else:
        show(rows, figures, time.perf_counter() - began)
    sys.exit(0 if good(figures) else 1)


if __name__ == "__main__":
    main()
