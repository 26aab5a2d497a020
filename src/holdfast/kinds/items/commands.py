"""Commands of a run over a list, in fresh hands: the one that prints the list, and the one that reduces the results."""

from __future__ import annotations

from functools import partial

from holdfast.brain.acts.results import content_of
from holdfast.brain.shift import Shift, alongside
from holdfast.errors import UsageError
from holdfast.facts.base import Fact
from holdfast.facts.items import ItemsListed, ItemsReduced
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, ExecResult
from holdfast.kinds.items import lists
from holdfast.kinds.items.output import Output
from holdfast.kinds.items.state import items_of
from holdfast.kinds.run.acts import copied, hands_on
from holdfast.session.tools import BASH_TIMEOUT_MAX_S

LIST_BYTES = 8 << 20
"""Most bytes that the command of a list may print."""

RESULT_BYTES = 100_000
"""Most bytes kept of the output of a reduction."""


async def list_items(shift: Shift) -> list[Fact]:
    """Run the command of the list on a copy of the workspace. Return the events with its items, or with the problem;
    none if a user stopped it.
    """
    items = items_of(shift.state.created)
    async with copied(shift) as workspace:
        result = await _run(shift, workspace, items.command, LIST_BYTES)
    if result.cancelled:
        return []
    origin = f"the output of `{items.command}`"
    try:
        if not result.ok:
            raise UsageError(f"{origin} cannot be used: the command failed. {content_of(result)[-1_000:]}")
        if result.truncated:
            raise UsageError(f"{origin} cannot be used: it has more than {LIST_BYTES} bytes")
        found = lists.keyed(lists.read_lines(result.output, origin, plain=True), items.key, origin)
        lists.check_fields(items.each, found, origin)
        if not found:
            raise UsageError(f"{origin} has no items")
    except UsageError as error:
        return [ItemsListed(problem=str(error))]
    return [*lists.parts_of(found, listed=True), ItemsListed(count=len(found))]


async def reduce(shift: Shift, output: Output) -> list[Fact]:
    """Run the command that reduces the results, in a folder with all of them. Return nothing if a user stopped it."""
    created = shift.state.created
    assert created is not None
    workspace = shift.doors.workspace(f"{shift.state.session_id}-reduce-{shift.epoch}", created.workspace)
    try:
        await output.copy_to(workspace.path)
        result = await _run(shift, workspace, items_of(created).reduce_command, RESULT_BYTES)
    finally:
        if workspace.path != created.workspace.path:
            shift.doors.discard(workspace)
    if result.cancelled:
        return []
    detail = "" if result.ok else f"its command failed: {content_of(result)[-1_000:]}"
    return [ItemsReduced(ok=result.ok, result=result.output if result.ok else "", detail=detail)]


async def _run(shift: Shift, workspace: Workspace, command: str, output_cap: int) -> ExecResult:
    async with hands_on(shift, workspace) as hands:
        call_id = f"{hands.identity.hands_id}.0"

        async def until_stopped() -> None:
            await shift.until_stopped()
            await hands.kill(shift.fence, call_id)

        request = ExecRequest("bash", {"command": command}, BASH_TIMEOUT_MAX_S, output_cap=output_cap)
        await hands.start(shift.fence, call_id, request)
        return await alongside(partial(hands.wait, shift.fence, call_id), until_stopped)
