"""`duty.toml`: the definition of a duty, as a typed struct that refuses unknown keys.

name = "errors"
goal = "Count the errors of the last hour in /var/log/app and report them as `errors`."
every = "1h"
read = ["/var/log/app"]

A file of a project may be untrusted: it holds no key that is reserved for the user's own holdfast.toml, and one that
lets the agent read folders of the host, or that names sources of events, counts only once the user accepted it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app.settings.agent_file import rules_of_entries
from holdfast.app.settings.config import check_shared, parse_toml
from holdfast.app.settings.project import Change
from holdfast.app.settings.tables import NAME
from holdfast.app.settings.trust import SettingsFile, read_settings_file
from holdfast.app.settings.values import duration_s, nearest
from holdfast.errors import UsageError
from holdfast.facts.duty import MANUAL, MESSAGE, SCHEDULE, Alert, Duty, Misfire, Overlap, Schedule, Trigger
from holdfast.kinds.duty import alerts
from holdfast.kinds.duty.firing import TOOLS as FIRING_TOOLS
from holdfast.kinds.duty.schedule import check_schedule
from holdfast.session.money import pico_from_usd
from holdfast.session.tools import TOOLS
from holdfast.sources.settings import WebhookSettings, parse_settings

DANGERS = {
    "read": "the agent reads these folders of this machine",
    "trigger": "Holdfast reads these sources, and runs their commands, on this machine",
}
"""A key that counts only in a file that the user accepted → the reason."""

QUEUE_MAX, BATCH_MAX = 10_000, 1_000


class DutyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a duty.toml. Times are text such as `90s` or `6h`, or seconds."""

    name: str
    goal: str
    every: str | int = ""
    cron: str = ""
    zone: str = "UTC"
    misfire: Misfire = "once"
    grace: str | int = "1m"
    jitter: str | int = ""
    overlap: Overlap = "skip"
    queue: int = 100
    batch: int = 1
    batch_wait: str | int = ""
    model: str = ""
    fallbacks: tuple[str, ...] = ()
    system: str = ""
    tools: tuple[str, ...] = ()
    budget_usd: str | float = ""
    total_usd: str | float = ""
    max_turns: int = 100
    timeout: str | int = "6h"
    failures: int = 3
    read: tuple[str, ...] = ()
    values: dict[str, str] = {}
    trigger: tuple[Trigger, ...] = ()
    alert: tuple[Alert, ...] = ()
    rule: tuple[dict[str, Any], ...] = ()


def read_duty_file(path: Path) -> tuple[SettingsFile, DutyFile]:
    """Read a duty.toml. Raises `UsageError` with the invalid key, or for a missing file."""
    try:
        file = read_settings_file(path.resolve(), lambda _: iter(()))
    except OSError as error:
        raise UsageError(f"the duty file {path} cannot be read: {error.strerror}") from error
    if not path.exists():
        raise UsageError(f"there is no duty file {path}; for example: holdfast duty add duty.toml")
    values = parse_toml(file.data, path, "the duty file")
    check_shared(path, {**values, "environment": {}, "hands": {}})
    for name in values:
        if name not in DutyFile.__struct_fields__:
            raise UsageError(f"unknown key {name!r} in {path}; {nearest(name, DutyFile.__struct_fields__)}")
    try:
        return file, msgspec.convert(values, DutyFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; nothing was added") from error


def duty_changes(file: DutyFile) -> list[Change]:
    """Return the keys of a file that need the user's acceptance."""
    return [Change(key, (), value, why) for key, why in DANGERS.items() if (value := getattr(file, key))]


def check_duty(file: DutyFile, where: str, now_us: int) -> Duty:
    """Return the definition that a file makes. Raises `UsageError` with the key and what it has to be.

    Everything that can be known when a duty is added is refused here.
    """

    def fail(key: str, why: str) -> UsageError:
        return UsageError(f"{key} in {where}: {why}; nothing was added")

    def seconds(key: str) -> float:
        value = getattr(file, key)
        try:
            return duration_s(value) if value else 0.0
        except ValueError as error:
            raise fail(key, str(error)) from error

    if NAME.fullmatch(file.name) is None:
        raise fail("name", f"{file.name!r} has to be letters, digits, - and _, up to 32, such as errors")
    if not file.goal.strip():
        raise fail("goal", "it is empty; say what each firing has to do")
    for key, least, most in (
        ("queue", 1, QUEUE_MAX), ("batch", 1, BATCH_MAX), ("max_turns", 1, 10_000), ("failures", 1, 1_000)
    ):  # fmt: skip
        if not least <= getattr(file, key) <= most:
            raise fail(key, f"it has to be between {least} and {most}")
    for tool in file.tools:
        if tool not in TOOLS:
            raise fail("tools", f"there is no tool {tool!r}; {nearest(tool, TOOLS)}")
    if file.batch > file.queue:
        raise fail("batch", f"a batch of {file.batch} never fits into a queue of {file.queue}")
    schedule = _schedule(file, seconds, fail, now_us)
    if schedule is None and not file.trigger:
        raise fail("every", 'the duty has no schedule and no trigger, so it never fires; for example every = "6h"')
    _check_watching(file, fail)
    return Duty(
        name=file.name,
        schedule=schedule,
        overlap=file.overlap,
        queue_max=file.queue,
        batch=file.batch,
        batch_s=seconds("batch_wait"),
        budget_pico=usd_pico(file.budget_usd, "budget_usd", where),
        max_turns=file.max_turns,
        timeout_s=seconds("timeout"),
        failures_max=file.failures,
        values=file.values,
        triggers=file.trigger,
        alerts=file.alert,
        rules=tuple(rules_of_entries(list(file.rule), where, (*TOOLS, *FIRING_TOOLS))),
    )


def _check_watching(file: DutyFile, fail: Callable[[str, str], UsageError]) -> None:
    """Raise `UsageError` for a trigger or alert without a name of its own, and for settings that cannot work."""
    for key, named in (("trigger", file.trigger), ("alert", file.alert)):
        names = [each.name for each in named]
        for name in names:
            if NAME.fullmatch(name) is None or name in (SCHEDULE, MANUAL, MESSAGE) or names.count(name) > 1:
                raise fail(f"{key} {name!r}", "each needs a name of its own, of letters, digits, - and _, up to 32")
    for trigger in file.trigger:
        try:
            settings = parse_settings(trigger.kind, trigger.settings)
        except UsageError as error:
            raise fail(f"trigger {trigger.name!r}", str(error)) from error
        if not isinstance(settings, WebhookSettings) and not 1 <= trigger.every_s <= 31_536_000:
            raise fail(f"trigger {trigger.name!r}", "every_s has to be between 1 and 31536000")
    for alert in file.alert:
        try:
            alerts.check(alert, file.values)
        except ValueError as error:
            raise fail(f"alert {alert.name!r}", str(error)) from error


def _schedule(file: DutyFile, seconds: Any, fail: Any, now_us: int) -> Schedule | None:
    every_s = seconds("every")
    if every_s != int(every_s):
        raise fail("every", "an interval is in whole seconds")
    if not every_s and not file.cron:
        return None
    schedule = Schedule(
        every_s=int(every_s),
        cron=file.cron,
        zone=file.zone,
        misfire=file.misfire,
        grace_s=seconds("grace"),
        jitter_s=seconds("jitter"),
    )
    try:
        check_schedule(schedule, now_us)
    except ValueError as error:
        raise fail("cron" if file.cron else "every", str(error)) from error
    return schedule


def usd_pico(value: str | float, key: str, where: str) -> int | None:
    """Return a budget in pico-dollars, None without one. Raises `UsageError`."""
    if value == "":
        return None
    try:
        pico = pico_from_usd(str(value))
    except ValueError:
        pico = 0
    if pico <= 0:
        raise UsageError(f"{key} in {where}: {value!r} is not an amount in dollars, such as 0.50; nothing was added")
    return pico
