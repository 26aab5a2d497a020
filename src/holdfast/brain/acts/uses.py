"""Asking a person about the use of a secret that the proxy held (S21)."""

from __future__ import annotations

from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift
from holdfast.session.actions import AskUse
from holdfast.session.decide.taint import READ
from holdfast.session.fold.egress import EGRESS_GUARD, use_digest
from holdfast.session.outside import HeldUse, egress_digest


async def ask_use(shift: Shift, action: AskUse) -> None:
    """Ask a person about the use of a secret that the proxy held (S21)."""
    outside = shift.state.outside
    use = outside.held[action.secret]
    words = await shift.latest_words()
    tainted = f"The session {_because(shift)}." if outside.read else "Each use of a secret is asked about."
    await shift.decision(
        new_item(
            shift,
            kind="egress",
            title=f"may the secret {use.secret} be used?",
            action=use_text(use),
            action_digest=use_digest(use),
            guards={EGRESS_GUARD: egress_digest(outside.policy)},
            why="\n\n".join(part for part in (tainted, words) if part),
            touches=f"{use.host}, as whoever the secret belongs to",
            evidence=(*outside.read, use.seq),
            default="deny",
        )
    )


def _because(shift: Shift) -> str:
    return f"{READ} ({shift.state.outside.reason})"


def use_text(use: HeldUse) -> str:
    """The use of a secret as people are shown it."""
    port = "" if use.port == 443 else f":{use.port}"
    return f"use secret {use.secret} for {use.method or 'a request to'} https://{use.host}{port}{use.path}"
