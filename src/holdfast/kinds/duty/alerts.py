"""Alerts of a duty: which one is raised or cleared now, and when that may change without news. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.facts.duty import Alert
from holdfast.facts.people import ApprovalSuperseded
from holdfast.kinds.duty.actions import ClearAlert, RaiseAlert
from holdfast.kinds.duty.expressions import Ending, History, Sample, parse, value_name
from holdfast.kinds.duty.fold import AlertState, DutyState
from holdfast.kinds.duty.judging import Condition, Judgment, Standing, condition, judge
from holdfast.kinds.duty.reachable import check_reachable
from holdfast.session.actions import Record
from holdfast.session.state import State

PICO = 1_000_000_000_000


def check(alert: Alert, values: dict[str, str]) -> None:
    """Raise `ValueError` for an alert that cannot work on these values; none means that any is possible."""
    for name in values:
        value_name(name)
    _condition(alert, values)
    for text in filter(None, (alert.when, alert.clear)):
        check_reachable(text)


def step(state: State, own: DutyState, now_us: int) -> RaiseAlert | ClearAlert | Record | None:
    """Return the change of an alert that is due, or the end of an inbox item whose alert was acknowledged."""
    for alert, judged in _judged(own, now_us):
        if judged.change == "raise":
            return RaiseAlert(alert.name, detail(alert.when, own, now_us))
        if judged.change == "clear":
            return ClearAlert(alert.name, detail(alert.clear or alert.when, own, now_us))
    known = {alert.name for alert in own.duty.alerts}
    for name, standing in own.alerts.items():
        if standing.raised and name not in known:
            return ClearAlert(name, "the alert was removed")
        if standing.acknowledged and is_open(state, standing):
            return Record((ApprovalSuperseded(item_id=standing.item_id, reason="the alert was acknowledged"),))
    return None


def due_us(own: DutyState, now_us: int) -> int | None:
    """Return when an alert may change without news, None for never."""
    return min((judged.due_us for _, judged in _judged(own, now_us) if judged.due_us is not None), default=None)


def is_open(state: State, standing: AlertState) -> bool:
    """Return True while the inbox item of an alert has no answer."""
    ask = state.asks.get(standing.item_id)
    return ask is not None and ask.verdict is None


def detail(text: str, own: DutyState, now_us: int) -> str:
    """Return an expression with the latest values that it names."""
    history = history_of(own)
    latest = [(name, history.series[name][-1].value) for name in parse(text).names if history.series.get(name)]
    known = ", ".join(f"{name} = {value:g}" for name, value in latest)
    return f"{text}: {known}" if known else text


def history_of(own: DutyState) -> History:
    """Return what expressions are evaluated on, in the order of time: the clock may have been set back."""
    series = {
        name: sorted(Sample(point.at_us, point.value) for point in each.points) for name, each in own.series.items()
    }
    endings = sorted(Ending(each.at_us, each.outcome, (each.cost_pico or 0) / PICO) for each in own.ended)
    return History(own.since_us, series, endings, own.spent_pico / PICO)


def _judged(own: DutyState, now_us: int) -> Iterator[tuple[Alert, Judgment]]:
    history = history_of(own) if own.duty.alerts else None
    for alert in own.duty.alerts:
        assert history is not None
        standing = own.alerts.get(alert.name, AlertState())
        judged = judge(
            _condition(alert, own.duty.values), history, Standing(standing.raised, standing.cleared_us), now_us
        )
        yield alert, judged


def _condition(alert: Alert, values: dict[str, str]) -> Condition:
    return condition(alert.when, alert.clear, alert.hold_s, alert.clear_hold_s, alert.cooldown_s, tuple(sorted(values)))
