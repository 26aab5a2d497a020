"""A home with sessions of every state, and a mission, made of facts: for tests and pictures of the pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.clock import SystemClock
from holdfast.facts.base import Fact, Text, Usage
from holdfast.facts.codec import Draft
from holdfast.facts.hands import HandsProvisioned, SessionTainted
from holdfast.facts.mission import Check, Contract, Criterion, Item, Task
from holdfast.facts.model import AgentMessage, AgentToolUse, ContextCompacted, ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalRequested, UserMessage
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.task import RatchetViolated, TaskRefused, TaskStarted, Violation
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.ids import new_event_id, system_entropy
from holdfast.log.base import Lease, Post
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.session.context.text import action_digest, action_text
from holdfast.session.money import HOME_ACCOUNT, PICO
from tests.mission.brief_mission import MAIN, World, sha
from tests.support.web_duties import write_duty
from tests.support.web_list import write_list

MINUTE_US = 60 * 1_000_000
HOUR_US = 60 * MINUTE_US

MODEL = "anthropic:claude-sonnet-5"


class Steps:
    """A clock that tests set. It moves by a second with each look, so that events have an order."""

    def __init__(self, now_us: int) -> None:
        self.at_us = now_us

    def now_us(self) -> int:
        self.at_us += 1_000_000
        return self.at_us

    def monotonic_s(self) -> float:
        return SystemClock().monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(seconds)


class WebHome:
    """Writes sessions into a home as a brain would, without a model."""

    def __init__(self, home: Path, store: SqliteStore, clock: Steps, worker: Worker) -> None:
        self.home = home
        self.store = store
        self.clock = clock
        self.worker = worker
        self.now_us = SystemClock().now_us()
        self.leases: dict[str, Lease] = {}
        self.items = 0

    def draft(self, fact: Any, actor: str = "brain") -> Draft:
        return Draft(new_event_id(self.now_us, system_entropy), actor, fact)

    async def open(self, key: str, goal: str, *, ago_us: int, cap: int | None = 5 * PICO, **fields: Any) -> str:
        """Open a session, and take its lease."""
        self.clock.at_us = self.now_us - ago_us
        session_id = f"ses_{key.replace('-', '')}"
        fields = {"limits": Limits(budget_pico=cap), "accounts": (session_id, HOME_ACCOUNT), "key": key, **fields}
        created = SessionCreated(
            goal=goal,
            agent=fields.pop("agent", Agent(MODEL, name="agent")),
            workspace=fields.pop("workspace", Workspace(f"/srv/{key.partition('-')[0]}")),
            **fields,
        )
        return await self.create(session_id, created)

    async def create(self, session_id: str, created: SessionCreated) -> str:
        """Write the first event of a session, and take its lease."""
        await self.store.post(Post(session_id, "created", self.draft(created, "user:anna")), create=True)
        shift = ShiftStarted(worker_id=self.worker.worker_id, host_id="h", boot_id="b", pid=4711, program="holdfast")
        self.leases[session_id] = await self.store.acquire(session_id, self.draft(shift))
        return session_id

    async def tell(self, session_id: str, *facts: Fact) -> int:
        """Append facts under the lease. Returns the last position."""
        events = await self.store.append(
            session_id, self.leases[session_id].epoch, [self.draft(each) for each in facts]
        )
        return events[-1].seq

    async def turn(
        self, session_id: str, said: str, *calls: tuple[str, dict[str, Any], str | None], usd: float = 0.02
    ) -> int:
        """One turn: a request, a message, and calls with their results; an empty one leaves a call open, None does not
        even dispatch it. Returns the position of the request; its first call is two later."""
        start = await self.tell(
            session_id,
            ModelRequestStart(
                purpose="turn",
                model=MODEL,
                attempt=1,
                inputs_through=1,
                max_output_tokens=4096,
                reserved_pico=PICO // 10,
                input_tokens_estimate=9_000,
            ),
        )
        uses = [
            AgentToolUse(request_seq=start, call_id=f"c{start}.{place}", name=name, input=given)
            for place, (name, given, _) in enumerate(calls)
        ]
        end = ModelRequestEnd(
            request_seq=start,
            outcome="ok",
            usage=Usage(9_000, 300),
            cost_pico=int(usd * PICO),
            stop_reason="tool_use" if calls else "end_turn",
            duration_ms=2_300.0,
        )
        await self.tell(session_id, AgentMessage(request_seq=start, content=(Text(said),)), *uses, end)
        for place, result in ((place, call[2]) for place, call in enumerate(calls) if call[2] is not None):
            call_id = f"c{start}.{place}"
            await self.tell(
                session_id,
                ToolDispatched(
                    call_id=call_id, attempt=1, hands_id="hnd_1", action_digest="d", on_unknown="tell", timeout_s=120
                ),
            )
            if result:
                await self.tell(
                    session_id, ToolResult(call_id=call_id, outcome="ok", content=result, duration_ms=840.0)
                )
        return start

    async def end(self, session_id: str, status: str = "done", reason: Any = None, detail: str = "") -> None:
        """End the shift, and give the lease back."""
        await self.tell(session_id, ShiftEnded(status=status, reason=reason, detail=detail))  # type: ignore[arg-type]
        await self.store.release(self.leases.pop(session_id))

    async def ask(self, session_id: str, title: str, command: str, **fields: Any) -> str:
        """Open an item about a bash command, and park. Returns the item."""
        self.items += 1
        item_id = f"itm_{self.items:04}"
        given = {"command": command}
        kind = fields.pop("kind", "tool")
        action = action_text("bash", given) if kind == "tool" else command
        if kind == "tool":
            fields["evidence"] = (await self.turn(session_id, "I ask first.", ("bash", given, None)) + 2,)
        request = ApprovalRequested(
            item_id=item_id,
            kind=kind,
            title=title,
            action=action,
            action_digest=action_digest("bash", given),
            cost_pico=PICO // 8,
            **fields,
        )
        await self.tell(session_id, request)
        await self.end(session_id, "parked", "person", title)
        return item_id


@asynccontextmanager
async def web_home(home: Path) -> AsyncIterator[WebHome]:
    """An empty home to write into. Sessions whose shift was not ended run until this ends."""
    home.mkdir(mode=0o711, parents=True, exist_ok=True)
    worker = Worker.start(home / "workers", "wrk_web")
    clock = Steps(SystemClock().now_us())
    try:
        async with await SqliteStore.open(home / "holdfast.db", workers=home / "workers", clock=clock) as store:
            yield WebHome(home, store, clock, worker)
    finally:
        worker.close()


SCRIPT = "\n".join(
    ["python - <<'EOF'", "import psycopg", "with psycopg.connect() as db:"]
    + [f"    db.execute('alter table orders_{year} add column region text')" for year in range(1995, 2025)]
    + ["EOF"]
)
"""A command too long for a card of the list."""


async def populate(made: WebHome) -> None:
    """Sessions that wait, fail, end, and run, a mission at work, and a duty."""
    await _waiting(made)
    await _ended(made)
    await _mission(made)
    await write_list(made, "reviews", 250)
    await write_duty(made)
    await _running(made)


async def _waiting(made: WebHome) -> None:
    release = await made.open("release-notes", "Publish the release notes of 2.4.0", ago_us=3 * HOUR_US)
    await made.turn(
        release,
        "I read the commits since 2.3.0 and wrote the notes.",
        (
            "bash",
            {"command": "git log --oneline v2.3.0.."},
            "8f2c1ab Speed up the parser\n01d9e7c Fix a crash on empty input",
        ),
        usd=0.14,
    )
    await made.ask(
        release,
        "May it publish the release?",
        "gh release create v2.4.0 --title 'Parser 2.4.0' --notes-file NOTES.md",
        why="The goal asks for a published release, and publishing is visible to all users.",
        touches="github.com with the secret GITHUB_TOKEN; cannot be undone quietly",
        guards={"file:NOTES.md": "d1", "policy": "d2"},
        approvers=(),
        default="deny",
        expires_us=made.now_us + 5 * HOUR_US,
    )
    schema = await made.open("orders-migration", "Add a region to all order tables", ago_us=2 * HOUR_US)
    await made.turn(schema, "I wrote the migration.", usd=0.4)
    await made.tell(schema, SessionTainted(reason="it read a page of example.org", evidence=(5,)))
    await made.ask(
        schema,
        "May bash run on the production database?",
        SCRIPT,
        why="An ask rule names psycopg.",
        touches="db.internal:5432",
    )
    asks = await made.open("docs-license", "Add license headers to all source files", ago_us=HOUR_US)
    await made.turn(asks, "Two header styles are in use.", usd=0.05)
    await made.ask(
        asks,
        "Which license header should new files get?",
        "Which license header should new files get?",
        kind="question",
        options=("The short SPDX line", "The full Apache header"),
        why="Half of the files have one, half the other.",
    )
    poor = await made.open("fuzz-parser", "Fuzz the parser for an hour", ago_us=50 * MINUTE_US)
    await made.turn(poor, "Ten million inputs so far.", usd=4.9)
    await made.end(poor, "parked", "cap", "the turn limit of 40 is reached")


async def _ended(made: WebHome) -> None:
    for number, (key, goal, usd) in enumerate(
        (
            ("site-typos", "Fix the typos that the link checker found", 0.31),
            ("api-timeouts", "Give every client call a timeout", 1.27),
            ("ci-cache", "Cache the build between CI runs", 0.66),
        )
    ):
        done = await made.open(key, goal, ago_us=(26 - 9 * number) * HOUR_US)
        await made.turn(
            done, "It is done, and the tests pass.", ("bash", {"command": "make test"}, "214 passed in 9.1 s"), usd=usd
        )
        await made.end(done)
    failed = await made.open(
        "nightly-deps",
        "Update the dependencies",
        ago_us=5 * HOUR_US,
        workspace=Workspace("/srv/nightly", isolation="none"),
    )
    await made.turn(failed, "The lock file does not resolve.", usd=0.22)
    await made.end(failed, "failed", None, "the model refused 3 requests in a row: invalid_request")


async def _running(made: WebHome) -> None:
    busy = await made.open("flaky-tests", "Find out why test_upload fails one time in twenty", ago_us=40 * MINUTE_US)
    await made.tell(
        busy,
        HandsProvisioned(
            hands_id="hnd_1",
            provider="bubblewrap",
            host_id="h",
            boot_id="b",
            address="",
            workspace="/srv/flaky",
            root="/work",
            uid=20_001,
            isolation={"files": "hard", "network": "hard"},
        ),
    )
    for number in range(14):
        await made.turn(
            busy,
            f"Run {number + 1} of the upload test under load, with another seed.",
            (
                "bash",
                {"command": f"SEED={number} pytest -q tests/test_upload.py -k retry --count 20"},
                f"{'F' if number % 5 == 4 else '.'}" * 20 + f"\n{20 - number % 5} passed in {number + 3}.2 s",
            ),
            usd=0.03 + 0.01 * (number % 4),
        )
        if number == 5:
            await made.store.post(
                Post(
                    busy,
                    "hint",
                    made.draft(UserMessage(content=(Text("Look at the retry timer first."),)), "user:anna"),
                )
            )
        if number == 8:
            seq = (await made.store.find(busy)).head
            await made.tell(
                busy,
                ContextCompacted(
                    request_seq=0,
                    from_seq=2,
                    through_seq=seq - 12,
                    summary="Runs 1 to 6: no failure without load. The retry timer starts before the socket is bound.",
                    tokens_before=61_000,
                    tokens_after=9_000,
                ),
            )
    start = (await made.store.find(busy)).head + 1
    await made.turn(busy, "I try it on two sockets.", ("bash", {"command": "./try-upload.sh --pair"}, ""))
    await made.tell(busy, ToolOutcomeUnknown(call_id=f"c{start}.0", reason="the sandbox is gone", content="unknown"))
    await made.turn(
        busy,
        "The failure needs two uploads at once. I bisect.",
        ("bash", {"command": "git bisect run ./try-upload.sh"}, ""),
    )


CRITERIA = (
    ("parse", "Empty input gives an empty document", "pytest -q tests/test_empty.py"),
    ("parse", "Nested lists keep their order", "pytest -q tests/test_lists.py"),
    ("speed", "A file of 10 MB parses in 2 s", "python bench/parse.py --max 2"),
    ("errors", "Each error names line and column", "pytest -q tests/test_errors.py"),
    ("errors", "A truncated file is an error", "pytest -q tests/test_truncated.py"),
    ("docs", "The reference lists every option", "python scripts/check_docs.py"),
)


async def _mission(made: WebHome) -> None:
    """A mission of six tasks: two merged, one refused by the ratchet, one at work, two planned."""
    items = tuple(
        Item(
            f"{name}{place}",
            text,
            criteria=(Criterion(f"{name}.{place}", text, Check(command)),),
            paths=(f"src/{name}.py",),
        )
        for place, (name, text, command) in enumerate(CRITERIA, 1)
    )
    rubric = Item(
        "readme",
        "The README is clear",
        criteria=(Criterion("readme.1", "A newcomer can install it from the README", None),),
    )
    titles = [text for _, text, _ in CRITERIA]
    tasks = tuple(
        Task(f"T{place}", titles[place - 1], (item.criteria[0].id,), item.paths, depends=depends)
        for place, (item, depends) in enumerate(
            zip(items, ((), ("T1",), ("T1",), ("T2",), ("T4",), ("T3", "T4")), strict=True), 1
        )
    )
    contract = Contract("Make the parser robust, fast, and documented", (*items, rubric))
    world = World(contract, tasks)
    for number, task in enumerate(tasks[:2], 1):
        world.works(task)
        world.merges(task, number)
    third = world.works(tasks[2])
    tree = sha("t-T3")
    world.checks(tree, tasks[2].criteria, "fail")
    world.top.tell(
        RatchetViolated(task_id="T3", tree=tree, violations=(Violation("test_deleted", "tests/test_speed.py"),)),
        TaskRefused(task_id="T3", child_id=third.session_id, kind="ratchet", issues=("leave the tests",), tree=tree),
    )
    fourth = world.child("worker", "T4")
    world.top.tell(
        TaskStarted(task_id="T4", child_id=fourth.session_id, attempt=1, base=world.main, ref=f"{MAIN[:-4]}T4")
    )
    world.asks(fourth)
    await write_world(made, world, ago_us=6 * HOUR_US)


async def write_world(made: WebHome, world: World, *, ago_us: int) -> None:
    """Write a made-up mission into the home: its events keep their positions."""
    made.clock.at_us = made.now_us - ago_us
    for told in (world.top, *world.below):
        first, *rest = [event.fact for event in told.events]
        assert isinstance(first, SessionCreated)
        named = {"key": "parser"} if told is world.top else {}
        limits = Limits(budget_pico=20 * PICO) if told is world.top else Limits()
        data = {name: getattr(first, name) for name in first.__struct_fields__}
        data |= {
            "limits": limits,
            "accounts": (told.session_id, *(() if told is world.top else ("ses_top",)), HOME_ACCOUNT),
        }
        await made.create(told.session_id, SessionCreated(**{**data, **named}))
        facts: Sequence[Any] = [fact for fact in rest if not isinstance(fact, ShiftStarted)]
        for at in range(0, len(facts), 8):
            made.clock.at_us += 4 * MINUTE_US if told is world.top else MINUTE_US
            await made.tell(told.session_id, *facts[at : at + 8])
        if told is not world.top:
            await made.end(told.session_id)
