"""Lets git push what a secret's use allows, and nothing else: the updates of refs stand at the head of the request.

In `SecretUse.push` each pattern is a glob over whole refs, such as `refs/heads/agent/*`, where `*` stands for any
characters. It allows to make and to move such refs. A pattern with a minus in front, `-refs/heads/agent/*`, allows to
delete them. What is not understood is refused: signed pushes, push options, unknown capabilities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote

from holdfast.egress.http import Head, Refusal
from holdfast.egress.rules import Malformed, path_of, plain_path
from holdfast.facts.session import SecretUse

DELETES = "-"
"""Before a pattern: it allows to delete."""

HEAD_MAX = 262_144
"""So many bytes the updates of one push may have together."""

_SERVICE = "git-receive-pack"
_MENTIONED = "receive-pack"
_CONTENT_TYPE = b"application/x-git-receive-pack-request"
_READS = re.compile(r"/git-upload-pack|/info/lfs/[a-z/0-9.-]+")

_CAPABILITIES = re.compile(
    r"report-status|report-status-v2|side-band-64k|quiet|atomic|ofs-delta|object-format=(?:sha1|sha256)"
    r"|(?:agent|session-id)=[!-~]{1,256}"
)
_COMMAND = re.compile(
    r"(?P<old>[0-9a-f]{40}|[0-9a-f]{64}) (?P<new>[0-9a-f]{40}|[0-9a-f]{64}) (?P<ref>refs/[^\0\n]{1,1024})"
)
_SHALLOW = re.compile(r"shallow (?:[0-9a-f]{40}|[0-9a-f]{64})")
_NOT_IN_REFS = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|[./]$")


def push_gate(use: SecretUse, head: Head) -> PushGate | None:
    """The gate for the body of this request, which would use the secret; None where nothing can be pushed.

    Raises `Refusal` for a push that is not allowed, or not in the one form that is understood.
    """
    target = head.target.decode("ascii", "replace")
    mentioned = _MENTIONED in _decoded(target).lower()
    if not use.push and not mentioned:
        return None
    if not use.push:
        raise Refusal(403, "the policy does not allow to push with this secret", secret=use.name)
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
    raise Refusal(403, "that is no request of git which is understood", secret=use.name)


def _decoded(text: str) -> str:
    """With all percent-encoding undone, however often it was done."""
    for _ in range(8):
        after = unquote(text)
        if after == text:
            break
        text = after
    return text


def _after_repository(path: str) -> str:
    """The part of the path that git itself adds to a repository's."""
    for mark in ("/info/lfs/", "/git-upload-pack"):
        at = path.find(mark)
        if at > 0:
            return path[at:]
    return path


def _check_body(use: SecretUse, head: Head) -> None:
    if head.all(b"content-type") != [_CONTENT_TYPE]:
        raise Refusal(403, "a push comes in git's own form", secret=use.name)
    if any(value.strip().lower() != b"identity" for value in head.all(b"content-encoding")):
        raise Refusal(403, "a push is not compressed once more", secret=use.name)


class PushGate:
    """Holds the head of one push back until all its updates are allowed, then lets it and the rest through."""

    def __init__(self, use: SecretUse) -> None:
        self.refs: list[str] = []
        """What this push makes, moves or deletes."""
        self._use = use
        self._held = b""
        self._at = 0  # what is before it has been read
        self._packed = False  # an update needs objects, so that they have to follow
        self._listed = False  # the list of updates has ended
        self._open = False

    def feed(self, data: bytes) -> bytes:
        """The next piece of the body; what may go to the server. Raises `Refusal`, after which nothing may."""
        if self._open:
            return data
        self._held += data
        while not self._listed and self._line():
            if self._at > HEAD_MAX:
                raise self._refusal("the push names too many refs at once")
        if not self._listed:
            if len(self._held) > HEAD_MAX:
                raise self._refusal("the push names too many refs at once")
            return b""
        rest = self._held[self._at :]
        if rest and not (self._packed and b"PACK".startswith(rest[:4])):
            raise self._refusal("there is more in the push than its updates and their objects")
        if self._packed and len(rest) < 4:
            return b""
        self._open = self._packed
        return self._take()

    def end(self) -> None:
        """The body has ended. Raises `Refusal` when that was too early to know what it asks for."""
        if self._held:
            raise self._refusal("the push ends in the middle")

    def _take(self) -> bytes:
        passed, self._held, self._at = self._held, b"", 0
        return passed

    def _line(self) -> bool:
        """Read one line of the list; whether it was there whole."""
        size_text = self._held[self._at : self._at + 4]
        if len(size_text) < 4:
            return False
        if re.fullmatch(rb"[0-9a-fA-F]{4}", size_text) is None:
            raise self._refusal("the push is not in git's own form")
        size = int(size_text, 16)
        if size == 0:
            self._at += 4
            self._listed = True
            return False
        if not 4 < size <= 65_520:
            raise self._refusal("the push is not in git's own form")
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
            raise self._refusal("the push names a ref that is not UTF-8 text") from None
        if not nul and _SHALLOW.fullmatch(text):
            return
        match = _COMMAND.fullmatch(text)
        if match is None or len(match["old"]) != len(match["new"]):
            raise self._refusal("the push is signed, or not in a form that is understood")
        if nul and self.refs:
            raise self._refusal("the push is not in git's own form")
        for word in capabilities.split():
            if _CAPABILITIES.fullmatch(word) is None:
                raise self._refusal(f"the push wants {word.partition('=')[0][:40]!r}, which is not understood")
        self._allow(match["ref"], delete=not match["new"].strip("0"))

    def _allow(self, ref: str, *, delete: bool) -> None:
        if _NOT_IN_REFS.search(ref) or not ref.isprintable():
            raise self._refusal("the push names something that is no ref")
        if not may_push(self._use.push, ref, delete=delete):
            raise self._refusal(f"the policy does not allow to {'delete' if delete else 'push to'} {ref[:200]}")
        self.refs.append(ref)
        self._packed = self._packed or not delete

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(403, reason, secret=self._use.name)


def may_push(patterns: Sequence[str], ref: str, *, delete: bool = False) -> bool:
    """Whether the patterns allow to make or to move the ref, or with `delete` to delete it."""
    for pattern in patterns:
        if pattern.startswith(DELETES) == delete and fnmatchcase(ref, pattern.removeprefix(DELETES)):
            return True
    return False
