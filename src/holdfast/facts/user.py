"""What people say to a session. All of these are posted (S3)."""

from __future__ import annotations

from holdfast.facts.base import Content, Fact


class UserMessage(Fact, frozen=True, tag="user.message"):
    """A person's words. They enter the context at the next model request."""

    content: Content


class UserInterrupt(Fact, frozen=True, tag="user.interrupt"):
    """A person asked the agent to stop what it is doing and wait (S14)."""

    reason: str = ""


class UserCancel(Fact, frozen=True, tag="user.cancel"):
    """A person ended the session for good."""

    reason: str = ""
