"""How a session begins, changes and goes wrong."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One permission rule. `tool` is a glob over tool names; the last rule that matches wins."""

    tool: str
    decision: Literal["allow", "deny"]


class Agent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who works: a model, a system prompt, the tools it is offered, what it may do."""

    model: str
    name: str = "agent"
    system: str = ""
    tools: tuple[str, ...] = ("bash", "read", "write", "edit", "glob", "grep")
    rules: tuple[Rule, ...] = ()


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caps of a session. Every loop has one.

    `budget_pico` is in pico-dollars, None for no money cap; `max_turns` counts model responses;
    `context_tokens` is the line at which the session parks; `max_output_tokens` bounds a response;
    `max_attempts` bounds the tries of one model request.
    """

    budget_pico: int | None = None
    max_turns: int = 200
    context_tokens: int = 150_000
    max_output_tokens: int = 8_192
    max_attempts: int = 5


class Workspace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the work is: a folder of this host. `disposable` when Holdfast made it itself.

    `user` is the login name that the hands run as, empty for the default choice.
    `isolation` is "sandbox", or "none" when a person asked for --no-sandbox. `read_only` maps host
    folders to the paths where they appear inside the hands; `env` is added to their environment, and
    holds no secret.
    """

    path: str
    disposable: bool = False
    user: str = ""
    isolation: Literal["sandbox", "none"] = "sandbox"
    read_only: dict[str, str] = {}
    env: dict[str, str] = {}


class SessionCreated(Fact, frozen=True, omit_defaults=False, tag="session.created"):
    """The first event of every session: what is wanted, by whom, within which limits.

    `goal` and `rules` are pinned: they stand byte-identical in every context (S17). `accounts` is
    the path of money accounts from leaf to root; the first is the session's own.
    """

    goal: str
    agent: Agent
    workspace: Workspace
    limits: Limits = Limits()
    rules: str = ""
    key: str = ""
    accounts: tuple[str, ...] = ()
    program: str = ""


class SessionUpdated(Fact, frozen=True, tag="session.updated"):
    """A person changed a limit; only what changed is set."""

    budget_pico: int | None = None
    max_turns: int | None = None
    context_tokens: int | None = None


class SessionError(Fact, frozen=True, tag="session.error"):
    """Something outside the model went wrong and the session had to stop or try again."""

    kind: str
    message: str
