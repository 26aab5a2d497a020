"""The state of a session's context: summaries, handoffs, and signs since they were answered."""

from __future__ import annotations

import msgspec

from holdfast.facts.context import Handoff, SignKind


class ContextState(msgspec.Struct):
    """The life of the context so far (S16).

    `through_seq` is the last event that a summary or handoff covers. `failures` and `handoff_failures` count
    failed compactions and handoffs since the window was last renewed. `phase_seq` is a phase's end that no
    reset has answered yet. `handoff` is the latest, `resets` and `compactions` count. `sign_seq` is the latest
    sign that nothing has answered, with its kind, its words and its evidence; `signs_reset_seq` the last reset for a
    sign since a person spoke, 0 for none, and `sign_resets` counts those for a loop or for no progress.
    `did_seq` is the latest call that went well and was no mere look; `idle_resets` counts resets in a row before
    which there was none.
    `checked_seq` and `checked_turns` are where rules were last held against what was done. `tool_tokens` is
    the share of tool output in the window. `scale_milli` is how many real tokens a thousand estimated ones are,
    `learned_tokens` a line that a model's own refusal taught, 0 for none.
    """

    through_seq: int = 0
    failures: int = 0
    handoff_failures: int = 0
    phase_seq: int = 0
    handoff: Handoff | None = None
    resets: int = 0
    compactions: int = 0
    sign_seq: int = 0
    sign_kind: SignKind | None = None
    sign_detail: str = ""
    sign_evidence: tuple[int, ...] = ()
    signs_reset_seq: int = 0
    sign_resets: int = 0
    did_seq: int = 0
    reset_seq: int = 0
    idle_resets: int = 0
    checked_seq: int = 0
    checked_turns: int = 0
    tool_tokens: int = 0
    scale_milli: int = 1000
    learned_tokens: int = 0
