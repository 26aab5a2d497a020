"""Makes the golden log of today's schema: `python -m tests.golden.make`. A version that is there is frozen.

Each line is one stored event: its place, its hash, and its body as the exact text that was stored (null
when erased, with the digest that stands for it). Every event type is there, with everything set and
with nothing that can be left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from holdfast.facts.base import Text, Usage
from holdfast.facts.codec import SCHEMA, Draft
from holdfast.facts.hands import HandsLost, HandsProvisioned, HandsReleased
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import UserCancel, UserInterrupt, UserMessage
from holdfast.facts.session import (
    Agent,
    Limits,
    Rule,
    SessionCreated,
    SessionError,
    SessionEventsLost,
    SessionForked,
    SessionUpdated,
    Workspace,
)
from holdfast.facts.shift import (
    BriefRead,
    BudgetSet,
    CarriedAccount,
    ClockSet,
    EmergencyReleased,
    EmergencyStopped,
    LimitSet,
    RemovedSession,
    SessionsRemoved,
    ShiftEnded,
    ShiftStarted,
    SpendBucket,
)
from holdfast.facts.tool import FileSeen, ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.facts.union import AnyFact
from holdfast.log.base import Post
from holdfast.log.memory import MemoryStore
from holdfast.session.home import HOME
from tests.golden import duties, items, later, missions, outside

HERE = Path(__file__).parent
ERASED = 11
"""The event of the full log whose body is a tombstone."""

ODD = 'tab\t "quoted" \\ back / é 日本 🐙 \u2028 \x7f \x01 end'


class Line(msgspec.Struct):
    """One stored event."""

    session_id: str
    seq: int
    epoch: int
    at_us: int
    type: str
    hash: str
    body: str | None
    digest: str | None


class Ticks:
    """A clock that moves by itself, a millisecond a look."""

    def __init__(self) -> None:
        self._now_us = 1_795_000_000_000_000

    def now_us(self) -> int:
        self._now_us += 1_000
        return self._now_us

    def monotonic_s(self) -> float:
        return self._now_us / 1e6

    async def sleep(self, seconds: float) -> None:
        self._now_us += round(seconds * 1e6)


def full() -> list[AnyFact]:
    """What a brain appends, every field set."""
    usage = Usage(input_tokens=1_000, output_tokens=50, cache_read_tokens=7, cache_write_tokens=8)
    given = {"command": ODD, "n": 2**70, "x": 1.5, "tiny": 1e-300, "list": [1, None, True, {"deep": []}], "": ""}
    return [
        HandsProvisioned(
            hands_id="hnd_1", provider="bubblewrap", host_id="host", boot_id="boot", address="/run/holdfast/1.sock",
            workspace="/srv/work", root="/work", uid=1000, isolation={"files": "hard", "memory": "none"},
        ),
        ModelRequestStart(
            purpose="turn", model="scripted:demo", attempt=2, inputs_through=3, max_output_tokens=8_192,
            reserved_pico=3_000_000_000, window_digest="ab" * 32, input_tokens_estimate=1_234,
        ),
        AgentThinking(request_seq=4, text=ODD, signature="c2ln"),
        AgentMessage(request_seq=4, content=(Text("first"), Text(ODD))),
        AgentToolUse(request_seq=4, call_id="4.0", name="bash", input=given, provider_id="toolu_1"),
        AgentToolUse(request_seq=4, call_id="4.1", name="read", input={}, malformed='{"file_path": '),
        ModelRequestEnd(
            request_seq=4, outcome="ok", usage=usage, cost_pico=2_345_678, stop_reason="tool_use", error_kind="",
            message="", retry_after_s=0.25, first_token_ms=12.5, duration_ms=100.125,
        ),
        ToolDispatched(
            call_id="4.0", attempt=1, hands_id="hnd_1", action_digest="cd" * 32, on_unknown="tell", timeout_s=120.0
        ),
        ToolResult(
            call_id="4.0", outcome="error", content="a secret that is erased", exit_code=1, signal=9, timed_out=True,
            truncated=True, bytes_total=10**12, output_path="output/4.0", duration_ms=0.1,
            files=(FileSeen("a.py", "ef" * 32),), reconciled=True,
        ),
        ToolOutcomeUnknown(call_id="4.1", reason="the hands are gone", content="Look before you act."),
        ModelRequestStart(purpose="turn", model="scripted:demo", attempt=1, inputs_through=12, max_output_tokens=1),
        ModelRequestEnd(request_seq=13, outcome="error", error_kind="overloaded", message=ODD, retry_after_s=2.0),
        SessionError(kind="storage_full", message=ODD, at_seq=3),
        SessionEventsLost(content=ODD, known_seq=99, calls=("9.0", "9.1"), workspace="/srv/elsewhere"),
        SessionEventsLost(content=""),
        HandsLost(hands_id="hnd_1", reason="its supervisor died"),
        HandsReleased(hands_id="hnd_1"),
        ClockSet(boot_id="boot", booted_us=1_788_000_000_000_000, up_us=7_000),
        ShiftEnded(
            status="parked", reason="timer", detail="until tomorrow", due_us=1_795_000_100_000_000,
            boot_id="boot", booted_us=1_788_000_000_000_000, up_us=7_000,
        ),
    ]  # fmt: skip


def bare() -> list[AnyFact]:
    """What a brain appends, nothing set that can be left out."""
    return [
        HandsProvisioned(
            hands_id="h", provider="none", host_id="", boot_id="", address="", workspace="/", root="/", uid=0
        ),
        ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=2, max_output_tokens=1),
        AgentThinking(request_seq=4, text=""),
        AgentMessage(request_seq=4, content=()),
        AgentToolUse(request_seq=4, call_id="4.0", name="glob", input={}),
        ModelRequestEnd(request_seq=4, outcome="cancelled"),
        ToolResult(call_id="4.0", outcome="skipped", content=""),
        ShiftEnded(status="cancelled"),
    ]


async def story(
    store: MemoryStore,
    session_id: str,
    created: SessionCreated,
    facts: list[AnyFact],
    posts: Sequence[tuple[str, AnyFact]] = (),
) -> None:
    """A session with posts, a theft and these facts."""
    names = (f"evt_{session_id}_{number:04d}" for number in range(1, 1000))

    def draft(fact: AnyFact, actor: str = "brain") -> Draft:
        return Draft(next(names), actor, fact)

    def shift(worker_id: str) -> ShiftStarted:
        return ShiftStarted(
            worker_id=worker_id,
            host_id="host",
            boot_id="boot",
            pid=4242,
            program="holdfast 0.1.0",
            booted_us=1_789_000_000_000_000,
            up_us=8_000,
        )

    async def post(fact: AnyFact, key: str) -> None:
        await store.post(Post(session_id, key, draft(fact, "user:ann")), create=isinstance(fact, SessionCreated))

    await post(created, "created")
    first = msgspec.structs.replace(
        shift("wrk_1"), agent_digest="01" * 32, prompt_digests={"worker": "02" * 32}, place="plc_1"
    )
    lease = await store.acquire(session_id, draft(first))
    await store.append(session_id, lease.epoch, [draft(fact) for fact in facts])
    for key, fact in posts:
        await post(fact, key)
    await post(UserMessage(content=(Text(ODD),)), f"said-{ODD}")
    await post(SessionUpdated(budget_pico=5 * 10**12, max_turns=9, context_tokens=1_000), "raise")
    await post(SessionUpdated(), "nothing")
    await store.acquire(session_id, draft(shift("wrk_2")), steal=True)
    await store.acquire(session_id, draft(shift("wrk_3")), steal=True)
    await post(UserInterrupt(reason="wait"), "stop-1")
    await post(UserInterrupt(), "stop-2")
    await post(UserCancel(reason=ODD), "cancel-1")
    await post(UserCancel(), "cancel-2")


async def lines(store: MemoryStore, session_id: str) -> list[Line]:
    """The session as it is stored."""
    stored = await store.look(lambda look: list(look.stored(session_id)))
    return [
        Line(
            session_id, seq, epoch, at_us, type_, hash_.hex(),
            None if body is None else body.decode(), digest.hex() if body is None and digest else None,
        )
        for seq, epoch, at_us, type_, hash_, body, digest in stored
    ]  # fmt: skip


async def make() -> dict[str, list[Line]]:
    """The golden log: file name → lines."""
    counter = iter(range(10_000))
    store = MemoryStore(Ticks(), lambda size: next(counter).to_bytes(size, "big"))
    created = SessionCreated(
        goal=ODD,
        agent=Agent("scripted:demo", "mender", ODD, ("bash", "read"), (Rule("*", "deny"), Rule("read", "allow"))),
        workspace=Workspace("/srv/work", True, "ann", "none", {"/srv/wheels": "/opt/wheels"}, {"LANG": "C"}),
        limits=Limits(10**12, 7, 10_000, 512, 2),
        rules=ODD,
        key="nightly",
        accounts=("ses_full",),
        program="holdfast 0.1.0",
    )
    await story(store, "ses_full", created, full())
    store.rewrite("ses_full", ERASED, None)
    plain = SessionCreated(goal="g", agent=Agent("m"), workspace=Workspace("/w"))
    await story(store, "ses_bare", plain, bare())
    more = msgspec.structs.replace(later.created(ODD), accounts=("ses_more_full", "project:web"))
    await story(store, "ses_more_full", more, later.full(ODD), later.posts(ODD, "full"))
    await story(store, "ses_more_bare", plain, later.bare(), later.posts(ODD, "bare"))
    out = msgspec.structs.replace(outside.created(ODD), accounts=("ses_out_full",))
    await story(store, "ses_out_full", out, outside.full(ODD), outside.posts(ODD, "full"))
    await story(store, "ses_out_bare", plain, outside.bare(), outside.posts(ODD, "bare"))
    mission = msgspec.structs.replace(missions.created(ODD), accounts=("ses_mission",))
    await story(store, "ses_mission", mission, [ShiftEnded(status="released")])
    await story(store, "ses_mission_full", plain, missions.full(ODD), missions.posts(ODD, "full"))
    await story(store, "ses_mission_bare", plain, missions.bare(), missions.posts(ODD, "bare"))
    await story(store, "ses_items_full", items.created(ODD), items.full(ODD), items.posts(ODD, "full"))
    await story(store, "ses_items_bare", plain, items.bare(), items.posts(ODD, "bare"))
    duty = msgspec.structs.replace(duties.created(ODD), accounts=("ses_duty_full",))
    await story(store, "ses_duty_full", duty, duties.full(ODD), duties.posts(ODD, "full"))
    await story(store, "ses_duty_bare", duties.firing(), duties.bare(), duties.posts(ODD, "bare"))
    await home(store)
    await fork(store)
    new = ("mission", "mission_full", "mission_bare", "items_full", "items_bare", "duty_full", "duty_bare")
    names = ("full", "bare", "more_full", "more_bare", "out_full", "out_bare", *new)
    logs = {f"{name}.jsonl": await lines(store, f"ses_{name}") for name in names}
    return {**logs, "home.jsonl": await lines(store, HOME), "fork.jsonl": await lines(store, "ses_fork")}


async def home(store: MemoryStore) -> None:
    """The log of a whole home: a stop, lifted again."""
    told: list[AnyFact] = [
        EmergencyStopped(reason=ODD),
        EmergencyReleased(stop_seq=2, reason=ODD),
        EmergencyStopped(),
        EmergencyReleased(stop_seq=4),
        BudgetSet(account_id="project:web", period="total", cap_pico=10**13),
        LimitSet(scope="account", name="project:web", running=2, per_minute=60, burst=6),
        LimitSet(scope="model", name="m"),
        BriefRead(through_us=1_795_000_000_000_000),
        SessionsRemoved(
            sessions=(RemovedSession("ses_gone", 12, "ab" * 32),),
            accounts=(
                CarriedAccount(
                    account_id="project:web",
                    spent_pico=7,
                    fine=(SpendBucket(5_983_333, 7),),
                    hours=(SpendBucket(498_611, 7),),
                    cap_pico=10**13,
                    cap_day_pico=10**12,
                    cap_week_pico=10**12,
                    caps_us=1_795_000_000_000_000,
                ),
            ),
        ),
        SessionsRemoved(sessions=(RemovedSession("ses_gone_too", 1, "cd" * 32),)),
    ]
    for number, fact in enumerate(told, 2):
        draft = Draft(f"evt_home_{number:04d}", "user:ann", fact)
        await store.post(Post(HOME, f"home-{number}", draft))


async def fork(store: MemoryStore) -> None:
    """A session that goes on from another one's event."""
    at = (await store.read("ses_more_full"))[5]
    forked = SessionForked(
        origin="ses_more_full",
        origin_seq=at.seq,
        origin_hash=at.hash.hex(),
        goal=ODD,
        model="anthropic:m",
        workspace=Workspace("/srv/fork", True),
        accounts=("ses_fork", "project:web"),
        budget_pico=4,
        key="another way",
        snapshot="ab" * 32,
        program="holdfast 0.1.0",
        owner="bob",
        name="payer",
        snapshot_seq=4,
        unkept=("12.0",),
    )
    draft = Draft("evt_fork_0001", "user:ann", forked)
    await store.post(Post("ses_fork", "created", draft), create=True)
    draft = Draft("evt_fork_0002", "user:ann", UserMessage(content=(Text("go on"),)))
    await store.post(Post("ses_fork", "go on", draft))


def main() -> int:
    """Write the files of today's schema, unless they are there."""
    folder = HERE / f"v{SCHEMA}"
    folder.mkdir(exist_ok=True)
    for name, content in anyio.run(make).items():
        path = folder / name
        if path.exists():
            print(f"{path} is there and frozen: a change of the format needs a new schema version", file=sys.stderr)
            return 1
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
