"""Ways to die at a random moment: each draws its moment, kills, and says who is dead.

Every way takes an opened session, a nursery, its own chance and what an undisturbed run looks like.
It returns None when the moment came after the end: then nothing was killed, and another is drawn.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.hands.box.supervisor.journal import Testimony
from tests.faults import oracle
from tests.faults.brains import Brain, Nursery, wait_for
from tests.faults.seams import Seam
from tests.faults.story import SHORT, Session, open_session
from tests.faults.victims import Witness, signal_process, supervisors, until_gone
from tests.support.waiting import PATIENCE_S

SYNC_CALLS = ("fdatasync", "pwrite64")


@dataclass
class Undisturbed:
    """A run that nobody killed: what it leaves, how long it takes, how often a commit makes each call."""

    record: oracle.Record
    span_s: float
    calls: dict[str, int] = field(default_factory=dict)


@dataclass
class Death:
    """Who died: the brain or not, and what the dead supervisors' journals say. `how` tells a person."""

    brain: Brain
    how: str
    witnesses: list[Witness] = field(default_factory=list)

    def testimonies(self) -> list[Testimony]:
        """What the dead hands' journals say."""
        return [witness.says() for witness in self.witnesses]


Way = Callable[[Session, Nursery, random.Random, Undisturbed], Death | None]


def undisturbed(home: Path, brains: Nursery, *, sandbox: bool) -> Undisturbed:
    """Run the story to its end."""
    session = open_session(home, SHORT, sandbox=sandbox)
    brain = brains.wake(session.home, session.session_id)
    assert brain.wait() == 0, brain.errors()
    record = oracle.look(session)
    assert oracle.broken(record, SHORT, brain.acknowledged()) == []
    assert set(record.effects) == set(SHORT.keys)
    first, last = record.events[1], record.events[-1]
    return Undisturbed(record, (last.at_us - first.at_us) / 1_000_000)


def pass_time(seconds: float) -> None:
    """Let the drawn moment come."""
    threading.Event().wait(seconds)


def kill_brain(session: Session, brains: Nursery, chance: random.Random, calm: Undisturbed) -> Death | None:
    """The brain, at any moment of its run."""
    moment = chance.uniform(0, calm.span_s)
    brain = brains.wake(session.home, session.session_id)
    pass_time(moment)
    return Death(brain, f"brain at {moment:.4f} s") if _killed(brain) else None


def kill_supervisor(session: Session, brains: Nursery, chance: random.Random, calm: Undisturbed) -> Death | None:
    """The supervisor, at any moment of the run that has one."""
    moment = chance.uniform(0, calm.span_s)
    brain = brains.wake(session.home, session.session_id)
    pass_time(moment)
    witness = _kill_a_supervisor(session, brain)
    return Death(brain, f"supervisor at {moment:.4f} s", [witness]) if witness else None


def kill_both(session: Session, brains: Nursery, chance: random.Random, calm: Undisturbed) -> Death | None:
    """Brain and supervisor together, either first."""
    moment, brain_first = chance.uniform(0, calm.span_s), chance.random() < 0.5
    brain = brains.wake(session.home, session.session_id)
    pass_time(moment)
    if brain_first:
        handle = next(iter(supervisors(session.home).items()), None)
        if not _killed(brain):
            return None
        witnesses = [_kill_that(*handle)] if handle else []
    else:
        witness = _kill_a_supervisor(session, brain)
        if witness is None or not _killed(brain):
            return None
        witnesses = [witness]
    order = "brain, then supervisor" if brain_first else "supervisor, then brain"
    return Death(brain, f"{order} at {moment:.4f} s", witnesses)


def kill_in_journal(session: Session, brains: Nursery, chance: random.Random, calm: Undisturbed) -> Death | None:
    """The supervisor inside a write to its journal, some bytes of the line being there.

    The kill comes at the entry of the `nth` write; then the bytes that a later kill inside the same
    write would have left are put there. In half of the runs the brain dies too.
    """
    nth, with_brain = chance.randint(1, 2 * len(calm.record.ends())), chance.random() < 0.5
    share = chance.random()
    brain = brains.wake(session.home, session.session_id, Seam("append", 1, "after", "stop", "hands.provisioned"))
    assert brain.until_stopped(), brain.errors()
    ((folder, pid),) = supervisors(session.home).items()
    witness = Witness(folder)
    trace = session.home / "journal.trace"
    inject = ("-xx", "-s", "4194304", "-e", "trace=pwrite64", "-e", f"inject=pwrite64:signal=KILL:when={nth}")
    strace = attach(pid, trace, *inject)
    brain.send(signal.SIGCONT)
    wait_for(lambda: strace.poll() is not None or brain.dead.is_set(), "the journal is written")
    strace.wait(PATIENCE_S)
    line, offset = last_write(trace)
    killed = with_brain and _killed(brain)
    kept = int(share * len(line))
    witness.tear(line[:kept], offset)
    who = "brain and supervisor" if killed else "supervisor"
    return Death(brain, f"{who} in journal write {nth}, after {kept} of {len(line)} bytes", [witness])


def kill_in_commit(session: Session, brains: Nursery, chance: random.Random, calm: Undisturbed) -> Death | None:
    """The brain inside SQLite's commit, at a write or a sync of its file."""
    if not calm.calls:
        raise AssertionError("count the calls of an undisturbed run first")
    call = chance.choice(SYNC_CALLS)
    nth = chance.randint(1, calm.calls[call])
    brain = brains.wake(session.home, session.session_id, Seam("begin", 1, "before", "stop"))
    assert brain.until_stopped(), brain.errors()
    trace = session.home / "commit.trace"
    strace = attach(brain.pid, trace, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={nth}")
    brain.send(signal.SIGCONT)
    status = brain.wait()
    strace.wait(PATIENCE_S)
    return Death(brain, f"brain at {call} {nth}") if status == -9 else None


def count_calls(home: Path, brains: Nursery, *, sandbox: bool) -> dict[str, int]:
    """How often the thread that writes the log makes each call in an undisturbed run."""
    session = open_session(home, SHORT, sandbox=sandbox)
    brain = brains.wake(session.home, session.session_id, Seam("begin", 1, "before", "stop"))
    assert brain.until_stopped(), brain.errors()
    trace = home / "count.trace"
    strace = attach(brain.pid, trace, "-e", f"trace={','.join(SYNC_CALLS)}")
    brain.send(signal.SIGCONT)
    assert brain.wait() == 0, brain.errors()
    strace.wait(PATIENCE_S)
    threads: dict[str, dict[str, int]] = {}
    for thread, call in re.findall(r"^(\d+) +(fdatasync|pwrite64)\(", trace.read_text(), re.MULTILINE):
        counts = threads.setdefault(thread, dict.fromkeys(SYNC_CALLS, 0))
        counts[call] += 1
    return max(threads.values(), key=lambda counts: counts["fdatasync"])


def attach(pid: int, trace: Path, *options: str) -> subprocess.Popen[bytes]:
    """strace on that process and its threads, none of its programs; returns when it watches."""
    command = ["strace", "-f", "--detach-on=execve", "-o", str(trace), "-p", str(pid), *options]
    words = Path(f"{trace}.err")
    with words.open("wb") as said:
        strace = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=said)
    wait_for(lambda: "attached" in words.read_text() or strace.poll() is not None, "strace watches")
    assert strace.poll() is None, words.read_text()
    return strace


def last_write(trace: Path) -> tuple[bytes, int]:
    """The bytes and the offset of the last write in a trace made with `-xx`."""
    found = re.findall(r'pwrite64\(\d+, "((?:\\x[0-9a-f]{2})*)", \d+, (\d+)\)', trace.read_text())
    text, offset = found[-1]
    return bytes.fromhex(text.replace("\\x", "")), int(offset)


def _killed(brain: Brain) -> bool:
    """SIGKILL to a brain; False when it had come to its end."""
    brain.send(signal.SIGKILL)
    return brain.wait() == -9


def _kill_a_supervisor(session: Session, brain: Brain) -> Witness | None:
    """Kill the supervisor, or the first that comes; None when the brain needs none any more."""
    found: list[tuple[Path, int]] = []

    def there() -> bool:
        found[:] = supervisors(session.home).items()
        return bool(found) or brain.dead.is_set()

    wait_for(there, "a supervisor is there")
    return _kill_that(*found[0]) if found and not brain.dead.is_set() else None


def _kill_that(folder: Path, pid: int) -> Witness:
    witness = Witness(folder)
    signal_process(pid, signal.SIGKILL)
    until_gone(folder)
    return witness
