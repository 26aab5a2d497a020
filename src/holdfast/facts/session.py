"""How a session begins, changes and goes wrong."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.facts.base import Fact, OnUnknown
from holdfast.facts.mission import Mission, Role


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One permission rule. `tool` is a glob over tool names; the last rule that matches wins.

    `match`, when not empty, is a glob over the call's main argument too (the command, the path). `for_s`
    seconds after the session began, or after `uses` calls, the rule no longer matches. `bound_to`, when not empty, are
    globs over paths of the workspace: what the rule asks about is bound to these files, not to all of the workspace.
    """

    tool: str
    decision: Literal["allow", "ask", "deny"]
    match: str = ""
    for_s: float | None = None
    uses: int | None = None
    bound_to: tuple[str, ...] = ()


class CustomTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool that the embedding program brings: a function in the brain's process.

    `input_schema` is JSON schema. `on_unknown` says what to do when nobody knows whether it happened
    (S12). A `keyed` one is handed a key that stays the same when the call is repeated. `price_pico` is
    what a call costs.
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
    """Who works: a model, a system prompt, the tools it is offered, what it may do.

    `fallbacks` are models to ask when the first one cannot answer, in order. `thinking` is how much the
    model may reason before it answers, empty for its provider's default.
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
    """How a context is kept small. All lines are absolute tokens: models decline by those, not by percent.

    `strategy`: `compaction` summarises the older turns, `reset` starts from a handoff, `hybrid` compacts
    inside a phase and resets between phases, `auto` chooses by phase and by the share of tool output,
    `off` parks at the limit. `line_tokens` is where it acts, `keep_tokens` what stays in full after a
    compaction. `failures` bounds the tries of each. `signs` says whether signs of anxiety, of loops and
    of no progress lead to a reset. Every `check_every` turns the rules that can be checked are.
    """

    strategy: Literal["auto", "compaction", "reset", "hybrid", "off"] = "auto"
    line_tokens: int = 100_000
    keep_tokens: int = 20_000
    failures: int = 2
    signs: bool = True
    check_every: int = 20


class Breakers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a session stops by itself and asks a person.

    `spend_per_hour_pico` caps the spend of any hour, None for no cap; `tool_failures` in a row, and
    `idle_turns` without progress after a reset did not help, open a breaker. `provider_failures` in a row
    take a model out of the chain for `provider_rest_s`.
    """

    spend_per_hour_pico: int | None = None
    tool_failures: int = 12
    idle_turns: int = 15
    provider_failures: int = 3
    provider_rest_s: float = 300.0


class People(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who answers, and when (S21). Names are as actors have them after `user:`; none means anybody.

    An item that nobody answers within `expires_s` takes its default, but only once somebody has seen it;
    None means never. After `remind_s` a reminder goes out, after `escalate_s` to `second` as well.
    `quiet` is `HH:MM-HH:MM Zone`, hours in which nothing is sent. `notify` are the names of the targets
    that are told, `notify_second` of those that are told only when `second` is asked too.
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
    """The caps of a session. Every loop has one.

    `budget_pico` is in pico-dollars, None for no money cap; `max_turns` counts model responses;
    `context_tokens` is the line at which the session parks; `max_output_tokens` bounds a response;
    `max_attempts` bounds the tries of one model request. `unpriced` accepts a model without a price
    under a money cap: its cost is then unknown and not counted. `max_children` counts those alive at one
    time, `max_depth` the generations below this session.
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
    """What hands a session gets, and how they are held in.

    `provider` is empty for this machine's default, else one of the providers' names. `memory_bytes`, `processes`,
    `cpus` (of one processor each) and `disk_bytes` (what the workspace may grow by, with its scratch) hold for all of
    the hands together; None for no limit. `require_hard` names the kinds of isolation that have to be hard, or the
    hands are refused; `accept_weak` lets a provider be used that isolates less than a sandbox. `warm` hands are kept
    ready, at most `idle_s` without a use.
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
    """A place outside that hands may talk to: an exact host name and its ports.

    `methods` and `paths` (globs), when not empty, bound requests that can be read: plain ones, and those of hosts that
    have a secret. Such requests may have the usual headers, and those that `headers` names. With `plain` port 80
    without TLS is allowed too. `private` lets the name lead to an address of a private network; never to this machine,
    nor to link-local or metadata addresses.
    """

    host: str
    ports: tuple[int, ...] = (443,)
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    plain: bool = False
    private: bool = False
    headers: tuple[str, ...] = ()


class SecretUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a secret may be put in, by name: its value is in no event.

    Hands see a placeholder in the environment variable `variable`. In requests to `hosts` the placeholder in the
    header `header` becomes the value; `basic` says that it is the password of Basic authentication, for git. `methods`
    and `paths` (globs) bound its use, when not empty; `push` are the refs (globs) that git may push with it, and
    with a minus in front those that it may delete. `headers` are as in `Destination`.
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
    """What hands may talk to: nothing, unless it is listed.

    `registries` stands for the package registries that this machine's own tools use. `ask` says when a person is
    asked before a secret is used: `tainted` once the session has read what strangers wrote. `bytes_max` and
    `requests_max` bound what the session may send and ask for altogether.
    """

    allow: tuple[Destination, ...] = ()
    registries: bool = False
    secrets: tuple[SecretUse, ...] = ()
    ask: Literal["tainted", "always", "never"] = "tainted"
    bytes_max: int = 10 << 30
    requests_max: int = 100_000


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that runs beside the work: its command, and the one that says that it is ready."""

    name: str
    command: str
    health: str = ""
    ready_s: float = 60.0


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands ready before work begins (made once, kept by digest).

    `auto` reads what to do from lock files and `init.sh`; `setup` are commands, run in order, with a network that
    reaches `registries` and `hosts` only. `packages` are Debian packages that are unpacked beside the system's own,
    `toolchains` folders of this host that are shown read-only. `recipes` are named ones, such as `browser`.
    `dotenv` maps variables of a `.env` file to names of secrets, whose placeholders it gets.
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
    """A search provider of the user's own: where it is asked, and where its answer has the results.

    `url` holds `{query}`. `results` is the dotted path of the list in the JSON answer; `title`, `link` and `snippet`
    are names within one result. `secret` names the secret that goes into its header.
    """

    name: str
    url: str
    results: str = "results"
    title: str = "title"
    link: str = "url"
    snippet: str = "content"
    secret: str = ""


class Workspace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the work is: a folder of this host. `disposable` when Holdfast made it itself.

    `user` is the login name that the hands run as, empty for the default choice.
    `isolation` is "sandbox", or "none" when a person asked for --no-sandbox. `read_only` maps host
    folders to the paths where they appear inside the hands; `env` is added to their environment, and
    holds no secret. `origin` is the folder of the repository that a disposable one was checked out of: all of its
    checkouts have one user and share what is made ready for them.
    """

    path: str
    disposable: bool = False
    user: str = ""
    isolation: Literal["sandbox", "none"] = "sandbox"
    read_only: dict[str, str] = {}
    env: dict[str, str] = {}
    origin: str = ""


class Parent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The session that opened this one, by which call, and how many generations are above.

    `root` is the session at the top of the tree; empty means the parent itself. `tainted` says that it had read what
    strangers may have written when it opened this one.
    """

    session_id: str
    call_id: str
    depth: int
    root: str = ""
    tainted: bool = False


class SessionCreated(Fact, frozen=True, omit_defaults=False, tag="session.created"):
    """The first event of a session: what is wanted, by whom, within which limits.

    `goal`, `rules` and `criteria` are pinned: they stand byte-identical in every context (S17).
    `accounts` is the path of money accounts from leaf to root; the first is the session's own, the others
    are a parent's, or shared ones such as `project:web`, which begin with their first session.
    A session with a `mission` is run by the conductor, which is code; one with a `role` works for a mission.
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


class SessionForked(Fact, frozen=True, omit_defaults=False, tag="session.forked"):
    """The first own event of a fork (S22): all before it are the events of `origin` up to `origin_seq`.

    Its chain goes on from `origin_hash`. Open calls become cancelled, reservations and approvals do not
    carry over. `goal`, `model`, `owner` and the agent's `name` are as the origin had them, for lists.
    `snapshot` is the state of the workspace that the fork began with: the origin's after its event
    `snapshot_seq`. `unkept` are calls after that which may have changed the workspace.
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
    """A person changed a limit, or handed the session to another person; only what changed is set."""

    wakes = True
    reopens = True

    budget_pico: int | None = None
    max_turns: int | None = None
    context_tokens: int | None = None
    owner: str | None = None
    egress: EgressPolicy | None = None


class SessionEventsLost(Fact, frozen=True, tag="session.events_lost"):
    """Acknowledged events of the log are lost, and a person decided to go on without them. The loss lies between the
    event before this one and this one.

    `known_seq` is the last lost event of this session that something still names, 0 when nothing does; `calls` are
    calls that its hands started and that the log no longer knows. `content` is what the model is told.
    """

    wakes = True

    content: str
    known_seq: int = 0
    calls: tuple[str, ...] = ()


class SessionError(Fact, frozen=True, tag="session.error"):
    """Something outside the model went wrong and the session had to stop or try again.

    `at_seq` is set when a wake failed: the last event before it that moved the work on. A second failure of that kind
    at the same event parks the session.
    """

    kind: str
    message: str
    at_seq: int = 0
