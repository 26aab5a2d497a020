"""A damaged journal: what it says of a call is what was written, or that nobody knows; no call is run twice for it.

A file that was cut at the end of a line cannot be told from one that ends there; the supervisor writes a line before it
acts, and no power cut leaves such a file: after one, no journal of that boot counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.hands.box.supervisor.journal import Journal, replay
from holdfast.hands.supervised import _testified

CALLS = tuple(f"{seq}.0" for seq in range(3, 15))


def written(path: Path) -> bytes:
    """A journal of twelve calls, of which the last two have no end."""
    journal = Journal(str(path))
    journal.write({"t": "open", "hands_id": "hnd_1", "host_id": "h", "boot_id": "b", "places": [], "pid": 7})
    journal.write({"t": "epoch", "epoch": 1})
    for number, call in enumerate(CALLS):
        place = journal.write({"t": "started", "call": call, "epoch": 1, "tool": "bash", "expect": None})
        assert journal.read(place) == {"t": "started", "call": call, "epoch": 1, "tool": "bash", "expect": None}
        journal.write({"t": "note", "call": call, "line": f"é {number} \udc80"})
        if number < len(CALLS) - 2:
            result = {
                "output": f"said {number}\n" * 5,
                "bytes_total": 35,
                "ok": number % 3 > 0,
                "exit_code": number % 3,
            }
            result |= {"signal": None, "timed_out": False, "cancelled": False, "killed": 0, "duration_ms": 9.5}
            journal.write({"t": "exit", "call": call, "result": result})
    return path.read_bytes()


def flip(data: bytes, chance: random.Random) -> bytes:
    """One bit another way."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def zeros(data: bytes, chance: random.Random) -> bytes:
    """A range without content."""
    at = chance.randrange(len(data))
    end = min(len(data), at + chance.choice((1, 16, 512, 4_096)))
    return data[:at] + bytes(end - at) + data[end:]


def line_lost(data: bytes, chance: random.Random) -> bytes:
    """The end of a line is another character, so that two lines become one."""
    ends = [at for at, byte in enumerate(data[:-1]) if byte == 10]
    at = chance.choice(ends)
    return data[:at] + b" " + data[at + 1 :]


def pages_swapped(data: bytes, chance: random.Random) -> bytes:
    """Two pieces in each other's place."""
    size = 256
    one, two = sorted(chance.sample(range(len(data) // size), 2))
    one, two = one * size, two * size
    return data[:one] + data[two : two + size] + data[one + size : two] + data[one : one + size] + data[two + size :]


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, flip, zeros, line_lost, pages_swapped)


def damage(tmp_path: Path, seeds: range) -> int:
    """Damage a journal in many ways. Returns how many were noticed."""
    path = tmp_path / "journal"
    whole = written(path)
    truth = {call: _testified(replay(str(path)), call) for call in CALLS}
    assert [truth[call].state for call in CALLS] == ["finished"] * 10 + ["unknown"] * 2
    assert _testified(replay(str(path)), "99.0").state == "never_started"
    noticed = 0
    for seed in seeds:
        chance = random.Random(seed)
        kind = chance.choice(DAMAGES)
        path.write_bytes(kind(whole, chance))
        said = replay(str(path))
        noticed += said.damaged or not said.opened
        for call in CALLS:
            state = _testified(said, call)
            true = state.state == "unknown" or (state.state, state.result) == ("finished", truth[call].result)
            assert true or not said.opened, f"seed {seed}: {kind.__name__}: {call} {state}"
    return noticed


def test_a_damaged_journal_claims_nothing_wrong(tmp_path: Path) -> None:
    assert damage(tmp_path, range(20)) >= 18


@pytest.mark.faults
def test_300_damages_of_journals(tmp_path: Path) -> None:
    print("journals", damage(tmp_path, range(1_000, 1_300)), "of 300 noticed")


def test_a_journal_without_checksums_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"t":"open","hands_id":"h"}\n{"t":"started","call":"3.0","expect":null}\n{"t":"exi')
    said = replay(str(path))
    assert (said.opened, set(said.started), said.damaged) == ({"t": "open", "hands_id": "h"}, {"3.0"}, False)
