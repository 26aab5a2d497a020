"""Facts of runs over a list, which schema 9 added: with everything set, and with nothing that can be left out."""

from __future__ import annotations

from holdfast.facts.items import (
    ItemAudited,
    ItemData,
    ItemEnded,
    ItemFailed,
    ItemQuarantined,
    Items,
    ItemsAdded,
    ItemsCheckpoint,
    ItemsForecast,
    ItemsListed,
    ItemsReduced,
    ItemsRemoved,
    ItemsRetried,
    ItemStarted,
    ItemWork,
)
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.task import Run
from holdfast.facts.union import AnyFact


def created(odd: str) -> SessionCreated:
    """The first event of a run, which also names a run that it works for."""
    schema = {"type": "object", "required": ["n"]}
    return SessionCreated(
        goal=odd,
        agent=Agent("m"),
        workspace=Workspace("/w"),
        items=Items(
            each="Do {n}.",
            count=2,
            out="/srv/results.jsonl",
            schema=schema,
            key="id",
            run=Run(until=("true",)),
            workers=3,
            batch=2,
            tries=5,
            every=7,
            max_quarantine=0.25,
            context="rolling",
            audit=0.5,
            judge="other",
            command="ls",
            reduce=odd,
            reduce_command="wc",
            own_workspace=False,
        ),
        item=ItemWork(run_id="ses_run", purpose="audit", keys=("a", odd), schema=schema),
    )


def full(odd: str) -> list[AnyFact]:
    """Facts of a brain with everything set."""
    return [
        ItemsListed(count=2, problem=odd),
        ItemStarted(child_id="ses_c", keys=("a", odd), attempt=2, purpose="audit"),
        ItemEnded(
            key=odd, child_id="ses_c", attempt=2, result={"n": [1, None]}, cost_pico=7, duration_ms=12, audit=True
        ),
        ItemFailed(key=odd, child_id="ses_c", attempt=1, reason=odd, cost_pico=0),
        ItemQuarantined(key="a", child_id="ses_c", attempt=3, reason=odd, cost_pico=9),
        ItemAudited(key=odd, child_id="ses_j", ok=True, why=odd, unknown=True, cost_pico=3),
        ItemsCheckpoint(through_seq=9, lines=1, size=40, sha256="ab" * 32, quarantined=1),
        ItemsForecast(after=1, count=2, seconds=1.5, cost_pico=14),
        ItemsReduced(ok=True, result=odd, detail=odd, child_id="ses_r", cost_pico=1),
    ]


def bare() -> list[AnyFact]:
    """The same with nothing that can be left out."""
    return [
        ItemsListed(),
        ItemStarted(child_id="ses_c", attempt=1, purpose="work"),
        ItemEnded(key="a", child_id="ses_c", attempt=1, result="text"),
        ItemFailed(key="a", child_id="ses_c", attempt=1, reason=""),
        ItemQuarantined(key="a", child_id="ses_c", attempt=1, reason=""),
        ItemAudited(key="a", child_id="ses_j", ok=False),
        ItemsCheckpoint(through_seq=1, lines=0, size=0, sha256=""),
        ItemsForecast(after=1, count=2, seconds=0.0),
        ItemsReduced(ok=False),
    ]


def posts(odd: str, name: str) -> list[tuple[str, AnyFact]]:
    """Facts of users, with their keys."""
    if name == "bare":
        return [("add", ItemsAdded(items=())), ("remove", ItemsRemoved(keys=())), ("retry", ItemsRetried())]
    return [
        ("add", ItemsAdded(items=(ItemData(odd, {"n": 1, "text": odd}),), replace=True, listed=True)),
        ("remove", ItemsRemoved(keys=(odd,))),
        ("retry", ItemsRetried(keys=(odd,))),
    ]
