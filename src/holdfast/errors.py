"""Every error that Holdfast raises, in one tree.

    HoldfastError
    ├── UsageError                 2  what was typed cannot be meant
    │   ├── UnknownSession         2  no session has that id, key or prefix
    │   ├── UnknownItem            2  no question to a person has that id or prefix
    │   ├── ItemClosed             2  somebody was faster, it expired, or it counts no more
    │   └── ContractInvalid        2  a definition of done that cannot be read or meant
    ├── CannotRunSafely            5  the machine or the configuration is not able to
    │   ├── SandboxUnavailable     5  no isolation here
    │   ├── RepositoryUnfit        5  a repository that cannot be worked on, or was left in the way
    │   ├── StorageFull            5  the disk took no more
    │   ├── NotTrusted             5  settings of a project that the user has not accepted
    │   └── LogUnavailable         5  the database cannot be opened or is locked
    │       ├── DiskError          5  the disk under the database answered an error
    │       └── LogFailed          5  the disk under the database failed for too long; this process gave up
    ├── LogDamaged                 6  the chain of a session is broken at a sequence number
    │   ├── EventsLost             6  events that were acknowledged are not there any more
    │   └── SchemaTooNew           6  written by a newer Holdfast
    ├── Refused                    –  the log said no; nothing was written
    │   ├── Fenced                 –  a later epoch owns the session or the hands
    │   ├── HeadMoved              –  something was posted since the fold: fold again
    │   ├── LeaseHeld              –  another process is running this session
    │   ├── BudgetRefused          –  the reservation does not fit under a cap
    │   └── EmergencyStop          3  everything was stopped by a person
    ├── HandsError                 –  the hands could not be reached or made
    │   └── HandsLost              –  this incarnation of the hands is gone
    ├── SnapshotFailed             –  the workspace could not be kept, read or restored
    ├── NotifyError                –  a message to a person could not be delivered
    └── ModelError                 –  a model request failed; `kind` says how

The number is the exit status of the command line. A message is a sentence for the person
who reads it: what happened, what is safe, what to type next.
"""

from __future__ import annotations

from typing import Literal

ModelErrorKind = Literal[
    "rate_limited",
    "overloaded",
    "timeout",
    "bad_stream",
    "refusal",
    "invalid_request",
    "unavailable",
    "auth",
    "quota",
    "unknown_model",
    "context_too_long",
]
"""How a model request failed. The same request may do better later after `rate_limited`, `overloaded`,
`unavailable`, `timeout` and `bad_stream`; `quota` says that the account is used up; `auth` that the key is
wrong; `unknown_model` that the provider has no such model; `context_too_long` asks for a smaller context."""


class HoldfastError(Exception):
    """The base of all errors of this package. `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(HoldfastError):
    """An argument, a file or a flag is wrong. Nothing was written; correct it and type again."""

    exit_code = 2


class UnknownSession(UsageError):
    """No session has that id, key or unique prefix. `holdfast ps --all` lists them."""


class UnknownItem(UsageError):
    """No question to a person has that id or unique prefix. `holdfast inbox` lists those that are open."""


class ItemClosed(UsageError):
    """The question has its answer, has expired, or counts no more. The message says who decided what, and when."""


class ContractInvalid(UsageError):
    """A contract is malformed, empty, or contradicts itself. The message names the place and a right form."""


class CannotRunSafely(HoldfastError):
    """The machine or the configuration cannot do this safely. The message names the fix."""

    exit_code = 5


class SandboxUnavailable(CannotRunSafely):
    """This machine cannot isolate tool calls. `holdfast doctor` prints each cause with its fix."""


class EgressUnavailable(CannotRunSafely):
    """There is no safe way outside for hands: they have no network, and nothing was let through."""


class SecretUnavailable(CannotRunSafely):
    """A secret that is referred to is not there, expired, or readable by others. The message has no value in it."""


class RepositoryUnfit(CannotRunSafely):
    """A git repository cannot be worked on. The message says why, that nothing in it was changed, and the fix."""


class NotTrusted(CannotRunSafely):
    """A command needs settings that only a project has, and the user has not accepted them: `holdfast trust DIR`."""


class StorageFull(CannotRunSafely):
    """The disk took no more bytes. What was acknowledged is kept; free some space, then `wake`."""


class LogUnavailable(CannotRunSafely):
    """The database cannot be opened, is locked by another program, or is not ours."""


class DiskError(LogUnavailable):
    """The disk under the database answered a read or a write with an error. The next one may succeed."""


class LogFailed(LogUnavailable):
    """The disk under the database kept failing. This process neither reads nor writes the log any more: it ends."""


class LogDamaged(HoldfastError):
    """The stored chain does not verify. Nothing is written to such a session.

    `seq` is the first sequence number that does not verify, 0 when the file itself is unreadable.
    """

    exit_code = 6

    def __init__(self, message: str, *, session_id: str = "", seq: int = 0) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.seq = seq


class EventsLost(LogDamaged):
    """Events that were acknowledged are missing. `holdfast recover` says which, and goes on without them."""


class SchemaTooNew(LogDamaged):
    """The database or an event was written by a newer Holdfast. Upgrade; nothing was skipped."""


class Refused(HoldfastError):
    """The log refused an append. Nothing of the transaction was written."""


class Fenced(Refused):
    """A later epoch owns this session or these hands; this process must stop acting on it."""

    def __init__(self, message: str, *, mine: int, current: int) -> None:
        super().__init__(message)
        self.mine = mine
        self.current = current


class HeadMoved(Refused):
    """An event arrived since the fold. Read the tail, fold, decide again."""

    def __init__(self, message: str, *, folded: int, head: int) -> None:
        super().__init__(message)
        self.folded = folded
        self.head = head


class LeaseHeld(Refused):
    """A live process holds the session. Attach to it, or take it over with `wake --steal`."""

    def __init__(self, message: str, *, worker_id: str) -> None:
        super().__init__(message)
        self.worker_id = worker_id


class BudgetRefused(Refused):
    """The reservation does not fit under a cap of an account on the path from leaf to root.

    `left_pico` is what is left under that cap now, and `held_pico` what other open requests hold of it:
    when `wanted_pico` fits into both together, it may fit once those end. `retry_us` is when a rolling
    cap has room again, None when time alone makes none.
    """

    def __init__(
        self,
        message: str,
        *,
        account_id: str,
        left_pico: int,
        period: Literal["total", "day", "week"] = "total",
        cap_pico: int = 0,
        wanted_pico: int = 0,
        held_pico: int = 0,
        retry_us: int | None = None,
    ) -> None:
        super().__init__(message)
        self.account_id = account_id
        self.left_pico = left_pico
        self.period: Literal["total", "day", "week"] = period
        self.cap_pico = cap_pico
        self.wanted_pico = wanted_pico
        self.held_pico = held_pico
        self.retry_us = retry_us


class NeedsProgram(HoldfastError):
    """The session calls functions of the program that opened it; only that program can run it. It is left as it is."""

    exit_code = 5


class EmergencyStop(Refused):
    """A person stopped everything: nothing is started or opened until `holdfast stop --release`."""

    exit_code = 3


class HandsError(HoldfastError):
    """The hands could not be made or did not answer."""


class HandsLost(HandsError):
    """This incarnation of the hands is gone; what it had open is unknown unless its journal says."""


class HandsUnreachable(HandsError):
    """The machine where the hands are does not answer. Nothing is guessed about their calls; nothing was repeated."""


class WorkspaceGone(HandsError):
    """The workspace was where the hands are, and is not there any more. What is left is its last snapshot."""


class SnapshotFailed(HoldfastError):
    """The workspace could not be kept, or a snapshot not be read or restored. Earlier snapshots are safe."""


class EnvironmentFailed(HoldfastError):
    """The set-up before the work did not succeed. Nothing of it is kept; the message has the end of what it said.

    `steps` are the commands that were run, `seen` is what they asked for outside, as they are recorded.
    """

    def __init__(self, message: str, *, steps: tuple[object, ...] = (), seen: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.steps = tuple(steps)
        self.seen = tuple(seen)


class NotifyError(HoldfastError):
    """A message to a person could not be delivered, or answers could not be fetched. No session changes by it.

    `retryable` says whether the same message may arrive later, `retry_after_s` when to try, if the receiver said.
    """

    def __init__(self, message: str, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class ModelError(HoldfastError):
    """A model request failed. `kind` decides whether a retry can help; `retry_after_s` when."""

    def __init__(self, kind: ModelErrorKind, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.retry_after_s = retry_after_s
