"""Allow a git push only to the refs that a secret's policy names; the head of a push lists its ref updates.

Each pattern in `SecretUse.push` is a glob over a whole ref, such as `refs/heads/agent/*`, in which `*` matches any
characters; it allows creating and moving such refs. A pattern with a leading minus, `-refs/heads/agent/*`, allows
deleting them. Signed pushes, push options, and unknown capabilities are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote

from holdfast.egress.http import Head, Refusal
from holdfast.egress.rules import Malformed, path_of, plain_path
from holdfast.facts.session import SecretUse
from holdfast.patterns import lazy

DELETES = "-"
"""Prefix of a pattern that allows deletion."""

HEAD_MAX = 262_144
"""Longest list of updates in one push, in bytes."""

_SERVICE = "git-receive-pack"
_MENTIONED = "receive-pack"
_CONTENT_TYPE = b"application/x-git-receive-pack-request"
_READS = lazy(r"/git-upload-pack|/info/lfs/[a-z/0-9.-]+")

_CAPABILITIES = lazy(
    r"report-status|report-status-v2|side-band-64k|quiet|atomic|ofs-delta|object-format=(?:sha1|sha256)"
    r"|(?:agent|session-id)=[!-~]{1,256}"
)
_COMMAND = lazy(r"(?P<old>[0-9a-f]{40}|[0-9a-f]{64}) (?P<new>[0-9a-f]{40}|[0-9a-f]{64}) (?P<ref>refs/[^\0\n]{1,1024})")
_SHALLOW = lazy(r"shallow (?:[0-9a-f]{40}|[0-9a-f]{64})")
_NOT_IN_REFS = lazy(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|[./]$")


def push_gate(use: SecretUse, head: Head) -> PushGate | None:
    """Return a gate for the body of a request that uses the secret; None if the request cannot push.

    Raises `Refusal` for a push that is not allowed, or not in the supported form.
    """
    target = head.target.decode("ascii", "replace")
    mentioned = _MENTIONED in _decoded(target).lower()
    if not use.push and not mentioned:
        return None
    if not use.push:
        raise Refusal(403, "the policy does not allow a push with this secret", secret=use.name)
    try:
        path, query = plain_path(path_of(head.target)), target.partition("?")[2]
    except Malformed as error:
        raise Refusal(403, str(error), secret=use.name) from None
    whole = f"{head.method} {query}"
    if path.endswith("/info/refs") and whole in (f"GET service={_SERVICE}", "GET service=git-upload-pack"):
        return None
    if not mentioned and _READS.fullmatch(_after_repository(path)) and "?" not in target:
        return None
    if path.endswith(f"/{_SERVICE}") and whole == "POST " and "?" not in target:
        _check_body(use, head)
        return PushGate(use)
    raise Refusal(403, "the request is not a known git request", secret=use.name)


def _decoded(text: str) -> str:
    """Undo repeated percent-encoding."""
    for _ in range(8):
        after = unquote(text)
        if after == text:
            break
        text = after
    return text


def _after_repository(path: str) -> str:
    """Return the part of the path that git adds to the path of a repository."""
    for mark in ("/info/lfs/", "/git-upload-pack"):
        at = path.find(mark)
        if at > 0:
            return path[at:]
    return path


def _check_body(use: SecretUse, head: Head) -> None:
    if head.all(b"content-type") != [_CONTENT_TYPE]:
        raise Refusal(403, "the content type of the push is not git's", secret=use.name)
    if any(value.strip().lower() != b"identity" for value in head.all(b"content-encoding")):
        raise Refusal(403, "the push must not have a content encoding", secret=use.name)


class PushGate:
    """Hold back the head of a push until all its updates are allowed, then pass everything on."""

    def __init__(self, use: SecretUse) -> None:
        self.refs: list[str] = []
        """Refs that the push creates, moves, or deletes."""
        self._use = use
        self._held = b""
        self._at = 0  # bytes before this position have been parsed
        self._packed = False  # an update needs objects, so a pack must follow
        self._listed = False  # the list of updates has ended
        self._open = False

    def feed(self, data: bytes) -> bytes:
        """Check the next piece of the body, and return the bytes to forward. After a `Refusal`, send nothing."""
        if self._open:
            return data
        self._held += data
        while not self._listed and self._line():
            if self._at > HEAD_MAX:
                raise self._refusal("the push updates too many refs at once")
        if not self._listed:
            if len(self._held) > HEAD_MAX:
                raise self._refusal("the push updates too many refs at once")
            return b""
        rest = self._held[self._at :]
        if rest and not (self._packed and b"PACK".startswith(rest[:4])):
            raise self._refusal("the push has bytes beside its updates and objects")
        if self._packed and len(rest) < 4:
            return b""
        self._open = self._packed
        passed, self._held, self._at = self._held, b"", 0
        return passed

    def end(self) -> None:
        """Check the end of the body. Raises `Refusal` if its updates are incomplete."""
        if self._held:
            raise self._refusal("the push is incomplete")

    def _line(self) -> bool:
        """Parse one line of the list. Return False if it is incomplete or the list ends."""
        size_text = self._held[self._at : self._at + 4]
        if len(size_text) < 4:
            return False
        if re.fullmatch(rb"[0-9a-fA-F]{4}", size_text) is None:
            raise self._refusal("the push is malformed")
        size = int(size_text, 16)
        if size == 0:
            self._at += 4
            self._listed = True
            return False
        if not 4 < size <= 65_520:
            raise self._refusal("the push is malformed")
        line = self._held[self._at + 4 : self._at + size]
        if len(line) < size - 4:
            return False
        self._at += size
        self._read(line)
        return True

    def _read(self, line: bytes) -> None:
        try:
            text, nul, capabilities = line.decode("utf-8").removesuffix("\n").partition("\0")
        except UnicodeDecodeError:
            raise self._refusal("the push names a ref that is not UTF-8") from None
        if not nul and _SHALLOW.fullmatch(text):
            return
        match = _COMMAND.fullmatch(text)
        if match is None or len(match["old"]) != len(match["new"]):
            raise self._refusal("the push is signed, or in an unknown form")
        if nul and self.refs:
            raise self._refusal("the push is malformed")
        for word in capabilities.split():
            if _CAPABILITIES.fullmatch(word) is None:
                raise self._refusal(f"the push wants {word.partition('=')[0][:40]!r}, which is not supported")
        self._allow(match["ref"], delete=not match["new"].strip("0"))

    def _allow(self, ref: str, *, delete: bool) -> None:
        if _NOT_IN_REFS.search(ref) or not ref.isprintable():
            raise self._refusal("the push names an invalid ref")
        if not may_push(self._use.push, ref, delete=delete):
            raise self._refusal(f"the policy does not allow to {'delete' if delete else 'push to'} {ref[:200]}")
        self.refs.append(ref)
        self._packed = self._packed or not delete

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(403, reason, secret=self._use.name)


def may_push(patterns: Sequence[str], ref: str, *, delete: bool = False) -> bool:
    """Return True if the patterns allow creating or moving the ref, or with `delete`, deleting it."""
    return any(
        pattern.startswith(DELETES) == delete and fnmatchcase(ref, pattern.removeprefix(DELETES))
        for pattern in patterns
    )
