"""The questions of a session in the foreground, asked and answered on its terminal."""

from __future__ import annotations

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.screen.inbox import details
from holdfast.app.trust_prompt import can_ask, typed_line
from holdfast.clock import SystemClock
from holdfast.errors import ItemClosed, UsageError
from holdfast.facts.people import ApprovalRequested, Verdict
from holdfast.service.answers import Answer
from holdfast.service.inbox import shown

WORDS = "Your answer (Enter alone: later): "
DECISION = "Approve? y(es) or n(o), with a note if you like; Enter alone: later: "

_VERDICTS: dict[str, Verdict] = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny"}


async def answer_here(call: Call, runtime: Runtime, session_id: str) -> bool:
    """Ask the user about the open items of the session and of all below it. True if one was answered.

    Asks nothing without a terminal. An item that others must answer is left to them.
    """
    if not can_ask(call):
        return False
    answered = False
    for item in await runtime.store.items():
        row = await runtime.store.find(item.session_id)
        if session_id not in (row.root, row.session_id):
            continue
        each = await shown(runtime.store, item, SystemClock().now_us())
        if each.names and runtime.intake.person not in each.names:
            continue
        await runtime.intake.seen(item)
        call.note("")
        for line in details(each, row, SystemClock().now_us()):
            call.note(line)
        given = await _asked(call, each.request)
        if given is None:
            return answered
        try:
            await runtime.intake.answer(item, given)
        except (ItemClosed, UsageError) as error:
            call.note(str(error))
        answered = True
    return answered


async def _asked(call: Call, request: ApprovalRequested) -> Answer | None:
    """Ask until the line can be understood; None for later."""
    words = request.needs_words
    while True:
        line = await typed_line(WORDS if words else DECISION)
        first, _, rest = line.partition(" ")
        if not line or line.lower() in ("l", "later"):
            return None
        if words:
            return Answer(verdict="approve", note=line, digest=request.action_digest)
        verdict = _VERDICTS.get(first.lower().rstrip(",:"))
        if verdict is not None:
            return Answer(verdict=verdict, note=rest.strip(), digest=request.action_digest)
        call.note(f"{first!r} is neither yes nor no; for example: n not on a Friday")
