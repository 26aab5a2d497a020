"""Tools with which a role of a mission submits its work. Declarations only.

Each is offered to its role alone. Their input is data; only what the harness verifies counts.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, Literal

import msgspec
import msgspec.inspect

from holdfast.facts.mission import RoleKind
from holdfast.session.tools import Tool

_Words = Annotated[str, msgspec.Meta(max_length=8_000)]
_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
_Lines = Annotated[list[_Line], msgspec.Meta(max_length=50)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Names = Annotated[list[_Name], msgspec.Meta(max_length=500)]


class HandInInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `hand_in`."""

    status: Literal["done", "blocked", "infeasible"]
    notes: Annotated[str, msgspec.Meta(min_length=1, max_length=8_000)]
    concerns: _Lines = []
    deviations: _Lines = []
    findings: _Lines = []
    next: _Words = ""


class PlannedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task of `submit_plan`. `scope` are globs of paths, `depends` ids of tasks that are merged before it."""

    id: _Name
    title: _Name
    criteria: _Names
    description: _Words = ""
    scope: _Names = []
    depends: _Names = []
    tokens: Annotated[int, msgspec.Meta(ge=0, le=100_000_000)] = 0
    split: bool = False


class SubmitPlanInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `submit_plan`. `drop` are tasks of an earlier plan that are given up."""

    tasks: Annotated[list[PlannedTask], msgspec.Meta(max_length=1_000)]
    note: _Words = ""
    drop: _Names = []


class CriterionVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A judge's verdict on one criterion."""

    criterion: _Name
    passes: bool
    evidence: _Lines = []
    issue: _Words = ""


class SubmitVerdictInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `submit_verdict`."""

    decision: Literal["pass", "fail", "restart", "escalate"]
    criteria: Annotated[list[CriterionVerdict], msgspec.Meta(max_length=1_000)] = []
    reason: _Words = ""


class SubmitContractInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `submit_contract`. `features` are entries of feature_list.json, `files` test files by their paths."""

    features: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=2_000)] = []
    files: Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=200_000)]], msgspec.Meta(max_length=200)] = {}
    init_sh: Annotated[str, msgspec.Meta(max_length=64_000)] = ""
    mission_toml: Annotated[str, msgspec.Meta(max_length=64_000)] = ""
    plain_run_would_do: bool = False
    why: _Words = ""


HAND_IN = "hand_in"
SUBMIT_PLAN = "submit_plan"
SUBMIT_VERDICT = "submit_verdict"
SUBMIT_CONTRACT = "submit_contract"

_DECLARED = (
    Tool(
        HAND_IN,
        "Hand in your task, which ends your session. `status` is `done` when you have seen every criterion of yours "
        "met, `blocked` when something outside your reach is missing, `infeasible` when it cannot be done as it is "
        "asked; the last two are valid results. `notes` say what you did and how you checked it, or what is in the "
        "way. `concerns` list what you are not sure of, `deviations` where you departed from the task and why, "
        "`findings` what other workers on this project should know, `next` what should come after this.",
        HandInInput,
        "retry",
        False,
        main="status",
        where="harness",
    ),
    Tool(
        SUBMIT_PLAN,
        "Hand in a plan, which ends your session. Each open criterion belongs to exactly one task. `scope` are globs "
        "of the paths that a task may change, `depends` the ids of tasks that have to be merged before it, `tokens` "
        "an estimate of the tokens of context it needs. Set `split` for a task that is too large for one context: "
        "another planner divides it. `drop` names tasks of an earlier plan to give up.",
        SubmitPlanInput,
        "retry",
        False,
        main="note",
        where="harness",
    ),
    Tool(
        SUBMIT_VERDICT,
        "Hand in your verdict, which ends your session: for each criterion whether it is met, with evidence that can "
        "be looked up (`path/file.py:12` of the tree, or `event 34` of the results that you were given), and one "
        "actionable issue for each that fails. `decision` is `pass`, `fail`, `restart` when the work should start "
        "over from its base, or `escalate` when a person has to decide; the last two need a `reason`.",
        SubmitVerdictInput,
        "retry",
        False,
        main="decision",
        where="harness",
    ),
    Tool(
        SUBMIT_CONTRACT,
        "Hand in the contract, which ends your session. `features` are entries {id, category, description, steps, "
        "priority, acceptance, check}, where `acceptance` says in sentences when the feature is done and `check` is a "
        "command that shows it (exit status 0), a list with one for each sentence, or left out where only a reader can "
        "tell. `files` are new test files that the checks run, by path, with their content; they are protected from "
        "then on. `init_sh` sets up a fresh checkout, `mission_toml` has settings that differ from the defaults. Set "
        "`plain_run_would_do` when the goal fits one session, and say `why`.",
        SubmitContractInput,
        "retry",
        False,
        main="why",
        where="harness",
    ),
)

SUBMITS: dict[RoleKind, str] = {
    "worker": HAND_IN,
    "planner": SUBMIT_PLAN,
    "judge": SUBMIT_VERDICT,
    "initializer": SUBMIT_CONTRACT,
}
"""Role → the tool of its submission."""

HANDING_IN = frozenset(SUBMITS.values())


def fitted(tool: str, value: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the input of a submission with formal errors repaired, and a note on each dropped field.

    A text in place of a list becomes a list, JSON in a text is decoded, numbers in a text are parsed, and unknown
    fields are dropped, so that work is not lost for its form. Validation refuses the rest.
    """
    notes: list[str] = []
    wanted = next(each.input_type for each in _DECLARED if each.name == tool and each.input_type is not None)
    found = _fit(value, msgspec.inspect.type_info(wanted), "", notes)
    assert isinstance(found, dict)
    return found, tuple(notes)


def _fit(value: Any, wanted: msgspec.inspect.Type, where: str, notes: list[str]) -> Any:
    match wanted:
        case msgspec.inspect.StructType(fields=fields):
            value = _decoded(value, dict)
            return _fields(value, fields, where, notes) if isinstance(value, dict) else value
        case msgspec.inspect.ListType(item_type=item):
            value = _decoded(value, list)
            listed = value if isinstance(value, list) else [value] if value not in (None, "") else []
            return [_fit(each, item, f"{where}[{index}]", notes) for index, each in enumerate(listed)]
        case msgspec.inspect.StrType():
            return "\n".join(map(str, value)) if isinstance(value, list) else "" if value is None else value
        case msgspec.inspect.IntType() | msgspec.inspect.BoolType() if isinstance(value, str):
            kind = int if isinstance(wanted, msgspec.inspect.IntType) else bool
            with contextlib.suppress(msgspec.ValidationError):
                return msgspec.convert(value, kind, strict=False)
            return value
        case _:
            return value


def _fields(value: dict[str, Any], fields: tuple[msgspec.inspect.Field, ...], where: str, notes: list[str]) -> Any:
    known = {field.encode_name: field for field in fields}
    prefix = f"{where}." if where else ""
    notes += [f"`{prefix}{name}` is no field and was left out" for name in value if name not in known]
    return {
        name: _fit(each, known[name].type, f"{prefix}{name}", notes)
        for name, each in value.items()
        if name in known and not (each is None and not known[name].required)
    }


def _decoded(value: Any, wanted: type) -> Any:
    """Decode a text that holds JSON of the wanted type; return anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("[" if wanted is list else "{"):
        return value
    try:
        return msgspec.json.decode(value, type=wanted)
    except msgspec.DecodeError:
        return value


TOOLS = {
    tool.name: msgspec.structs.replace(tool, fit=lambda value, name=tool.name: fitted(name, value)[0])
    for tool in _DECLARED
}
"""Tools of all roles, by name. A session gets the one of its role."""
