"""Pushing one branch through a proxy that puts the password in: no remote, helper, hook or setting of the user's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import RepositoryUnfit
from holdfast.repo.plumbing import Failed, Plumbing
from holdfast.repo.plumbing.refs import OURS, is_hex

_SCP = re.compile(r"(?:[A-Za-z0-9_.-]+@)?(?P<host>[A-Za-z0-9.-]+):(?!/)(?P<path>[^\0\n]+)")
_PATH = re.compile(r"[A-Za-z0-9._~/-]+")


class Forge(NamedTuple):
    """Where a repository is on a server: its host, and its path there without slashes around it."""

    host: str
    path: str

    @property
    def url(self) -> str:
        return f"https://{self.host}/{self.path}"


class Way(NamedTuple):
    """A proxy's address, the file of the certificates that it shows, and what it replaces in the header."""

    proxy: str
    certificates: Path
    authorization: str


def forge_of(url: str) -> Forge | None:
    """The server behind a remote's address, also one for ssh; None when it is none that speaks HTTPS on port 443."""
    scp = _SCP.fullmatch(url) if "://" not in url else None
    host, path, port = "", "", None
    try:
        if scp:
            host, path = scp["host"], scp["path"]
        else:
            parts = urlsplit(url)
            if parts.scheme in ("https", "ssh", "git+ssh") and not (parts.query or parts.fragment):
                host, path = parts.hostname or "", parts.path
                port = parts.port if parts.scheme == "https" else None
    except ValueError:
        return None
    path = path.strip("/")
    plain = _PATH.fullmatch(path) and not {"", ".", ".."} & set(path.split("/"))
    return Forge(host.lower(), path) if host and plain and port in (None, 443) else None


def push_branch(git: Plumbing, forge: Forge, commit: str, ref: str, way: Way) -> None:
    """Push one commit to one branch of ours; never forced. Raises `RepositoryUnfit` with what the server said."""
    if not is_hex(commit) or not ref.startswith(OURS[0]):
        raise RepositoryUnfit(f"{ref} is not a branch that Holdfast pushes; nothing was sent: push it yourself")
    settings = {
        "http.proxy": way.proxy,
        "http.sslCAInfo": str(way.certificates),
        "http.sslVerify": "true",
        "http.followRedirects": "false",
        "http.extraHeader": f"Authorization: {way.authorization}",
        "credential.helper": "",
    }
    extra = {"GIT_ALLOW_PROTOCOL": "https", "GIT_CONFIG_COUNT": str(len(settings))}  # not words, which all users see
    for index, (key, value) in enumerate(settings.items()):
        extra[f"GIT_CONFIG_KEY_{index}"], extra[f"GIT_CONFIG_VALUE_{index}"] = key, value
    try:
        git.run("push", "--quiet", "--no-verify", "--no-signed", forge.url, f"{commit}:{ref}", extra=extra)
    except Failed as error:
        raise RepositoryUnfit(
            f"{ref} was not pushed to {forge.url}: {error.said}; the repository is as it was: mend that, then try again"
        ) from None
