"""All errors that Holdfast raises, in one tree.

    HoldfastError
    ├── UsageError                 2  invalid arguments or settings
    │   ├── UnknownSession         2  no session has that id, key or prefix
    │   ├── UnknownItem            2  no inbox item has that id or prefix
    │   ├── ItemClosed             2  the item is answered, expired, or superseded
    │   └── ContractInvalid        2  the contract is malformed or contradicts itself
    ├── CannotRunSafely            5  the machine or the configuration does not allow it
    │   ├── SandboxUnavailable     5  this machine cannot isolate tool calls
    │   ├── RepositoryUnfit        5  the repository cannot be used as it is
    │   ├── StorageFull            5  no space left
    │   ├── NotTrusted             5  project settings that the user has not accepted
    │   └── LogUnavailable         5  the database cannot be opened or is locked
    │       ├── DiskError          5  the disk under the database reported an error
    │       └── LogFailed          5  the disk under the database kept failing; this process ends
    ├── LogDamaged                 6  the chain of a session is broken at a sequence number
    │   ├── EventsLost             6  acknowledged events are missing
    │   └── SchemaTooNew           6  written by a newer Holdfast
    ├── Refused                    –  the log refused an append; nothing was written
    │   ├── Fenced                 –  a later epoch owns the session or the hands
    │   ├── HeadMoved              –  an event arrived since the fold; fold again
    │   ├── LeaseHeld              –  another process is running this session
    │   ├── BudgetRefused          –  the reservation does not fit under a cap
    │   ├── TooMany                5  as many sessions run as a limit allows
    │   ├── TooSoon                –  the requests that a limit allows are used up for now
    │   └── EmergencyStop          3  a user stopped all sessions
    ├── HandsError                 –  the hands could not be made or reached
    │   └── HandsLost              –  this incarnation of the hands is gone
    ├── SnapshotFailed             –  a snapshot could not be made, read, or restored
    ├── NotifyError                –  a notice could not be delivered
    ├── RequestFailed              –  a server refused a request of the client, or was not reached
    ├── SourceError                –  a source of events could not be read
    └── ModelError                 –  a model request failed; `kind` says how

The number is the exit status of the command line. A message tells the user what happened, what is safe, and what to do.
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
"""Kind of a failed model request. A retry may succeed after `rate_limited`, `overloaded`, `unavailable`, `timeout`, and
`bad_stream`; `quota`: the account is used up; `auth`: the key is wrong; `unknown_model`: the provider has no such
model; `context_too_long`: the context must become smaller."""


class HoldfastError(Exception):
    """Base of all errors of this package. `exit_code` is the exit status of the command line."""

    exit_code = 1


class UsageError(HoldfastError):
    """An argument, a file, or a flag is invalid. Nothing was written; correct it and try again."""

    exit_code = 2


class UnknownSession(UsageError):
    """No session has that id, key or unique prefix. `holdfast ps --all` lists them."""


class UnknownItem(UsageError):
    """No inbox item has that id or unique prefix. `holdfast inbox` lists the open ones."""


class ItemClosed(UsageError):
    """The inbox item is answered, expired, or superseded. The message says who decided what, and when."""


class ContractInvalid(UsageError):
    """A contract is malformed, empty, or contradicts itself. The message names the place and a valid form."""


class CannotRunSafely(HoldfastError):
    """The machine or the configuration cannot do this safely. The message names the fix."""

    exit_code = 5


class SandboxUnavailable(CannotRunSafely):
    """This machine cannot isolate tool calls. `holdfast doctor` prints each cause with its fix."""


class EgressUnavailable(CannotRunSafely):
    """The egress proxy cannot run or be reached. The sandbox has no network, and no request was allowed."""


class SecretUnavailable(CannotRunSafely):
    """A secret is missing, expired, or readable by other users. The message does not contain its value."""


class RepositoryUnfit(CannotRunSafely):
    """A git repository cannot be used. The message has the reason and the fix; nothing in it was changed."""


class NotTrusted(CannotRunSafely):
    """A command needs project settings that the user has not accepted. Accept them with `holdfast trust DIR`."""


class StorageFull(CannotRunSafely):
    """No space left on the disk. Acknowledged events are kept; free some space, then `holdfast wake`."""


class LogUnavailable(CannotRunSafely):
    """The database cannot be opened, is locked by another program, or is not a Holdfast database."""


class DiskError(LogUnavailable):
    """The disk under the database reported an error. The next read or write may succeed."""


class LogFailed(LogUnavailable):
    """The disk under the database kept failing. This process stops using the log and ends."""


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
    """Acknowledged events are missing. `holdfast recover` lists them, and continues without them."""


class SchemaTooNew(LogDamaged):
    """A newer Holdfast wrote the database or an event. Upgrade; nothing was skipped."""


class Refused(HoldfastError):
    """The log refused an append. No part of the transaction was written."""


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


class TooMany(Refused):
    """As many sessions of an account or a model run as its limit allows. This one can begin when another one ends."""

    exit_code = 5


class TooSoon(Refused):
    """The requests that an account or a model may begin are used up until `next_us`."""

    def __init__(self, message: str, *, next_us: int) -> None:
        super().__init__(message)
        self.next_us = next_us


class NeedsProgram(HoldfastError):
    """The session calls functions of the program that opened it; only that program can run it. It is unchanged."""

    exit_code = 5


class EmergencyStop(Refused):
    """A user stopped all sessions: none is started or opened until `holdfast stop --release`."""

    exit_code = 3


class HandsError(HoldfastError):
    """The hands could not be made or did not answer."""


class HandsLost(HandsError):
    """This incarnation of the hands is gone; the outcome of its open calls is unknown unless its journal has it."""


class HandsUnreachable(HandsError):
    """The machine of the hands does not respond. Outcomes of their calls stay open; no call was repeated."""


class WorkspaceGone(HandsError):
    """The workspace on the machine of the hands is gone. Its last snapshot is left."""


class SnapshotFailed(HoldfastError):
    """A snapshot could not be made, read, or restored. Earlier snapshots are safe."""


class EnvironmentFailed(HoldfastError):
    """The set-up before the work failed. Nothing of it is kept; the message has the end of its output.

    `steps` are the commands that ran, `seen` their network requests, as recorded.
    """

    def __init__(self, message: str, *, steps: tuple[object, ...] = (), seen: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.steps = tuple(steps)
        self.seen = tuple(seen)


class NotifyError(HoldfastError):
    """A notice could not be delivered, or replies could not be fetched. No session is affected.

    `retryable` is True if a retry may succeed, after `retry_after_s` if the receiver asked for that.
    """

    def __init__(self, message: str, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class RequestFailed(HoldfastError):
    """A server refused a request of `holdfast.client`, or could not be reached.

    `status` is that of HTTP, 0 without a response; `kind` is the type of the error in the response.
    """

    def __init__(self, message: str, *, status: int = 0, kind: str = "unreachable") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class SourceError(HoldfastError):
    """A source of events could not be read. Its cursor is as before, so no event is lost.

    `retryable` is True if a later poll may succeed without a change by a user.
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class ModelError(HoldfastError):
    """A model request failed. `kind` decides whether a retry can help; `retry_after_s` when."""

    def __init__(self, kind: ModelErrorKind, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.retry_after_s = retry_after_s
