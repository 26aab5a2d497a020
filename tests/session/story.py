"""A session told as a list of facts, folded without a log."""

from __future__ import annotations

from typing import Any

from holdfast.facts.base import Text, Usage
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import AgentMessage, AgentToolUse, ModelRequestEnd, ModelRequestStart, StopReason
from holdfast.facts.session import Agent, Environment, Limits, Rule, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.facts.union import AnyFact, type_of
from holdfast.kinds import KINDS
from holdfast.session.fold import empty, fold
from holdfast.session.state import State

SECOND_US = 1_000_000


class Story:
    """Facts in order, each one second after the one before."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        rules: tuple[Rule, ...] = (),
        pinned: str = "",
        tools: tuple[str, ...] = Agent("").tools,
        environment: Environment | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.epoch = 0
        self.bodies: dict[int, Any] = {}
        agent = Agent(model="scripted:x", rules=rules, tools=tools)
        workspace = Workspace("/w")
        self.tell(
            SessionCreated(
                goal="the goal\n  as written",
                agent=agent,
                workspace=workspace,
                limits=limits or Limits(),
                rules=pinned,
                environment=environment or Environment(),
            )
        )

    def tell(self, *facts: AnyFact) -> Story:
        """Add facts as they are."""
        for fact in facts:
            seq = len(self.events) + 1
            self.bodies[seq] = fact
            self.events.append(
                Event(
                    session_id="ses_1",
                    seq=seq,
                    epoch=self.epoch,
                    at_us=seq * SECOND_US,
                    hash=bytes(32),
                    id=f"evt_{seq}",
                    actor="brain",
                    type=type_of(fact),
                    fact=fact,
                )
            )
        return self

    def shift(self) -> Story:
        """A new shift begins."""
        self.epoch += 1
        return self.tell(ShiftStarted(worker_id=f"w{self.epoch}", host_id="h", boot_id="b", pid=1, program="p"))

    def ask(self, *, attempt: int = 1, reserved: int | None = None) -> int:
        """A model request starts. Returns its position."""
        through = len(self.events)
        start = ModelRequestStart(
            purpose="turn",
            model="scripted:x",
            attempt=attempt,
            inputs_through=through,
            max_output_tokens=10,
            reserved_pico=reserved,
        )
        self.tell(start)
        return through + 1

    def answer(self, text: str = "", *calls: tuple[str, dict[str, Any]], stop: StopReason | None = None) -> list[str]:
        """Ask and get a whole response. Returns the ids of its calls."""
        seq = self.ask()
        if text:
            self.tell(AgentMessage(request_seq=seq, content=(Text(text),)))
        ids = []
        for index, (name, value) in enumerate(calls):
            ids.append(f"{seq}.{index}")
            self.tell(AgentToolUse(request_seq=seq, call_id=ids[-1], name=name, input=value))
        reason: StopReason = stop or ("tool_use" if calls else "end_turn")
        self.tell(ModelRequestEnd(request_seq=seq, outcome="ok", usage=Usage(10, 5), cost_pico=7, stop_reason=reason))
        return ids

    def fail(self, kind: str, *, attempt: int = 1, retry_after_s: float | None = None) -> Story:
        """Ask and fail."""
        seq = self.ask(attempt=attempt)
        end = ModelRequestEnd(
            request_seq=seq, outcome="error", cost_pico=0, error_kind=kind, message="no", retry_after_s=retry_after_s
        )
        return self.tell(end)

    def hands(self, hands_id: str = "hnd_1") -> Story:
        """Hands are there."""
        return self.tell(
            HandsProvisioned(
                hands_id=hands_id,
                provider="fake",
                host_id="h",
                boot_id="b",
                address="",
                workspace="/w",
                root="/workspace",
                uid=1,
            )
        )

    def dispatch(self, call_id: str, attempt: int = 1, hands_id: str = "hnd_1") -> Story:
        """A call goes through the door."""
        return self.tell(
            ToolDispatched(
                call_id=call_id, attempt=attempt, hands_id=hands_id, action_digest="d", on_unknown="tell", timeout_s=1
            )
        )

    def result(self, call_id: str, content: str = "done", **more: Any) -> Story:
        """A call ends."""
        return self.tell(ToolResult(call_id=call_id, outcome=more.pop("outcome", "ok"), content=content, **more))

    def state(self) -> State:
        """The fold of all of it."""
        return fold(empty("ses_1", KINDS), self.events)

    @property
    def now_us(self) -> int:
        """The time of the last event."""
        return self.events[-1].at_us
