"""The journal: every position once, whatever dies, and never without bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.egress import journal
from holdfast.egress.base import Notes
from holdfast.egress.journal import Journal, notes
from holdfast.facts.hands import EgressSeen


def seen(host: str = "a.test", path: str = "/x", verdict: str = "allowed", sent: int = 1) -> EgressSeen:
    """A request."""
    return EgressSeen(verdict, host, 443, method="GET", path=path, sent=sent)  # type: ignore[arg-type]


def test_what_comes_close_together_is_one_line(tmp_path: Path) -> None:
    book = Journal(tmp_path / "journal")
    for _ in range(5):
        book.note(seen())
    book.note(seen(verdict="refused"))
    book.flush()
    found = notes(tmp_path / "journal", 0)
    assert [(one.verdict, one.count, one.sent) for one in found.seen] == [("allowed", 5, 5), ("refused", 1, 1)]
    assert found.through == 2
    book.note(seen())
    book.flush()
    assert [(one.count) for one in notes(tmp_path / "journal", 2).seen] == [1]
    assert notes(tmp_path / "journal", 3) == Notes(3)


def test_the_next_proxy_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    book = Journal(tmp_path / "journal")
    book.requests, book.bytes = 7, 900
    book.note(seen())
    book.flush()
    with (tmp_path / "journal").open("ab") as file:
        file.write(b'{"n":2,"seen":{"verdict":"allo')
    after = Journal(tmp_path / "journal")
    assert (after.through, after.requests, after.bytes) == (1, 7, 900)
    after.note(seen("b.test"))
    after.flush()
    assert [(one.host) for one in notes(tmp_path / "journal", 0).seen] == ["a.test", "b.test"]
    assert notes(tmp_path / "journal", 0).through == 2


def test_kinds_are_bounded(tmp_path: Path) -> None:
    book = Journal(tmp_path / "journal")
    total = 3 * journal.KINDS_MAX
    for number in range(total):
        book.note(seen(path=f"/{number}"))
    for number in range(total):
        book.note(seen(f"h{number}.test"))
    book.flush()
    found = notes(tmp_path / "journal", 0)
    assert len(found.seen) <= 2 * journal.KINDS_MAX
    assert sum(one.count for one in found.seen) + found.dropped == 2 * total
    assert found.dropped > 0


def test_unread_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LINES_MAX", 20)
    book = Journal(tmp_path / "journal")
    for number in range(50):
        book.note(seen(f"h{number}.test"))
        book.flush()
    found = notes(tmp_path / "journal", 0)
    assert (len(found.seen), found.dropped) == (20, 30)


def test_what_was_read_for_good_may_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_SHRINK", 100)
    book = Journal(tmp_path / "journal")
    book.requests = 5
    for number in range(10):
        book.note(seen(f"h{number}.test"))
        book.flush()
    book.forget(8)
    assert [one.host for one in notes(tmp_path / "journal", 0).seen] == ["h8.test", "h9.test"]
    book.forget(10)
    again = Journal(tmp_path / "journal")
    assert (again.through, again.requests) == (10, 5)
    assert notes(tmp_path / "journal", 10).seen == ()


def test_long_paths_are_cut(tmp_path: Path) -> None:
    book = Journal(tmp_path / "journal")
    book.note(seen(path="/" + "x" * 5000))
    book.flush()
    assert len(notes(tmp_path / "journal", 0).seen[0].path) == journal.PATH_MAX
    assert msgspec.json.decode((tmp_path / "journal").read_bytes().splitlines()[0])["n"] == 1
