"""Audit of a brief against the log: recounts each number in another way and checks each claim. Pure.

It shares no code with the brief, not even the fold: it reads exported events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.facts.base import Erased
from holdfast.facts.codec import Event, export_line
from holdfast.kinds.mission.brief.audit_items import counts_of_items
from holdfast.kinds.mission.brief.document import Brief
from holdfast.session.money import usd

Raw = dict[str, Any]


class _Log(NamedTuple):
    session_id: str
    parent: str
    kind: str
    events: list[Raw]


def audit(brief: Brief, events: Sequence[Event], below: Iterable[Sequence[Event]] = ()) -> list[str]:
    """Return the differences between a brief and the log; none if they agree.

    `events` and `below` are as for `brief`. A brief of a fork is checked against the fork's own events.
    """
    logs = [_log(each) for each in (events, *below) if each]
    return [*_claims(brief, logs), *_numbers(brief, logs), *_criteria(brief, logs[0])] if logs else ["there is no log"]


def _log(events: Sequence[Event]) -> _Log:
    raw = [
        {**export_line(event), **({"type": "holdfast.erased"} if isinstance(event.fact, Erased) else {})}
        for event in events
    ]
    created: Raw = next((each for each in raw if each["type"] == "session.created"), {})
    forked = max((place for place, each in enumerate(raw) if each["type"] == "session.forked"), default=0)
    parent = (created.get("parent") or {}).get("session_id", "") if not forked else ""
    kind = "mission" if created.get("mission") else (created.get("role") or {}).get("kind", "")
    return _Log(events[-1].session_id, parent, "" if forked else kind, _marked(raw[forked:]))


def _marked(events: list[Raw]) -> list[Raw]:
    """Mark results of submitted verdicts, and shifts that began while another had not ended."""
    submits: set[str] = set()
    working = False
    for raw in events:
        match raw["type"]:
            case "agent.tool_use" if raw["name"] == "submit_verdict":
                submits.add(raw["call_id"])
            case "agent.tool_result":
                raw["submits"] = raw["call_id"] in submits
            case "shift.started":
                raw["cut_off"], working = working, True
            case "shift.ended":
                working = False
    return events


# --- claims ------------------------------------------------------------------------------------------

_CHECKS = ("criterion.checked", "task.judged", "repo.merged")
_TYPES: dict[str, frozenset[str]] = {
    "stands": frozenset({"shift.started", "shift.ended", "mission.finished", "session.created", "session.forked"}),
    "waits": frozenset({"approval.requested"}),
    "proven": frozenset(_CHECKS),
    "judged": frozenset({"task.judged"}),
    "unproven": frozenset(_CHECKS),
    "stale": frozenset(_CHECKS),
    "metrics": frozenset({"criterion.checked"}),
    "words": frozenset({"agent.message"}),
    "files": frozenset({"workspace.snapshotted"}),
    "calls": frozenset({"agent.tool_result"}),
    "merged": frozenset({"repo.merged"}),
    "kept": frozenset({"repo.committed", "task.handed_in"}),
    "amended": frozenset({"contract.amended"}),
    "outside_paths": frozenset({"task.inspected"}),
    "child_failed": frozenset({"child.finished"}),
    "items": frozenset(
        {"items.added", "items.removed", "items.retried", "items.checkpoint", "items.forecast", "items.reduced",
         "item.ended", "item.failed", "item.quarantined", "item.audited"}
    ),
    "quarantined": frozenset({"item.quarantined", "item.failed", "item.audited"}),
    "spend": frozenset(
        {"span.model_request_end", "agent.tool_result", "tool.outcome_unknown", "tool.dispatched"}
    ),
}  # fmt: skip
"""Kinds of lines without a counter below → types of their evidence. Examples of a decision have `_CHECKS`."""

_MOVES = ("task", "mission", "repo", "judge", "criterion", "batch", "session", "contract")
"""Families of events that move a task or explain an unmet criterion."""


def _claims(brief: Brief, logs: Sequence[_Log]) -> Iterator[str]:
    known = {(log.session_id, raw["seq"]): raw for log in logs for raw in log.events}
    for line in brief.lines:
        if not line.evidence and not (line.examples and all(each.evidence for each in line.examples)):
            yield f"{line.kind}: a claim without an event: {line.text}"
        if line.examples and line.kind not in ("calls", "spend") and len(line.examples) != line.count:
            yield f"{line.kind}: it counts {line.count} and has {len(line.examples)}"
        sources = [(line.evidence, line.commits), *((each.evidence, each.commits) for each in line.examples)]
        for evidence, commits in sources:
            raws = [known.get((each.session_id, each.seq)) for each in evidence]
            for each, raw in zip(evidence, raws, strict=True):
                if raw is None or raw["type"] != each.type:
                    yield f"{line.kind}: {each.session_id} has no {each.type} at {each.seq}"
                elif not _fits(line.kind if evidence is line.evidence or line.kind != "waits" else "proven", raw):
                    yield f"{line.kind}: {each.type} at {each.seq} of {each.session_id} is not about that"
            for commit in commits:
                if not any(commit in (raw or {}).values() for raw in raws):
                    yield f"{line.kind}: the commit {commit} is in none of its events"


def _fits(kind: str, raw: Raw) -> bool:
    if kind in _TYPES:
        return raw["type"] in _TYPES[kind]
    if kind in ("open", "given_up", "unmet", "stopped"):
        return raw["type"].partition(".")[0] in (*_MOVES, "shift")
    return kind in COUNTED and COUNTED[kind](raw, True)


# --- numbers -----------------------------------------------------------------------------------------


def _typed(*types: str, **fields: Any) -> Callable[[Raw, bool], bool]:
    """Match events of these types with these fields; True for a field means non-empty."""

    def counted(raw: Raw, judge: bool) -> bool:
        if raw["type"] not in types:
            return False
        return all(bool(raw.get(name)) if value is True else raw.get(name) == value for name, value in fields.items())

    return counted


def _verdict_refused(raw: Raw, judge: bool) -> bool:
    if raw["type"] == "task.judged":
        return bool(raw.get("refused"))
    return judge and raw["type"] == "agent.tool_result" and raw["outcome"] == "error" and bool(raw.get("submits"))


COUNTED: dict[str, Callable[[Raw, bool], bool]] = {
    "unknown": lambda raw, _: (
        raw["type"] == "tool.outcome_unknown" or (raw["type"] == "job.ended" and raw["outcome"] == "unknown")
    ),
    "ratchet": _typed("ratchet.violated"),
    "astray": lambda raw, _: raw["type"] == "repo.moved" and not raw.get("followed"),
    "followed": _typed("repo.moved", followed=True),
    "escalated": _typed("mission.escalated"),
    "unverified": _typed("verification.ended", error=True),
    "verdict_refused": _verdict_refused,
    "judge": lambda raw, _: raw["type"] == "task.judged" and not raw.get("refused") and raw["decision"] != "pass",
    "batch": _typed("batch.refused", tasks=True),
    "base_refused": lambda raw, _: (
        (raw["type"] == "batch.refused" and not raw["tasks"])
        or (raw["type"] == "repo.conflicted" and not raw["task_id"])
    ),
    "conflict": _typed("repo.conflicted", task_id=True),
    "sent_back": lambda raw, _: raw["type"] == "task.refused" and raw["kind"] not in ("judge", "ratchet"),
    "flake": _typed("flake.noted"),
    "plan_refused": _typed("plan.refused"),
    "replanned": _typed("mission.replanned"),
    "rule": _typed("rule.breached"),
    "breaker": _typed("breaker.opened"),
    "cap": _typed("budget.reached"),
    "retry": _typed("span.model_request_end", outcome="error"),
    "presumed": _typed("span.model_request_end", outcome="presumed"),
    "died": _typed("shift.started", cut_off=True),
    "reset": _typed("context.reset"),
    "context_failed": _typed("context.failed"),
    "lost": _typed("hands.lost"),
    "stolen": _typed("lease.stolen"),
    "error": _typed("session.error"),
    "events_lost": _typed("session.events_lost"),
    "unkept": _typed("workspace.snapshotted", error=True),
    "hook": lambda raw, _: raw["type"] == "hook.ran" and bool(raw.get("blocked")) and raw["event"] != "HandIn",
    "notice": lambda raw, _: (
        raw["type"] == "notice.sent" and not raw.get("ok") and not raw.get("held") and raw.get("again_us") is None
    ),
    "egress": _typed("egress.failed"),
    "tainted": _typed("session.tainted"),
    "host_files": lambda raw, _: raw["type"] == "hands.host_files" and not raw.get("before"),
    "outside": lambda raw, _: (
        raw["type"] == "egress.recorded" and any(each["verdict"] == "refused" for each in raw.get("seen", ()))
    ),
    "set_up": lambda raw, _: raw["type"] == "egress.recorded" and bool(raw.get("set_up") and raw.get("seen")),
    "unasked": _typed("task.inspected", unasked=True),
    "concern": lambda raw, _: raw["type"] == "task.handed_in" and bool(raw.get("concerns") or raw.get("deviations")),
    "answer": _typed("approval.decided", "approval.expired"),
    "steered": _typed("user.cancel", "user.interrupt", "user.pause"),
    "lesson": _typed("lesson.proposed"),
    "learnt": _typed("lesson.applied"),
    "finding": _typed("finding.noted"),
    "merged": _typed("repo.merged"),
    "checks": _typed("criterion.checked"),
    "requests": _typed("span.model_request_end"),
    "unpriced": lambda raw, _: raw["type"] == "span.model_request_end" and raw.get("cost_pico") is None,
}
"""Name of a number → a predicate on an exported event and whether its session is a judge's."""

_TOP_ONLY = frozenset({"merged", "checks"})


def _numbers(brief: Brief, logs: Sequence[_Log]) -> Iterator[str]:
    counted: dict[str, int | None] = {}
    for name, counts in COUNTED.items():
        within = logs[:1] if name in _TOP_ONLY else logs
        counted[name] = sum(counts(raw, log.kind == "judge") for log in within for raw in _news(brief, log))
    counted |= _spent(brief, logs) | counts_of_items(logs[0].events)
    counted["sessions"] = len(logs)
    counted["waits"] = sum(len(_open_items(log)) for log in logs)
    for name, said in brief.numbers.items():
        if name in ("criteria", "met"):
            continue
        if name not in counted or counted[name] != said:
            yield f"{name}: the brief says {said}, the log {counted.get(name, 'nothing')}"
    for name in counted.keys() - brief.numbers.keys() - _TOP_ONLY:
        yield f"{name}: the log has {counted[name]}, and the brief does not say so"
    yield from _headline(brief, logs)
    for line in brief.lines:
        if line.kind in COUNTED and line.count != brief.numbers.get(line.kind):
            yield f"{line.kind}: a line counts {line.count}, the brief's numbers {brief.numbers.get(line.kind)}"


def _news(brief: Brief, log: _Log) -> list[Raw]:
    return [raw for raw in log.events if brief.since_us is None or raw["at_us"] > brief.since_us]


def _headline(brief: Brief, logs: Sequence[_Log]) -> Iterator[str]:
    """Check the first line: the cost of all logs, the merges, and the number of decisions."""
    costs = [_cost(raw) for log in logs for raw in log.events]
    known = sum(cost or 0 for cost in costs)
    cost = usd(known) if None not in costs else f"at least {usd(known)}" if known else "unknown"
    if f"Cost {cost}." not in brief.headline:
        yield f"headline: the log has a cost of {cost}"
    decisions = sum(bool(line.options) for line in brief.lines)
    if f"needs {decisions or 'nothing'}" not in brief.headline:
        yield f"headline: the brief has {decisions} decisions"
    merges = sum(raw["type"] == "repo.merged" for raw in logs[0].events)
    if logs[0].kind == "mission" and (f"Main branch: {merges} merge" if merges else "unchanged") not in brief.headline:
        yield f"headline: the log has {merges} merges"


def _cost(raw: Raw) -> int | None:
    if raw["type"] == "span.model_request_end":
        return raw.get("cost_pico")
    named = {"agent.tool_result": "cost_pico", "tool.outcome_unknown": "cost_pico", "tool.dispatched": "settled_pico"}
    return raw.get(named.get(raw["type"], "")) or 0


def _spent(brief: Brief, logs: Sequence[_Log]) -> dict[str, int | None]:
    kinds = {log.session_id: log for log in logs}
    money: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for log in logs:
        role = _role(log, kinds, logs[0])
        for raw in _news(brief, log):
            cost = _cost(raw)
            if cost or raw["type"] == "span.model_request_end":
                unknown[role] = unknown.get(role, 0) + (cost is None)
                money[role] = money.get(role, 0) + (cost or 0)
    return {f"{role}_pico": None if unknown.get(role) and not pico else pico for role, pico in money.items()}


def _role(log: _Log, logs: dict[str, _Log], top: _Log) -> str:
    if log is top:
        return "mission" if top.kind == "mission" else "agent"
    at: _Log | None = log
    while at is not None and at is not top:
        if at.kind:
            return at.kind
        at = logs.get(at.parent)
    return "agent"


def _open_items(log: _Log) -> set[str]:
    asked = [raw["item_id"] for raw in log.events if raw["type"] == "approval.requested"]
    over = ("approval.decided", "approval.expired", "approval.superseded")
    return set(asked) - {raw["item_id"] for raw in log.events if raw["type"] in over}


# --- criteria ----------------------------------------------------------------------------------------


def _criteria(brief: Brief, log: _Log) -> Iterator[str]:
    """Check met and unmet criteria against a replay of the main branch."""
    if log.kind != "mission":
        return
    replay = _Replay(log.events[0]["mission"])
    for raw in log.events:
        replay.take(raw)
    met = replay.met()
    said = _named(brief, "proven", "judged", "unproven")
    if brief.numbers.get("criteria") != len(replay.criteria):
        yield f"criteria: the brief says {brief.numbers.get('criteria')}, the contract has {len(replay.criteria)}"
    if brief.numbers.get("met") != len(met):
        yield f"met: the brief says {brief.numbers.get('met')}, the log {len(met)}: {', '.join(sorted(met))[:200]}"
    for name in sorted(said ^ (met - _named(brief, "stale"))):
        yield f"proven: the brief and the log disagree about {name}"
    unmet = _named(brief, "waits", "unmet", "stale")
    for name in sorted(unmet ^ (set(replay.criteria) - met)):
        yield f"unmet: the brief and the log disagree about {name}"


def _named(brief: Brief, *kinds: str) -> set[str]:
    """Return the criteria that lines of these kinds are about."""
    return {name for line in brief.lines if line.kind in kinds for each in line.examples for name in each.criteria}


class _Replay:
    """Main branch of a mission, replayed event by event."""

    def __init__(self, mission: Raw) -> None:
        self.at_end = mission.get("policy", {}).get("judge") == "at_end"
        self.criteria = _criteria_of(mission["contract"])
        self.tree = self.final_tree = ""
        self.passed: set[str] = set()
        self.judged: set[str] = set()
        self.final: set[str] = set()
        self.stale: set[str] = set()
        self.tasks: dict[str, tuple[str, ...]] = {}

    def take(self, raw: Raw) -> None:
        """Apply an event."""
        match raw["type"]:
            case "mission.opened":
                self.tree = raw["tree"]
            case "mission.planned" | "mission.replanned":
                self.tasks |= {each["id"]: tuple(each["criteria"]) for each in raw["tasks"]}
            case "criterion.checked" if raw["outcome"] == "pass" and raw["tree"] == self.tree:
                self.passed |= set(raw["criteria"])
            case "judge.opened" if not raw.get("task_id"):
                self.final = self.final if raw["tree"] == self.final_tree else set()
                self.final_tree = raw["tree"]
            case "task.judged" if not raw.get("refused"):
                self._judge(raw)
            case "repo.merged":
                self._merge(raw)
            case "contract.amended":
                self._amend(raw["contract"])

    def _judge(self, raw: Raw) -> None:
        words = self.judged if raw.get("task_id") in self.tasks else self.final
        again = self.stale if words is self.final else set()
        for each in raw.get("criteria", ()):
            if each["criterion"] in again:
                again.discard(each["criterion"])
                self.passed |= {each["criterion"]} if each["passes"] else set()
                self.judged |= {each["criterion"]} if each["passes"] else set()
            words.discard(each["criterion"])
            if each["passes"]:
                words.add(each["criterion"])

    def _merge(self, raw: Raw) -> None:
        self.tree = raw["tree"]
        touched = set(raw.get("touched", ()))
        self.passed, self.judged, self.stale = self.passed - touched, self.judged - touched, self.stale | touched
        self.passed |= set(raw.get("passed", ()))
        done = {name for task in raw.get("tasks", ()) for name in self.tasks.get(task, ())}
        self.passed |= {
            name for name in done & self.judged if name in self.criteria and not self.criteria[name]["check"]
        }

    def _amend(self, contract: Raw) -> None:
        after = _criteria_of(contract)
        changed = {name for name, each in self.criteria.items() if after.get(name) != each}
        for words in (self.passed, self.judged, self.final):
            words -= changed
        self.criteria = after

    def met(self) -> set[str]:
        """Return the criteria that pass on the current main branch."""
        whole = self.passed | (self.final if self.at_end and self.final_tree == self.tree else set())
        return whole & set(self.criteria)


def _criteria_of(contract: Raw) -> dict[str, Raw]:
    return {each["id"]: each for item in contract["items"] for each in item["criteria"]}
