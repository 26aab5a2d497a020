"""Invariants of the log, its leases, and money: the chain, fencing, rows, budgets (S1 to S5, S13, S15, S19, S20)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from holdfast.brain.recall import decode, encode
from holdfast.facts.base import Usage, text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.facts.shift import BudgetSet, LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched
from holdfast.kinds import KINDS
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from holdfast.sim.invariants.history import History, RequestHistory
from holdfast.sim.record import Commit
from holdfast.sim.script import PRICE
from holdfast.sim.world import World


def chain_holds(history: History) -> Iterator[str]:
    """S1: positions have no gaps, and each hash covers the previous hash, the position, and the stored bytes."""
    session_id = history.session.session_id
    prev = _fields(b"holdfast log 1", session_id.encode())
    for at, (seq, epoch, at_us, type_, hash_, body, _) in enumerate(history.world.stored[session_id], start=1):
        if seq != at:
            yield f"position {at} holds event {seq}"
            return
        digest = hashlib.sha256(body or b"").digest()
        numbers = (seq.to_bytes(8, "big"), epoch.to_bytes(8, "big"), at_us.to_bytes(8, "big", signed=True))
        prev = _fields(prev, session_id.encode(), *numbers, type_.encode(), digest)
        if prev != hash_:
            yield f"the chain breaks at event {seq}"
            return
    ids = [event.id for event in history.events]
    if len(set(ids)) != len(ids):
        yield "two events have the same id"


def _fields(*fields: bytes) -> bytes:
    return hashlib.sha256(b"".join(len(field).to_bytes(4, "big") + field for field in fields)).digest()


def acknowledged_is_kept(history: History) -> Iterator[str]:
    """S1, S4: the log holds exactly the acknowledged events, in order."""
    written = [event for commit in history.commits for event in commit.events]
    if [(event.seq, event.hash) for event in written] != [(event.seq, event.hash) for event in history.events]:
        yield f"{len(written)} events were written, {len(history.events)} are there, or in another order"


def stale_writers_are_refused(history: History) -> Iterator[str]:
    """S5: every append has the epoch of the latest shift at that moment."""
    current = 0
    for commit in history.commits:
        if commit.kind == "acquire":
            if commit.epoch != current + 1:
                yield f"epoch {commit.epoch} follows epoch {current} at event {commit.events[-1].seq}"
            current = commit.epoch
        elif commit.kind != "post" and commit.epoch != current:
            first = commit.events[0]
            yield f"{commit.who} wrote {first.type} at {first.seq} under epoch {commit.epoch}, it was {current}"
        for event in commit.events:
            if event.epoch != current:
                yield f"event {event.seq} is stamped with epoch {event.epoch}, it was {current}"


def leases_exclude(history: History) -> Iterator[str]:
    """S5: a lease is taken from a live holder only with `steal`, and the log records the theft."""
    holder = ""
    for commit in history.commits:
        if commit.kind == "acquire":
            yield from _acquired(commit, holder)
        for event in commit.events:
            if isinstance(event.fact, ShiftStarted):
                holder = event.fact.worker_id
            elif isinstance(event.fact, ShiftEnded):
                holder = ""


def _acquired(commit: Commit, holder: str) -> Iterator[str]:
    facts = [event.fact for event in commit.events]
    at = commit.events[0].seq
    if not isinstance(facts[-1], ShiftStarted):
        yield f"a lease without shift.started at {at}"
    stolen = [fact for fact in facts if isinstance(fact, LeaseStolen)]
    if commit.held and not commit.steal:
        yield f"{commit.who} took the lease at {at} from a living holder without being asked to"
    if commit.held and [fact.from_worker_id for fact in stolen] != [holder]:
        yield f"the lease taken at {at} from {holder} is not logged as stolen from it"
    if stolen and not commit.held:
        yield f"a lease is logged as stolen at {at} but had no live holder"


def decisions_name_the_head(history: History) -> Iterator[str]:
    """S2: leases, requests, dispatches, and parks are appended at the head that was folded."""
    for commit in history.commits:
        first = commit.events[0]
        decided = commit.kind == "acquire" or any(_is_decision(history, event.fact) for event in commit.events)
        if decided and commit.head is None and commit.kind != "post":
            yield f"{first.type} at {first.seq} was appended without a head"
        if commit.head is not None and first.seq != commit.head + 1:
            yield f"{first.type} at {first.seq} was decided at {commit.head}"


def _is_decision(history: History, fact: object) -> bool:
    match fact:
        case ModelRequestStart() | ToolDispatched():
            return True
        case ShiftEnded(status=status):
            return status != "released"
    call = history.calls.get(getattr(fact, "call_id", ""))
    return call is not None and not call.dispatches and fact is not call.fact


def posts_stand_once(history: History) -> Iterator[str]:
    """S3: an accepted post is in the log once, at the position of its receipt; a second one with its key is dropped."""
    texts = [text_of(event.fact.content) for event in history.messages]  # type: ignore[attr-defined]
    where: dict[str, int] = {}
    for said in history.world.record.said:
        if said.session_id != history.session.session_id:
            continue
        if said.text and texts.count(said.text) != 1:
            yield f"{said.text!r} stands {texts.count(said.text)} times in the log"
        if where.setdefault(said.key, said.seq) != said.seq and said.text:
            yield f"the posts of key {said.key!r} stand at {where[said.key]} and {said.seq}"
        if said.text and text_of(getattr(history.events[said.seq - 1].fact, "content", ())) != said.text:
            yield f"{said.text!r} does not stand at {said.seq}"


def rows_follow(history: History) -> Iterator[str]:
    """S20: rows beside the events follow from the events and agree with the log."""
    for finding in history.world.verified.findings:
        yield f"verify says: {finding.message}"
    row = history.world.beside.rows[history.session.session_id]
    last = history.events[-1]
    if (row.head, row.head_hash, row.epoch) != (last.seq, last.hash, last.epoch):
        yield f"the row says head {row.head}, epoch {row.epoch}; the log ends at {last.seq}, epoch {last.epoch}"
    ends = [end for request in history.requests for _, end in request.ends]
    turns = sum(request.brought for request in history.requests if request.fact.purpose == "turn")
    if row.turns != turns or row.cost_pico != sum(end.cost_pico or 0 for end in ends):
        yield f"the row says {row.turns} turns and {row.cost_pico} pico-dollars; the log says otherwise"


def fold_is_one(history: History) -> Iterator[str]:
    """S19: folding at once, in pieces, and through snapshots at any point gives the same state."""
    session_id = history.session.session_id
    whole = fold(empty(session_id, KINDS), history.events)
    chance = Random(history.world.seed)
    state = empty(session_id, KINDS)
    at = 0
    while at < len(history.events):
        step = chance.randint(1, 12)
        state = fold(state, history.events[at : at + step])
        at += step
        again = decode(encode(state), KINDS)
        assert again is not None
        state = again
    if state != whole:
        wrong = [name for name in State.__struct_fields__ if getattr(state, name) != getattr(whole, name)]
        yield f"a fold through snapshots differs from a whole one in {', '.join(wrong)}"


ALL = (
    chain_holds,
    acknowledged_is_kept,
    stale_writers_are_refused,
    leases_exclude,
    decisions_name_the_head,
    posts_stand_once,
    rows_follow,
    fold_is_one,
)


def requests_settle_once(history: History) -> Iterator[str]:
    """S13, S15: requests run one at a time, and each ends once, before the next begins."""
    until = 0
    for request in history.requests:
        at = request.start.seq
        if at < until:
            yield f"the request at {at} began before the one in front of it had ended"
        if len(request.ends) != 1:
            yield f"the request at {at} has {len(request.ends)} ends"
        until = request.ends[0][0].seq if request.ends else 2**62


def costs_are_right(history: History) -> Iterator[str]:
    """S13 to S15: a response costs its usage, a lost attempt its reservation, an interrupted one at most that."""
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
    """Accounts of a world, computed independently of the ledger."""

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
                    account = self.accounts[name]
                    account.held += amount
                    if account.cap is not None and account.spent + account.held > account.cap:
                        self.wrong.append(f"the reservation at {event.seq} exceeds the cap {account.cap} of {name}")
                self.held[event.session_id, event.seq] = amount
            case ModelRequestEnd() as end:
                held = self.held.pop((event.session_id, end.request_seq), 0)
                for name in path:
                    self.accounts[name].held -= held
                    self.accounts[name].spent += end.cost_pico or 0


def spend_stays_under_the_cap(world: World) -> Iterator[str]:
    """S15: no reservation takes spend and reservations over a cap on any account of the path; the ledger is the sum
    of the events; nothing is reserved at rest.
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


MONEY = (requests_settle_once, costs_are_right)

ACCOUNTS = (spend_stays_under_the_cap,)
