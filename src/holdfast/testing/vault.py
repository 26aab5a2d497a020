"""Conformance kit of vaults.

`CHECKS` maps a name to a function of a fresh `Rig`. Run each on your implementation, as the tests do with
`holdfast.vault.reference_vault` and `holdfast.vault.fake`:

    @pytest.mark.parametrize("name", CHECKS)
    def test_my_vault(name):
        CHECKS[name](my_rig())

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import traceback
from collections.abc import Callable
from typing import Protocol

import msgspec

from holdfast.clock import SystemClock
from holdfast.errors import SecretUnavailable
from holdfast.vault.base import Vault
from holdfast.vault.reference_vault import take_over


class Rig(Protocol):
    """A fresh vault with one secret, `token`, and control over its source."""

    @property
    def vault(self) -> Vault:
        """The vault under test."""
        ...

    def put(self, value: str) -> None:
        """Store this value at the secret's source."""
        ...

    def lose(self) -> None:
        """Remove the value from its source."""
        ...

    def expire(self) -> None:
        """Make the secret expire."""
        ...


Check = Callable[[Rig], None]


def refused(attempt: Callable[[], object], *values: str) -> str:
    """Assert that `attempt` raises `SecretUnavailable` without leaking a value; return the message."""
    caught: SecretUnavailable | None = None
    try:
        attempt()
    except SecretUnavailable as error:
        caught = error
    assert caught is not None, "SecretUnavailable was expected and nothing was raised"
    seen = [repr(caught), *traceback.format_exception(caught), *_locals_of(caught)]
    for value in values:
        assert not any(value in text for text in seen), "the value leaks in the error, its causes, or its frames"
    return str(caught)


def _locals_of(error: BaseException) -> list[str]:
    """Local variables in the vault's frames, as an error report would print them."""
    found: list[str] = []
    step: BaseException | None = error
    while step is not None:
        for frame, _ in traceback.walk_tb(step.__traceback__):
            if frame.f_globals.get("__name__", "").startswith("holdfast.vault"):
                found += [repr(value) for value in frame.f_locals.values()]
        step = step.__cause__ or step.__context__
    return found


_VALUE = "kit-Value-0123456789"
_OTHER = "kit-Other-9876543210"


def a_value_is_found_by_its_name(rig: Rig) -> None:
    """A value resolves by its name, which is listed."""
    rig.put(_VALUE)
    assert rig.vault.names() == ("token",)
    assert rig.vault.resolve("token").reveal() == _VALUE


def a_rotated_value_counts_at_once(rig: Rig) -> None:
    """A rotated value counts at the next use."""
    rig.put(_VALUE)
    assert rig.vault.resolve("token").reveal() == _VALUE
    rig.put(_OTHER)
    assert rig.vault.resolve("token").reveal() == _OTHER


def an_unknown_name_is_refused(rig: Rig) -> None:
    """The message lists the known names."""
    assert "token" in refused(lambda: rig.vault.resolve("tokn"))
    assert "token" in refused(lambda: rig.vault.handover(["tokn"]))


def a_lost_value_is_refused(rig: Rig) -> None:
    """An earlier value is not cached."""
    rig.put(_VALUE)
    rig.vault.resolve("token")
    rig.lose()
    assert "token" in refused(lambda: rig.vault.resolve("token"), _VALUE)


def an_expired_secret_is_refused(rig: Rig) -> None:
    """The message says that the secret expired."""
    rig.put(_VALUE)
    rig.expire()
    assert "expired" in refused(lambda: rig.vault.resolve("token"), _VALUE)


def invalid_values_are_refused_without_showing_them(rig: Rig) -> None:
    """Values with line breaks or control characters, or of a wrong length, are refused without showing them."""
    for bad in (f"{_VALUE}\r\nx-other: 1", f"{_VALUE}\x1b[2J", "abc12", _VALUE * 1000, "   \n", f" {_VALUE}"):
        rig.put(bad)
        refused(lambda: rig.vault.resolve("token"), *([bad, bad.strip()] if bad.strip() else []))


def one_end_of_a_line_is_left_out(rig: Rig) -> None:
    """One trailing line break is dropped, since files and commands end with one."""
    rig.put(f"{_VALUE}\n")
    assert rig.vault.resolve("token").reveal() == _VALUE


def another_process_finds_the_same(rig: Rig) -> None:
    """A handover has exactly the secrets asked for."""
    rig.put(_VALUE)
    other = take_over(rig.vault.handover(["token"]), SystemClock())
    assert other.names() == ("token",)
    assert other.resolve("token").reveal() == _VALUE
    assert take_over(rig.vault.handover([]), SystemClock()).names() == ()
    refused(lambda: take_over(b'{"sources": 3}', SystemClock()))


def a_secret_does_not_show_itself(rig: Rig) -> None:
    """A secret cannot be printed, copied, or encoded."""
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


CHECKS: dict[str, Check] = {
    f"secrets.{check.__name__}": check
    for check in (
        a_value_is_found_by_its_name,
        a_rotated_value_counts_at_once,
        an_unknown_name_is_refused,
        a_lost_value_is_refused,
        an_expired_secret_is_refused,
        invalid_values_are_refused_without_showing_them,
        one_end_of_a_line_is_left_out,
        another_process_finds_the_same,
        a_secret_does_not_show_itself,
    )
}
"""Name → check, for example `secrets.a_rotated_value_counts_at_once`."""

__all__ = ["CHECKS", "Check", "Rig"]
