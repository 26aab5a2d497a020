"""When a failed model request is tried again."""

from __future__ import annotations

from holdfast.session.state import Failure

RETRYABLE = frozenset({"rate_limited", "overloaded", "timeout", "bad_stream", "unavailable"})
"""Kinds of failure that another attempt can mend."""

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0

PARK_BEYOND_S = 60.0
"""A longer wait than this parks the session: a parked one costs nothing."""


def delay_s(failure: Failure, tries: int) -> float:
    """Seconds from the failure to the next attempt: what the provider asked for, else doubling.

    `tries` counts the failed attempts of this shift, from 1.
    """
    if failure.retry_after_s is not None:
        return max(0.0, failure.retry_after_s)
    return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** (tries - 1))
