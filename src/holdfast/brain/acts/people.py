"""Requests to approvers: inbox items, budgets, secrets, and notifications (S15, S21)."""

from __future__ import annotations

from typing import Any

from holdfast.brain.acts.guards import guards_of, written_by_jobs
from holdfast.brain.shift import Shift
from holdfast.errors import BudgetRefused, HeadMoved, TooSoon
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import ApprovalExpired, ApprovalRequested, NoticeSent
from holdfast.facts.shift import BreakerOpened, BudgetReached, ShiftEnded
from holdfast.ids import new_item_id
from holdfast.notify.base import deliver, notice_id, quiet_until
from holdfast.notify.notices import item_notice
from holdfast.session.actions import AskPerson, AskUse, End, Escalate, Expire, Notify
from holdfast.session.context.text import action_digest, action_text, touches
from holdfast.session.decide.taint import READ
from holdfast.session.decide.waits import deadline_us
from holdfast.session.egress import HeldUse, egress_digest
from holdfast.session.fold.hands import EGRESS_GUARD, use_digest
from holdfast.session.money import path_of, usd
from holdfast.session.state import Call
from holdfast.session.tools.policy import TREE

NOTIFY_TRIES = 5
NOTIFY_AGAIN_S = 30.0
"""Delay before a failed notification is retried; each further delay is four times as long."""


async def ask_person(shift: Shift, action: AskPerson) -> None:
    """Open the item that a call needs: an approval, an answer, or a decision on its unknown outcome."""
    call = shift.state.call(action.call_id)
    use = await shift.body(call.seq)
    assert isinstance(use, AgentToolUse)
    if call.attempt:
        await shift.decision(_unknown_outcome(shift, call, use))
    elif call.name == "ask_person":
        await shift.decision(_question(shift, call, use))
    else:
        guards = await guards_of(shift, call, use)
        why = await shift.latest_words()
        uncounted = await written_by_jobs(shift, guards) if TREE in guards else ()
        await shift.decision(_approval(shift, call, use, guards, uncounted, why))


def new_item(shift: Shift, **more: Any) -> ApprovalRequested:
    """Create an item with the deadlines and approvers of the session's policy."""
    state, now_us = shift.state, shift.doors.clock.now_us()
    assert state.created is not None
    people = state.created.people
    expires_s = people.expires_s
    default = more.pop("default", people.on_expiry)

    def after(seconds: float) -> int:
        return now_us + int(seconds * 1_000_000)

    return ApprovalRequested(
        item_id=new_item_id(shift.doors.entropy),
        cost_pico=None if state.unpriced else state.cost_pico,
        default=default if expires_s is not None else None,
        expires_us=after(expires_s) if expires_s is not None else None,
        remind_us=after(people.remind_s) if people.remind_s else None,
        escalate_us=after(people.escalate_s) if people.escalate_s else None,
        approvers=people.approvers or ((state.owner,) if state.owner else ()),
        second=people.second,
        **more,
    )


def _approval(
    shift: Shift, call: Call, use: AgentToolUse, guards: dict[str, str], uncounted: tuple[str, ...], why: str
) -> ApprovalRequested:
    state = shift.state
    assert state.created is not None
    tool = state.tool(call.name)
    reach = touches(tool, use.input, state.created, state.outside.policy, state.hands)
    if uncounted:
        reach += f"; it stays approved when running jobs change {', '.join(uncounted)}"
    return new_item(
        shift,
        kind="tool",
        title=f"may {call.name} run?",
        action=action_text(use.name, use.input),
        call_id=call.call_id,
        action_digest=action_digest(use.name, use.input),
        guards=guards,
        why=why,
        touches=reach,
        evidence=(call.seq,),
        replaces=call.replaces,
        uncounted=uncounted,
    )


def _question(shift: Shift, call: Call, use: AgentToolUse) -> ApprovalRequested:
    question = str(use.input.get("question", ""))
    return new_item(
        shift,
        kind="question",
        title=" ".join(question.split())[:100],
        action=question,
        call_id=call.call_id,
        action_digest=action_digest(use.name, use.input),
        why=str(use.input.get("why", "")),
        options=tuple(str(option) for option in use.input.get("options", ())),
        evidence=(call.seq,),
        default="deny",
    )


def _unknown_outcome(shift: Shift, call: Call, use: AgentToolUse) -> ApprovalRequested:
    return new_item(
        shift,
        kind="unknown",
        title=f"did {call.name} happen? approve to repeat it",
        action=action_text(use.name, use.input),
        call_id=call.call_id,
        action_digest=action_digest(use.name, use.input),
        why="It was started, and nobody can say what became of it. Approving runs it once more; denying tells the "
        "model that the outcome is unknown.",
        evidence=(call.seq, call.dispatch_seq),
        default="deny",
    )


async def escalate(shift: Shift, action: Escalate) -> None:
    """Open a breaker and the item that asks whether to go on."""
    item = new_item(
        shift,
        kind="escalation",
        title=f"stopped by its breaker {action.breaker}",
        action=f"go on in spite of: {action.detail}",
        action_digest=action_digest("go_on", {"breaker": action.breaker, "detail": action.detail}),
        why=action.detail,
        evidence=action.evidence,
        default="deny",
    )
    await shift.decision(BreakerOpened(breaker=action.breaker, detail=action.detail), item)


async def out_of_money(shift: Shift, refused: BudgetRefused) -> End:
    """Park at a cap, and ask for a higher one once per account.

    Raises `HeadMoved` after asking, so that approvers are notified before the session parks.
    """
    left = usd(refused.left_pico) if refused.left_pico > 0 else "nothing"
    assert shift.state.created is not None
    mine = refused.account_id == path_of(shift.state.created, shift.state.session_id)[0]
    budget = "the budget" if mine else f"the budget of {refused.account_id}"
    detail = f"{left} is left of {budget}, the next request may cost {usd(refused.wanted_pico)}"
    asks = [ask for ask in shift.state.asks.values() if ask.kind == "budget"]
    if refused.period == "total" and all(ask.account_id != refused.account_id for ask in asks):
        await shift.decision(_reached(refused), _more_money(shift, refused, detail))
        raise HeadMoved("a person was asked for money", folded=shift.decided_at, head=shift.state.seq)
    times = [at for at in (refused.retry_us, deadline_us(shift.state)) if at is not None]
    ended = ShiftEnded(status="parked", reason="budget", detail=detail, due_us=min(times, default=None))
    return End(ended, (_reached(refused),) if refused.period != "total" else ())


def _reached(refused: BudgetRefused) -> BudgetReached:
    return BudgetReached(
        account_id=refused.account_id,
        period=refused.period,
        cap_pico=refused.cap_pico,
        left_pico=refused.left_pico,
        wanted_pico=refused.wanted_pico,
    )


def _more_money(shift: Shift, refused: BudgetRefused, detail: str) -> ApprovalRequested:
    more_pico = 2 * max(refused.cap_pico, refused.wanted_pico)
    assert shift.state.created is not None
    mine = refused.account_id == path_of(shift.state.created, shift.state.session_id)[0]
    return new_item(
        shift,
        kind="budget",
        title=f"the budget of {'this session' if mine else refused.account_id} is used up",
        action=f"set the cap of {refused.account_id} from {usd(refused.cap_pico)} to {usd(more_pico)}",
        action_digest=action_digest("budget", {"account_id": refused.account_id, "cap_pico": more_pico}),
        why=detail,
        account_id=refused.account_id,
        proposed_pico=more_pico,
        default="deny",
    )


async def expire(shift: Shift, action: Expire) -> None:
    """Apply the default under the item's own key, so an earlier answer wins."""
    await shift.post(f"item:{action.item_id}", ApprovalExpired(item_id=action.item_id, verdict=action.verdict))


async def notify(shift: Shift, action: Notify) -> None:
    """Send a notification; a failed one is retried later under the same id."""
    state, now_us = shift.state, shift.doors.clock.now_us()
    ask = state.asks[action.item_id]
    item = await shift.body(ask.seq)
    assert isinstance(item, ApprovalRequested)
    assert state.created is not None
    named = notice_id(state.session_id, action.target, action.item_id, action.round, "1")

    def sent(*, ok: bool, detail: str, again_us: int | None, held: bool = False) -> NoticeSent:
        return NoticeSent(
            notice_id=named,
            target=action.target,
            item_id=action.item_id,
            round=action.round,
            ok=ok,
            detail=detail,
            again_us=again_us,
            held=held,
        )

    outlet = shift.doors.targets.get(action.target)
    if outlet is None:
        await shift.fact(sent(ok=False, detail=f"no target named {action.target} is set up here", again_us=None))
        return
    quiet = state.created.people.quiet
    quiet_ends = [outlet.held_until_us(now_us), quiet_until(now_us, quiet) if quiet else None]
    held_us = max((at for at in quiet_ends if at is not None), default=None)
    if held_us is not None:
        await shift.fact(sent(ok=False, detail="quiet hours", again_us=held_us, held=True))
        return
    notice = item_notice(
        item,
        target=action.target,
        round=action.round,  # type: ignore[arg-type]
        session_id=state.session_id,
        session_name=state.created.key,
        costs=str(await shift.doors.costs(state.session_id)),
        at_us=ask.asked_us,
    )
    delivery = await deliver(outlet.target, notice)
    final = delivery.ok or not delivery.retryable or action.tries + 1 >= NOTIFY_TRIES
    pause_s = max(NOTIFY_AGAIN_S * 4.0**action.tries, delivery.retry_after_s or 0.0)
    again_us = None if final else shift.doors.clock.now_us() + int(pause_s * 1_000_000)
    await shift.fact(sent(ok=delivery.ok, detail=delivery.detail, again_us=again_us))


HELD_FIRST_S = 0.1
HELD_LONGEST_S = 5.0
HELD_TRIES = 40
"""Waits for budget or requests that others use, about three minutes in all, before the session parks on a timer."""

HELD_PARK_US = 60_000_000


async def does_not_fit(shift: Shift, refused: BudgetRefused) -> End:
    """Wait for budget reserved by siblings, or park, because not even a short response fits.

    Raises `HeadMoved` after a wait and after asking an approver, so that the session decides again.
    """
    fits_later = refused.wanted_pico <= refused.left_pico + refused.held_pico
    if fits_later and shift.room_waits < HELD_TRIES:
        shift.room_waits += 1
        pause_s = min(HELD_LONGEST_S, HELD_FIRST_S * 2.0 ** min(shift.room_waits, 10))
        await shift.doors.clock.sleep(pause_s * (0.5 + shift.doors.entropy(1)[0] / 512))
        raise HeadMoved("money that others held may be free again", folded=shift.state.seq, head=shift.state.seq)
    if fits_later:
        due_us = shift.doors.clock.now_us() + HELD_PARK_US
        detail = "the rest of the budget is reserved by other sessions for now"
        return End(ShiftEnded(status="parked", reason="budget", detail=detail, due_us=due_us))
    return await out_of_money(shift, refused)


async def too_soon(shift: Shift, refused: TooSoon) -> End:
    """Wait for the requests of a minute, which others use, or park after many waits.

    Raises `HeadMoved` after a wait, so that the session decides again.
    """
    left_s = max(0.0, (refused.next_us - shift.doors.clock.now_us()) / 1e6)
    jitter_s = shift.doors.entropy(1)[0] / 256  # so that those who wait do not all ask at once
    if shift.room_waits < HELD_TRIES:
        shift.room_waits += 1
        await shift.doors.clock.sleep(min(HELD_LONGEST_S, left_s + jitter_s))
        raise HeadMoved("a request may begin again", folded=shift.state.seq, head=shift.state.seq)
    due_us = shift.doors.clock.now_us() + int((left_s + 60 * jitter_s) * 1e6)
    return End(ShiftEnded(status="parked", reason="provider", detail=str(refused), due_us=due_us))


async def ask_use(shift: Shift, action: AskUse) -> None:
    """Ask an approver about a use of a secret that the proxy held (S21)."""
    outside = shift.state.outside
    use = outside.held[action.secret]
    words = await shift.latest_words()
    tainted = f"The session {READ} ({outside.reason})." if outside.read else "Each use of a secret is asked about."
    await shift.decision(
        new_item(
            shift,
            kind="egress",
            title=f"may the secret {use.secret} be used?",
            action=use_text(use),
            action_digest=use_digest(use),
            guards={EGRESS_GUARD: egress_digest(outside.policy)},
            why="\n\n".join(part for part in (tainted, words) if part),
            touches=f"{use.host}, as the owner of the secret",
            evidence=(*outside.read, use.seq),
            default="deny",
        )
    )


def use_text(use: HeldUse) -> str:
    """Describe the use of a secret for approvers."""
    port = "" if use.port == 443 else f":{use.port}"
    return f"use secret {use.secret} for {use.method or 'a request to'} https://{use.host}{port}{use.path}"
