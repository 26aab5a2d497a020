"""Hooks and checks of a project, as the harness ran them in the hands."""

from __future__ import annotations

from holdfast.facts.base import Fact

SETTINGS = (".claude/settings.json", ".claude/settings.local.json")
"""Where a project declares its hooks; both count."""

SCRIPTS = ".claude/hooks"
"""The folder of a project's own scripts for hooks: put back as the base has it before they run."""

NOT_HANDED_IN = "HandIn"
"""The event name of the harness's own message to a role that stopped and handed nothing in: no command ran."""


class HookRan(Fact, frozen=True, tag="hook.ran"):
    """A check or hook of the project ran in the hands. `blocked` says that it sent the work back with `content`.

    `event` is Claude Code's name for when it ran; `call_id` is the call that it was about, if any. `told` says that
    the model is shown `content` although nothing was sent back.
    """

    event: str
    command: str
    exit_code: int | None = None
    blocked: bool = False
    content: str = ""
    call_id: str = ""
    duration_ms: float = 0.0
    told: bool = False
