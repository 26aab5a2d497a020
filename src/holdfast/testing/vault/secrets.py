"""What every vault must show of a secret."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
from collections.abc import Callable

import msgspec

from holdfast.clock import SystemClock
from holdfast.testing.vault.rig import Check, Rig, refused
from holdfast.vault.reference_vault import take_over

_VALUE = "kit-Value-0123456789"
_OTHER = "kit-Other-9876543210"


def a_value_is_found_by_its_name(rig: Rig) -> None:
    """And the name is listed."""
    rig.put(_VALUE)
    assert rig.vault.names() == ("token",)
    assert rig.vault.resolve("token").reveal() == _VALUE


def a_rotated_value_counts_at_once(rig: Rig) -> None:
    """The next use has the new one."""
    rig.put(_VALUE)
    assert rig.vault.resolve("token").reveal() == _VALUE
    rig.put(_OTHER)
    assert rig.vault.resolve("token").reveal() == _OTHER


def an_unknown_name_is_refused(rig: Rig) -> None:
    """The message says what there is."""
    assert "token" in refused(lambda: rig.vault.resolve("tokn"))
    assert "token" in refused(lambda: rig.vault.handover(["tokn"]))


def a_lost_value_is_refused(rig: Rig) -> None:
    """A value that was there before does not count on."""
    rig.put(_VALUE)
    rig.vault.resolve("token")
    rig.lose()
    assert "token" in refused(lambda: rig.vault.resolve("token"), _VALUE)


def an_expired_secret_is_refused(rig: Rig) -> None:
    """And the message says so."""
    rig.put(_VALUE)
    rig.expire()
    assert "expired" in refused(lambda: rig.vault.resolve("token"), _VALUE)


def what_cannot_be_sent_is_refused_unseen(rig: Rig) -> None:
    """More than one line, a control character, too short, too long, nothing: the message has nothing of it."""
    for bad in (f"{_VALUE}\r\nx-other: 1", f"{_VALUE}\x1b[2J", "abc12", _VALUE * 1000, "   \n", f" {_VALUE}"):
        rig.put(bad)
        refused(lambda: rig.vault.resolve("token"), *([bad, bad.strip()] if bad.strip() else []))


def one_end_of_a_line_is_left_out(rig: Rig) -> None:
    """Files and commands end with one."""
    rig.put(f"{_VALUE}\n")
    assert rig.vault.resolve("token").reveal() == _VALUE


def another_process_finds_the_same(rig: Rig) -> None:
    """What is handed over is enough, and no more than was asked for."""
    rig.put(_VALUE)
    other = take_over(rig.vault.handover(["token"]), SystemClock())
    assert other.names() == ("token",)
    assert other.resolve("token").reveal() == _VALUE
    assert take_over(rig.vault.handover([]), SystemClock()).names() == ()
    refused(lambda: take_over(b'{"sources": 3}', SystemClock()))


def a_secret_does_not_show_itself(rig: Rig) -> None:
    """Not in text, not copied, not encoded."""
    rig.put(_VALUE)
    secret = rig.vault.resolve("token")
    for text in (repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", "%s %r" % (secret, [secret])):  # noqa: UP031
        assert _VALUE not in text
    assert f"{secret:>40}" == repr(secret)
    encoders: list[Callable[[object], object]] = [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        json.dumps,
        msgspec.json.encode,
        msgspec.msgpack.encode,
        msgspec.to_builtins,
        bytes,  # type: ignore[list-item]
        vars,
        lambda value: value.__getstate__(),
    ]
    for encode in encoders:
        problem = ""
        with contextlib.suppress(TypeError):
            encode(secret)
            problem = f"{encode} took a secret"
        assert not problem, problem


CHECKS: tuple[Check, ...] = (
    a_value_is_found_by_its_name,
    a_rotated_value_counts_at_once,
    an_unknown_name_is_refused,
    a_lost_value_is_refused,
    an_expired_secret_is_refused,
    what_cannot_be_sent_is_refused_unseen,
    one_end_of_a_line_is_left_out,
    another_process_finds_the_same,
    a_secret_does_not_show_itself,
)
