"""A run over a list for a home that is made of facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.facts.base import Fact
from holdfast.facts.items import (
    ItemData,
    ItemEnded,
    ItemFailed,
    ItemQuarantined,
    Items,
    ItemsAdded,
    ItemsCheckpoint,
    ItemsForecast,
    ItemStarted,
)
from holdfast.facts.session import Agent
from holdfast.session.money import HOUR_US, PICO

if TYPE_CHECKING:
    from tests.support.web_home import WebHome

MODEL = "anthropic:claude-sonnet-5"


async def write_list(made: WebHome, key: str, count: int, words: str = "It is about the mill") -> str:
    """A run over a list, parked for its children: every 50th item is quarantined, the last ten are still to do."""
    agent, items = (
        Agent(MODEL, name="items"),
        Items(each="Which product? {text}", count=count, out="/srv/results.jsonl"),
    )
    name = await made.open(key, "reviews.jsonl: Which product? {text}", ago_us=HOUR_US, agent=agent, items=items)
    data = tuple(ItemData(f"{words} {number}", {"text": words}) for number in range(count))
    await made.tell(name, *(ItemsAdded(items=data[at : at + 200], listed=True) for at in range(0, count, 200)))
    for number in range(count - 10):
        child, fields = f"ses_item{number}", dict[str, Any](key=data[number].key, child_id=f"ses_item{number}")
        outcome: Fact = ItemEnded(**fields, attempt=1, result=f"{words}: {number}", cost_pico=PICO // 500)
        if number % 50 == 0:
            outcome = ItemQuarantined(**fields, attempt=1, reason=f"the model refused: {words}", cost_pico=PICO // 500)
        started = ItemStarted(child_id=child, attempt=1, purpose="work", keys=(data[number].key,))
        await made.tell(name, started, *((outcome,) if number < count - 12 else ()))
    again = data[count - 10].key
    failed = ItemFailed(key=again, child_id="ses_late", attempt=1, reason=words, cost_pico=PICO // 500)
    started = ItemStarted(child_id="ses_late", attempt=1, purpose="work", keys=(again,))
    done = count - 12 - len(range(0, count - 12, 50))
    forecast = ItemsForecast(after=20, count=count, seconds=300.0, cost_pico=PICO // 2)
    checkpoint = ItemsCheckpoint(through_seq=1, lines=done, size=9, sha256="0" * 64)
    await made.tell(name, started, failed, forecast, checkpoint)
    await made.end(name, "parked", "child", "2 at work")
    return name
