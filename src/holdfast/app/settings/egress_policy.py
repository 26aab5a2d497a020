"""The tables `[egress]` and `[search.NAME]` of the user's own holdfast.toml: whom hands may talk to.

[egress]
registries = true
allow = ["api.example.com", "git.example.com:8443", {host = "docs.example.com", methods = ["GET"]}]

[search.brave]
url = "https://search.example.com/api?q={query}"
secret = "brave"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.app.settings.config import Settings, count, nearest
from holdfast.app.settings.destinations import HTTPS, destinations, merged, named_destination
from holdfast.app.settings.secrets import secret_uses
from holdfast.app.settings.sizes import size_bytes
from holdfast.app.settings.tables import Key, named_tables, one_of, read_table, text, yes_or_no
from holdfast.egress.rules import Malformed, Place, read_authority, read_host
from holdfast.errors import UsageError
from holdfast.facts.session import Destination, EgressPolicy, Searcher, SecretUse


def egress(
    settings: Settings, *, hosts: Sequence[str] = (), registries: bool = False, secrets: Sequence[str] | None = None
) -> EgressPolicy:
    """What a session may talk to: the user's table, with `hosts` and `registries` of a command beside it.

    Of the secrets it gets those that `secrets` names, all when that is None. The hosts of search providers are among
    the places. Raises `UsageError`.
    """
    found = {name: value for name, value in settings.egress.items() if name != "proxy"}
    policy = msgspec.structs.replace(EgressPolicy(), **read_table("[egress]", found, _EGRESS))
    upstream(settings)
    return msgspec.structs.replace(
        policy,
        allow=merged((*policy.allow, *(named_destination(host) for host in hosts), *_of_searchers(settings, policy))),
        registries=policy.registries or registries,
        secrets=_chosen(secret_uses(settings), secrets),
    )


def _of_searchers(settings: Settings, policy: EgressPolicy) -> list[Destination]:
    """The hosts that search providers are asked at, where the table does not say how."""
    known = {destination.host for destination in policy.allow}
    parts = [urlsplit(searcher.url) for searcher in searchers(settings)]
    places = [(each.hostname or "", each.port or HTTPS) for each in parts]
    return [Destination(host, (port,)) for host, port in places if host not in known]


def upstream(settings: Settings) -> Place | None:
    """The proxy of the network's own, through which everything goes outside; None for none. Raises `UsageError`."""
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
            f'proxy in [egress] cannot be used: {error}; an example is proxy = "http://proxy.example.com:3128"'
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
    """The search providers of the user's own, in order. Raises `UsageError`."""
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
            f"url in {where} has to be an https:// address with {{query}} once in it; an example is {example}"
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


_EGRESS = {
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
