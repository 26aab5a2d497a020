"""Refs and state of a user's repository, and the push of one branch through a proxy that adds the password.

A push uses no remote, helper, hook, or setting of the user.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import RepositoryUnfit
from holdfast.patterns import lazy
from holdfast.repo.base import shown
from holdfast.repo.plumbing import Failed, Plumbing
from holdfast.repo.plumbing.place import Place
from holdfast.repo.repository import Standing

OURS = ("refs/heads/holdfast/", "refs/holdfast/")
NAMED_CHANGES = 20
"""Maximum number of uncommitted changes that are named."""

LOCK_IS_LEFT_S = 600.0
"""Age in seconds at which a lock of one of our refs counts as left by a dead git."""

_HEX = lazy(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BAD_REF = lazy(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|[./]$")
_BUSY = ("rebase-merge/head-name", "rebase-apply/head-name")


def is_hex(name: str) -> bool:
    """True for the full hexadecimal name of an object."""
    return _HEX.fullmatch(name) is not None


def object_of(git: Plumbing, name: str) -> str | None:
    """Return the object that a name of the user's repository leads to, without running a hook, monitor or fetch."""
    if is_hex(name):
        return name
    if not name or name.startswith("-") or "\0" in name:
        return None
    status, out = _theirs(git, "rev-parse", "--verify", "--quiet", "--end-of-options", name, also=(1, 128))
    found = out.decode("utf-8", "replace").strip()
    return found if status == 0 and is_hex(found) else None


def _theirs(git: Plumbing, *arguments: str, also: tuple[int, ...] = ()) -> tuple[int, bytes]:
    try:
        return git.run(*arguments, theirs=True, also=also)
    except Failed as error:
        raise git.unfit("reading the refs", error.said) from None


def read_ref(git: Plumbing, ref: str) -> tuple[str | None, bool]:
    """Read a ref: its object, and True if it is symbolic."""
    form = "--format=%(refname) %(objectname) %(symref)"
    _, out = _theirs(git, "for-each-ref", form, ref)
    for line in out.decode("utf-8", "replace").splitlines():
        name, target, symbolic = (line + " ").split(" ")[:3]
        if name == ref:
            return target, bool(symbolic)
    return None, False


def check_ref(ref: str, new: str, old: str | None) -> None:
    """Raise `RepositoryUnfit` unless it is a ref of ours, to be moved between full names of commits."""
    if not ref.startswith(OURS) or _BAD_REF.search(ref) or not ref.isprintable():
        raise RepositoryUnfit(
            f"{ref[:200]!r} is not a ref that Holdfast moves; nothing was changed: it moves only those below "
            f"{' and '.join(OURS)}"
        )
    if not is_hex(new) or (old is not None and not is_hex(old)):
        raise RepositoryUnfit(
            f"{ref} can only be moved between whole names of commits; nothing was changed: resolve them first"
        )


def list_refs(git: Plumbing, below: str) -> dict[str, str]:
    """List refs: see `Refs.refs_below`."""
    _, out = _theirs(git, "for-each-ref", "--format=%(refname) %(objectname)", below)
    pairs = (line.rpartition(" ") for line in out.decode("utf-8", "surrogateescape").splitlines())
    return {ref: commit for ref, _, commit in pairs if ref.startswith(OURS)}


def leads(git: Plumbing, commit: str, but: Collection[str]) -> bool:
    """Look for refs that lead to a commit: see `Refs.leads`."""
    status, out = _theirs(git, "for-each-ref", "--format=%(refname)", f"--contains={commit}", also=(1, 128, 129))
    return status == 0 and not set(out.decode("utf-8", "surrogateescape").splitlines()) <= set(but)


def drop(git: Plumbing, ref: str, old: str) -> bool:
    """Delete a ref: see `Refs.drop`."""
    check_ref(ref, old, None)
    now, symbolic = read_ref(git, ref)
    if now is None or now != old or symbolic:
        return now is None
    _check_free(git, ref)
    _remove_left_lock(git, ref)
    try:
        git.run("update-ref", "--no-deref", "-d", ref, old, theirs=True)
    except Failed as error:
        now, _ = read_ref(git, ref)
        if now == old:
            raise _unmoved(git, ref, error.said) from None
    return now is None or now == old


def point(git: Plumbing, ref: str, new: str, old: str | None) -> bool:
    """Move a ref: see `Repository.point`."""
    check_ref(ref, new, old)
    now, symbolic = read_ref(git, ref)
    if symbolic:
        raise RepositoryUnfit(
            f"{ref} in {git.path} is a name for another ref; nothing was changed: remove it with `git symbolic-ref "
            f"--delete {ref}`"
        )
    if now == new:
        return True  # S23: the move was completed before a crash
    if now != old:
        return False
    _check_free(git, ref)
    move = ("update-ref", "--no-deref", "-m", "holdfast", ref, new, old or "0" * len(new))
    _remove_left_lock(git, ref)
    try:
        git.run(*move, theirs=True)
    except Failed as error:
        now, _ = read_ref(git, ref)
        if now == new:
            return True
        if now != old:
            return False
        raise _unmoved(git, ref, error.said) from None
    return True


def _remove_left_lock(git: Plumbing, ref: str) -> None:
    """Remove the lock of a ref of ours left by a git that died with the machine. Git holds one for milliseconds."""
    lock = git.place.common / f"{ref}.lock"
    if not lock.exists():
        return
    with tempfile.TemporaryFile(dir=git.scratch()) as now, suppress(OSError):
        if os.fstat(now.fileno()).st_mtime - lock.stat().st_mtime > LOCK_IS_LEFT_S:
            lock.unlink()


def _unmoved(git: Plumbing, ref: str, said: str) -> RepositoryUnfit:
    if ".lock" in said and "File exists" in said:
        return RepositoryUnfit(
            f"{ref} in {git.path} is locked by another program, or was left locked by one that died: {said}; nothing "
            "was changed: end that program, or remove the .lock file that is named, then try again"
        )
    if "exists; cannot create" in said:
        return RepositoryUnfit(
            f"{ref} cannot be made in {git.path}, because there is a branch in its way: {said}; nothing was changed: "
            "rename that branch with `git branch -m`"
        )
    return git.unfit(f"moving {ref}", said)


def _check_free(git: Plumbing, ref: str) -> None:
    if not ref.startswith("refs/heads/"):
        return
    _, out = _theirs(git, "worktree", "list", "--porcelain")
    top = ""
    taken = ""
    for line in out.decode("utf-8", "surrogateescape").splitlines():
        key, _, value = line.partition(" ")
        top = value if key == "worktree" else top
        if key == "branch" and value == ref:
            taken = top
    common = git.place.common
    for folder in (common, *sorted(common.glob("worktrees/*"))):
        if any(_text(folder / name) == ref for name in _BUSY):
            taken = str(folder)
    if taken:
        raise checked_out(ref, taken)


def checked_out(ref: str, where: str) -> RepositoryUnfit:
    """Return the error for a branch that is checked out."""
    return RepositoryUnfit(
        f"{ref} is checked out in {where}, and a branch that is checked out is never moved; nothing was changed: run "
        f"`git -C {where} switch --detach`"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def stand(git: Plumbing) -> Standing:
    """Read the state of a repository; see `Repository.look`."""
    place = git.place
    status, out = _theirs(git, "symbolic-ref", "-q", "HEAD", also=(1,))
    branch = out.decode("utf-8", "replace").strip() if status == 0 else ""
    head = object_of(git, "HEAD")
    if head is None:
        raise RepositoryUnfit(
            f"{git.path} is a git repository without a commit on {branch or 'HEAD'}; nothing was changed: commit once "
            "(`git add -A && git commit`), then try again"
        )
    tree = git.need("reading HEAD", "ls-tree", "-r", "-z", "--full-tree", "--format=%(objectmode)", head)
    return Standing(
        head=head,
        branch=branch,
        bare=place.top is None,
        shallow=place.shallow.exists() and place.shallow.stat().st_size > 0,
        submodules=b"160000" in tree,
        dirty=_dirty(git, place, head) if place.top else (),
    )


def _dirty(git: Plumbing, place: Place, head: str) -> tuple[str, ...]:
    """Return the first uncommitted changes in the folder. Runs no program of it, and writes nothing to it.

    Our own git directory compares, so that no filter is configured, whatever the attributes request.
    """
    with tempfile.TemporaryDirectory(dir=git.scratch()) as scratch:
        index = Path(scratch) / "index"  # a copy: git records in it which files it found unchanged
        if (place.git_dir / "index").exists():
            shutil.copyfile(place.git_dir / "index", index)
        return _changed(git, place, head, {"GIT_WORK_TREE": str(place.top), "GIT_INDEX_FILE": str(index)})


def _changed(git: Plumbing, place: Place, head: str, extra: dict[str, str]) -> tuple[str, ...]:
    exclude = [f"--exclude-from={place.common / 'info/exclude'}"] if _readable(place.common / "info/exclude") else []
    asked = (
        (
            "diff-index",
            "--cached",
            "--name-only",
            "-z",
            "--no-renames",
            "--no-ext-diff",
            "--ignore-submodules=all",
            head,
        ),
        ("diff-files", "--name-only", "-z", "--no-ext-diff", "--ignore-submodules=all"),
        ("ls-files", "-o", "-z", "--directory", "--no-empty-directory", "--exclude-per-directory=.gitignore", *exclude),
    )
    found: set[str] = set()
    try:
        git.run("-c", "core.bare=false", "update-index", "-q", "--refresh", extra=extra, also=(1,))
        for arguments in asked:
            _, out = git.run("-c", "core.bare=false", *arguments, extra=extra)
            found.update(shown(path) for path in out.split(b"\0") if path)
    except Failed as error:
        return (f"(what is not committed cannot be told: {error.said[:200]})",)
    return tuple(sorted(found)[:NAMED_CHANGES])


def _readable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)


_SCP = lazy(r"(?:[A-Za-z0-9_.-]+@)?(?P<host>[A-Za-z0-9.-]+):(?!/)(?P<path>[^\0\n]+)")
_PATH = lazy(r"[A-Za-z0-9._~/-]+")


class Forge(NamedTuple):
    """A repository on a server: its host, and its path without surrounding slashes."""

    host: str
    path: str

    @property
    def url(self) -> str:
        return f"https://{self.host}/{self.path}"


class Way(NamedTuple):
    """A proxy's address, the file of the certificates that it shows, and the header value that it replaces."""

    proxy: str
    certificates: Path
    authorization: str


def forge_of(url: str) -> Forge | None:
    """Return the server behind a remote's address, also an ssh one; None unless it speaks HTTPS on port 443."""
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
    """Push one commit to one branch of ours; never forced. Raises `RepositoryUnfit` with the server's message."""
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
    extra = {"GIT_ALLOW_PROTOCOL": "https", "GIT_CONFIG_COUNT": str(len(settings))}  # not as arguments, which all see
    for index, (key, value) in enumerate(settings.items()):
        extra[f"GIT_CONFIG_KEY_{index}"], extra[f"GIT_CONFIG_VALUE_{index}"] = key, value
    try:
        git.run("push", "--quiet", "--no-verify", "--no-signed", forge.url, f"{commit}:{ref}", extra=extra)
    except Failed as error:
        raise RepositoryUnfit(
            f"{ref} was not pushed to {forge.url}: {error.said}; the repository is as it was: mend that, then try again"
        ) from None
