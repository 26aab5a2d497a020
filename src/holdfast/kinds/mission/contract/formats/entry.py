"""Entries of a contract in JSON: items with criteria and checks. Unknown fields are preserved."""

from __future__ import annotations

import math
import re
import shlex
from typing import Literal, NoReturn

import msgspec

from holdfast.facts.mission import Check, Criterion, Item, Metric
from holdfast.kinds.mission.contract.contents import find_ring, free_name, in_words, slug
from holdfast.kinds.mission.contract.formats.positions import Node, Source

ACCEPTANCE = ("acceptance", "acceptanceCriteria", "acceptance_criteria")
DEPENDS = ("depends", "dependsOn", "depends_on")
TEXTS = ("text", "rubric", "description", "criterion", "title")

RIGHT_CHECK = (
    'a right form is "check": "pytest tests/test_greet.py" or "check": {"command": "pytest -q", "tests": '
    '["tests/test_greet.py"], "timeout_s": 300} or "check": {"metric": {"command": "python bench.py", "target": 0.95, '
    '"tolerance": 0.01, "direction": "at_least"}}'
)
RIGHT_ACCEPTANCE = (
    'a right form is "acceptance": ["An empty name is refused.", {"text": "The suite stays green.", "command": '
    '"pytest -q", "guard": true}]'
)
RIGHT_ENTRY = 'a right form is {"id": "greet", "description": "greet() greets by name", "passes": false}'

TIMEOUT_MAX_S = 86_400.0

ITEMS_MAX = 2_000

_DIRECTIONS: dict[str, Literal["at_least", "at_most", "equal"]] = {
    **{"at_least": "at_least", ">=": "at_least", "at least": "at_least"},
    **{"at_most": "at_most", "<=": "at_most", "at most": "at_most"},
    **{"equal": "equal", "==": "equal", "=": "equal"},
}

_PRIORITIES = {
    **{"critical": 0, "highest": 0, "p0": 0, "urgent": 0, "high": 1, "p1": 1, "must": 1},
    **{"medium": 2, "normal": 2, "p2": 2, "should": 2, "low": 3, "p3": 3, "could": 3, "lowest": 4, "p4": 4},
}

_PRIORITY_MAX = 10**9


class Reading:
    """Reader of the entries of one file, with the ids taken so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.items: dict[str, Node] = {}
        self.criteria: dict[str, int] = {}
        self.depends: list[tuple[str, str, Node]] = []

    def check_count(self, number: int) -> None:
        """Raise `ContractInvalid` for more than `ITEMS_MAX` items."""
        if number > ITEMS_MAX:
            self.source.refuse(0, f"it has {number} items (limit {ITEMS_MAX})", "split it into several contracts")

    def item(self, node: Node, place: str) -> Item:
        """Read one entry as an item. Raises `ContractInvalid`."""
        if not isinstance(node.value, dict):
            self._refuse(node, place, f"is {node.kind}", RIGHT_ENTRY)
        description = self._description(node, place)
        name = self._id(node, place, description)
        self.items[name] = node
        passes = node.members.get("passes")
        if passes is not None and not isinstance(passes.value, bool):
            self._refuse(passes, f"{place}.passes", f"is {passes.kind}", 'it is "passes": false or "passes": true')
        steps = self._texts(node, ("steps",), place)
        depends = self._texts(node, DEPENDS, place)
        where = next((node.members[key] for key in DEPENDS if key in node.members), node)
        self.depends += [(name, other, where) for other in depends]
        return Item(
            id=name,
            description=description,
            category=self._text(node, "category", place),
            steps=steps,
            priority=self._priority(node, place),
            criteria=self._criteria(node, place, name, description, steps),
            paths=self._texts(node, ("paths",), place),
            depends=depends,
        )

    def finish(self, items: tuple[Item, ...]) -> None:
        """Raise `ContractInvalid` for dependencies on unknown items and for cycles."""
        for name, other, node in self.depends:
            if other not in self.items:
                self._refuse(
                    node, f"depends of {name!r}", f"names {other!r}, which is not an item", "name the id of an item"
                )
        ring = find_ring({item.id: item.depends for item in items})
        if ring:
            node = self.items[ring[0]]
            self._refuse(node, f"depends of {ring[0]!r}", f"forms a cycle: {' → '.join(ring)}", "remove one of them")

    # --- words -----------------------------------------------------------------------------------

    def _refuse(self, node: Node, place: str, what: str, right: str) -> NoReturn:
        self.source.refuse(node.start, f"{place} {what}", right)

    def words(self, node: Node, place: str, right: str) -> str:
        """Return a valid text, stripped."""
        value = node.value
        if not isinstance(value, str):
            self._refuse(node, place, f"is {node.kind} but has to be text", right)
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            self._refuse(node, place, "contains NUL or lone surrogate characters", "remove \\u0000 and lone surrogates")
        return value.strip()

    def _text(self, node: Node, key: str, place: str) -> str:
        found = node.members.get(key)
        if found is None or found.value is None:
            return ""
        return self.words(found, f"{place}.{key}", f'a right form is "{key}": "functional"')

    def _texts(self, node: Node, keys: tuple[str, ...], place: str) -> tuple[str, ...]:
        """Read a list of texts; a single text is split into its lines."""
        for key in keys:
            found = node.members.get(key)
            if found is None or found.value is None:
                continue
            right = f'a right form is "{key}": ["…", "…"]'
            if isinstance(found.value, str):
                return tuple(lines_of(self.words(found, f"{place}.{key}", right)))
            if not isinstance(found.value, list):
                self._refuse(found, f"{place}.{key}", f"is {found.kind} but has to be a list of texts", right)
            each = (self.words(part, f"{place}.{key}[{n}]", right) for n, part in enumerate(found.elements))
            return tuple(text for text in each if text)
        return ()

    def _description(self, node: Node, place: str) -> str:
        title = next((self._text(node, key, place) for key in ("title", "name") if self._text(node, key, place)), "")
        text = self._text(node, "description", place)
        if not title and not text:
            self._refuse(node, place, "has no description", RIGHT_ENTRY)
        if not title or not text or text.startswith(title):
            return text or title
        return f"{title}: {text}"

    def _id(self, node: Node, place: str, description: str) -> str:
        given = node.members.get("id")
        if given is None or given.value is None or given.value == "":
            return free_name(slug(description), self.items)
        return self._name(given, f"{place}.id", self.items, '"id": "greet"')

    def _name(self, node: Node, place: str, taken: dict[str, Node] | dict[str, int], example: str) -> str:
        value = node.value
        name = str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**12 else value
        if not isinstance(name, str) or not name.strip() or not name.strip().isprintable() or len(name) > 100:
            self._refuse(node, place, "must have 1 to 100 printable characters", f"a right form is {example}")
        name = name.strip()
        if name in taken:
            self._refuse(node, place, f"is {name!r}, which is already taken", "give each a unique id")
        return name

    def _priority(self, node: Node, place: str) -> int:
        found = node.members.get("priority")
        value = found.value if found is not None else None
        if found is None or value is None:
            return 0
        if isinstance(value, str):
            word = value.strip().lower()
            if word in _PRIORITIES:
                return _PRIORITIES[word]
            value = int(word) if re.fullmatch(r"\d{1,9}", word) else word
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _PRIORITY_MAX:
            self._refuse(found, f"{place}.priority", f"is {found.value!r}"[:80], 'a right form is "priority": 1')
        return value

    # --- criteria --------------------------------------------------------------------------------

    def _criteria(
        self, node: Node, place: str, name: str, description: str, steps: tuple[str, ...]
    ) -> tuple[Criterion, ...]:
        found: list[Criterion] = []
        guard = self._flag(node, place)
        for key in ACCEPTANCE:
            part = node.members.get(key)
            if part is not None and part.value is not None:
                found += self._acceptance(part, f"{place}.{key}", name)
        check = node.members.get("check")
        if check is not None and isinstance(check.value, list):
            found = self._checks(check, f"{place}.check", name, found)
        elif check is not None and check.value not in (None, ""):
            command = self.check(check, f"{place}.check")
            inner = self._flag(check, f"{place}.check") if isinstance(check.value, dict) else False
            found.append(self.criterion(f"{name}.check", in_words(command), command, guard=guard or inner))
        if not found:
            rubric = as_rubric(description, steps)
            found.append(self.criterion(f"{name}.done", rubric, None, guard=guard, needs_run=bool(steps)))
        return tuple(found)

    def _checks(self, node: Node, place: str, name: str, lines: list[Criterion]) -> list[Criterion]:
        """Pair checks with the acceptance lines if there are as many; else add them as criteria of their own."""
        empty = [each.value in (None, "") for each in node.elements]
        checks = [
            None if nothing else self.check(each, f"{place}[{n}]")
            for n, (each, nothing) in enumerate(zip(node.elements, empty, strict=True))
        ]
        if len(checks) == len(lines) and all(line.check is None for line in lines):
            return [msgspec.structs.replace(line, check=check) for line, check in zip(lines, checks, strict=True)]
        own = (self.criterion(f"{name}.{slug(in_words(check))}", in_words(check), check) for check in checks if check)
        return [*lines, *own]

    def _acceptance(self, node: Node, place: str, name: str) -> list[Criterion]:
        if isinstance(node.value, str):
            lines = lines_of(self.words(node, place, RIGHT_ACCEPTANCE))
            return [self.criterion(f"{name}.{slug(line)}", line, None) for line in lines]
        if not isinstance(node.value, list):
            self._refuse(node, place, f"is {node.kind} but has to be a list", RIGHT_ACCEPTANCE)
        return [self._line(part, f"{place}[{n}]", name) for n, part in enumerate(node.elements)]

    def _line(self, node: Node, place: str, name: str) -> Criterion:
        """Read one entry of `acceptance`: a rubric line, or an object with a command, a metric, or a text."""
        if isinstance(node.value, str):
            text = self.words(node, place, RIGHT_ACCEPTANCE)
            return self.criterion(f"{name}.{slug(text)}", text, None)
        if not isinstance(node.value, dict):
            self._refuse(node, place, f"is {node.kind}", RIGHT_ACCEPTANCE)
        check = None
        if "check" in node.members and node.members["check"].value not in (None, ""):
            check = self.check(node.members["check"], f"{place}.check")
        elif "command" in node.members or "metric" in node.members:
            check = self.check(node, place)
        text = next((self._text(node, key, place) for key in TEXTS if self._text(node, key, place)), "")
        text = text or (in_words(check) if check else "")
        guard, needs_run = self._flag(node, place), self._flag(node, place, "needs_run")
        wanted = f"{name}.{slug(text)}"
        if "id" in node.members and node.members["id"].value is not None:
            wanted = self._name(node.members["id"], f"{place}.id", self.criteria, '"id": "greet-empty"')
        return self.criterion(wanted, text, check, guard=guard, needs_run=needs_run)

    def criterion(
        self, wanted: str, text: str, check: Check | None, *, guard: bool = False, needs_run: bool = False
    ) -> Criterion:
        """Build a criterion with a unique id. One with a check needs no judge."""
        name = free_name(wanted, self.criteria)
        self.criteria[name] = 1
        return Criterion(name, text, check, guard, needs_run and check is None)

    def _flag(self, node: Node, place: str, key: str = "guard") -> bool:
        found = node.members.get(key)
        if found is None or found.value is None:
            return False
        if not isinstance(found.value, bool):
            self._refuse(found, f"{place}.{key}", f"is {found.kind}", f'it is "{key}": true or "{key}": false')
        return found.value

    # --- checks ----------------------------------------------------------------------------------

    def check(self, node: Node, place: str) -> Check:
        """Read a check: a command, an object with one, or a metric."""
        if isinstance(node.value, str):
            return Check(self._command(node, place))
        if not isinstance(node.value, dict):
            self._refuse(node, place, f"is {node.kind}", RIGHT_CHECK)
        parts = node.members
        metric = parts.get("metric")
        if metric is not None and metric.value is not None:
            if not isinstance(metric.value, dict):
                self._refuse(metric, f"{place}.metric", f"is {metric.kind}", RIGHT_CHECK)
            parts = {**parts, **metric.members}
        if "command" not in parts:
            self._refuse(node, place, "has no command", RIGHT_CHECK)
        return Check(
            self._command(parts["command"], f"{place}.command"),
            self._texts(Node(None, node.start, node.end, members=parts), ("tests",), place),
            self._metric(metric, f"{place}.metric") if metric is not None and metric.value is not None else None,
            self._timeout(parts.get("timeout_s"), f"{place}.timeout_s"),
            self.words(parts["canary"], f"{place}.canary", RIGHT_CHECK) if "canary" in parts else msgspec.UNSET,
        )

    def _command(self, node: Node, place: str) -> str:
        if isinstance(node.value, list):
            words = [self.words(part, f"{place}[{n}]", RIGHT_CHECK) for n, part in enumerate(node.elements)]
            text = shlex.join(words)
        else:
            text = self.words(node, place, RIGHT_CHECK)
        if not text:
            self._refuse(node, place, "is empty", RIGHT_CHECK)
        return text

    def _metric(self, node: Node, place: str) -> Metric:
        if "target" not in node.members:
            self._refuse(node, place, "has no target", RIGHT_CHECK)
        direction = node.members.get("direction")
        word = direction.value if direction is not None else "at_least"
        if not isinstance(word, str) or word not in _DIRECTIONS:
            self._refuse(direction or node, f"{place}.direction", "is not one of at_least, at_most, equal", RIGHT_CHECK)
        tolerance = node.members.get("tolerance")
        off = self._number(tolerance, f"{place}.tolerance") if tolerance is not None else 0.0
        if off < 0:
            self._refuse(tolerance or node, f"{place}.tolerance", "is below 0", RIGHT_CHECK)
        return Metric(self._number(node.members["target"], f"{place}.target"), off, _DIRECTIONS[word])

    def _number(self, node: Node, place: str) -> float:
        value = node.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            self._refuse(node, place, f"is {node.kind} but has to be a number", RIGHT_CHECK)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self._refuse(node, place, "is not a finite number", RIGHT_CHECK)
        return number

    def _timeout(self, node: Node | None, place: str) -> float:
        if node is None or node.value is None:
            return Check("").timeout_s
        seconds = self._number(node, place)
        if not 0 < seconds <= TIMEOUT_MAX_S:
            self._refuse(node, place, f"has to be above 0 and at most {TIMEOUT_MAX_S:g}", '"timeout_s": 600')
        return seconds


_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without bullets and empty lines."""
    lines = (_BULLET.sub("", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def as_rubric(description: str, steps: tuple[str, ...]) -> str:
    """Return the rubric of an item without criteria: its description and steps."""
    if not steps:
        return description
    return "\n".join([description, *(f"{number}. {step}" for number, step in enumerate(steps, 1))])
