"""The tables [egress], [search.NAME] and [secrets.NAME] of the user's own holdfast.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.app.settings.config import Settings, environment
from holdfast.app.settings.tables import (
    HTTPS,
    Key,
    destinations,
    headers,
    merged,
    methods,
    named_destination,
    named_tables,
    one_of,
    paths,
    read_table,
    text,
    texts,
    yes_or_no,
)
from holdfast.app.settings.values import count, nearest, size_bytes
from holdfast.clock import Clock
from holdfast.egress.git_push import DELETES
from holdfast.egress.rules import Malformed, Place, read_authority, read_host
from holdfast.errors import UsageError
from holdfast.facts.session import Destination, EgressPolicy, Searcher, SecretUse
from holdfast.patterns import lazy
from holdfast.privileges import disable_core_dumps
from holdfast.vault.reference_vault import ReferenceVault
from holdfast.vault.sources import Source, read_reference, variable_name

EXAMPLE = 'from = "env:API_KEY" hosts = ["api.example.com"] variable = "API_KEY"'

_HEADER = lazy(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_NOT_HEADERS = frozenset(
    ("host", "connection", "content-length", "content-type", "transfer-encoding", "te", "trailer", "upgrade", "expect")
)
_NOT_VARIABLES = lazy(r"LD_.*|PATH|HOME|IFS|BASH_ENV|ENV|PYTHON.*|NODE_.*|GIT_.*|.*_PROXY|SSL_.*", re.IGNORECASE)
_REF = lazy(r"refs/[^\s~^:\\]+")


def secret_sources(settings: Settings) -> tuple[Source, ...]:
    """The sources of the secrets. Raises `UsageError`."""
    return tuple(_source(name, table) for name, table in _tables(settings).items())


def secret_uses(settings: Settings) -> tuple[SecretUse, ...]:
    """The allowed uses of the secrets. Raises `UsageError`."""
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
    """The vault of the user's references; no secret is resolved yet. Raises `UsageError`.

    A process with a vault writes no core files.
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
            raise UsageError(f"{where} has no {key}; for example: {where} {EXAMPLE}")
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
            f'push in {where} needs the repository that it is for; for example: paths = ["/team/web.git/*"]'
        )
    return use


def _hosts(value: Any) -> tuple[str, ...]:
    names = texts('["api.example.com"]')(value)
    if not names:
        raise ValueError('it has to name a host at least, such as ["api.example.com"]')
    try:
        return tuple(dict.fromkeys(map(read_host, names)))
    except Malformed as error:
        raise ValueError(f'{value!r} has a name that is no host: {error}; for example: ["api.example.com"]') from None


def _header(value: Any) -> str:
    if not isinstance(value, str) or _HEADER.fullmatch(value) is None or value.lower() in _NOT_HEADERS:
        raise ValueError(f'{value!r} is no header that can hold a secret, such as "authorization" or "x-api-key"')
    return value.lower()


def _variable(value: Any) -> str:
    name = variable_name(value)
    if _NOT_VARIABLES.fullmatch(name):
        raise ValueError(
            f"{name} changes how programs run, so it cannot hold a placeholder; use another name, such as API_KEY"
        )
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
    """Convert a time, or the start of a day in UTC, to microseconds."""
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


def egress(
    settings: Settings, *, hosts: Sequence[str] = (), registries: bool = False, secrets: Sequence[str] | None = None
) -> EgressPolicy:
    """The egress policy of a session: the user's table, plus the `hosts` and `registries` of a command.

    It includes the secrets named in `secrets`, or all if None, and the hosts of search providers. Raises `UsageError`.
    """
    found = {name: value for name, value in settings.egress.items() if name != "proxy"}
    policy = msgspec.structs.replace(EgressPolicy(), **read_table("[egress]", found, EGRESS))
    upstream(settings)
    return msgspec.structs.replace(
        policy,
        allow=merged((*policy.allow, *(named_destination(host) for host in hosts), *_of_searchers(settings, policy))),
        registries=policy.registries or registries,
        secrets=_chosen(secret_uses(settings), secrets),
    )


def _of_searchers(settings: Settings, policy: EgressPolicy) -> list[Destination]:
    """The hosts of search providers that the table does not list."""
    known = {destination.host for destination in policy.allow}
    parts = [urlsplit(searcher.url) for searcher in searchers(settings)]
    places = [(each.hostname or "", each.port or HTTPS) for each in parts]
    return [Destination(host, (port,)) for host, port in places if host not in known]


def upstream(settings: Settings) -> Place | None:
    """The network's own proxy, which all outgoing connections use; None for none. Raises `UsageError`."""
    given = settings.egress.get("proxy")
    if given is None:
        return None
    try:
        parts = urlsplit(given) if isinstance(given, str) else urlsplit("")
        if parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise Malformed("it is an http:// address with a host and a port")
        return read_authority(parts.netloc.encode())
    except (Malformed, ValueError) as error:
        raise UsageError(
            f'proxy in [egress] cannot be used: {error}; for example: proxy = "http://proxy.example.com:3128"'
        ) from None


def _chosen(uses: tuple[SecretUse, ...], names: Sequence[str] | None) -> tuple[SecretUse, ...]:
    if names is None:
        return uses
    known = [use.name for use in uses]
    for name in names:
        if name not in known:
            meant = nearest(name, known) if known else "there is no [secrets.NAME] table in your own holdfast.toml yet"
            raise UsageError(f"there is no secret {name!r}; {meant}")
    return tuple(use for use in uses if use.name in names)


# --- search ----------------------------------------------------------------------------------------


def searchers(settings: Settings) -> tuple[Searcher, ...]:
    """The user's search providers, in order. Raises `UsageError`."""
    example = 'url = "https://search.example.com/api?q={query}"'
    tables = named_tables("search", settings.search, example)
    uses = {use.name: use for use in secret_uses(settings)}
    return tuple(_searcher(name, table, uses, example) for name, table in tables.items())


def _searcher(name: str, table: Mapping[str, Any], uses: Mapping[str, SecretUse], example: str) -> Searcher:
    where = f"[search.{name}]"
    found = Searcher(name, **{"url": "", **read_table(where, table, _SEARCHER)})
    parts = urlsplit(found.url.replace("{query}", "x"))
    try:
        host = read_host(parts.hostname or "")
    except Malformed:
        host = ""
    if (
        parts.scheme != "https"
        or not host
        or found.url.count("{query}") != 1
        or "{query}" in urlsplit(found.url).netloc
    ):
        raise UsageError(
            f"url in {where} has to be an https:// address with {{query}} once in it; for example: {example}"
        )
    if found.secret and found.secret not in uses:
        meant = nearest(found.secret, uses) if uses else "there is no [secrets.NAME] table yet"
        raise UsageError(f"{where} names the secret {found.secret!r}, which does not exist; {meant}")
    if found.secret and host not in uses[found.secret].hosts:
        raise UsageError(
            f"{where} wants the secret {found.secret!r} to be sent to {host}, and it is not bound to that host; "
            f'add it: [secrets.{found.secret}] hosts = ["{host}"]'
        )
    return found


EGRESS = {
    "allow": Key(destinations),
    "registries": Key(yes_or_no),
    "ask": Key(one_of("tainted", "always", "never")),
    "bytes_max": Key(size_bytes),
    "requests_max": Key(count),
}

_SEARCHER = {
    name: Key(text(example))
    for name, example in {
        "url": "https://search.example.com/api?q={query}",
        "results": "web.results",
        "title": "title",
        "link": "url",
        "snippet": "description",
        "secret": "brave",
    }.items()
}
