"""Functions as tools: what the model is told of them, what they are given, and how their calls end."""

from __future__ import annotations

import contextvars
import dataclasses
import enum
import subprocess
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.app.api_tools import CONTENT_MAX, Tool, tool
from holdfast.brain.custom import CustomResult, ToolRunner
from holdfast.errors import UsageError
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


class Chain(msgspec.Struct):
    """Holds itself."""

    next: Chain | None = None


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


# --- what is refused when it is defined ------------------------------------------------------------


def documented(kind: Any) -> Callable[..., None]:
    """A function with one parameter of that type."""

    def f(a: Any) -> None:
        """F."""

    f.__annotations__["a"] = kind
    return f


@pytest.mark.parametrize(
    "kind", [set[int], tuple[int, str], complex, bytes, Any, dict[int, str], list[set[int]], object, Decimal, "Nowhere"]
)
def test_types_that_no_model_can_give(kind: Any) -> None:
    with pytest.raises(UsageError, match=r"the function 'f' cannot be a tool: .*(a tool takes str, int|is not known)"):
        tool(documented(kind))


def test_unions_that_nobody_could_tell_apart() -> None:
    with pytest.raises(UsageError, match="cannot be told to a model: Type unions may not"):
        tool(documented(Size | Place))
    with pytest.raises(UsageError, match="holds itself"):
        tool(documented(Chain))


def no_type(a) -> None:  # type: ignore[no-untyped-def]
    """F."""


def any_number(*a: str) -> None:
    """F."""


def silent(a: str) -> None:
    pass


def only_arguments(a: str) -> None:
    """
    Args:
        a: something
    """


def wrong_default(a: int = "x") -> None:  # type: ignore[assignment]
    """F."""


def with_key(idempotency_key: str) -> None:
    """F."""


def fine(a: str = "") -> None:
    """F."""


def generator() -> Any:
    """F."""
    yield


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (no_type, {}, "its parameter 'a' has no type; write one, such as `a: str`"),
        (any_number, {}, r"`\*a: '?str'?` has no fixed name"),
        (silent, {}, "its docstring says nothing"),
        (only_arguments, {}, "its docstring says nothing"),
        (wrong_default, {}, "the default of 'a', 'x', is not of its type"),
        (with_key, {}, "say `keyed=True`"),
        (fine, {"keyed": True}, "no parameter `idempotency_key: str`"),
        (fine, {"name": "two words"}, "'two words' is not a name for a tool"),
        (fine, {"name": "bash"}, "there is a tool 'bash' already.*name='my_bash'"),
        (fine, {"timeout_s": 0}, "timeout_s=0; give seconds above 0"),
        (fine, {"timeout_s": float("nan")}, "timeout_s=nan"),
        (fine, {"timeout_s": "5"}, "timeout_s='5'"),
        (fine, {"price_usd": "-1"}, r"costs -\$1\.00"),
        (fine, {"price_usd": float("inf")}, "price_usd='0.01'"),
        (fine, {"price_usd": "cheap"}, "'cheap' is not an amount"),
        (fine, {"on_unknown": "hope"}, "on_unknown='hope'; it is one of retry, probe, tell, ask"),
        (generator, {}, "without yield"),
        (len, {}, "cannot be a tool"),
        (Size, {}, "cannot be a tool"),
        (lambda: None, {}, "'<lambda>' is not a name"),
    ],
)
def test_what_cannot_be_a_tool(function: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tool(**options)(function)


def test_probes() -> None:
    @tool(on_unknown="probe")
    def send(to: str) -> None:
        """Send."""

    for part in ("spec", "runner"):
        with pytest.raises(UsageError, match=r'has on_unknown="probe" and no probe; write one under `@send\.probe`'):
            getattr(send, part)
    with pytest.raises(UsageError, match="takes 'whom', which the tool does not have; it can take to"):

        @send.probe
        def wrong(whom: str) -> bool:
            return True

    with pytest.raises(UsageError, match="on_unknown='tell', so its probe would never be asked"):

        @tool(fine).probe
        def never() -> bool:
            return True


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
    assert await tool(fine).runner.probe("3.0", {}, "") is None


# --- how calls end --------------------------------------------------------------------------------


@tool(timeout_s=30)
async def act(how: str) -> Any:
    """Do something."""
    results: dict[str, Any] = {
        "text": "plain 日本",
        "none": None,
        "number": 3,
        "struct": [Size(1)],
        "surrogate": "a\udcffb",
        "object": object(),
        "long": "x" * 40_000 + "end",
    }
    if how == "raise":
        raise ValueError("no such thing")
    if how == "bare":
        raise KeyError
    if how == "exit":
        sys.exit(3)
    return results[how]


@pytest.mark.parametrize(
    ("how", "ok", "content"),
    [
        ("text", True, "plain 日本"),
        ("none", True, "done"),
        ("number", True, "3"),
        ("struct", True, '[{"width":1,"unit":"cm"}]'),
        ("surrogate", True, "a\\udcffb"),
        ("raise", False, "ValueError: no such thing"),
        ("bare", False, "KeyError"),
        ("exit", False, "it tried to end the program (exit status 3)"),
    ],
)
async def test_results_and_exceptions_are_content(how: str, ok: bool, content: str) -> None:
    assert await call(act, how=how) == CustomResult(ok, content)
    again = tool(name="again")(in_a_thread(act))
    assert await call(again, how=how) == CustomResult(ok, content), "the same from a thread"


def in_a_thread(made: Tool[..., Any]) -> Callable[..., Any]:
    """The same work as a function that is not async."""

    def again(how: str) -> Any:
        """Do it in a thread."""
        assert threading.current_thread() is not threading.main_thread()
        return anyio.run(made._function, how)

    return again


async def test_results_that_cannot_be_shown() -> None:
    odd = await call(act, how="object")
    assert not odd.ok
    assert odd.content.startswith("act ran to its end, but what it returned (object) cannot be shown as JSON")
    long = await call(act, how="long")
    assert len(long.content) < CONTENT_MAX + 100
    assert "\n[10003 characters left out]\n" in long.content
    assert long.content.endswith("xend")


async def test_an_async_call_that_takes_too_long_is_stopped() -> None:
    stopped: list[str] = []

    async def hang() -> None:
        """Hang."""
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("stopped")

    result = await call(tool(timeout_s=0.05)(hang))
    assert result == CustomResult(False, "it was stopped in the middle after its 0.05 s", unknown=True)
    assert stopped == ["stopped"]
    looked = await call(tool(timeout_s=0.05, read_only=True)(hang))
    assert not looked.unknown, "what only reads left nothing behind"
    assert "longer than its 0.05 s" in looked.content


async def test_a_thread_that_takes_too_long_is_left_behind() -> None:
    gate, ended = threading.Event(), threading.Event()

    def hang() -> None:
        """Hang."""
        gate.wait()
        ended.set()

    result = await call(tool(timeout_s=0.05)(hang))
    assert result.unknown
    assert result.content == (
        "it did not return within its 0.05 s; its thread cannot be stopped and may still be at work"
    )
    assert not ended.is_set()
    gate.set()
    assert ended.wait(10), "it went on"


LEFT = """
import anyio, threading
from holdfast.app.api_tools import tool
@tool(timeout_s=0.05)
def hang() -> None:
    "Hang."
    threading.Event().wait()
print(anyio.run(hang.runner.run, "1.0", {}, "").unknown)
"""


def test_a_thread_that_is_left_behind_keeps_no_process_alive() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


async def test_calls_run_side_by_side() -> None:
    meet = threading.Barrier(50)

    def together() -> int:
        """Meet."""
        return meet.wait(20)

    made = tool(timeout_s=30)(together)
    results: list[CustomResult] = []

    async def one() -> None:
        results.append(await call(made))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(one)
    assert sorted(int(result.content) for result in results) == list(range(50))


async def test_a_thread_sees_the_context() -> None:
    variable = contextvars.ContextVar("variable", default="")
    variable.set("seen")

    def look() -> str:
        """Look."""
        return variable.get()

    assert (await call(tool(look))).content == "seen"


async def test_a_stop_of_the_program_comes_through() -> None:
    async def hang() -> None:
        """Hang."""
        await anyio.sleep_forever()

    with anyio.move_on_after(0.05) as scope:
        await call(tool(hang))
    assert scope.cancelled_caught, "it is neither a result nor a missed limit of its own"
