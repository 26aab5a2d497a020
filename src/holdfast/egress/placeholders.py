"""Placeholders of secrets, and the environment that gives them to programs in the sandbox.

A placeholder is worthless outside: only the proxy of its own session replaces it, in the one header of requests to the
hosts that the secret is bound to. The proxy refuses a request with it anywhere else: that is a mistake or an attack.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from holdfast.egress.http import Head, Refusal
from holdfast.egress.rules import path_of, use_fits
from holdfast.errors import EgressUnavailable
from holdfast.facts.session import EgressPolicy, SecretUse
from holdfast.ids import Entropy
from holdfast.vault.base import Secret

PREFIX = "hfp_"
_PATTERN = re.compile(rb"hfp_[0-9a-z]{32}")
_LENGTH = 36
_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"


def new_placeholder(entropy: Entropy) -> str:
    """Make a placeholder from 160 random bits."""
    number = int.from_bytes(entropy(20))
    return PREFIX + "".join(_LETTERS[(number >> shift) & 31] for shift in range(0, 160, 5))


class Injection(NamedTuple):
    """A request header that takes a secret: its position, the use, and the placeholder to replace."""

    at: int
    use: SecretUse
    placeholder: bytes


class Placeholders:
    """The placeholders of one session, by the secret's name."""

    def __init__(self, by_name: Mapping[str, str]) -> None:
        self._names = {placeholder.encode(): name for name, placeholder in by_name.items()}

    def find(self, head: Head, uses: Iterable[SecretUse], *, secure: bool) -> list[Injection]:
        """Find the headers that take secrets. Raises `Refusal` for a placeholder in any other place."""
        self.check_nowhere(unquote_to_bytes(head.target), "in the address")
        bound = tuple(uses)
        found: list[Injection] = []
        for index, (name, value) in enumerate(head.headers):
            self.check_nowhere(name, "in the name of a header")
            shown = (_basic(value) or value) if name.endswith(b"authorization") else value
            for token in dict.fromkeys(_PATTERN.findall(shown)):
                found.append(self._bind(index, token, shown, head, bound, secure))
        if len({head.headers[one.at][0] for one in found}) != len(found):
            raise Refusal(400, "a header that takes a secret must occur once", secret=found[0].use.name)
        for one in found:
            if len(head.all(head.headers[one.at][0])) > 1:
                raise Refusal(400, "a header that takes a secret must occur once", secret=one.use.name)
        return found

    def check_nowhere(self, data: bytes, where: str) -> None:
        """Raise `Refusal` if the data contains a placeholder."""
        match = _PATTERN.search(data)
        if match is not None:
            raise Refusal(403, f"a placeholder of a secret is {where}", secret=self._names.get(match[0], ""))

    def _bind(
        self, index: int, token: bytes, shown: bytes, head: Head, bound: tuple[SecretUse, ...], secure: bool
    ) -> Injection:
        name = self._names.get(token)
        if name is None:
            raise Refusal(403, "the placeholder belongs to another session")
        if not secure:
            raise Refusal(403, "a secret is never sent without TLS", secret=name)
        problem = "the secret is not bound to this host"
        for use in bound:
            if use.name == name:
                problem = _problem(use, head, index, token, shown)
                if not problem:
                    return Injection(index, use, token)
        raise Refusal(403, problem, secret=name)


def _problem(use: SecretUse, head: Head, index: int, token: bytes, shown: bytes) -> str:
    name, value = head.headers[index]
    if name.decode() != use.header.lower():
        return f"the secret belongs into the header {use.header}, but its placeholder is in another one"
    if use.basic != (_basic(value) is not None and name == b"authorization"):
        return "the secret is bound to another form of that header"
    if use.basic and shown.partition(b":")[2] != token:
        return "the secret must be the whole password"
    return use_fits(use, head.method, path_of(head.target))


def put_in(head: Head, injections: Iterable[Injection], values: Mapping[str, Secret]) -> list[tuple[bytes, bytes]]:
    """Return the headers with secrets in place of their placeholders."""
    headers = list(head.headers)
    for index, use, placeholder in injections:
        name, value = headers[index]
        if use.basic:
            user = (_basic(value) or b"").partition(b":")[0]
            value = b"Basic " + base64.b64encode(user + b":" + values[use.name].reveal().encode())
        else:
            value = value.replace(placeholder, values[use.name].reveal().encode())
        headers[index] = (name, value)
    return headers


def _basic(value: bytes) -> bytes | None:
    """Decode `user:password` from a Basic header; None for any other scheme."""
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        return base64.b64decode(rest.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


class BodyWatch:
    """Search of a body that comes in pieces for placeholders."""

    def __init__(self, placeholders: Placeholders) -> None:
        self._placeholders = placeholders
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Search the next piece. Raises `Refusal` for a placeholder."""
        seam = self._tail + data[: _LENGTH - 1]
        self._placeholders.check_nowhere(seam, "in the body")
        self._placeholders.check_nowhere(data, "in the body")
        self._tail = (self._tail + data)[-(_LENGTH - 1) :] if len(data) < _LENGTH else data[-(_LENGTH - 1) :]


PORT = 3128
"""Port of the proxy in the sandbox, at 127.0.0.1."""

DOOR = "/run/egress"
"""Folder of the session's door in the sandbox."""

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Paths of the trusted certificates on common systems."""

_CERTIFICATES = (
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT",
    "CARGO_HTTP_CAINFO", "npm_config_cafile", "AWS_CA_BUNDLE", "DENO_CERT",
)  # fmt: skip


def environment(policy: EgressPolicy, placeholders: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of every command in the sandbox."""
    proxy = f"http://127.0.0.1:{PORT}"
    here = "localhost,127.0.0.1,::1"
    java = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PORT}" for scheme in ("http", "https"))
    return {
        **{name: proxy for word in ("http_proxy", "https_proxy", "all_proxy") for name in (word, word.upper())},
        "no_proxy": here,
        "NO_PROXY": here,
        **{name: f"{DOOR}/ca.pem" for name in _CERTIFICATES},
        "NODE_USE_ENV_PROXY": "1",
        "npm_config_proxy": proxy,
        "npm_config_https_proxy": proxy,
        "npm_config_noproxy": here,
        "APT_CONFIG": f"{DOOR}/apt.conf",
        **dict.fromkeys(("JAVA_OPTS", "MAVEN_OPTS", "GRADLE_OPTS"), f"{java} -Dhttp.nonProxyHosts=localhost|127.0.0.1"),
        **{use.variable: placeholders[use.name] for use in policy.secrets if use.variable},
        **_git(policy, placeholders),
    }


def apt_conf() -> bytes:
    """Return apt's configuration for the proxy, since not every version reads the variables."""
    proxy = f"http://127.0.0.1:{PORT}"
    return (
        f'Acquire::http::Proxy "{proxy}";\nAcquire::https::Proxy "{proxy}";\n'
        f'Acquire::https::CAInfo "{DOOR}/ca.pem";\nAcquire::http::Pipeline-Depth "0";\n'
    ).encode()


def _git(policy: EgressPolicy, placeholders: Mapping[str, str]) -> dict[str, str]:
    """Return git's settings: a credential helper gives the placeholder of the host's secret, and nothing prompts."""
    settings: list[tuple[str, str]] = []
    for use in policy.secrets:
        for host in use.hosts if use.basic else ():
            answer = f"!printf 'username=x-access-token\\npassword={placeholders[use.name]}\\n'; true"
            settings += [(f"credential.https://{host}.helper", ""), (f"credential.https://{host}.helper", answer)]
    out = {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_TERMINAL_PROMPT": "0"}
    for index, (key, value) in enumerate(settings):
        out[f"GIT_CONFIG_KEY_{index}"] = key
        out[f"GIT_CONFIG_VALUE_{index}"] = value
    return out


def system_bundle(path: str = "") -> bytes:
    """Read the certificates that this machine trusts, or those of `path`. Raises `EgressUnavailable`."""
    for candidate in (path,) if path else BUNDLES:
        try:
            return Path(candidate).read_bytes()
        except OSError:
            continue
    looked = path or ", ".join(BUNDLES)
    raise EgressUnavailable(
        f"trusted certificates not found ({looked}); the sandbox has no network. Install the package ca-certificates"
    )
