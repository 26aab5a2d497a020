"""The tools that every agent has: names and inputs of the Managed Agents toolset.

A declaration is data: what the model is told, and what the harness must know of the effect.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import msgspec

from holdfast.facts.base import OnUnknown


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


class Tool(msgspec.Struct, frozen=True):
    """A tool's declaration. `timeout_s` bounds one call; `read_only` calls may run side by side."""

    name: str
    description: str
    input_type: type[msgspec.Struct]
    on_unknown: OnUnknown
    read_only: bool
    timeout_s: float = 120.0


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
        ),
        Tool(
            "read",
            "Read a text file, with line numbers. `view_range` is [first, last], from 1; -1 means the end.",
            ReadInput,
            "retry",
            True,
        ),
        Tool(
            "write",
            "Write a whole file, making its folders. A file that exists must have been read before.",
            WriteInput,
            "probe",
            False,
        ),
        Tool(
            "edit",
            "Replace `old_string`, which must occur exactly once unless `replace_all`, by `new_string` in a file "
            "that has been read before.",
            EditInput,
            "probe",
            False,
        ),
        Tool("glob", "List files that match a pattern such as `src/**/*.py`, newest first.", GlobInput, "retry", True),
        Tool("grep", "Search files for a regular expression. Prints `file:line:text`.", GrepInput, "retry", True),
    )
}


def check_input(name: str, value: dict[str, Any]) -> str:
    """Why `value` is not a valid input of tool `name`, in words for the model; empty when it is."""
    tool = TOOLS.get(name)
    if tool is None:
        return f"there is no tool named {name!r}; the tools are {', '.join(TOOLS)}"
    try:
        msgspec.convert(value, tool.input_type)
    except msgspec.ValidationError as error:
        return f"the input of {name} is not valid: {error}"
    if name == "bash" and not value.get("restart") and not value.get("command"):
        return "bash needs a `command`"
    return ""


def timeout_s(name: str, value: dict[str, Any]) -> float:
    """How long a call of this tool with this input may take, in seconds."""
    asked = value.get("timeout_ms") if name == "bash" else None
    return min(asked / 1000, BASH_TIMEOUT_MAX_S) if asked else TOOLS[name].timeout_s


@cache
def input_schema(name: str) -> dict[str, Any]:
    """The JSON schema of a tool's input, with no references in it. The same object each time: do not change it."""
    _, components = msgspec.json.schema_components([TOOLS[name].input_type], ref_template="{name}")
    return {key: val for key, val in components[TOOLS[name].input_type.__name__].items() if key != "title"}
