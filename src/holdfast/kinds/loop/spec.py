"""What a loop was asked to do, as it stands in the log: in the declaration of its own tools."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.facts.session import Agent, CustomTool
from holdfast.kinds import LOOP

LOOK, RESTORE, STEP = "loop_look", "loop_restore", "loop_step"
"""The loop's own tools: what a command left behind; put back what is not its to change; record and plan."""

PROGRESS = "progress.txt"
ANALYSIS = "analysis.json"
ITEM_FILES = ("prd.json", "feature_list.json")
"""Where items are looked for, in this order."""

CHECK_TIMEOUT_S = 900.0
"""How long `--until` may take."""

IDLE_MAX = 3
"""After so many iterations in a row that changed nothing a person is asked."""

TRIES_MAX = 3
"""So often in all a stage of a chain is asked for its file; then a person is."""

_KEY = "x-holdfast-loop"


class LoopSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of a loop. `items` names the file with the items, empty when there is only `until`.

    `template` is the prompt of an iteration; with a `report` two stages come first, with prompts of their own.
    """

    command: tuple[str, ...]
    items: str = ""
    until: str = ""
    timeout_s: float = 3_600.0
    template: str = ""
    report: str = ""
    analysis_template: str = ""
    plan_template: str = ""


def loop_agent(spec: LoopSpec) -> Agent:
    """The agent of a loop's session: no model of anybody's, four tools."""
    tools = (
        _tool(LOOK, "See what the command of the loop left behind. Changes nothing.", read_only=True),
        _tool(RESTORE, "Put back what the command of the loop must not change."),
        _tool(
            STEP,
            "Record the iteration that has ended, and plan the next one.",
            {_KEY: msgspec.json.decode(msgspec.json.encode(spec))},
        ),
    )
    return Agent(model=LOOP, name="loop", tools=("bash", "ask_person"), custom=tools)


def _tool(name: str, description: str, more: dict[str, Any] | None = None, *, read_only: bool = False) -> CustomTool:
    """Each of them may be done twice: what was done already is found done."""
    schema = {"type": "object", "properties": {}, **(more or {})}
    return CustomTool(name, description, schema, on_unknown="retry", timeout_s=600.0, read_only=read_only)


def spec_of(agent: Agent) -> LoopSpec | None:
    """What the loop of a session with that agent was asked to do; None when it is no loop."""
    if agent.model != LOOP:
        return None
    step = next((tool for tool in agent.custom if tool.name == STEP), None)
    return None if step is None else msgspec.convert(step.input_schema.get(_KEY), LoopSpec)
