"""Tools of every agent: names and inputs of the Managed Agents toolset.

A declaration is data: the description for the model, and the effect as far as the harness must know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec

from holdfast.facts.base import OnUnknown
from holdfast.facts.session import Agent, CustomTool, EgressPolicy, Searcher
from holdfast.session.egress import opens
from holdfast.session.tools.effects import whole_of
from holdfast.session.tools.jobs import DECLARED, JOB_START, WEB_DECLARED, WEB_FETCH, WEB_TOOLS, job_input_problem
from holdfast.session.tools.output import SUBMIT_OUTPUT, schema_problem

Where = Literal["", "process", "harness"]
"""Place of execution: in hands (empty), in the brain's own process, or in the harness on the session's log."""


class BashInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `bash`."""

    command: str | None = None
    restart: bool = False
    timeout_ms: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ReadInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `read`. `view_range` is first and last line, from 1; -1 for the end of the file."""

    file_path: str
    view_range: Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)] | None = None


class WriteInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `write`."""

    content: str
    file_path: str


class EditInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `edit`."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class GlobInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `glob`."""

    pattern: str
    path: str | None = None


class GrepInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `grep`."""

    pattern: str
    path: str | None = None


class SearchLogInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `search_log`. Words are all looked for; `before` is a position to go further back from."""

    query: str
    before: Annotated[int, msgspec.Meta(ge=1)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10


class AskPersonInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `ask_person`."""

    question: Annotated[str, msgspec.Meta(min_length=1)]
    why: str = ""
    options: list[str] = []


class SleepInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `sleep`: up to thirty days."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=2_592_000)]
    reason: str = ""


class EndPhaseInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `end_phase`."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    next: str = ""


class SpawnInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `spawn`. `workspace` "same" shares the caller's folder; `tools` are some of the caller's."""

    goal: Annotated[str, msgspec.Meta(min_length=1)]
    name: str = ""
    criteria: list[str] = []
    workspace: Literal["fresh", "same"] = "fresh"
    budget_usd: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_turns: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tools: list[str] | None = None


class MessageChildInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `message_child`."""

    child_id: str
    text: Annotated[str, msgspec.Meta(min_length=1)]


class WaitForChildrenInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `wait_for_children`; none named means all that still work."""

    child_ids: list[str] = []
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=2_592_000)] | None = None


class CancelChildInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `cancel_child`."""

    child_id: str


class Tool(msgspec.Struct, frozen=True):
    """A tool's declaration. `timeout_s` bounds one call; `read_only` calls may run side by side.

    `main` is the argument to which rules apply their `match`. `input_type` is None for a tool of the embedding program,
    which checks its own input; `custom` is then its declaration. An `untrusted` tool may return untrusted content.
    `fit` corrects the shape of an input before it is checked.
    """

    name: str
    description: str
    input_type: type[msgspec.Struct] | None
    on_unknown: OnUnknown
    read_only: bool
    timeout_s: float = 120.0
    main: str = ""
    where: Where = ""
    custom: CustomTool | None = None
    untrusted: bool = False
    fit: Callable[[dict[str, Any]], dict[str, Any]] | None = None


BASH_TIMEOUT_MAX_S = 3_600.0

TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "bash",
            "Run a command with bash in the workspace. Each command runs in a new shell; processes it leaves "
            "behind are ended when it returns. Long output is cut in the middle and kept whole in a file. "
            "`timeout_ms` is 120000 unless given.",
            BashInput,
            "tell",
            False,
            main="command",
        ),
        Tool(
            "read",
            "Read a text file, with line numbers. `view_range` is [first, last], from 1; -1 means the end.",
            ReadInput,
            "retry",
            True,
            main="file_path",
        ),
        Tool(
            "write",
            "Write a whole file, making its folders. A file that exists must have been read before.",
            WriteInput,
            "probe",
            False,
            main="file_path",
        ),
        Tool(
            "edit",
            "Replace `old_string`, which must occur exactly once unless `replace_all`, by `new_string` in a file "
            "that has been read before.",
            EditInput,
            "probe",
            False,
            main="file_path",
        ),
        Tool(
            "glob",
            "List files that match a pattern such as `src/**/*.py`, newest first.",
            GlobInput,
            "retry",
            True,
            main="pattern",
        ),
        Tool(
            "grep",
            "Search files for a regular expression. Prints `file:line:text`.",
            GrepInput,
            "retry",
            True,
            main="pattern",
        ),
        Tool(
            "search_log",
            "Search your own past in this session: everything that was said, done and answered, also what your "
            "context no longer shows. All words of `query` have to occur. Newest first; `before` goes further back.",
            SearchLogInput,
            "retry",
            True,
            main="query",
            where="harness",
        ),
        Tool(
            "ask_person",
            "Ask the people responsible a question that you cannot answer yourself and cannot go on without. The "
            "session waits for the answer at no cost; it may take hours.",
            AskPersonInput,
            "retry",
            False,
            main="question",
            where="harness",
        ),
        Tool(
            "sleep",
            "Wait for some seconds, up to 30 days, at no cost. A message or the end of a child wakes you earlier.",
            SleepInput,
            "retry",
            False,
            where="harness",
        ),
        Tool(
            "end_phase",
            "Say that a phase of your work is over and what the next one is: a good moment to start with a fresh "
            "context. Before this, leave the workspace in a state that another could go on from.",
            EndPhaseInput,
            "retry",
            False,
            main="name",
            where="harness",
        ),
        Tool(
            "spawn",
            "Open a child session for a part of the work that can be done on its own. It knows nothing but the goal "
            "and criteria that you give it. Its money comes out of yours. Returns its id at once.",
            SpawnInput,
            "retry",
            False,
            main="goal",
            where="harness",
        ),
        Tool(
            "message_child",
            "Say something to a child session.",
            MessageChildInput,
            "retry",
            False,
            main="text",
            where="harness",
        ),
        Tool(
            "wait_for_children",
            "Wait, at no cost, until child sessions have come to rest, and read what they report.",
            WaitForChildrenInput,
            "retry",
            False,
            where="harness",
        ),
        Tool(
            "cancel_child",
            "End a child session for good.",
            CancelChildInput,
            "retry",
            False,
            main="child_id",
            where="harness",
        ),
        *(Tool(*each) for each in (*DECLARED,)),
        *(msgspec.structs.replace(Tool(*each), untrusted=True) for each in WEB_DECLARED),
    )
}

DEFAULT_TOOLS = ("bash", "read", "write", "edit", "glob", "grep", "search_log", "ask_person")
"""Tools of an agent that names none."""

CHILD_TOOLS = ("spawn", "message_child", "wait_for_children", "cancel_child")
"""Tools that an agent needs for child sessions."""


def with_web(agent: Agent, policy: EgressPolicy, searchers: Sequence[Searcher]) -> Agent:
    """Add the web tools to an agent that names no tools, if the session has network access."""
    named = tuple(name for name in agent.tools if name in TOOLS)
    if named != DEFAULT_TOOLS or not opens(policy):
        return agent
    return msgspec.structs.replace(agent, tools=(*agent.tools, *(WEB_TOOLS if searchers else (WEB_FETCH,))))


def find_tool(agent: Agent, name: str, of_kind: Mapping[str, Tool] = MappingProxyType({})) -> Tool | None:
    """Return the agent's tool of that name, None if it is not offered. `of_kind` are the tools of its kind."""
    if name in of_kind:
        return of_kind[name] if name in agent.tools else None
    for custom in agent.custom:
        if custom.name == name:
            return _of_custom(custom)
    return TOOLS.get(name) if name in agent.tools else None


def offered(agent: Agent, of_kind: Mapping[str, Tool] = MappingProxyType({})) -> list[Tool]:
    """Return the agent's tools, in the order in which the model sees them."""
    known = {**TOOLS, **of_kind}
    own = [_of_custom(custom) for custom in agent.custom if custom.name not in of_kind]
    return [known[name] for name in agent.tools if name in known] + own


def _of_custom(custom: CustomTool) -> Tool:
    return Tool(
        custom.name,
        custom.description,
        None,
        custom.on_unknown,
        custom.read_only,
        custom.timeout_s,
        where="harness" if custom.name == SUBMIT_OUTPUT else "process",
        custom=custom,
    )


def check_input(tool: Tool, value: dict[str, Any]) -> str:
    """Return why `value` is not a valid input of `tool`, as text for the model; empty if it is valid."""
    if tool.name == SUBMIT_OUTPUT and tool.custom is not None:
        problem = schema_problem(value, tool.custom.input_schema)
        return f"the output is not valid: {problem}" if problem else ""
    if tool.input_type is None:
        return ""
    if tool.fit is not None:
        value = tool.fit(value)
    try:
        msgspec.convert(value, tool.input_type)
    except msgspec.ValidationError as error:
        return f"the input of {tool.name} is not valid: {error}"
    if tool.name == "bash" and not value.get("restart") and not value.get("command"):
        return "bash needs a `command`"
    return job_input_problem(tool.name, value)


def main_argument(tool: Tool, value: dict[str, Any]) -> str:
    """Return the argument that rules match, as text; all arguments for a tool of the embedding program."""
    return whole_of(tool.name, value, tool.main)


def timeout_s(tool: Tool, value: dict[str, Any]) -> float:
    """Return the timeout of a call of this tool with this input, in seconds."""
    if tool.name == JOB_START:
        return float(value["timeout_s"])
    asked = value.get("timeout_ms") if tool.name == "bash" else None
    return min(asked / 1000, BASH_TIMEOUT_MAX_S) if asked else tool.timeout_s


def schema_of(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of a tool's input, without references."""
    return tool.custom.input_schema if tool.custom is not None else _input_schema(tool.input_type)


@cache
def _input_schema(kind: type[msgspec.Struct] | None) -> dict[str, Any]:
    """Return a shared schema, which must not be changed."""
    assert kind is not None
    _, components = msgspec.json.schema_components([kind], ref_template="{name}")
    own = {key: val for key, val in components[kind.__name__].items() if key != "title"}
    return _without_references(own, components)


def _without_references(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema with all references replaced by their targets: not every provider follows references."""

    def put(value: Any) -> Any:
        if isinstance(value, list):
            return [put(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return put(
                {key: val for key, val in components[value["$ref"]].items() if key not in ("title", "description")}
            )
        return {key: put(val) for key, val in value.items()}

    found = put(schema)
    assert isinstance(found, dict)
    return found
