"""Tools of an embedding program: `@tool` turns a function into one."""

from __future__ import annotations

import contextvars
import functools
import inspect
import math
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Generic, ParamSpec, TypeVar, get_args, overload

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec

from holdfast.app.python.signatures import KEY, Signature, ToolContext
from holdfast.brain.doors import FIRST, Attempt, CustomResult
from holdfast.errors import UsageError
from holdfast.facts.base import OnUnknown
from holdfast.facts.session import CustomTool
from holdfast.session.money import pico_from_usd, usd
from holdfast.session.tools import TOOLS
from holdfast.session.tools.output import SUBMIT_OUTPUT

TIMEOUT_S = 120.0
TIMEOUT_MAX_S = 86_400.0

CONTENT_MAX = 30_000
"""Characters of a result that the model sees; the middle of a longer one is omitted."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

P = ParamSpec("P")
R = TypeVar("R")
Probe = TypeVar("Probe", bound=Callable[..., Any])


class _Overdue(Exception):
    """The call exceeded its time limit."""


class Tool(Generic[P, R]):
    """A function as a tool. It remains callable as a function; a brain calls its `runner`.

    A tool with `on_unknown="probe"` needs a second function that reports whether a call happened: decorate it with
    `@mytool.probe`.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None,
        on_unknown: OnUnknown | None,
        timeout_s: float,
        keyed: bool,
        price_usd: str | int | float | Decimal,
        read_only: bool,
    ) -> None:
        plain = inspect.isfunction(function) or inspect.ismethod(function)
        if not plain or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(f"{function!r} cannot be a tool: a tool is a plain `def` or `async def`, without yield")
        functools.update_wrapper(self, function)
        self.__name__: str = function.__name__
        self._function: Callable[P, R] = function
        self._probe: Callable[..., Any] | None = None
        chosen = _checked_name(name or function.__name__)
        self._signature = Signature(function, chosen, keyed=keyed)
        if on_unknown is not None and on_unknown not in get_args(OnUnknown):
            raise UsageError(
                f"the tool {chosen!r} has on_unknown={on_unknown!r}; it is one of {', '.join(get_args(OnUnknown))}"
            )
        self._spec = CustomTool(
            name=chosen,
            description=self._signature.description,
            input_schema=self._signature.schema,
            on_unknown=on_unknown or ("retry" if read_only else "tell"),
            timeout_s=_checked_timeout(chosen, timeout_s),
            read_only=read_only,
            keyed=keyed,
            price_pico=_checked_price(chosen, price_usd),
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it is, without a session."""
        return self._function(*args, **kwargs)

    @property
    def spec(self) -> CustomTool:
        """Its declaration for the log. Raises `UsageError` for a missing probe."""
        if self._spec.on_unknown == "probe" and self._probe is None:
            name = self._spec.name
            raise UsageError(
                f'the tool {name!r} has on_unknown="probe" and no probe; write one under `@{self._function.__name__}'
                ".probe` that returns True, False, or None when it cannot say"
            )
        return self._spec

    def probe(self, function: Probe) -> Probe:
        """Register the function that reports whether a call happened: True, False, or None when unknown.

        It takes arguments of the tool by name. Raises `UsageError` for a tool without `on_unknown="probe"`, and for
        parameters that the tool does not have.
        """
        name = self._spec.name
        if self._spec.on_unknown != "probe":
            raise UsageError(
                f"the tool {name!r} has on_unknown={self._spec.on_unknown!r}, so its probe would never run; "
                'pass on_unknown="probe", or leave the probe out'
            )
        known = {*self._signature.parameters, *self._signature.contexts, *((KEY,) if self._spec.keyed else ())}
        if wrong := [each for each in inspect.signature(function).parameters if each not in known]:
            raise UsageError(
                f"the probe of the tool {name!r} takes {wrong[0]!r}, which the tool does not have; "
                f"it can take {', '.join(sorted(known)) or 'nothing'}"
            )
        self._probe = function
        return function

    @property
    def runner(self) -> Runner:
        """The runner of calls for the brain. Raises as `spec` does."""
        return Runner(self.spec, self._signature, self._function, self._probe)


Contexts = Callable[[str, str, Attempt], ToolContext]
"""Makes the context of a call from its id, its idempotency key, and the attempt."""


class Runner:
    """Runs calls of one tool, a `ToolRunner`. `context` makes the context of a call, in one session."""

    def __init__(
        self,
        spec: CustomTool,
        signature: Signature,
        function: Callable[..., Any],
        probe: Callable[..., Any] | None,
        context: Contexts | None = None,
    ) -> None:
        self._context = context
        self._spec = spec
        self._signature = signature
        self._function = function
        self._probe = probe

    @property
    def spec(self) -> CustomTool:
        """The tool's declaration, as recorded in the log."""
        return self._spec

    def within(self, context: Contexts) -> Runner:
        """Return the runner of this tool in one session."""
        return Runner(self._spec, self._signature, self._function, self._probe, context)

    async def run(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> CustomResult:
        """Run one call. An invalid input, an exception, and an exceeded time limit are results, not errors."""
        try:
            arguments = self._signature.arguments(value)
        except msgspec.ValidationError as error:
            why = str(error).replace("`$.", "`").replace(" - at `$`", "")
            return CustomResult(False, f"the input of {self._spec.name} is not valid: {why}; nothing was done")
        if self._spec.keyed:
            arguments[KEY] = key
        arguments |= self._contexts(call_id, key, attempt)
        try:
            result = await self._bounded(self._function, arguments)
        except _Overdue:
            return self._overdue()
        except SystemExit as error:
            return CustomResult(False, shortened(f"it tried to end the program (exit status {error.code})"))
        except Exception as error:
            name = type(error).__name__
            return CustomResult(False, shortened(f"{name}: {error}" if str(error) else name))
        return _shown(self._spec.name, result)

    async def probe(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> bool | None:
        """Return whether that call happened, by the registered probe; None when unknown."""
        if self._probe is None:
            return None
        try:
            arguments = self._signature.arguments(value)
        except msgspec.ValidationError:
            return False  # such a call never reached the function
        arguments |= {KEY: key, **self._contexts(call_id, key, attempt)}
        for name, parameter in self._signature.parameters.items():
            if parameter.default is not parameter.empty:
                arguments.setdefault(name, parameter.default)
        wanted = inspect.signature(self._probe).parameters
        try:
            said = await self._bounded(self._probe, {name: arguments[name] for name in wanted})
        except (Exception, SystemExit):
            return None
        return said if isinstance(said, bool) else None

    def _contexts(self, call_id: str, key: str, attempt: Attempt) -> dict[str, ToolContext]:
        """Return the arguments of the type `ToolContext`."""
        if not self._signature.contexts:
            return {}
        assert self._context is not None, "a tool runs in a session"
        return dict.fromkeys(self._signature.contexts, self._context(call_id, key, attempt))

    async def _bounded(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call a function within the time limit. Raises `_Overdue`, and everything that the function raises."""
        with anyio.move_on_after(self._spec.timeout_s):
            if inspect.iscoroutinefunction(function):
                return await function(**arguments)
            return await _in_thread(functools.partial(function, **arguments))
        raise _Overdue

    def _overdue(self) -> CustomResult:
        limit = f"{self._spec.timeout_s:g} s"
        if self._spec.read_only:
            return CustomResult(False, f"it exceeded its limit of {limit} and was abandoned; it only reads")
        if inspect.iscoroutinefunction(self._function):
            return CustomResult(False, f"it was stopped in the middle after its limit of {limit}", unknown=True)
        still = "its thread cannot be stopped and may still be running"
        return CustomResult(False, f"it did not return within its limit of {limit}; {still}", unknown=True)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]:
    """`@tool` without options."""


@overload
def tool(
    *,
    name: str | None = None,
    on_unknown: OnUnknown | None = None,
    timeout_s: float = TIMEOUT_S,
    keyed: bool = False,
    price_usd: str | int | float | Decimal = 0,
    read_only: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]:
    """`@tool(…)` with options."""


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    on_unknown: OnUnknown | None = None,
    timeout_s: float = TIMEOUT_S,
    keyed: bool = False,
    price_usd: str | int | float | Decimal = 0,
    read_only: bool = False,
) -> Any:
    """Turn a function into a tool. The model sees its types and its docstring.

    `on_unknown` applies when a crash leaves the outcome of a call unknown: `retry` (a repeat does no harm), `probe`,
    `tell` the model, or `ask` an approver; the default is `retry` for a `read_only` tool, else `tell`. A `keyed` tool
    gets the same `idempotency_key` each time a call is tried. `price_usd` is the cost of a call. Calls of a `read_only`
    tool may run side by side. Raises `UsageError`.
    """

    def made(function: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(
            function,
            name=name,
            on_unknown=on_unknown,
            timeout_s=timeout_s,
            keyed=keyed,
            price_usd=price_usd,
            read_only=read_only,
        )

    return made if function is None else made(function)


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a tool name: use 1 to 64 letters, digits, - and _, such as name='send_mail'")
    if name in (*TOOLS, SUBMIT_OUTPUT):
        raise UsageError(f"{name!r} is a built-in tool of Holdfast; choose another name: name='my_{name}'")
    return name


def _checked_timeout(name: str, timeout_s: float) -> float:
    given: object = timeout_s
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= TIMEOUT_MAX_S:
        raise UsageError(
            f"the tool {name!r} has timeout_s={given!r}; "
            f"use seconds above 0 and at most {TIMEOUT_MAX_S:g}, such as timeout_s=30"
        )
    return float(timeout_s)


def _checked_price(name: str, price_usd: str | int | float | Decimal) -> int:
    try:
        if isinstance(price_usd, float) and not math.isfinite(price_usd):
            raise ValueError(f"{price_usd} is not an amount")
        pico = pico_from_usd(str(price_usd))
    except ValueError as error:
        raise UsageError(f"the price of the tool {name!r}: {error}; an example is price_usd='0.01'") from error
    if pico < 0:
        raise UsageError(f"the tool {name!r} costs {usd(pico)}; a price is 0 or more, such as price_usd='0.01'")
    return pico


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread that is abandoned when this is cancelled or the process ends."""
    token, done = anyio.lowlevel.current_token(), anyio.Event()
    context = contextvars.Context()
    for variable, value in contextvars.copy_context().items():
        if variable.name != "current_async_library_cvar":  # the function may run an event loop of its own
            context.run(variable.set, value)
    outcome: list[tuple[bool, Any]] = []

    def body() -> None:
        try:
            outcome.append((True, context.run(work)))
        except BaseException as error:
            outcome.append((False, error))
        try:
            anyio.from_thread.run_sync(done.set, token=token)
        except RuntimeError:
            return  # the event loop has ended, so no caller waits

    threading.Thread(target=body, name="holdfast tool", daemon=True).start()
    await done.wait()
    ok, result = outcome[0]
    if not ok:
        raise result
    return result


def _shown(name: str, result: Any) -> CustomResult:
    """Render a return value: text as it is, everything else as JSON."""
    if result is None:
        return CustomResult(True, "done")
    if isinstance(result, str):
        return CustomResult(True, shortened(result))
    try:
        return CustomResult(True, shortened(msgspec.json.encode(result).decode()))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return CustomResult(
            False,
            f"{name} succeeded, but its return value ({type(result).__name__}) cannot be shown as JSON: {error}. "
            "Do not repeat the call because of that.",
        )


def shortened(text: str) -> str:
    """Return `text` as valid Unicode, with the middle of a long one omitted."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    if len(clean) <= CONTENT_MAX:
        return clean
    half = CONTENT_MAX // 2
    return f"{clean[:half]}\n[{len(clean) - 2 * half} characters omitted]\n{clean[-half:]}"
