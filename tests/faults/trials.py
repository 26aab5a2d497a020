"""One death and what comes after it, held against the promises."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from tests.faults import deaths, oracle
from tests.faults.brains import Nursery
from tests.faults.deaths import Death, Undisturbed, Way
from tests.faults.story import SHORT, Session, open_session

WAYS: dict[str, Way] = {
    "brain": deaths.kill_brain,
    "supervisor": deaths.kill_supervisor,
    "both": deaths.kill_both,
    "journal": deaths.kill_in_journal,
    "commit": deaths.kill_in_commit,
}

TRIES = 8
"""Moments drawn for one death: one that comes after the end of the run kills nobody."""


def one_death(base: Path, brains: Nursery, way: Way, calm: Undisturbed, seed: str, *, sandbox: bool) -> list[str]:
    """Die, go on, and say what does not hold."""
    chance = random.Random(seed)
    for number in range(TRIES):
        session = open_session(base / f"{seed}-{number}", SHORT, sandbox=sandbox)
        death = way(session, brains, chance, calm)
        if death is not None:
            broken = after(death, brains, calm, session)
            for witness in death.witnesses:
                witness.close()
            return [f"{death.how}: {each}" for each in broken]
    return [f"{TRIES} moments in a row came after the end of the run"]


def many_lives(base: Path, brains: Nursery, calm: Undisturbed, seed: str, lives: int) -> list[str]:
    """One session that dies up to so many times, each time in another way; then it is left in peace."""
    chance = random.Random(seed)
    patient = replace(SHORT, spare_turns=lives + 1)
    session = open_session(base / seed, patient)
    witnesses, acknowledged, hows = [], [], []
    for _ in range(lives):
        death = WAYS[chance.choice(("brain", "brain", "both", "supervisor"))](session, brains, chance, calm)
        if death is None:
            continue
        hows.append(death.how)
        witnesses += death.witnesses
        death.brain.wait()
        acknowledged += death.brain.acknowledged()
    last = brains.wake(session.home, session.session_id)
    out = [] if last.wait() == 0 else [f"the last brain ended with {last.wait()}: {last.errors()}"]
    record = oracle.look(session)
    out += oracle.broken(record, patient, acknowledged + last.acknowledged())
    out += oracle.torn(record, [witness.says() for witness in witnesses]) + oracle.settled(record, calm.record)
    for witness in witnesses:
        witness.close()
    return [f"{each} ({'; '.join(hows)})" for each in out]


def after(death: Death, brains: Nursery, calm: Undisturbed, session: Session) -> list[str]:
    """The session goes on, in another brain when its own is dead."""
    status = death.brain.wait()
    acknowledged = death.brain.acknowledged()
    out = []
    if status == -9:
        second = brains.wake(session.home, session.session_id)
        status = second.wait()
        acknowledged += second.acknowledged()
        out += [second.errors()] if status != 0 or "Traceback" in second.errors() else []
    out += [death.brain.errors()] if "Traceback" in death.brain.errors() else []
    if status != 0:
        out.append(f"the last brain ended with {status}: {death.brain.errors()}")
    record = oracle.look(session)
    out += oracle.broken(record, SHORT, acknowledged)
    if death.witnesses:
        out += oracle.torn(record, death.testimonies()) + oracle.settled(record, calm.record)
    else:
        out += oracle.same_as(record, calm.record)
    return out
