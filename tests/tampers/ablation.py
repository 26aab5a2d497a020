"""Each mechanism of verification switched off, by name and from outside: the product has no such option."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from tests.tampers import stage

Make = Callable[[Any], Any]


def _swap(where: str, make: Make) -> None:
    """Put another function in the place of one of the product, which is named with its module."""
    owner, _, name = where.rpartition(".")
    place = pkgutil.resolve_name(owner)
    setattr(place, name, make(getattr(place, name)))


def _inspection() -> None:
    """Whatever is handed in passes inspection."""

    def make(known: Any) -> Any:
        return lambda *given, **named: msgspec.structs.replace(known(*given, **named), violations=())

    _swap("holdfast.kinds.mission.acts.inspecting.hold", make)


def _restoring() -> None:
    """Files that were changed are checked as they were handed in, protected ones too."""

    def make(known: Any) -> Any:
        async def wrong(self: Any, ground: Any, asked: Any) -> list[str]:
            changes = await self.repository.changes(ground.people, ground.tree)
            added = {each.path for each in changes if each.kind == "added"}
            return [path for path in await known(self, ground, asked) if path in added]

        return wrong

    _swap("holdfast.kinds.mission.acts.checkouts.Laying._wrong", make)


def _setting_aside() -> None:
    """New files stay that shadow others, or that a runner loads by itself."""
    _swap("holdfast.kinds.mission.ratchet.planted.planted", lambda known: lambda *given, **named: ())


def _read_only() -> None:
    """Protected files can be written while a check runs."""
    _swap("holdfast.kinds.mission.acts.checkouts.read_only", lambda known: lambda *given, **named: ())


def _probe(*kinds: str) -> None:
    """These probes are never run, neither before the work nor on it."""

    def make(known: Any) -> Any:
        return lambda *given, **named: tuple(each for each in known(*given, **named) if each.kind not in kinds)

    _swap("holdfast.kinds.mission.check.ability.probes", make)


def _apart() -> None:
    """What a worker adds to the tests is there whenever a check is proven."""
    _swap("holdfast.kinds.mission.check.ability.added", lambda known: lambda *given, **named: [])


def _counting() -> None:
    """Nobody counts the tests that ran."""

    def make(known: Any) -> Any:
        async def counted(self: Any, group: Any, tests: Any) -> dict[str, str]:
            return {}

        return counted

    _swap("holdfast.kinds.mission.acts.proving.Prover.counted", make)


def _restating() -> None:
    """No check is restated."""
    _swap("holdfast.kinds.mission.check.ability.programs.restated", lambda known: lambda *given, **named: None)


def _ignoring() -> None:
    """Files that git ignores are those that the worker says."""
    _swap("holdfast.kinds.mission.acts.checkouts.Base.ignores", lambda known: lambda self, path: False)


def _hidden() -> None:
    """No check is hidden: there is none but those that the worker sees."""
    stage.CAN_HIDE = False


def _everything() -> None:
    for name, switch in SWITCHES.items():
        if name != "everything":
            switch()


SWITCHES: Mapping[str, Callable[[], None]] = {
    "inspection": _inspection,
    "restoring": _restoring,
    "setting-aside": _setting_aside,
    "read-only": _read_only,
    "canary": partial(_probe, "canary"),
    "flip": partial(_probe, "flip"),
    "data": partial(_probe, "data"),
    "hollow": partial(_probe, "hollow", "empty"),
    "apart": _apart,
    "counting": _counting,
    "restating": _restating,
    "ignoring": _ignoring,
    "hidden": _hidden,
    "everything": _everything,
}


PAIRS = ("inspection+restoring", "inspection+setting-aside", "inspection+hollow")
"""What inspection refuses, another mechanism undoes or exposes as well: that is seen only when both are off."""

ALONE = {
    "counting": "alone_counting",
    "read-only": "alone_read_only",
    "inspection+restoring": "alone_restoring",
    "inspection+setting-aside": "alone_setting_aside",
    "inspection+hollow": "alone_hollow",
}
"""For each of these, a tamper that is green without them, and refused or red while one of them is at work."""


def switched_off(names: str) -> None:
    """Switch these off in this process, which are joined by `+`; nothing when there is no name."""
    for name in names.split("+") if names else ():
        SWITCHES[name]()
