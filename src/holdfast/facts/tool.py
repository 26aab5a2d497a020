"""Tool calls, jobs, services, and project hooks."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact, OnUnknown


class FileSeen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Content of a file after a tool call read or wrote it (S18). `digest` is SHA-256 hex."""

    path: str
    digest: str


Place = Literal["", "process"]
"""Place where a call runs: the sandbox (empty), or the brain's own process (a function of the embedding program)."""


class ToolDispatched(Fact, frozen=True, tag="tool.dispatched"):
    """The call is about to be executed. Without this event it never ran (S6).

    `approval_id` is the approval that this dispatch uses up (S21). `reserved_pico` is the price of a priced tool,
    reserved until the call ends (S15). When a call is dispatched again, `settles_seq` is the previous dispatch, whose
    reservation ends here at `settled_pico`: its presumed price, or 0 when the call is known not to have happened.
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
    """Known end of a call: it ran (`ok`, `error`), or it did not (the others).

    `content` is shown to the model. `bytes_total` is the size of the whole output; when `truncated`, `output_path` is
    the file inside the sandbox that has all of it. `reconciled` marks a result that a later shift took from the journal
    of the hands. `dispatch_seq` and `cost_pico` settle the price of a priced tool. `untrusted` marks content that may
    come from strangers.
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
    """The call was dispatched and its outcome cannot be known. It is never silently repeated (S12).

    `content` is shown to the model.
    """

    call_id: str
    reason: str
    content: str
    dispatch_seq: int = 0
    cost_pico: int | None = None


class JobStarted(Fact, frozen=True, tag="job.started"):
    """A command was started that continues without a brain. `call_id` requested it; it runs in `hands_id`.

    `line`, if not empty, is a regular expression: the first line of output that matches it wakes the session.
    `deadline_us` is when the session is woken otherwise, `until_us` when the job is killed.
    """

    job_id: str
    call_id: str
    hands_id: str
    name: str = ""
    command: str = ""
    line: str = ""
    deadline_us: int | None = None
    until_us: int | None = None


class JobLine(Fact, frozen=True, tag="job.line"):
    """The awaited line was printed, or the job's `deadline` passed. `content` is shown to the model."""

    wakes = True

    job_id: str
    content: str
    deadline: bool = False


class JobEnded(Fact, frozen=True, tag="job.ended"):
    """A job ended, or its state cannot be known (`unknown`). `content` is shown to the model."""

    wakes = True

    job_id: str
    outcome: Literal["ok", "error", "timeout", "stopped", "unknown"]
    content: str
    exit_code: int | None = None
    duration_ms: float | None = None


class ServiceStarted(Fact, frozen=True, tag="service.started"):
    """A server runs in these hands until it is stopped or they go."""

    name: str
    call_id: str
    hands_id: str
    command: str = ""
    health: str = ""


class ServiceEnded(Fact, frozen=True, tag="service.ended"):
    """A server is gone: stopped, exited, or lost with its hands.

    `content` is shown to the model; it is empty when the model asked for the stop, or when the session is over.
    """

    name: str
    hands_id: str
    reason: str
    content: str = ""


SETTINGS = (".claude/settings.json", ".claude/settings.local.json")
"""Files in which a project declares its hooks; both count."""

SCRIPTS = ".claude/hooks"
"""Folder of a project's hook scripts, restored from the base before they run."""

NOT_HANDED_IN = "HandIn"
"""Event name of the harness's own message to a role that stopped without handing in: no command ran."""


UNTIL = "Until"
"""Event name of a check that must pass before a session is done. It ran on a copy of the workspace."""


class HookRan(Fact, frozen=True, tag="hook.ran"):
    """A check or hook of the project ran in the sandbox. `blocked` means that it rejected the work with `content`.

    `event` is Claude Code's name for the occasion; `call_id` is the call it was about, if any. `told` means that the
    model is shown `content` although nothing was rejected.
    """

    event: str
    command: str
    exit_code: int | None = None
    blocked: bool = False
    content: str = ""
    call_id: str = ""
    duration_ms: float = 0.0
    told: bool = False
