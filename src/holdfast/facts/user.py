"""What people say to a session. All of these are posted (S3)."""

from __future__ import annotations

from holdfast.facts.base import Content, Fact


class UserMessage(Fact, frozen=True, tag="user.message"):
    """A person's words. They enter the context at the next model request."""

    wakes = True
    reopens = True

    content: Content


class UserInterrupt(Fact, frozen=True, tag="user.interrupt"):
    """A person asked the agent to stop what it is doing and wait (S14)."""

    wakes = True
    reopens = True

    reason: str = ""


class UserCancel(Fact, frozen=True, tag="user.cancel"):
    """A person ended the session for good."""

    wakes = True
    reopens = True

    reason: str = ""


class UserPause(Fact, frozen=True, tag="user.pause"):
    """A person asked the session to rest at its next safe boundary, until `user.resume`.

    `stop_seq` is not 0 when it comes from an emergency stop: the position of that in the home's log.
    """

    wakes = True

    reason: str = ""
    stop_seq: int = 0


class UserResume(Fact, frozen=True, tag="user.resume"):
    """A person lifted a pause."""

    wakes = True

    reason: str = ""
