"""What schema 4 added: missions. Each fact with every field set, and with nothing that can be left out."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from holdfast.facts import mission, task
from holdfast.facts.base import Fact
from holdfast.facts.mission import ContractAmended, Mission, ReplanAsked, Role
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ChildFinished
from holdfast.facts.tool import HookRan
from holdfast.facts.union import AnyFact

POSTED = (ContractAmended, ReplanAsked)
"""What comes from people."""


def _facts() -> list[type[Fact]]:
    found = [HookRan, *vars(mission).values(), *vars(task).values()]
    own = [each for each in found if isinstance(each, type) and issubclass(each, Fact) and each is not Fact]
    return sorted(set(own) - set(POSTED), key=lambda each: str(each.__struct_config__.tag))


def filled(kind: type[Any], odd: str) -> Any:
    """One of that kind with every field set to something that is no default."""
    return _value(inspect.type_info(kind), odd)


def least(kind: type[Any]) -> Any:
    """One of that kind with only what has to be there."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return kind(**{field.name: _value(field.type, "") for field in info.fields if field.required})


def _value(info: Any, odd: str) -> Any:
    match info:
        case inspect.StructType():
            return info.cls(**{field.name: _value(field.type, odd) for field in info.fields})
        case inspect.UnionType():
            return _value(next(each for each in info.types if not isinstance(each, inspect.NoneType)), odd)
        case inspect.LiteralType():
            return info.values[-1]
        case inspect.VarTupleType():
            return (_value(info.item_type, odd),) if odd else ()
        case inspect.DictType():
            return {"key": _value(info.value_type, odd)} if odd else {}
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 77 if odd else 0
        case inspect.FloatType():
            return 7.5 if odd else 0.0
        case inspect.StrType():
            return odd
        case inspect.AnyType():
            return ["x", 1, None]
        case _:
            raise AssertionError(f"no value for {info}")


def created(odd: str) -> SessionCreated:
    """A mission with everything set, which nothing is folded into, and a role."""
    return SessionCreated(
        goal=odd,
        agent=Agent("m", tools=()),
        workspace=Workspace("/srv/work"),
        mission=filled(Mission, odd),
        role=filled(Role, odd),
    )


def full(odd: str) -> list[AnyFact]:
    """What a conductor and its roles append, every field set."""
    return [filled(each, odd) for each in _facts()]


def bare() -> list[AnyFact]:
    """The same, nothing set that can be left out."""
    return [least(each) for each in _facts()]


def posts(odd: str, end: str) -> list[tuple[str, AnyFact]]:
    """What is posted, under its key."""
    whole = end == "full"
    ended = ChildFinished(child_id="ses_d", status="done")
    if whole:
        ended = msgspec.structs.replace(ended, submitted={"status": odd, "list": [1, None]}, commit="ab", tree="cd")
    return [
        *((str(each.__struct_config__.tag), filled(each, odd) if whole else least(each)) for each in POSTED),
        ("child:ses_d:1", ended),
    ]
