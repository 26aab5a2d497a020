"""What makes programs inside the hands use the way outside: variables, certificates, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import EgressUnavailable
from holdfast.facts.session import EgressPolicy

PORT = 3128
"""Where programs inside find the proxy, at 127.0.0.1."""

DOOR = "/run/egress"
"""Where the session's door is shown inside."""

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep the certificates that they trust."""

_CERTIFICATES = (
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT",
    "CARGO_HTTP_CAINFO", "npm_config_cafile", "AWS_CA_BUNDLE", "DENO_CERT",
)  # fmt: skip


def environment(policy: EgressPolicy, placeholders: Mapping[str, str]) -> dict[str, str]:
    """The variables of every command inside."""
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
    """What tells apt of the proxy, which reads no variables for it in every version."""
    proxy = f"http://127.0.0.1:{PORT}"
    return (
        f'Acquire::http::Proxy "{proxy}";\nAcquire::https::Proxy "{proxy}";\n'
        f'Acquire::https::CAInfo "{DOOR}/ca.pem";\nAcquire::http::Pipeline-Depth "0";\n'
    ).encode()


def _git(policy: EgressPolicy, placeholders: Mapping[str, str]) -> dict[str, str]:
    """Git asks nobody for a password: a helper answers with the placeholder of the host's secret."""
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
    """The certificates that this machine trusts, or those of `path`. Raises `EgressUnavailable`."""
    for candidate in (path,) if path else BUNDLES:
        try:
            return Path(candidate).read_bytes()
        except OSError:
            continue
    looked = path or ", ".join(BUNDLES)
    raise EgressUnavailable(
        f"the certificates that this machine trusts were not found ({looked}); hands have no network: install the "
        "package ca-certificates"
    )
