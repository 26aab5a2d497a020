"""What must hold of a session after any death: each broken promise is a sentence."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import anyio

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.app.settings.prompts import load_prompt
from holdfast.brain.recall import shown
from holdfast.clock import SystemClock
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import AgentToolUse, ModelRequestStart
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.hands.box import processes
from holdfast.hands.box.processes import is_locked
from holdfast.hands.box.supervisor.journal import Testimony
from holdfast.kinds import KINDS
from holdfast.log.sqlite import SqliteStore
from holdfast.log.verify import rebuild, verify
from holdfast.session.context.conversation import Message, ToolResultPart
from holdfast.session.context.window import build
from holdfast.session.fold import empty, fold
from holdfast.session.money import AccountRow
from holdfast.session.rows import SessionRow
from tests.faults.story import ARTIFACT, EFFECTS, Session, Story
from tests.faults.victims import supervisors

F = TypeVar("F", bound=Fact)

ENDS = (ToolResult, ToolOutcomeUnknown)


@dataclass
class Record:
    """A session as it is found: its events and rows, what does not hold of them, and its workspace.

    `files` maps a path in the workspace to the digest of its content, the effects left out; `effects`
    counts the keys.
    """

    session: Session
    events: list[Event]
    row: SessionRow
    account: AccountRow
    damage: list[str]
    files: dict[str, str]
    effects: Counter[str]

    def facts(self, kind: type[F]) -> list[F]:
        """The facts of one type, in order."""
        return [event.fact for event in self.events if isinstance(event.fact, kind)]

    def ends(self) -> dict[str, list[ToolResult | ToolOutcomeUnknown]]:
        """Call → how it ended, in the order that the model asked; it ends once."""
        ends: dict[str, list[ToolResult | ToolOutcomeUnknown]] = {use.call_id: [] for use in self.facts(AgentToolUse)}
        for event in self.events:
            if isinstance(event.fact, ENDS):
                ends[event.fact.call_id].append(event.fact)
        return ends

    def unknown(self) -> list[ToolOutcomeUnknown]:
        """The calls whose outcome nobody can say."""
        return self.facts(ToolOutcomeUnknown)


def look(session: Session) -> Record:
    """Read everything there is to know, through the product's own doors."""
    return anyio.run(_look, session)


async def _look(session: Session) -> Record:
    async with open_runtime(Settings(home=str(session.home))) as runtime:
        store = runtime.store
        assert isinstance(store, SqliteStore)
        damage = [finding.message for finding in (await verify(store)).findings]
        damage += await store.check_file()
        if await rebuild(store) != await store.beside():
            damage.append("the rows are not those that the events make")
        accounts = {account.account_id: account for account in await store.accounts()}
        row = await store.find(session.session_id)
        events = await store.read(session.session_id)
    effects = session.workspace / EFFECTS
    return Record(
        session,
        events,
        row,
        accounts[session.session_id],
        damage,
        _files(session.workspace),
        Counter(effects.read_text().splitlines() if effects.exists() else []),
    )


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != EFFECTS
    }


def events(session: Session) -> list[Event]:
    """What stands in the log now."""

    async def read() -> list[Event]:
        path = session.home / "holdfast.db"
        async with await SqliteStore.open(path, workers=session.home / "workers", clock=SystemClock()) as store:
            return await store.read(session.session_id)

    return anyio.run(read)


def processes_of(record: Record) -> list[str]:
    """What still runs as the user of this session's hands, a user id set apart for its workspace.

    Hands of a brain that died while it made them are nobody's and end by themselves: they are let off, also if their
    supervisor ends during the look.
    """
    users = {hands.uid for hands in record.facts(HandsProvisioned)} - {os.getuid()}
    supervised = _supervised(record)
    mine = [pid for pid, entry in processes.list_all().items() if entry.state != "Z" and _user(pid) in users]
    supervised |= _supervised(record)
    return [f"{pid} {_command(pid)}" for pid in mine if pid not in supervised and _user(pid) in users]


def _supervised(record: Record) -> set[int]:
    """The processes below the supervisors of the home."""
    found = supervisors(record.session.home).values()
    return {entry.pid for pid in found for entry in processes.descendants(pid)}


def _user(pid: int) -> int:
    """The real user id of a process, -1 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return -1
    return int(status.partition("\nUid:")[2].split()[0])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")[-60:]
    except OSError:
        return "is gone now"


def broken(record: Record, story: Story, acknowledged: Sequence[tuple[int, str]] = ()) -> list[str]:
    """The promises that hold whoever died: S1, S2, S7, S13, S15, S20."""
    out = list(record.damage)
    if record.row.status != "done":
        out.append(f"it ended {record.row.status} {record.row.reason} {record.row.detail}")
    there = {(event.seq, event.id) for event in record.events}
    out += [f"acknowledged and gone: {each}" for each in acknowledged if each not in there]
    for call_id, ends in record.ends().items():
        if len(ends) != 1:
            out.append(f"call {call_id} has {len(ends)} ends")
    dispatched = {fact.call_id for fact in record.facts(ToolDispatched)}
    for call_id, ends in record.ends().items():
        ran = any(isinstance(end, ToolOutcomeUnknown) or end.outcome in ("ok", "error") for end in ends)
        if ran and call_id not in dispatched:
            out.append(f"call {call_id} ended without having been dispatched")
    out += [f"effect {key} happened {count} times" for key, count in record.effects.items() if count > 1]
    out += [f"effect {key} is nobody's" for key in record.effects if key not in story.keys]
    cap = story.budget_pico
    if record.account.reserved_pico or record.account.spent_pico > cap or record.row.cost_pico > cap:
        out.append(f"money: {record.account} under a cap of {cap}")
    return out + _not_told(record) + _left(record)


def same_as(record: Record, golden: Record) -> list[str]:
    """While the hands live a death changes nothing: effects, files, results (S8)."""
    out = []
    if record.effects != golden.effects:
        out.append(f"effects {dict(record.effects)}, they should be {dict(golden.effects)}")
    if record.files != golden.files:
        out.append(f"files {record.files}, they should be {golden.files}")
    if ARTIFACT not in record.files:
        out.append("no artifact was made")
    if record.unknown():
        out.append(f"lost results: {record.unknown()}")
    if told(record) != told(golden):
        out.append(f"results {told(record)}, they should be {told(golden)}")
    return out


def settled(record: Record, golden: Record) -> list[str]:
    """Writes and edits can be looked at: they happen once, whoever died (S12)."""
    return [
        f"{path} is not as one write and one edit make it"
        for path in ("notes.md", "part.txt")
        if record.files.get(path) != golden.files[path]
    ]


def told(record: Record) -> list[tuple[str, str]]:
    """Outcome and words of every call, in order; the workspace has the name that it has in a sandbox."""
    here = str(record.session.workspace)
    return [
        (end.outcome if isinstance(end, ToolResult) else "unknown", end.content.replace(here, "/workspace"))
        for ends in record.ends().values()
        for end in ends
    ]


def torn(record: Record, testimonies: Sequence[Testimony]) -> list[str]:
    """What must hold when hands died: their journals are believed, the rest is unknown (S8, S12)."""
    out = []
    by_hands = {said.opened.get("hands_id"): said for said in testimonies}
    last = {fact.call_id: by_hands.get(fact.hands_id) for fact in record.facts(ToolDispatched)}
    uses = {use.call_id: use for use in record.facts(AgentToolUse)}
    for call_id, ends in record.ends().items():
        said = last.get(call_id)
        for end in ends:
            out += _against(uses[call_id], end, said, record)
    return out


def _against(
    use: AgentToolUse, end: ToolResult | ToolOutcomeUnknown, said: Testimony | None, record: Record
) -> list[str]:
    """One call's end against the journal of the dead hands that it went to last, None if they lived."""
    kept = said.exits.get(use.call_id) if said else None
    keys = [key for key in _keys(use) if key in record.effects]
    if isinstance(end, ToolOutcomeUnknown):
        if kept is not None:
            return [f"call {use.call_id}: its result was journaled and is lost"]
        if said is None or use.call_id not in said.started:
            return [f"call {use.call_id}: unknown, though its hands lived or never started it"]
        return [] if use.name == "bash" else [f"call {use.call_id}: a {use.name} is unknown and could be settled"]
    if kept is not None and end.outcome in ("ok", "error") and kept["result"]["output"] not in end.content:
        return [f"call {use.call_id}: the log says {end.content!r}, the journal {kept['result']['output']!r}"]
    if end.outcome == "ok" and len(keys) != len(_keys(use)):
        return [f"call {use.call_id}: ok, and of its effects only {keys} happened"]
    if end.outcome == "skipped" and keys:
        return [f"call {use.call_id}: skipped, and {keys} happened"]
    return []


def _keys(use: AgentToolUse) -> list[str]:
    """The effects that a command has."""
    words = str(use.input.get("command", "")).replace(";", " ").split()
    return [word for before, word in pairwise(words) if before == r"'%s\n'"]


def _not_told(record: Record) -> list[str]:
    """Every context is what its digest says, and the first one after an unknown outcome tells of it (S12)."""
    out: list[str] = []
    state = empty(record.session.session_id, KINDS)
    bodies: dict[int, Fact] = {}
    prompt, _ = load_prompt("worker")
    waiting: list[ToolOutcomeUnknown] = []
    for event in record.events:
        if isinstance(event.fact, ModelRequestStart) and event.fact.purpose == "turn":
            context = build(state, bodies, prompt)
            if context.digest != event.fact.window_digest:
                out.append(f"request {event.seq}: its context is not the one that its log makes")
            results = _results(context.messages)
            out += [f"not told: {each.call_id}" for each in waiting if results.get(each.call_id) != each.content]
            waiting = []
        elif isinstance(event.fact, ToolOutcomeUnknown):
            waiting.append(event.fact)
            if "unknown" not in event.fact.content:
                out.append(f"call {event.fact.call_id} is unknown, and is not told in plain words")
        state = fold(state, [event])
        bodies.update(shown([event]))
    return out + [f"the model never hears of {each.call_id}" for each in waiting]


def _results(messages: Sequence[Message]) -> dict[str, str]:
    """What a context says of each call."""
    parts = (part for message in messages for part in message.parts)
    return {part.call_id: part.content for part in parts if isinstance(part, ToolResultPart)}


def _left(record: Record) -> list[str]:
    """A session that is done holds no process and no journal (S27, S10)."""
    out = []
    for hands in record.facts(HandsProvisioned):
        folder = record.session.home / "hands" / hands.hands_id
        if is_locked(str(folder / "lock")):
            out.append(f"the hands {hands.hands_id} still live")
        elif folder.exists():
            out.append(f"the folder of the hands {hands.hands_id} was left behind")
        if Path(hands.address).exists():
            out.append(f"the socket of the hands {hands.hands_id} was left behind")
    out += [f"left behind by a command: {who}" for who in processes_of(record)]
    return out
