"""Invariants of money: reserved before it is spent, settled once, never beyond a cap (S13, S15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.facts.base import Usage
from holdfast.facts.budget import BudgetSet
from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.sim.invariants.history import History, RequestHistory
from holdfast.sim.world import World
from holdfast.sim.world_model import PRICE


def requests_settle_once(history: History) -> Iterator[str]:
    """S13, S15: one request at a time; each ends once, before the next begins."""
    until = 0
    for request in history.requests:
        at = request.start.seq
        if at < until:
            yield f"the request at {at} began before the one in front of it had ended"
        if len(request.ends) != 1:
            yield f"the request at {at} has {len(request.ends)} ends"
        until = request.ends[0][0].seq if request.ends else 2**62


def costs_are_right(history: History) -> Iterator[str]:
    """S13 to S15: a response costs what it used, a lost attempt its reservation, an interrupted one no more."""
    for request in history.requests:
        if request.end is not None and history.session.script.priced:
            yield from _cost(history, request, request.end)
        elif request.end is not None and request.end.cost_pico is not None:
            yield f"the request at {request.start.seq} has a cost and its model has no price"


def _cost(history: History, request: RequestHistory, end: ModelRequestEnd) -> Iterator[str]:
    held, at = request.fact.reserved_pico, request.start.seq
    if held is None or end.cost_pico is None:
        yield f"the request at {at} has no reservation or no cost"
        return
    if end.cost_pico > held:
        yield f"the request at {at} cost {end.cost_pico}, it had reserved {held}"
    if end.outcome == "presumed" and end.cost_pico != held:
        yield f"the lost request at {at} was settled at {end.cost_pico}, not at its reservation {held}"
    turn = history.said(request)
    usage = Usage(request.fact.input_tokens_estimate, min(turn.output_tokens, request.fact.max_output_tokens))
    if end.outcome == "ok" and (end.cost_pico, end.usage) != (PRICE.cost(usage), usage):
        yield f"the request at {at} cost {end.cost_pico}, its model says {PRICE.cost(usage)}"
    if end.outcome == "cancelled" and request.parts and end.cost_pico == 0:
        yield f"the interrupted request at {at} brought words and cost nothing"


@dataclass
class _Account:
    cap: int | None
    spent: int = 0
    held: int = 0


class _Books:
    """The accounts of a world, kept apart from the ledger on purpose."""

    def __init__(self, world: World) -> None:
        self.accounts: dict[str, _Account] = {}
        self.held: dict[tuple[str, int], int] = {}
        self.wrong: list[str] = []
        self._paths = {key: session.created.accounts or (key,) for key, session in world.sessions.items()}

    def take(self, event: Event) -> None:
        path = self._paths.get(event.session_id, ())
        match event.fact:
            case SessionCreated() as created if path:
                self.accounts[path[0]] = _Account(created.limits.budget_pico)
            case SessionUpdated(budget_pico=int() as cap):
                self.accounts[path[0]].cap = cap
            case BudgetSet(account_id=name, period="total", cap_pico=cap_or_none):
                self.accounts[name].cap = cap_or_none
            case ApprovalDecided(verdict="approve", account_id=name, budget_pico=int() as cap) if name:
                self.accounts[name].cap = cap
            case ModelRequestStart(reserved_pico=int() as amount):
                for name in path:
                    self._hold(event, name, amount)
                self.held[event.session_id, event.seq] = amount
            case ModelRequestEnd() as end:
                held = self.held.pop((event.session_id, end.request_seq), 0)
                for name in path:
                    self.accounts[name].held -= held
                    self.accounts[name].spent += end.cost_pico or 0

    def _hold(self, event: Event, name: str, amount: int) -> None:
        account = self.accounts[name]
        account.held += amount
        if account.cap is not None and account.spent + account.held > account.cap:
            self.wrong.append(f"the reservation at {event.seq} takes account {name} beyond its cap {account.cap}")


def spend_stays_under_the_cap(world: World) -> Iterator[str]:
    """S15: what is spent and held never exceeds a cap at a reservation, on any account of the path; the
    ledger is the sum of the events; nothing is held at rest.
    """
    books = _Books(world)
    for commit in world.record.commits:
        for event in commit.events:
            books.take(event)
    yield from books.wrong
    for name, account in books.accounts.items():
        row = world.beside.accounts.get(name)
        have = (row.cap_pico, row.spent_pico, row.reserved_pico) if row else None
        if have != (account.cap, account.spent, account.held):
            yield f"account {name} is {have}, the events make it {(account.cap, account.spent, account.held)}"
        if account.held:
            yield f"account {name} still holds {account.held} at rest"
    if world.beside.reservations:
        yield f"{len(world.beside.reservations)} reservations are open at rest"


ALL = (requests_settle_once, costs_are_right)

WORLD = (spend_stays_under_the_cap,)
