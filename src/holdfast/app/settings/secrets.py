"""The tables `[secrets.NAME]` of the user's own holdfast.toml: where a secret is, and where it may be put in.

    [secrets.payments]
    from = "keyring:holdfast/payments"
    hosts = ["api.example.com"]
    variable = "PAYMENTS_KEY"
    methods = ["GET"]
    expires = 2027-01-31

    [secrets.forge]
    from = ["command:pass", "show", "forge"]
    hosts = ["git.example.com"]
    variable = "FORGE_TOKEN"
    basic = true
    paths = ["/team/web.git/*"]
    push = ["refs/heads/agent/*"]

No table holds a secret. Hands see a placeholder in `variable`; the way outside puts the value in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from holdfast.app.settings.config import Settings, environment
from holdfast.app.settings.destinations import headers, methods, paths
from holdfast.app.settings.tables import Key, named_tables, read_table, texts, yes_or_no
from holdfast.clock import Clock
from holdfast.egress.git_push import DELETES
from holdfast.egress.rules import Malformed, read_host
from holdfast.errors import UsageError
from holdfast.facts.session import SecretUse
from holdfast.privileges import disable_core_dumps
from holdfast.vault.reference_vault import ReferenceVault
from holdfast.vault.sources import Source, read_reference, variable_name

EXAMPLE = 'from = "env:API_KEY" hosts = ["api.example.com"] variable = "API_KEY"'

_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_NOT_HEADERS = frozenset(
    ("host", "connection", "content-length", "content-type", "transfer-encoding", "te", "trailer", "upgrade", "expect")
)
_NOT_VARIABLES = re.compile(r"LD_.*|PATH|HOME|IFS|BASH_ENV|ENV|PYTHON.*|NODE_.*|GIT_.*|.*_PROXY|SSL_.*", re.IGNORECASE)
_REF = re.compile(r"refs/[^\s~^:\\]+")


def secret_sources(settings: Settings) -> tuple[Source, ...]:
    """Where each secret is. Raises `UsageError`."""
    return tuple(_source(name, table) for name, table in _tables(settings).items())


def secret_uses(settings: Settings) -> tuple[SecretUse, ...]:
    """Where each secret may be put in. Raises `UsageError`."""
    uses = tuple(_use(name, table) for name, table in _tables(settings).items())
    seen: dict[str, str] = {}
    for use in uses:
        if use.variable and use.variable in seen:
            raise UsageError(
                f"[secrets.{seen[use.variable]}] and [secrets.{use.name}] have the same variable, {use.variable}; "
                "choose another one"
            )
        seen[use.variable] = use.name
    return uses


def open_vault(settings: Settings, clock: Clock) -> ReferenceVault:
    """The vault of the user's references; nothing is resolved yet. Raises `UsageError`.

    A process that has one writes no core files.
    """
    sources = secret_sources(settings)
    if sources:
        disable_core_dumps()
    return ReferenceVault(sources, environment(), clock)


def _tables(settings: Settings) -> dict[str, dict[str, Any]]:
    return named_tables("secrets", settings.secrets, EXAMPLE)


def _fields(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    where = f"[secrets.{name}]"
    for key in ("from", "hosts"):
        if key not in table:
            raise UsageError(f"{where} has no {key}; an example is: {where} {EXAMPLE}")
    return read_table(where, table, _SECRET)


def _source(name: str, table: Mapping[str, Any]) -> Source:
    fields = _fields(name, table)
    kind, place = fields["from"]
    variables = fields.get("pass_env", ())
    if variables and kind != "command":
        raise UsageError(f"pass_env in [secrets.{name}] is for commands alone; leave it out, or name a command in from")
    return Source(name, kind, place, fields.get("expires"), variables)


def _use(name: str, table: Mapping[str, Any]) -> SecretUse:
    fields = _fields(name, table)
    where = f"[secrets.{name}]"
    taken = {key: fields[key] for key in SecretUse.__struct_fields__ if key in fields}
    use = SecretUse(name, **taken)
    if use.basic and use.header != "authorization":
        raise UsageError(f"{where} is basic, which goes into the header authorization; leave header out")
    if use.push and not use.basic:
        raise UsageError(f"push in {where} is for git, which sends a password; add basic = true, or leave push out")
    if use.push and not use.paths:
        raise UsageError(
            f'push in {where} needs the repository that it is for; an example is paths = ["/team/web.git/*"]'
        )
    return use


def _hosts(value: Any) -> tuple[str, ...]:
    names = texts('["api.example.com"]')(value)
    if not names:
        raise ValueError('it has to name a host at least, such as ["api.example.com"]')
    try:
        return tuple(dict.fromkeys(map(read_host, names)))
    except Malformed as error:
        raise ValueError(f'{value!r} has a name that is no host: {error}; an example is ["api.example.com"]') from None


def _header(value: Any) -> str:
    if not isinstance(value, str) or _HEADER.fullmatch(value) is None or value.lower() in _NOT_HEADERS:
        raise ValueError(f'{value!r} is no header that can hold a secret, such as "authorization" or "x-api-key"')
    return value.lower()


def _variable(value: Any) -> str:
    name = variable_name(value)
    if _NOT_VARIABLES.fullmatch(name):
        raise ValueError(f"{name} changes how programs run, so it cannot hold a placeholder; such as API_KEY")
    return name


def _push(value: Any) -> tuple[str, ...]:
    patterns = texts('["refs/heads/agent/*"]')(value)
    for pattern in patterns:
        if _REF.fullmatch(pattern.removeprefix(DELETES)) is None:
            raise ValueError(
                f'{pattern!r} is no pattern of whole refs, such as "refs/heads/agent/*"; one that allows to delete has '
                f'a minus in front, "{DELETES}refs/heads/agent/*"'
            )
    return tuple(patterns)


def _variables(value: Any) -> tuple[str, ...]:
    return tuple(variable_name(each) for each in texts('["PASSWORD_STORE_KEY"]')(value))


def _expires(value: Any) -> int:
    """A moment, or the beginning of a day in UTC, in microseconds."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, datetime):
        raise ValueError("it has to be a day or a moment, such as 2027-01-31 or 2027-01-31T12:00:00Z")
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000


_SECRET = {
    "from": Key(read_reference),
    "hosts": Key(_hosts),
    "variable": Key(_variable),
    "header": Key(_header),
    "basic": Key(yes_or_no),
    "methods": Key(methods),
    "paths": Key(paths),
    "headers": Key(headers),
    "push": Key(_push),
    "expires": Key(_expires),
    "pass_env": Key(_variables),
}
