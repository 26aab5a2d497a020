"""Start, settings, and errors of a session."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.facts.base import Fact, OnUnknown
from holdfast.facts.base import Rule as Rule
from holdfast.facts.duty import Duty, Firing
from holdfast.facts.items import Items, ItemWork
from holdfast.facts.mission import Mission, Role
from holdfast.facts.task import Run


class CustomTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool of the embedding program: a function in the brain's process.

    `input_schema` is JSON schema. `on_unknown` declares the recovery for a call whose outcome is unknown (S12). A
    `keyed` tool receives a key that stays the same when the call is repeated. `price_pico` is the cost of one call.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    on_unknown: OnUnknown = "tell"
    timeout_s: float = 120.0
    read_only: bool = False
    keyed: bool = False
    price_pico: int = 0


class Agent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of an agent: model, system prompt, tools, and permission rules.

    `fallbacks` are the models to ask, in order, when the first one cannot answer. `thinking` bounds the model's
    reasoning, empty for its provider's default.
    """

    model: str
    name: str = "agent"
    system: str = ""
    tools: tuple[str, ...] = ("bash", "read", "write", "edit", "glob", "grep")
    rules: tuple[Rule, ...] = ()
    custom: tuple[CustomTool, ...] = ()
    fallbacks: tuple[str, ...] = ()
    thinking: Literal["", "off", "low", "medium", "high"] = ""


class ContextPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Policy for keeping a context small. All limits are absolute token counts: models degrade by those, not by
    percentages.

    `strategy`: `compaction` summarizes older turns, `reset` starts over from a handoff, `hybrid` compacts inside a
    phase and resets between phases, `auto` chooses by phase and by the share of tool output, `off` parks at the limit.
    `line_tokens` is the size that triggers it, `keep_tokens` what stays in full after a compaction. `failures` bounds
    the attempts of each. `signs` enables resets on signs of anxiety, loops, and no progress. The rules that code can
    check are checked every `check_every` turns.
    """

    strategy: Literal["auto", "compaction", "reset", "hybrid", "off"] = "auto"
    line_tokens: int = 100_000
    keep_tokens: int = 20_000
    failures: int = 2
    signs: bool = True
    check_every: int = 20


class Breakers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits at which a session stops by itself and asks a user.

    `spend_per_hour_pico` caps the spend of any hour, None for no cap. A breaker opens after `tool_failures` in a row,
    or after `idle_turns` without progress once a reset did not help. `provider_failures` in a row take a model out of
    the chain for `provider_rest_s`.
    """

    spend_per_hour_pico: int | None = None
    tool_failures: int = 12
    idle_turns: int = 15
    provider_failures: int = 3
    provider_rest_s: float = 300.0


class People(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Users who answer for a session, and the times at which they are notified (S21).

    Names are those of actors without `user:`; an empty list means any user. An item that is not answered within
    `expires_s` takes its default, but only once an approver has seen it; None means never. A reminder is sent after
    `remind_s`, and also to `second` after `escalate_s`. `quiet` is `HH:MM-HH:MM Zone`: hours in which nothing is sent.
    `notify` are the names of the targets to notify, `notify_second` those to notify only when `second` is asked too.
    """

    owner: str = ""
    approvers: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    expires_s: float | None = 259_200.0
    on_expiry: Literal["deny", "approve"] = "deny"
    remind_s: float = 14_400.0
    escalate_s: float = 43_200.0
    quiet: str = ""
    notify: tuple[str, ...] = ()
    notify_second: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Caps of a session. Every loop has one.

    `budget_pico` is in pico-dollars, None for no cap. `max_turns` counts model responses. The session parks at
    `context_tokens`. `max_output_tokens` bounds a response, `max_attempts` the attempts at one model request.
    `unpriced` accepts a model without a price under a cap: its cost is then unknown and not counted. `max_children`
    counts live children, `max_depth` the generations below this session.
    """

    budget_pico: int | None = None
    max_turns: int = 200
    context_tokens: int = 150_000
    max_output_tokens: int = 8_192
    max_attempts: int = 5
    unpriced: bool = False
    max_children: int = 16
    max_depth: int = 3
    context: ContextPolicy = ContextPolicy()
    breakers: Breakers = Breakers()


class HandsPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sandbox provider and resource limits of a session.

    `provider` is a provider's name, empty for this machine's default. `memory_bytes`, `processes`, `cpus` (in units of
    one processor), and `disk_bytes` (growth of the workspace and its scratch space) apply to the whole sandbox; None
    for no limit. `require_hard` lists the kinds of isolation that must be hard, or the sandbox is refused.
    `accept_weak` permits a provider that isolates less than a sandbox. Up to `warm` sandboxes are kept ready, unused
    for at most `idle_s`.
    """

    provider: str = ""
    memory_bytes: int | None = 8 << 30
    processes: int | None = 512
    cpus: float | None = None
    disk_bytes: int | None = 20 << 30
    require_hard: tuple[str, ...] = ()
    accept_weak: bool = False
    warm: int = 0
    idle_s: float = 120.0


class Destination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host that the sandbox may connect to: an exact host name and its ports.

    `methods` and `paths` (globs), if not empty, restrict requests that the proxy can read: plain HTTP, and those to
    hosts that have a secret. Such requests may carry the usual headers and those in `headers`. `plain` also allows port
    80 without TLS. `private` allows the name to resolve to an address of a private network, but never to this machine
    or to link-local or metadata addresses.
    """

    host: str
    ports: tuple[int, ...] = (443,)
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    plain: bool = False
    private: bool = False
    headers: tuple[str, ...] = ()


class SecretUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Permitted use of a secret, by name. No event holds its value.

    The sandbox sees a placeholder in the environment variable `variable`. In requests to `hosts`, the proxy replaces
    the placeholder in the header `header` by the value; `basic` marks it as the password of Basic authentication, for
    git. `methods` and `paths` (globs) restrict its use if not empty. `push` are the refs (globs) that git may push with
    it; those with a leading minus may be deleted. `headers` are as in `Destination`.
    """

    name: str
    hosts: tuple[str, ...]
    variable: str = ""
    header: str = "authorization"
    basic: bool = False
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    push: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


class EgressPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Allow-list of the egress proxy. Nothing is allowed unless listed.

    `registries` stands for the package registries that this machine's own tools use. `ask` says when an approver is
    asked before a secret is used: `tainted` after the session has read untrusted content. `bytes_max` and
    `requests_max` cap the session's total traffic.
    """

    allow: tuple[Destination, ...] = ()
    registries: bool = False
    secrets: tuple[SecretUse, ...] = ()
    ask: Literal["tainted", "always", "never"] = "tainted"
    bytes_max: int = 10 << 30
    requests_max: int = 100_000


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that runs beside the work: its command, and the command that checks that it is ready."""

    name: str
    command: str
    health: str = ""
    ready_s: float = 60.0


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Environment to prepare before work begins; built once and cached by digest.

    `auto` derives the steps from lock files and `init.sh`. `setup` are commands, run in order, with network access to
    `registries` and `hosts` only. `packages` are Debian packages unpacked beside the system's own, `toolchains` folders
    of this host that are mounted read-only. `recipes` are named set-ups such as `browser`. `dotenv` maps variables of a
    `.env` file to names of secrets, whose placeholders it receives.
    """

    auto: bool = False
    setup: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    toolchains: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    recipes: tuple[str, ...] = ()
    hosts: tuple[Destination, ...] = ()
    dotenv: dict[str, str] = {}
    submodules: bool = False
    lfs: bool = False
    timeout_s: float = 1_800.0


class Searcher(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A search provider of the user: its URL and the layout of its answer.

    `url` holds `{query}`. `results` is the dotted path of the list in the JSON answer; `title`, `link`, and `snippet`
    are field names within one result. `secret` names the secret for its header.
    """

    name: str
    url: str
    results: str = "results"
    title: str = "title"
    link: str = "url"
    snippet: str = "content"
    secret: str = ""


class Workspace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Folder of this host that the session works in. `disposable` means that Holdfast created it.

    `user` is the login name that the sandbox runs as, empty for the default. `isolation` is "sandbox", or "none" after
    --no-sandbox. `read_only` maps host folders to their paths inside the sandbox; `env` is added to its environment and
    holds no secret. `origin` is the folder of the repository that a disposable workspace was checked out of: all its
    checkouts share one user and one environment.
    """

    path: str
    disposable: bool = False
    user: str = ""
    isolation: Literal["sandbox", "none"] = "sandbox"
    read_only: dict[str, str] = {}
    env: dict[str, str] = {}
    origin: str = ""


class Parent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The session that opened this one, the call that did, and the depth below the root.

    `root` is the session at the top of the tree; empty means the parent itself. `tainted` means that the parent had
    read untrusted content when it opened this session.
    """

    session_id: str
    call_id: str
    depth: int
    root: str = ""
    tainted: bool = False


class SessionCreated(Fact, frozen=True, omit_defaults=False, tag="session.created"):
    """First event of a session: its goal, agent, workspace, and limits.

    `goal`, `rules`, and `criteria` are pinned: they stand byte-identical in every context (S17). `accounts` is the path
    of money accounts from leaf to root: the session's own first, then those of its parents, or shared ones such as
    `project:web`, which begin with their first session. A session with a `mission` is run by the conductor, which is
    code; one with a `role` works for a mission; one with a `run` has checks or commits. One with `items` is a run over
    a list; one with an `item` works for such a run. A `duty` is code too; a session with a `firing` works for it.
    """

    goal: str
    agent: Agent
    workspace: Workspace
    limits: Limits = Limits()
    rules: str = ""
    key: str = ""
    accounts: tuple[str, ...] = ()
    program: str = ""
    criteria: tuple[str, ...] = ()
    parent: Parent | None = None
    people: People = People()
    hands: HandsPolicy = HandsPolicy()
    egress: EgressPolicy = EgressPolicy()
    environment: Environment = Environment()
    searchers: tuple[Searcher, ...] = ()
    mission: Mission | None = None
    role: Role | None = None
    run: Run | None = None
    items: Items | None = None
    item: ItemWork | None = None
    duty: Duty | None = None
    firing: Firing | None = None


def travels(created: SessionCreated) -> bool:
    """Return True for a session that any home can run that has its log and the snapshots of its workspace.

    Missions, lists, and duties have branches, files, and state in the home that opened them.
    """
    parts = (created.mission, created.role, created.items, created.item, created.duty, created.firing)
    return created.workspace.disposable and not created.workspace.read_only and not any(parts)


class SessionForked(Fact, frozen=True, omit_defaults=False, tag="session.forked"):
    """First event of a fork (S22): all events before it are those of `origin` up to `origin_seq`.

    The chain continues from `origin_hash`. Open calls are cancelled; reservations and approvals do not carry over.
    `goal`, `model`, `owner`, and the agent's `name` are copied from the origin, for lists. `snapshot` is the workspace
    that the fork began with: the origin's after its event `snapshot_seq`. `unkept` are later calls that may have
    changed the workspace.
    """

    origin: str
    origin_seq: int
    origin_hash: str
    goal: str
    model: str
    workspace: Workspace
    accounts: tuple[str, ...]
    budget_pico: int | None = None
    key: str = ""
    snapshot: str = ""
    program: str = ""
    owner: str = ""
    name: str = ""
    snapshot_seq: int = 0
    unkept: tuple[str, ...] = ()


class SessionUpdated(Fact, frozen=True, tag="session.updated"):
    """A user changed a limit or transferred the session to another user. Only changed fields are set."""

    wakes = True
    reopens = True

    budget_pico: int | None = None
    max_turns: int | None = None
    context_tokens: int | None = None
    owner: str | None = None
    egress: EgressPolicy | None = None


class SessionEventsLost(Fact, frozen=True, tag="session.events_lost"):
    """A user accepted the loss of acknowledged events. The loss lies between the previous event and this one.

    `known_seq` is the last lost event of this session that another record names, 0 when none does; `calls` are calls
    that its hands started and that the log no longer has. `content` is shown to the model. `workspace` is the new path
    of the session's workspace if its home was restored in another folder.
    """

    wakes = True

    content: str
    known_seq: int = 0
    calls: tuple[str, ...] = ()
    workspace: str = ""


class SessionError(Fact, frozen=True, tag="session.error"):
    """An error outside the model made the session stop or try again.

    `at_seq` is set when a wake failed: the last event before it that moved the work on. A second failure of the same
    kind at the same event parks the session.
    """

    kind: str
    message: str
    at_seq: int = 0
