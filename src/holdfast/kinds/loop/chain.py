"""The two stages before the loop of `--chain`: what has to be in analysis.json and in prd.json. Pure."""

from __future__ import annotations

import json
import re

from holdfast.errors import ContractInvalid
from holdfast.kinds.loop.items import checks_of, read_board
from holdfast.kinds.loop.spec import ANALYSIS, LoopSpec

_TEXTS = ("priority_item", "description", "rationale")
_BRANCH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]|/(?=[A-Za-z0-9])){0,99}")

TASKS_MAX = 50


def analysis_problem(data: bytes | None) -> str:
    """What is wrong with analysis.json; empty when nothing is."""
    if data is None:
        return f"{ANALYSIS} was not written"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"{ANALYSIS} is not JSON: {error}"
    if not isinstance(value, dict):
        return f"{ANALYSIS} has to be one JSON object"
    for name in _TEXTS:
        if not isinstance(value.get(name), str) or not value[name].strip():
            return f"`{name}` in {ANALYSIS} has to be text that is not empty"
    criteria = value.get("acceptance_criteria")
    if (
        not isinstance(criteria, list)
        or not criteria
        or not all(isinstance(one, str) and one.strip() for one in criteria)
    ):
        return f"`acceptance_criteria` in {ANALYSIS} has to be a list of texts that is not empty"
    return _branch_problem(value.get("branch_name"))


def _branch_problem(name: object) -> str:
    fits = (
        isinstance(name, str)
        and _BRANCH.fullmatch(name)
        and ".." not in name
        and not name.endswith((".lock", ".", "/"))
    )
    return "" if fits else f"`branch_name` in {ANALYSIS} has to be the name of a branch, such as feature/short-name"


def branch_of(analysis: str) -> str:
    """The branch that a valid analysis names."""
    return str(json.loads(analysis)["branch_name"])


def plan_problem(data: bytes | None, spec: LoopSpec) -> str:
    """What is wrong with the plan's prd.json; empty when nothing is."""
    if data is None:
        return f"{spec.items} was not written"
    try:
        board = read_board(data, spec.items)
    except ContractInvalid as error:
        return str(error)
    if not isinstance(json.loads(data.decode("utf-8-sig")), dict) or "tasks" not in json.loads(
        data.decode("utf-8-sig")
    ):
        return f"{spec.items} has to be an object with `tasks`"
    if len(board.items) > TASKS_MAX:
        return f"{spec.items} has {len(board.items)} tasks; at most {TASKS_MAX} fit one chain"
    early = [name for name, passes in board.passes.items() if passes]
    if early:
        return f"`passes` of {', '.join(early)} is true in {spec.items}; all of them begin with false"
    bare = [item.id for item in board.items if not checks_of(item)]
    if bare and not spec.until:
        return f"{', '.join(bare)} in {spec.items} have no `check`: each needs a command that tells whether it is done"
    return ""
