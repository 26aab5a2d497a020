"""Functions as tools: what the model is told of them, what they are given, and how their calls end."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any, Literal, Optional

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.app.python.tools import Tool, tool
from holdfast.brain.doors import CustomResult, ToolRunner
from holdfast.facts.session import CustomTool


class Color(enum.Enum):
    """A color."""

    RED = "red"
    BLUE = "blue"


class Size(msgspec.Struct):
    """How large."""

    width: int
    unit: str = "cm"


@dataclasses.dataclass
class Place:
    """Where."""

    city: str
    sizes: list[Size] = dataclasses.field(default_factory=list)


@tool(on_unknown="probe", timeout_s=5, keyed=True, price_usd="0.25", name="order_paint")
def order(
    color: Color,
    amount: float,
    idempotency_key: str,
    place: Place | None = None,
    how: Literal["van", "bike"] = "van",
    notes: Optional[list[str]] = None,  # noqa: UP045 - both spellings are in use
) -> dict[str, Any]:
    """Order paint.

    Use it once a color is settled.

    Args:
        color: which one,
            of those in stock
        amount (float): litres

    Returns:
        what was ordered
    """
    return {"color": color, "amount": amount, "key": idempotency_key, "place": place, "how": how, "notes": notes}


@order.probe
def ordered(amount: float, how: str, idempotency_key: str) -> bool | None:
    """Whether that order is in the books."""
    return {1.0: True, 2.0: False}.get(amount) if how == "van" and idempotency_key == "key" else None


def test_types_and_docstring_make_the_declaration() -> None:
    size = {
        "title": "Size",
        "description": "How large.",
        "type": "object",
        "properties": {"width": {"type": "integer"}, "unit": {"type": "string", "default": "cm"}},
        "required": ["width"],
    }
    place = {
        "title": "Place",
        "description": "Where.",
        "type": "object",
        "properties": {"city": {"type": "string"}, "sizes": {"type": "array", "items": size}},
        "required": ["city"],
    }
    schema = order.spec.input_schema
    assert list(schema["properties"]) == ["color", "amount", "place", "how", "notes"]
    assert schema["required"] == ["color", "amount"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["color"]["description"] == "which one, of those in stock"
    assert sorted(schema["properties"]["color"]["enum"]) == ["blue", "red"]
    assert schema["properties"]["amount"] == {"type": "number", "description": "litres"}
    nested = schema["properties"]["place"]["anyOf"][0]
    nested["properties"]["sizes"].pop("default", None)
    assert nested == place
    assert schema["properties"]["how"] == {"enum": ["bike", "van"], "default": "van"}
    assert "$ref" not in str(schema)
    assert order.spec == CustomTool(
        "order_paint",
        "Order paint.\n\nUse it once a color is settled.",
        schema,
        on_unknown="probe",
        timeout_s=5.0,
        keyed=True,
        price_pico=250_000_000_000,
    )
    assert msgspec.json.decode(msgspec.json.encode(order.spec), type=CustomTool) == order.spec


def test_a_tool_without_words_in_brackets() -> None:
    @tool
    def look(path: str, depth: int = 1) -> str:
        """List a folder.

        path: where to look
        :param depth: how deep
        """
        return f"{path} {depth}"

    assert look.spec.description == "List a folder."
    notes = {name: value["description"] for name, value in look.spec.input_schema["properties"].items()}
    assert notes == {"path": "where to look", "depth": "how deep"}
    assert (look.spec.on_unknown, look.spec.timeout_s, look.spec.price_pico, look.spec.read_only) == (
        "tell",
        120.0,
        0,
        False,
    )
    assert look("a", depth=2) == "a 2", "it is still the function"
    assert look.__name__ == "look"
    assert tool(read_only=True)(look._function).spec.on_unknown == "retry"


def test_annotated_parameters() -> None:
    def wait(seconds: Annotated[int, msgspec.Meta(ge=1, le=9)]) -> None:
        """Wait."""

    schema = tool(wait).spec.input_schema["properties"]["seconds"]
    assert schema == {"type": "integer", "minimum": 1, "maximum": 9}


async def call(made: Tool[..., Any], _key: str = "key", **value: Any) -> CustomResult:
    """Run one call through the door that the brain knows."""
    runner: ToolRunner = made.runner
    return await runner.run("3.0", value, _key)


async def test_a_call_gets_its_arguments_in_their_types() -> None:
    result = await call(order, color="red", amount=2, place={"city": "Rome", "sizes": [{"width": 3}]})
    assert result.ok
    assert msgspec.json.decode(result.content) == {
        "color": "red",
        "amount": 2.0,
        "key": "key",
        "place": {"city": "Rome", "sizes": [{"width": 3, "unit": "cm"}]},
        "how": "van",
        "notes": None,
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"amount": 1}, "Object missing required field `color`"),
        ({"color": "red", "amount": "1"}, "Expected `float`, got `str` - at `amount`"),
        ({"color": "green", "amount": 1}, "Invalid enum value 'green' - at `color`"),
        ({"color": "red", "amount": 1, "how": "car"}, "Invalid enum value 'car' - at `how`"),
        ({"color": "red", "amount": 1, "place": {"city": "R", "sizes": [{}]}}, "`width` - at `place.sizes[0]`"),
        ({"color": "red", "amount": 1, "colour": "red"}, "unknown field `colour`"),
        ({"color": "red", "amount": 1, "idempotency_key": "mine"}, "unknown field `idempotency_key`"),
    ],
)
async def test_a_wrong_input_is_told_to_the_model(value: dict[str, Any], said: str) -> None:
    result = await call(order, **value)
    assert not result.ok
    assert not result.unknown
    assert result.content.startswith("the input of order_paint is not valid: ")
    assert said in result.content
    assert result.content.endswith("; nothing was done")


KINDS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=5),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    list[int]: st.lists(st.integers(0, 9), max_size=3),
    dict[str, bool]: st.dictionaries(st.text(max_size=3), st.booleans(), max_size=3),
    Literal["a", 1]: st.sampled_from(["a", 1]),
    Color: st.sampled_from(["red", "blue"]),
    Size: st.fixed_dictionaries({"width": st.integers(0, 9)}, optional={"unit": st.text(max_size=3)}),
    Place: st.fixed_dictionaries({"city": st.text(max_size=3)}),
    Optional[str]: st.none() | st.text(max_size=3),  # noqa: UP045
}


@settings(max_examples=60)
@given(st.data())
def test_what_the_schema_allows_arrives(data: st.DataObject) -> None:
    """A function of any allowed types is told of completely, takes what fits, and refuses what does not."""
    kinds = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4))
    names = [f"p{number}" for number in range(len(kinds))]
    got: dict[str, Any] = {}

    def keep(**given: Any) -> None:
        got.update(given)

    scope: dict[str, Any] = {"keep": keep}
    exec(f"def f({', '.join(names)}):\n    'F.'\n    keep(**locals())", scope)
    scope["f"].__annotations__ = dict(zip(names, kinds, strict=True))
    made = tool(scope["f"])
    assert made.spec.input_schema["required"] == names
    value = {name: data.draw(KINDS[kind]) for name, kind in zip(names, kinds, strict=True)}
    assert anyio.run(made.runner.run, "3.0", value, "") == CustomResult(True, "done")
    assert {name: msgspec.to_builtins(given) for name, given in got.items()} == {
        name: msgspec.to_builtins(msgspec.convert(value[name], kind)) for name, kind in zip(names, kinds, strict=True)
    }
    got.clear()
    wrong = {**value, data.draw(st.sampled_from(names)): [{"no": "such"}]}
    result = anyio.run(made.runner.run, "3.0", wrong, "")
    assert not result.ok
    assert got == {}


@pytest.mark.parametrize(("amount", "happened"), [(1.0, True), (2.0, False), (3.0, None)])
async def test_a_probe_says_whether_it_happened(amount: float, happened: bool | None) -> None:
    value = {"color": "red", "amount": amount}
    assert await order.runner.probe("3.0", value, "key") is happened
    assert await order.runner.probe("3.0", value, "another") is None
    assert await order.runner.probe("3.0", {**value, "amount": "x"}, "key") is False, "that call never reached it"


async def test_a_probe_that_fails_says_nothing() -> None:
    @tool(on_unknown="probe", timeout_s=0.05)
    def send(how: str) -> None:
        """Send."""

    @send.probe
    async def sent(how: str) -> Any:
        if how == "raise":
            raise OSError("no line")
        if how == "hang":
            await anyio.sleep_forever()
        return "perhaps"

    for how in ("raise", "hang", "word"):
        assert await send.runner.probe("3.0", {"how": how}, "") is None


async def test_a_tool_without_a_probe_says_nothing() -> None:
    def fine() -> None:
        """Fine."""

    assert await tool(fine).runner.probe("3.0", {}, "") is None


def test_the_package_has_it() -> None:
    assert holdfast.tool is tool
    assert "tool" in dir(holdfast)
    with pytest.raises(AttributeError, match="no attribute 'tol'"):
        _ = holdfast.tol  # type: ignore[attr-defined]
