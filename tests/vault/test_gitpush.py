"""Real git pushes to a real server through the gate: what the patterns allow, and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.egress.git_push import HEAD_MAX, PushGate, may_push, push_gate
from holdfast.egress.http import Head, Refusal
from holdfast.facts.session import SecretUse
from tests.vault.git_server import GitServer, git_server

USE = SecretUse("forge", ("git.example",), basic=True, push=("refs/heads/agent/*", "-refs/heads/agent/old*"))
OLD, NEW, NONE = "1" * 40, "2" * 40, "0" * 40


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, env=env, check=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    root = tmp_path / "served"
    root.mkdir()
    assert _git(root, "init", "-q", "--bare", "-b", "main", "web.git").returncode == 0
    _git(root / "web.git", "config", "http.receivepack", "true")
    _git(root / "web.git", "config", "receive.advertisePushOptions", "true")
    with git_server(root, USE) as serving:
        yield serving


@pytest.fixture
def clone(tmp_path: Path, server: GitServer) -> Path:
    folder = tmp_path / "clone"
    assert _git(tmp_path, "clone", "-q", f"{server.url}/web.git", "clone").returncode == 0
    (folder / "file").write_text("one\n")
    _git(folder, "add", "file")
    assert _git(folder, "commit", "-qm", "one").returncode == 0
    return folder


def _refs(server: GitServer) -> set[str]:
    return set(_git(server.root / "web.git", "for-each-ref", "--format=%(refname)").stdout.split())


def test_an_allowed_branch_is_pushed_moved_and_fetched(server: GitServer, clone: Path) -> None:
    assert _git(clone, "push", "origin", "HEAD:refs/heads/agent/fix").returncode == 0
    (clone / "big").write_bytes(os.urandom(3_000_000))  # more than git sends at once: in chunks, after a first request
    _git(clone, "add", "big")
    _git(clone, "commit", "-qm", "two")
    done = _git(clone, "push", "origin", "HEAD:refs/heads/agent/fix", "HEAD:refs/heads/agent/other/x")
    assert done.returncode == 0, done.stderr
    assert _refs(server) == {"refs/heads/agent/fix", "refs/heads/agent/other/x"}
    assert server.refused == []
    assert server.pushed[0] == "refs/heads/agent/fix"
    assert _git(clone, "fetch", "origin").returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["HEAD:refs/heads/main"], "does not allow to push to refs/heads/main"),
        (["HEAD:refs/heads/agent/fix", "HEAD:refs/tags/v1"], "does not allow to push to refs/tags/v1"),
        (["-o", "ci.skip", "HEAD:refs/heads/agent/fix"], "'push-options'"),
        (["--mirror"], "does not allow to push to refs/heads/ma"),
    ],
)
def test_what_is_not_allowed_is_refused_whole(server: GitServer, clone: Path, words: list[str], why: str) -> None:
    done = _git(clone, "push", "origin", *words)
    assert done.returncode != 0
    assert "403" in done.stderr
    assert len(server.refused) == 1
    assert why in server.refused[0]
    assert _refs(server) == set()


def test_a_branch_is_deleted_only_where_a_pattern_says_so(server: GitServer, clone: Path) -> None:
    for name in ("agent/old1", "agent/new"):
        assert _git(clone, "push", "origin", f"HEAD:refs/heads/{name}").returncode == 0
    assert _git(clone, "push", "origin", ":refs/heads/agent/new").returncode != 0
    assert server.refused == ["the policy does not allow to delete refs/heads/agent/new"]
    assert _git(clone, "push", "origin", ":refs/heads/agent/old1").returncode == 0
    assert _refs(server) == {"refs/heads/agent/new"}


def _line(text: bytes) -> bytes:
    return b"%04x%s" % (len(text) + 4, text)


def _body(*lines: bytes, rest: bytes = b"PACK...") -> bytes:
    return b"".join(map(_line, lines)) + b"0000" + rest


FINE = f"{OLD} {NEW} refs/heads/agent/x".encode()

BODIES = {
    "signed": _body(b"push-cert\0 report-status\n", FINE),
    "no size": b"zz" + FINE,
    "a delimiter": b"0001" + _body(FINE),
    "an empty line": b"0004" + _body(FINE),
    "too long a line": b"fff1" + FINE,
    "a size with a sign": b"+047" + FINE,
    "another first ref": _body(f"{OLD} {NEW} refs/heads/main\0 report-status".encode(), FINE),
    "another second ref": _body(FINE + b"\0report-status", f"{OLD} {NEW} refs/heads/main".encode()),
    "capabilities twice": _body(FINE + b"\0atomic", FINE + b"\0atomic"),
    "an unknown capability": _body(FINE + b"\0atomic something-new"),
    "a deletion": _body(f"{OLD} {NONE} refs/heads/agent/x".encode(), rest=b""),
    "short ids": _body(b"12 34 refs/heads/agent/x"),
    "ids of two kinds": _body(f"{OLD} {'2' * 64} refs/heads/agent/x".encode()),
    "dots": _body(f"{OLD} {NEW} refs/heads/agent/../main".encode()),
    "a ref in a ref": _body(f"{OLD} {NEW} refs/heads/agent/x\nrefs/heads/main".encode()),
    "not UTF-8": _body(f"{OLD} {NEW} refs/heads/agent/".encode() + b"\xff"),
    "no ref of git": _body(f"{OLD} {NEW} HEAD".encode()),
    "objects without an update": _body(),
    "no objects": _body(FINE, rest=b"GARB"),
    "a second list": _body(FINE, rest=_body(f"{OLD} {NEW} refs/heads/main".encode())),
    "ended early": _line(FINE),
    "ended in a line": _line(FINE)[:20],
    "ended before the objects": _body(FINE, rest=b"PA"),
    "too many at once": _body(*[FINE] * (HEAD_MAX // 80)),
    "too many": _line(FINE) * (HEAD_MAX // 80),
}


def _send(body: bytes, piece: int, passed: list[bytes]) -> None:
    gate = PushGate(USE)
    for at in range(0, len(body), piece):
        passed.append(gate.feed(body[at : at + piece]))
    gate.end()


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_body_that_is_not_understood_is_refused(name: str, piece: int) -> None:
    if len(BODIES[name]) > 10_000 and piece < 100:
        piece = 4_000
    passed: list[bytes] = []
    with pytest.raises(Refusal) as refused:
        _send(BODIES[name], piece, passed)
    assert refused.value.secret == "forge"
    assert b"".join(passed) in (b"", b"0000")  # the question before a large push, which asks for nothing


def test_a_body_that_is_understood_comes_through_as_it_was() -> None:
    first = FINE + b"\0 report-status-v2 side-band-64k object-format=sha1 agent=git/2.39.5"
    whole = _body(b"shallow " + NEW.encode(), first, rest=b"PACK" + bytes(range(256)) * 40)
    for piece in (1, 3, 64, 10_000):
        gate = PushGate(USE)
        passed = b"".join(gate.feed(whole[at : at + piece]) for at in range(0, len(whole), piece))
        gate.end()
        assert passed == whole
        assert gate.refs == ["refs/heads/agent/x"]


def _head(method: str, target: str, *headers: tuple[bytes, bytes]) -> Head:
    return Head(
        method, target.encode(), b"1.1", headers or ((b"content-type", b"application/x-git-receive-pack-request"),), b""
    )


def test_requests_that_push_nothing_need_no_gate() -> None:
    for method, target in (
        ("GET", "/a/web.git/info/refs?service=git-upload-pack"),
        ("GET", "/a/web.git/info/refs?service=git-receive-pack"),
        ("POST", "/a/web.git/git-upload-pack"),
        ("POST", "/a/web.git/info/lfs/objects/batch"),
    ):
        assert push_gate(USE, _head(method, target)) is None
    reads = SecretUse("api", ("api.example",))
    assert push_gate(reads, _head("POST", "/graphql?x=1")) is None
    assert push_gate(USE, _head("POST", "/a/web.git/git-receive-pack")) is not None


@pytest.mark.parametrize(
    "target",
    [
        "/a/web.git/git-receive-pack?",
        "/a/web.git/git-receive-pack?x=1",
        "/a/web.git/git-receive-pack/",
        "/a/web.git//git-receive-pack",
        "/a/web.git/x/../git-receive-pack",
        "/a/web.git/%67it-receive-pack",
        "/a/web.git/git%2Dreceive-pack%00",
        "/a/web.git/%2567it-receive-pack",
        "/a/web.git/GIT-RECEIVE-PACK",
        "/a/web.git/info/refs?service=git-receive-pack&service=git-upload-pack",
        "/a/web.git/HEAD",
        "/a/web.git/settings",
        "/a/web.git/info/lfs/x?git-receive-pack",
    ],
)
def test_other_spellings_are_refused_or_gated(target: str) -> None:
    for method in ("POST", "GET", "PUT"):
        gate = None
        try:
            gate = push_gate(USE, _head(method, target))
        except Refusal:
            continue
        assert gate is not None, (method, target)
        assert (method, target) == ("POST", "/a/web.git/%67it-receive-pack")  # read as what it stands for, and gated


def test_a_secret_that_may_not_push_does_not_and_bodies_are_plain() -> None:
    reads = SecretUse("forge", ("git.example",), basic=True)
    for target in (
        "/a/web.git/info/refs?service=git-receive-pack",
        "/a/web.git/git-re%63eive-pack",
        "/a/web.git/git-re%252563eive-pack",
        "/a/web.git/info/refs?service=git-re%63eive-pack",
    ):
        with pytest.raises(Refusal, match="does not allow"):
            push_gate(reads, _head("GET", target))
    kind = (b"content-type", b"application/x-git-receive-pack-request")
    for headers in ([kind, (b"content-encoding", b"gzip")], [kind, kind], [(b"content-type", b"text/plain")]):
        with pytest.raises(Refusal):
            push_gate(USE, _head("POST", "/a/web.git/git-receive-pack", *headers))


def test_patterns() -> None:
    assert may_push(("refs/heads/*",), "refs/heads/a/b")
    assert not may_push(("refs/heads/*",), "refs/heads/a", delete=True)
    assert not may_push(("-refs/heads/*",), "refs/heads/a")
    assert may_push(("-refs/heads/*",), "refs/heads/a", delete=True)
    assert not may_push((), "refs/heads/a")
