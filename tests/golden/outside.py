"""What schema 3 added: what hands may use and talk to, jobs, services, environments."""

from __future__ import annotations

from holdfast.facts.hands import (
    EgressFailed,
    EgressRecorded,
    EgressSeen,
    EnvironmentRecorded,
    HandsHostFiles,
    HandsProvisioned,
    HandsRestored,
    HostFile,
    SessionTainted,
    Step,
)
from holdfast.facts.session import (
    Agent,
    Destination,
    EgressPolicy,
    Environment,
    HandsPolicy,
    Parent,
    Searcher,
    SecretUse,
    Service,
    SessionCreated,
    SessionUpdated,
    Workspace,
)
from holdfast.facts.shift import ChildFinished, ShiftEnded
from holdfast.facts.task import HookFile, Run
from holdfast.facts.tool import JobEnded, JobLine, JobStarted, ServiceEnded, ServiceStarted, ToolResult
from holdfast.facts.union import AnyFact

AT_US = 1_795_000_000_000_000
API = Destination("api.example.com", (443, 8443), ("GET", "POST"), ("/v1/*",), True, True)
KEY = SecretUse("key", ("api.example.com",), "API_KEY", "x-api-key", True, ("GET",), ("/v1/*",), ("refs/heads/a/*",))
POLICY = EgressPolicy((API,), True, (KEY,), "always", 10**6, 77)


def created(odd: str) -> SessionCreated:
    """A session with every such setting set."""
    return SessionCreated(
        goal=odd,
        agent=Agent("m", tools=("bash", "job_start")),
        workspace=Workspace("/srv/work"),
        parent=Parent("ses_full", "4.0", 1, "ses_full", True),
        hands=HandsPolicy("podman", 10**9, 64, 1.5, 10**10, ("memory", "disk"), True, 2, 7.5),
        egress=POLICY,
        environment=Environment(
            True, ("npm ci",), ("zlib1g-dev",), ("/opt/node",), (Service("db", "postgres", "pg_isready", 9.5),),
            ("browser",), (API,), {"KEY": "key"}, True, True, 60.5,
        ),
        searchers=(Searcher("mine", "https://s.example.com/?q={query}", "web.results", "t", "l", "s", "key"),),
        run=Run(("make test", odd), 3, 60.5, "/srv", "ab" * 20, True, (HookFile(".claude/hooks/a.sh", odd, True),)),
    )  # fmt: skip


def full(odd: str) -> list[AnyFact]:
    """What a brain appends, every field set."""
    seen = EgressSeen("held", "api.example.com", 443, 3, odd, "GET", "/v1/x", "key", True, 10, 20)
    step = Step("npm ci", 1, 12.5, odd)
    return [
        EnvironmentRecorded(
            digest="ab" * 32, cached=True, steps=(step,), files={"package-lock.json": "cd" * 32}, packages=("zlib1g",),
            toolchains=("/opt/node",), versions={"node": "20"}, bytes=10**10, duration_ms=1.5, error=odd,
            folders=("/workspace/node_modules",), notes=(odd,), seen=(seen,),
        ),
        HandsProvisioned(
            hands_id="hnd_1", provider="landlock", host_id="host", boot_id="boot", address="/run/1.sock",
            workspace="/srv/work", root="/workspace", uid=1000, isolation={"memory": "hard"}, weak=odd,
            environment="ab" * 32, holds_workspace=True,
        ),
        HandsRestored(hands_id="hnd_1", snapshot="ef" * 32, through_seq=2, content=odd, unkept=("4.0",)),
        HandsHostFiles(hands_id="hnd_1", files=(HostFile(odd, "direnv"),), before=True, cut=True),
        JobStarted(
            job_id="4.0", call_id="4.0", hands_id="hnd_1", name="train", command=odd, line="^done",
            deadline_us=AT_US + 1, until_us=AT_US + 2,
        ),
        ServiceStarted(name="db", call_id="4.1", hands_id="hnd_1", command="postgres", health="pg_isready"),
        ServiceEnded(name="db", hands_id="hnd_1", reason="stopped", content=odd),
        EgressRecorded(through=9, seen=(seen,), dropped=2, set_up=True),
        EgressFailed(reason=odd),
        SessionTainted(reason=odd, evidence=(9,)),
        ToolResult(call_id="4.2", outcome="ok", content=odd, untrusted=True),
        ShiftEnded(status="parked", reason="job", detail="waits for train", due_us=AT_US),
    ]  # fmt: skip


def bare() -> list[AnyFact]:
    """What a brain appends, nothing set that can be left out."""
    return [
        EnvironmentRecorded(digest=""),
        HandsRestored(hands_id="h", snapshot="", through_seq=0, content=""),
        JobStarted(job_id="4.0", call_id="4.0", hands_id="h"),
        ServiceStarted(name="s", call_id="4.1", hands_id="h"),
        ServiceEnded(name="s", hands_id="h", reason=""),
        EgressRecorded(through=0, seen=(EgressSeen("allowed", "h", 443),)),
        EgressFailed(reason=""),
        SessionTainted(reason=""),
    ]


def posts(odd: str, end: str) -> list[tuple[str, AnyFact]]:
    """What is posted, under its key."""
    whole = end == "full"
    line = JobLine(job_id="4.0", content=odd, deadline=True) if whole else JobLine(job_id="4.0", content="")
    ended = JobEnded(job_id="4.0", outcome="ok", content="")
    if whole:
        ended = JobEnded(job_id="4.0", outcome="timeout", content=odd, exit_code=1, duration_ms=1.5)
    return [
        ("job:4.0:line", line),
        ("job:4.0:end", ended),
        ("egress", SessionUpdated(egress=POLICY if whole else EgressPolicy())),
        ("child:ses_d:1", ChildFinished(child_id="ses_d", status="done", untrusted=whole)),
    ]
