"""What became of tool calls."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact, OnUnknown


class FileSeen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The content of a file, as a tool call left or found it (S18). `digest` is SHA-256 hex."""

    path: str
    digest: str


Place = Literal["", "process"]
"""Where a call runs: in hands (empty), or in the brain's own process (a function of the embedding program)."""


class ToolDispatched(Fact, frozen=True, tag="tool.dispatched"):
    """The call goes through its door now. Without this event it never ran (S6).

    `approval_id` is the approval that this dispatch uses up (S21). `reserved_pico` is the price of a
    priced tool, held until the call ends (S15). When it goes out again, `settles_seq` is the dispatch before, whose
    hold ends here at `settled_pico`: its price, presumed, unless it is known that it did not happen.
    """

    call_id: str
    attempt: int
    hands_id: str
    action_digest: str
    on_unknown: OnUnknown
    timeout_s: float
    place: Place = ""
    approval_id: str = ""
    reserved_pico: int | None = None
    settles_seq: int = 0
    settled_pico: int = 0


class ToolResult(Fact, frozen=True, tag="agent.tool_result"):
    """The end of a call that is known: it ran (`ok`, `error`), or it did not (the others).

    `content` is what the model reads. `bytes_total` is the size of all output, `output_path` the
    file inside the hands with the whole of it when `truncated`. `reconciled` marks a result that was
    taken from the hands' journal by a later shift. `dispatch_seq` and `cost_pico` settle the price of a
    priced tool. `untrusted` marks content that strangers may have written.
    """

    call_id: str
    outcome: Literal["ok", "error", "denied", "skipped", "cancelled"]
    content: str
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    truncated: bool = False
    bytes_total: int = 0
    output_path: str = ""
    duration_ms: float | None = None
    files: tuple[FileSeen, ...] = ()
    reconciled: bool = False
    dispatch_seq: int = 0
    cost_pico: int | None = None
    untrusted: bool = False


class ToolOutcomeUnknown(Fact, frozen=True, tag="tool.outcome_unknown"):
    """The call was dispatched and nobody can say what it did. It is not repeated silently (S12).

    `content` is what the model is told.
    """

    call_id: str
    reason: str
    content: str
    dispatch_seq: int = 0
    cost_pico: int | None = None
