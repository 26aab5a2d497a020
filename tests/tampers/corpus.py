"""The corpus: small repositories with a check, and what a worker hands in on a product that is broken on purpose.

It is text, so that tampers in all languages read alike. `=== NAME ...` begins an entry, `--- PATH` a file of it, and
what stands between is described where it is read: repositories by `_repo`, tampers by `_tamper`. A file's line
`@base@` stands for what the file holds at the base, `@right@` for what an honest worker writes there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from holdfast.facts.mission import Check, Metric

FOLDER = Path(__file__).parent / "corpus"


class Repo(NamedTuple):
    """A repository with an unfinished product.

    `right` are the files of an honest worker. `truth` is run with files that no worker saw; it passes only when the
    product is right, whatever the repository's own check says.
    """

    name: str
    files: dict[str, bytes]
    right: dict[str, bytes]
    check: Check
    paths: tuple[str, ...]
    needs: tuple[str, ...]
    truth: str
    truth_files: dict[str, bytes]
    hidden: dict[str, bytes]
    hidden_check: Check | None


class Tamper(NamedTuple):
    """What is handed in; None for a file that goes. A `twin` has the same form and a right product.

    `knows` marks one that was written knowing how a verification probes; `hides` one on a repository with checks that
    the worker does not see.
    """

    name: str
    kind: str
    repo: Repo
    files: dict[str, bytes | None]
    knows: bool
    twin: bool
    hides: bool
    about: str


class _Entry(NamedTuple):
    name: str
    words: tuple[str, ...]
    head: str
    files: tuple[tuple[str, str], ...]


def _entries(text: str) -> Iterator[_Entry]:
    for part in ("\n" + text).split("\n=== ")[1:]:
        head, *blocks = part.split("\n--- ")
        first, _, about = head.partition("\n")
        name, *words = first.split()
        files = tuple((block.partition("\n")[0].strip(), block.partition("\n")[2].strip("\n")) for block in blocks)
        yield _Entry(name, tuple(words), about.strip(), files)


@cache
def repos() -> Mapping[str, Repo]:
    """All repositories, by name."""
    found: dict[str, Repo] = {}
    for path in sorted(FOLDER.glob("repo*.txt")):
        for each in _entries(path.read_text()):
            found[each.name] = _repo(each, found)
    return found


@cache
def tampers() -> tuple[Tamper, ...]:
    """All tampers and their twins. The name of a file is the class of what is in it."""
    found = [
        _tamper(path.stem, each)
        for path in sorted(FOLDER.glob("*.txt"))
        if not path.name.startswith("repo")
        for each in _entries(path.read_text())
    ]
    assert len({each.name for each in found}) == len(found), "two tampers have one name"
    return tuple(found)


def _text(block: str) -> bytes:
    return f"{block}\n".encode() if block else b""


def _repo(entry: _Entry, known: Mapping[str, Repo]) -> Repo:
    """A repository: `key: value` lines, then files. `right:PATH`, `truth:PATH`, `hidden:PATH` are not in its base.

    `like: NAME` takes over what another one has, where nothing else is said.
    """
    given = {key: value.strip() for key, _, value in (line.partition(":") for line in entry.head.splitlines())}
    kinds: dict[str, dict[str, bytes]] = {"": {}, "right": {}, "truth": {}, "hidden": {}}
    like = known[given["like"]] if "like" in given else None
    if like is not None:
        kinds = {"": {**like.files}, "right": {**like.right}, "truth": {**like.truth_files}, "hidden": {**like.hidden}}
    for path, block in entry.files:
        kind, _, rest = path.rpartition(":")
        kinds[kind][rest] = _text(block)
    metric = None
    if "metric" in given:
        direction, target = given["metric"].split()
        metric = Metric(float(target), 0.0, direction)  # type: ignore[arg-type]
    return Repo(
        name=entry.name,
        files=kinds[""],
        right=kinds["right"],
        check=Check(given["check"], tuple(given.get("tests", "").split()), metric, timeout_s=60.0),
        paths=tuple(given.get("paths", "").split()),
        needs=tuple(given["needs"].split()) if "needs" in given or like is None else like.needs,
        truth=given.get("truth") or (like.truth if like is not None else ""),
        truth_files=kinds["truth"],
        hidden=kinds["hidden"],
        hidden_check=Check(given["hidden"], timeout_s=60.0) if "hidden" in given else None,
    )


def _tamper(kind: str, entry: _Entry) -> Tamper:
    """A tamper: `=== NAME REPO [knows] [twin] [hides]`, a sentence about it, files. `--- PATH gone` removes one."""
    repo = repos()[entry.words[0]]
    flags = set(entry.words[1:])
    assert flags <= {"knows", "twin", "hides"}, entry
    files: dict[str, bytes | None] = dict(repo.right) if "twin" in flags else {}
    for path, block in entry.files:
        if path.endswith(" gone"):
            files[path.removesuffix(" gone")] = None
            continue
        text = block
        for mark, known in (("@base@", repo.files), ("@right@", repo.right)):
            if mark in text:
                text = text.replace(mark, known[path].decode().rstrip("\n"))
        files[path] = _text(text)
    return Tamper(
        entry.name,
        kind,
        repo,
        files,
        "knows" in flags,
        "twin" in flags,
        "hides" in flags,
        entry.head.replace("\n", " "),
    )


def hiding(tamper: Tamper) -> Tamper:
    """The same where the truth is a hidden check; as it is where the repository has one, or no file for it."""
    repo = tamper.repo
    if repo.hidden or not repo.truth_files:
        return tamper
    more = repo._replace(hidden=repo.truth_files, hidden_check=Check(repo.truth, timeout_s=60.0))
    return tamper._replace(repo=more, hides=True)


@cache
def plain() -> tuple[Tamper, ...]:
    """Nothing but the products: each broken one, which has to be red, and each right one, which has to be green."""
    found = []
    for repo in repos().values():
        folder = repo.paths[0].removesuffix("**") if repo.paths else ""
        note: dict[str, bytes | None] = {f"{folder}NOTES.md": b"Work goes on.\n"}
        found.append(Tamper(f"broken_{repo.name}", "plain", repo, note, False, False, bool(repo.hidden), ""))
        right: dict[str, bytes | None] = {**repo.right}
        found.append(Tamper(f"right_{repo.name}", "plain", repo, right, False, True, bool(repo.hidden), ""))
    return tuple(found)
