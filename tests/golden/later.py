"""What schema 2 added: every new fact with everything set, and with nothing that can be left out."""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Document, Image, Text
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.model import (
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ContextCompacted,
    ContextFailed,
    ContextReset,
    ContextSign,
    Handoff,
    ModelRequestEnd,
    ModelRequestStart,
    PhaseEnded,
    RuleBreached,
    RuleChecked,
)
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    Grant,
    NoticeSent,
    UserMessage,
    UserPause,
    UserResume,
)
from holdfast.facts.session import (
    Agent,
    Breakers,
    ContextPolicy,
    CustomTool,
    Limits,
    Parent,
    People,
    Rule,
    SessionCreated,
    SessionUpdated,
    Workspace,
)
from holdfast.facts.shift import (
    BreakerClosed,
    BreakerOpened,
    BudgetReached,
    BudgetSet,
    ChildCancelled,
    ChildFinished,
    ChildMessaged,
    ChildOpened,
    ShiftEnded,
)
from holdfast.facts.tool import FileSeen, ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.facts.union import AnyFact

DAY_US = 86_400_000_000
AT_US = 1_795_000_000_000_000


def created(odd: str) -> SessionCreated:
    """A session with every setting set."""
    custom = CustomTool(
        "pay", odd, {"type": "object", "properties": {"n": {"type": "number"}}}, "ask", 1.5, True, True, 7
    )
    return SessionCreated(
        goal=odd,
        agent=Agent(
            "anthropic:m", "payer", "", ("spawn",), (Rule("pay", "ask", "n*", 60.5, 3),), (custom,),
            ("openai:n",), "high",
        ),
        workspace=Workspace("/srv/work"),
        limits=Limits(
            10**12, 7, 10_000, 512, 2, True, 4, 2, ContextPolicy("hybrid", 9_000, 800, 3, False, 7),
            Breakers(10**11, 3, 4, 5, 6.5),
        ),
        accounts=("ses_more", "project:web"),
        criteria=("it works", odd),
        parent=Parent("ses_full", "4.0", 1, "ses_full"),
        people=People(
            "ann", ("ann", "bob"), ("eve",), None, "approve", 1.5, 2.5, "22:00-07:00 UTC", ("phone",), ("pager",)
        ),
    )  # fmt: skip


def full(odd: str) -> list[AnyFact]:
    """What a brain appends, every field set."""
    return [
        ModelRequestStart(
            purpose="compaction", model="anthropic:m", attempt=1, inputs_through=2, max_output_tokens=9, through_seq=2
        ),
        ModelRequestEnd(request_seq=3, outcome="ok", cost_pico=0),
        ContextCompacted(
            request_seq=3, from_seq=1, through_seq=2, summary=odd, tokens_before=9_000, tokens_after=100
        ),
        ContextFailed(request_seq=3, purpose="handoff", reason=odd),
        ContextReset(
            cause="anxiety", through_seq=2, handoff=Handoff(("a",), ("b",), ("c",), ("d",), ("e",), ("f", odd)),
            request_seq=3, detail=odd, files={"/w/a.py": "ef" * 32}, tokens_before=100,
        ),
        ContextSign(kind="loop", detail=odd, evidence=(1, 2)),
        PhaseEnded(call_id="4.1", name="plan", next="build"),
        RuleChecked(from_seq=1, through_seq=2, rules=3),
        RuleBreached(rule="Never push.", detail=odd, evidence=(2,)),
        ModelRequestStart(purpose="turn", model="anthropic:m", attempt=1, inputs_through=11, max_output_tokens=9),
        AgentThinking(request_seq=12, text="t", provider="openai", provider_id="rs_1", details={"x": [1, None]}),
        AgentMessage(request_seq=12, content=(Text("m"),), provider="openai", provider_id="msg_1", details={"y": "z"}),
        AgentToolUse(
            request_seq=12, call_id="12.0", name="pay", input={"n": 1}, provider="google", details={"s": "c2ln"}
        ),
        ModelRequestEnd(request_seq=12, outcome="ok", cost_pico=5),
        ApprovalRequested(
            item_id="itm_full", kind="tool", title="may pay run?", action=odd, call_id="12.0", action_digest="cd" * 32,
            guards={"policy": "01" * 32}, why=odd, touches="money", cost_pico=5, evidence=(15,), options=("yes", "no"),
            default="deny", expires_us=AT_US + DAY_US, remind_us=AT_US + 1, escalate_us=AT_US + 2,
            approvers=("ann",), second=("eve",), account_id="ses_more", proposed_pico=7, replaces="itm_gone",
            uncounted=("run.log",),
            notify=("ops",),
        ),
        NoticeSent(
            notice_id="ntc_1", target="phone", item_id="itm_full", round="first", ok=True, detail=odd,
            again_us=AT_US + 3, held=True,
        ),
        ApprovalRequested(item_id="itm_late", kind="question", title="which?", action="which?"),
        ApprovalRequested(item_id="itm_over", kind="budget", title="more?", action="more"),
        ApprovalSuperseded(item_id="itm_over", reason="raised"),
        ToolDispatched(
            call_id="12.0", attempt=1, hands_id="", action_digest="cd" * 32, on_unknown="ask", timeout_s=1.5,
            place="process", approval_id="itm_full", reserved_pico=7,
        ),
        ToolDispatched(
            call_id="12.0", attempt=2, hands_id="", action_digest="cd" * 32, on_unknown="ask", timeout_s=1.5,
            place="process", reserved_pico=7, settles_seq=22, settled_pico=6,
        ),
        ToolResult(
            call_id="12.0", outcome="ok", content="paid", exit_code=1, signal=9, timed_out=True, truncated=True,
            bytes_total=10**12, output_path="output/12.0", duration_ms=0.1, files=(FileSeen("a.py", "ef" * 32),),
            reconciled=True, dispatch_seq=23, cost_pico=7,
        ),
        ToolOutcomeUnknown(call_id="12.1", reason="r", content="c", dispatch_seq=1, cost_pico=7),
        ChildOpened(child_id="ses_c", call_id="12.2", goal=odd, name="helper", budget_pico=3),
        ChildMessaged(child_id="ses_c", call_id="12.3", text=odd),
        ChildCancelled(child_id="ses_c", call_id="12.4"),
        BudgetReached(account_id="project:web", period="week", cap_pico=9, left_pico=1, wanted_pico=2),
        BreakerOpened(breaker="provider:openai:n", detail=odd, until_us=AT_US),
        BreakerClosed(breaker="provider:openai:n", detail=odd),
        WorkspaceSnapshotted(through_seq=20, snapshot="ab" * 32, files=3, bytes=10**10, error=odd),
        ShiftEnded(status="parked", reason="child", detail="waits", due_us=AT_US + DAY_US),
    ]  # fmt: skip


def bare() -> list[AnyFact]:
    """What a brain appends, nothing set that can be left out."""
    return [
        ContextCompacted(request_seq=1, from_seq=0, through_seq=0, summary=""),
        ContextReset(cause="line", through_seq=0, handoff=Handoff()),
        ContextSign(kind="no_progress", detail=""),
        PhaseEnded(call_id="1.0", name=""),
        RuleBreached(rule="", detail=""),
        ApprovalRequested(item_id="itm_bare", kind="escalation", title="", action=""),
        NoticeSent(notice_id="n", target="t"),
        ChildOpened(child_id="c", call_id="1.0", goal=""),
        ChildCancelled(child_id="c"),
        BreakerOpened(breaker="spend_rate", detail=""),
        BreakerClosed(breaker="spend_rate"),
        WorkspaceSnapshotted(through_seq=1),
    ]


def posts(odd: str, end: str) -> list[tuple[str, AnyFact]]:
    """What is posted, under its key. `end` is of the session: its items' names have it."""
    whole = end == "full"
    grant = Grant("pay", "n*", 3_600.5, 2) if whole else Grant("pay")
    decided = ApprovalDecided(item_id=f"itm_{end}", verdict="deny")
    if whole:
        decided = ApprovalDecided(
            item_id="itm_full", verdict="approve", note=odd, digest="cd" * 32, via="ntfy", grant=grant,
            proof="reply_code",
            account_id="ses_more", budget_pico=8 * 10**12,
        )  # fmt: skip
    media = (Image("image/png", b"\x89PNG\x00\xff"), Document("application/pdf", b"%PDF", "a.pdf" if whole else ""))
    finished = ChildFinished(child_id="ses_c", status="done")
    if whole:
        finished = ChildFinished(
            child_id="ses_c", status="parked", reason="cap", summary=odd, detail="d", cost_pico=3, turns=4
        )
    seen = ApprovalSeen(item_id=f"itm_{end}", by="ann")
    if whole:
        seen = msgspec.structs.replace(seen, expires_us=AT_US, boot_id="boot", booted_us=AT_US - 9_000, up_us=9_000)
    told: list[tuple[str, AnyFact]] = [
        (f"seen:itm_{end}", seen),
        (f"item:itm_{end}", decided),
        ("media", UserMessage(content=media)),
        ("child:ses_c:1", finished),
        ("pause", UserPause(reason=odd, stop_seq=3) if whole else UserPause()),
        ("go on", UserResume(reason=odd) if whole else UserResume()),
        ("cap", BudgetSet(account_id=f"ses_more_{end}", period="day", cap_pico=9 if whole else None)),
        ("owner", SessionUpdated(owner="bob" if whole else "")),
    ]
    if whole:
        told.append(("item:itm_late", ApprovalExpired(item_id="itm_late", verdict="deny")))
    return told
