"""The `[notify.NAME]` tables of the user's holdfast.toml, and the targets they make.

    [notify.phone]
    kind = "ntfy"
    url = "https://ntfy.example.com"
    topic = "file:~/.config/holdfast/topic"
    reply_topic = "file:~/.config/holdfast/reply-topic"
    token = "env:NTFY_TOKEN"
    user = "ann"
    quiet = "22:00-07:00 Europe/Zurich"

A secret is named, never written: `env:NAME` or `file:PATH`. It is read when the target is made, not before.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.app.settings.config import Settings, environment
from holdfast.app.settings.values import known_key, nearest
from holdfast.clock import Clock
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.ids import Entropy
from holdfast.notify.base import KEY_BYTES, Outlet, ReplyChannel, Target, parse_quiet

SECRET_MAX = 8192
"""Maximum length of a secret, in bytes."""


@dataclass(frozen=True)
class _Kind:
    """The module of a kind of target, and its keys. `references` may be `env:` or `file:`; `secrets` must be."""

    module: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    references: tuple[str, ...]
    secrets: tuple[str, ...]
    extra: str


_COMMON = ("kind", "user", "quiet")

KINDS: dict[str, _Kind] = {
    "webhook": _Kind("holdfast.notify.webhook", ("url", "secret"), (), ("url", "secret"), ("secret",), "notify"),
    "apprise": _Kind("holdfast.notify.apprise_target", ("url",), (), ("url",), ("url",), "apprise"),
    "ntfy": _Kind(
        "holdfast.notify.ntfy",
        ("url", "topic"),
        ("reply_topic", "token"),
        ("topic", "reply_topic", "token"),
        ("token",),
        "notify",
    ),
    "push": _Kind("holdfast.notify.web_push", (), ("contact",), (), (), "serve"),
}
"""Kind → its module and keys."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class TargetSettings:
    """One checked table. `values` holds references to secrets, not the secrets."""

    name: str
    kind: str
    values: Mapping[str, str]


def outlets(settings: Settings, clock: Clock, entropy: Entropy) -> tuple[Outlet, ...]:
    """All targets in the user's file, ready to send. Raises as `read_targets` and `make_outlets` do."""
    targets = read_targets(settings.notify)
    home = Path(settings.home)
    return make_outlets(targets, environment(), clock, lambda: reply_key(home, entropy), home)


def poll_every_s() -> float:
    """Interval between two polls of a reply channel, in seconds."""
    return float(importlib.import_module(KINDS["ntfy"].module).POLL_EVERY_S)


def read_targets(tables: Mapping[str, Any]) -> tuple[TargetSettings, ...]:
    """The targets of the `notify` table, checked; no secret is read. Raises `UsageError`."""
    return tuple(_checked(name, table) for name, table in tables.items())


def _checked(name: str, table: Any) -> TargetSettings:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"[notify.{name!r}] has a name that cannot be used: take letters, digits, - and _, up to 32")
    where = f"[notify.{name}]"
    if not isinstance(table, dict):
        raise UsageError(f'notify.{name} has to be a table; for example: {where} kind = "ntfy"')
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"{where} has no kind that exists; {nearest(str(kind), KINDS)}")
    options = KINDS[kind]
    for key, value in table.items():
        known_key(key, (*_COMMON, *options.needs, *options.takes), where)
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f'{key} in {where} has to be text, such as {key} = "…"')
    for key in options.needs:
        if key not in table:
            raise UsageError(f'{where} has no {key}, and a target of kind {kind} needs one: {key} = "…"')
    for key in options.references:
        if key in table:
            _check_reference(where, key, table[key], must=key in options.secrets)
    if "quiet" in table:
        parse_quiet(table["quiet"])
    return TargetSettings(name, kind, dict(table))


def _check_reference(where: str, key: str, value: str, *, must: bool) -> None:
    scheme, colon, rest = value.partition(":")
    if scheme == "env" and colon:
        if _VARIABLE.fullmatch(rest) is None:
            raise UsageError(f'{key} in {where} names no environment variable; for example: {key} = "env:OPS_SECRET"')
    elif scheme == "file" and colon:
        if not rest.startswith(("/", "~/")):
            raise UsageError(
                f"{key} in {where} has to name its file by a whole path; "
                f'for example: {key} = "file:~/.config/holdfast/ops.secret"'
            )
    elif must:
        raise UsageError(
            f"{key} in {where} has to say where the secret is, not what it is. Put it into a file that only you can "
            f'read and write {key} = "file:~/.config/holdfast/ops.secret", or name a variable: {key} = "env:OPS_SECRET"'
        )


def make_outlets(
    targets: tuple[TargetSettings, ...],
    variables: Mapping[str, str],
    clock: Clock,
    key: Callable[[], bytes],
    home: Path,
) -> tuple[Outlet, ...]:
    """Create the targets, ready to send. `key` returns the home's reply key and is called only for two-way targets.

    Raises `UsageError` for an invalid value, `CannotRunSafely` for a missing secret or package.
    """
    return tuple(_outlet(target, variables, clock, key, home) for target in targets)


def _outlet(
    settings: TargetSettings, variables: Mapping[str, str], clock: Clock, key: Callable[[], bytes], home: Path
) -> Outlet:
    kind = KINDS[settings.kind]
    values = dict(settings.values)
    for option in kind.references:
        if option in values and values[option].startswith(("env:", "file:")):
            values[option] = _secret(f"{option} in [notify.{settings.name}]", values[option], variables)
    name, user = settings.name, values.get("user", "").removeprefix("user:")
    target: Target
    channel: ReplyChannel | None = None
    if settings.kind == "webhook":
        target = _module(settings).Webhook(name, values["url"], values["secret"], clock)
    elif settings.kind == "apprise":
        target = _module(settings).AppriseTarget(name, values["url"])
    elif settings.kind == "push":
        target = _module(settings).WebPush(name, home, clock, user=user, contact=values.get("contact", ""))
    else:
        reply_topic = values.get("reply_topic", "")
        phone = _module(settings).Ntfy(
            name,
            values["url"],
            values["topic"],
            clock,
            reply_topic=reply_topic,
            key=key() if reply_topic else b"",
            token=values.get("token", ""),
            who=f"user:{user}" if user else "",
        )
        target, channel = phone, phone if reply_topic else None
    return Outlet(target, user, values.get("quiet", ""), channel)


def _module(settings: TargetSettings) -> Any:
    try:
        return importlib.import_module(KINDS[settings.kind].module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "holdfast":
            raise
        extra = KINDS[settings.kind].extra
        raise CannotRunSafely(
            f"the notification target {settings.name!r} needs the package {missing}, which is not installed; "
            f"type: pip install 'holdfast[{extra}]'"
        ) from error


def _secret(what: str, reference: str, variables: Mapping[str, str]) -> str:
    scheme, _, rest = reference.partition(":")
    if scheme == "env":
        found = variables.get(rest, "")
        if not found.strip():
            raise CannotRunSafely(f"{what}: the environment variable {rest} is not set; set it, or name a file instead")
    else:
        found = _secret_of_file(what, Path(rest).expanduser())
    value = found.strip()
    if any(ord(character) < 0x20 for character in value):
        raise CannotRunSafely(f"{what}: {rest} holds more than one line, or a control character; leave one line in it")
    return value


def _secret_of_file(what: str, path: Path) -> str:
    try:
        # Nonblocking: opening a pipe would block until a writer opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            data = os.read(descriptor, SECRET_MAX + 1) if stat.S_ISREG(mode) else b""
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CannotRunSafely(f"{what}: {path} cannot be read: {error.strerror}; make it, with mode 600") from error
    if not stat.S_ISREG(mode):
        raise CannotRunSafely(f"{what}: {path} is no ordinary file; name a file that holds the secret alone")
    if mode & 0o077:
        raise CannotRunSafely(f"{what}: others on this machine can read {path}; type: chmod 600 {path}")
    text = data.decode("utf-8", "replace")
    if len(data) > SECRET_MAX or "�" in text or not text.strip():
        raise CannotRunSafely(f"{what}: {path} holds no secret: it has to be one line of text")
    return text


def reply_key(home: Path, entropy: Entropy) -> bytes:
    """The home's key for reply codes, created at its first use. Deleting it invalidates all codes sent so far."""
    path = home / "reply.key"
    if not path.exists():
        _make_key(path, entropy(KEY_BYTES))
    try:
        mode, key = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise CannotRunSafely(
            f"the reply key {path} cannot be read: {error.strerror}; run as the home's owner"
        ) from error
    if mode & 0o077:
        raise CannotRunSafely(f"others on this machine can read the reply key {path}; type: rm {path}")
    if len(key) != KEY_BYTES:
        raise CannotRunSafely(f"the reply key {path} is damaged; type: rm {path} (buttons sent so far stop working)")
    return key


def _make_key(path: Path, key: bytes) -> None:
    """Write the key file atomically: two processes may create it at once, and the first one's key stays."""
    whole = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole.unlink(missing_ok=True)
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(whole, path)
        except FileExistsError:
            pass
        whole.unlink()
    except OSError as error:
        raise CannotRunSafely(
            f"the reply key {path} cannot be made: {error.strerror}; see to the disk and the owner of {path.parent}"
        ) from error
