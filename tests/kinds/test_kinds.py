"""Kinds of sessions as tenants of the kernel: who owns which event, what a snapshot is good for, what is loaded."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from holdfast.brain import recall as recall_module
from holdfast.brain.recall import KERNEL, decode, encode
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import Contract, Mission, Role, WorkSubmitted
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Agent, SessionCreated, SessionForked, Workspace
from holdfast.facts.union import AnyFact, DutyFact, ItemsFact, KernelFact, MissionFact, RoleFact
from holdfast.kinds import KINDS
from holdfast.kinds.duty.kind import KIND as DUTY
from holdfast.kinds.items.kind import KIND as ITEMS
from holdfast.kinds.mission.fold.state import mission_of
from holdfast.kinds.mission.kind import KIND as MISSION
from holdfast.kinds.mission.role.fold import role_state
from holdfast.kinds.mission.role.kind import KIND as ROLE
from holdfast.session import fold as kernel
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from holdfast.session.tenant import AGENT, Kind, only_agents

OWNERS = {
    "kernel": get_args(KernelFact),
    "mission": get_args(MissionFact),
    "role": (RoleFact,),
    "items": get_args(ItemsFact),
    "duty": get_args(DutyFact),
}


def created(**more: object) -> SessionCreated:
    return SessionCreated(goal="g", agent=Agent(model="m"), workspace=Workspace(path="/w"), **more)  # type: ignore[arg-type]


MISSION_CREATED = created(mission=Mission(name="m", repo="/r", base="c", contract=Contract("g", ())))
ROLE_CREATED = created(role=Role(kind="worker"))


def story(*facts: Fact) -> list[Event]:
    """Events of one session, without a chain."""
    return [Event("s", seq, 1, seq, b"", "", "", "", fact) for seq, fact in enumerate(facts, 1)]


# --- who owns which event ----------------------------------------------------------------------------


def test_every_event_has_one_owner() -> None:
    owned = [fact for facts in OWNERS.values() for fact in facts]
    assert len(owned) == len(set(owned))
    assert set(owned) == set(get_args(AnyFact))


def test_the_kernel_folds_each_event_of_its_own_and_no_other() -> None:
    assert kernel._APPLY.keys() | kernel.UNFOLDED == set(OWNERS["kernel"])
    assert not kernel._APPLY.keys() & kernel.UNFOLDED


@pytest.mark.parametrize("kind", [MISSION, ROLE, DUTY, ITEMS], ids=lambda kind: kind.name)
def test_a_kind_folds_each_event_of_its_own_beside_those_of_the_kernel(kind: Kind[State]) -> None:
    own = set(OWNERS[kind.name])
    assert (kind.fold.keys() | kind.unfolded) - set(OWNERS["kernel"]) == own
    assert not kind.fold.keys() & kind.unfolded


def test_the_first_event_names_the_kind() -> None:
    states = [fold(empty("s", KINDS), story(each)) for each in (created(), MISSION_CREATED, ROLE_CREATED)]
    assert [state.tenant.kind for state in states] == [AGENT, MISSION, ROLE]
    assert mission_of(states[1]) is not None
    assert mission_of(states[2]) is None


def test_a_kind_that_the_registry_does_not_know_stops_the_fold() -> None:
    with pytest.raises(LookupError, match="'mission'"):
        fold(empty("s", only_agents), story(MISSION_CREATED))


def test_a_fork_of_a_mission_is_a_plain_session() -> None:
    place = Workspace(path="/f")
    forked = SessionForked(
        origin="s", origin_seq=1, origin_hash="", goal="g", model="m", workspace=place, accounts=("f",)
    )
    state = fold(empty("s", KINDS), story(MISSION_CREATED, forked))
    assert (state.tenant.kind, state.tenant.own) == (AGENT, None)
    assert state.created is not None
    assert state.created.mission is None


# --- snapshots -----------------------------------------------------------------------------------------


def test_a_snapshot_keeps_the_state_of_the_kind() -> None:
    events = story(ROLE_CREATED, WorkSubmitted(call_id="c", kind="worker", body={}), UserMessage(content=()))
    state = fold(empty("s", KINDS), events[:2])
    assert role_state(state).submitted_seq == 2
    again = decode(encode(state), KINDS)
    assert again == state
    assert again is not None
    again = fold(
        again, story(ROLE_CREATED, WorkSubmitted(call_id="c", kind="worker", body={}), UserMessage(content=()))[2:]
    )
    assert role_state(again).submitted_seq == 0


def test_a_snapshot_of_a_kind_is_void_when_the_fold_of_that_kind_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {
        each.tenant.kind.name: encode(each)
        for each in (fold(empty("s", KINDS), story(first)) for first in (created(), MISSION_CREATED, ROLE_CREATED))
    }
    whole = recall_module.digest_of

    def changed(*modules: str) -> str:
        return "another" if modules == MISSION.sources else whole(*modules)

    monkeypatch.setattr(recall_module, "digest_of", changed)
    assert {name for name, body in kept.items() if decode(body, KINDS) is None} == {"mission"}


def _sources_of(module: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    origin = Path(spec.origin)
    yield from origin.parent.rglob("*.py") if origin.name == "__init__.py" else [origin]


def _imports(path: Path) -> set[str]:
    """The modules of ours that a file loads: those in its import statements outside `if TYPE_CHECKING`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                try:
                    known = importlib.util.find_spec(below) is not None
                except ModuleNotFoundError:
                    known = False
                found.add(below if known else str(node.module))
    return found


def _closure(modules: tuple[str, ...]) -> set[str]:
    seen: set[str] = set()
    open_ = [path for module in modules for path in _sources_of(module)]
    for path in open_:
        for module in _imports(path) - seen:
            seen.add(module)
            spec = importlib.util.find_spec(module)
            assert spec is not None
            assert spec.origin is not None
            if not module.startswith("holdfast.facts"):
                open_.append(Path(spec.origin))
    return seen


GROUND = ("holdfast.errors", "holdfast.ids", "holdfast.globs", "holdfast.patterns")
"""What the fold may use without being invalid when it changes: exceptions, names, and matching, which keep no state."""


@pytest.mark.parametrize("kind", [AGENT, MISSION, ROLE, DUTY], ids=lambda kind: kind.name)
def test_the_digest_of_a_snapshot_covers_all_that_the_fold_loads(kind: Kind[State]) -> None:
    covered = (*KERNEL, *kind.sources, *GROUND)
    loaded = _closure(kind.sources or ("holdfast.session.fold",))
    assert loaded
    assert [each for each in sorted(loaded) if not each.startswith(covered)] == []
