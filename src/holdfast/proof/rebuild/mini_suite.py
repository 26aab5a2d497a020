"""Tests of the small library, as data."""

from __future__ import annotations

TEXT = """\
import pytest

from mini.text import padded, shortened, slug, words


@pytest.mark.parametrize(
    ("text", "found"),
    [("", []), ("one", ["one"]), ("one, two!", ["one", "two"]), ("a_b 3", ["a", "b", "3"]), ("é è", ["é", "è"])],
)
def test_words(text, found):
    assert words(text) == found


@pytest.mark.parametrize(("text", "found"), [("Rent, May!", "rent-may"), ("  A  ", "a"), ("", "")])
def test_slug(text, found):
    assert slug(text) == found


def test_shortened():
    assert [shortened("abcdef", width) for width in (6, 5, 1)] == ["abcdef", "abcd…", "…"]


def test_shortened_to_nothing():
    with pytest.raises(ValueError, match="nothing"):
        shortened("abc", 0)


def test_padded():
    assert (padded("ab", 4), padded("ab", 4, right=True), padded("abcde", 4)) == ("ab  ", "  ab", "abcde")
"""

AMOUNTS = """\
import pytest

from mini.amounts import CENTS, format_amount, parse_amount, split_amount


def test_cents():
    assert CENTS == 100


@pytest.mark.parametrize(
    ("text", "cents"), [("12.34", 1234), ("-5", -500), ("1,200.5", 120050), ("+0.07", 7), (" 3 ", 300)]
)
def test_parse(text, cents):
    assert parse_amount(text) == cents


@pytest.mark.parametrize("text", ["", "abc", "1.234", "1.", "--1x"])
def test_no_amount(text):
    with pytest.raises(ValueError, match="no amount"):
        parse_amount(text)


@pytest.mark.parametrize(("cents", "text"), [(0, "0.00"), (123450, "1,234.50"), (-5, "-0.05")])
def test_format(cents, text):
    assert format_amount(cents) == text


def test_there_and_back():
    assert [parse_amount(format_amount(cents)) for cents in (-123456, 0, 99)] == [-123456, 0, 99]


def test_split():
    assert split_amount(100, 3) == [34, 33, 33]
    assert sum(split_amount(-7, 4)) == -7


def test_split_into_nothing():
    with pytest.raises(ValueError, match="one part"):
        split_amount(1, 0)
"""

DAYS = """\
import pytest

from mini.days import day_number, days_between, is_leap, month_length, parse_day


@pytest.mark.parametrize(("year", "leap"), [(2024, True), (2023, False), (1900, False), (2000, True)])
def test_leap(year, leap):
    assert is_leap(year) is leap


def test_months():
    assert [month_length(2023, month) for month in (1, 2, 4, 12)] == [31, 28, 30, 31]
    assert month_length(2024, 2) == 29


def test_parse_day():
    assert parse_day("2024-02-29") == (2024, 2, 29)


@pytest.mark.parametrize("text", ["2023-02-29", "2024-13-01", "2024-04-31", "2024-00-10"])
def test_no_such_day(text):
    with pytest.raises(ValueError, match="there is no day"):
        parse_day(text)


@pytest.mark.parametrize("text", ["", "2024-05", "a-b-c"])
def test_no_day(text):
    with pytest.raises(ValueError, match="is no day"):
        parse_day(text)


def test_days_follow():
    assert day_number((2024, 3, 1)) - day_number((2024, 2, 29)) == 1
    assert day_number((2024, 1, 1)) - day_number((2023, 12, 31)) == 1


def test_days_between():
    assert days_between((2024, 1, 1), (2025, 1, 1)) == 366
    assert days_between((2024, 5, 2), (2024, 5, 1)) == -1
"""

LEDGER = '''\
import pytest

from mini.entries import Entry, parse_entry
from mini.ledger import Ledger, read_ledger, write_ledger

BOOK = """\\
# the flat
2024-05-31 rent -750.00 for May

2024-05-01 wages 2,100.00
2024-06-30 rent -750.00 for June
"""


@pytest.fixture
def book():
    return read_ledger(BOOK)


def test_entry_of_a_line():
    assert parse_entry("2024-05-31 Rent -750.00 for May ") == Entry((2024, 5, 31), "rent", -75000, "for May")


def test_entry_without_a_note():
    assert parse_entry("2024-05-31 rent 1").note == ""


def test_entries_differ():
    assert Entry((2024, 5, 31), "rent", 1) != Entry((2024, 5, 31), "rent", 2)
    assert Entry((2024, 5, 31), "rent", 1) != "rent"


def test_too_few_words():
    with pytest.raises(ValueError, match="has no day"):
        parse_entry("2024-05-31 rent")


def test_line_of_an_entry():
    assert Entry((2024, 5, 1), "rent", -75000, "for May").line() == "2024-05-01 rent -750.00 for May"


def test_shown():
    assert repr(Entry((2024, 5, 1), "rent", 5)) == "Entry('2024-05-01 rent 0.05')"


def test_empty_book():
    assert (Ledger().entries, Ledger().balance(), Ledger().accounts()) == ([], 0, [])


def test_in_order_of_days(book):
    assert [entry.day for entry in book.entries] == [(2024, 5, 1), (2024, 5, 31), (2024, 6, 30)]


def test_later_of_a_day_comes_later():
    first, second = Entry((2024, 5, 1), "a", 1), Entry((2024, 5, 1), "b", 2)
    assert Ledger([first, second]).entries == [first, second]


def test_accounts(book):
    assert book.accounts() == ["rent", "wages"]


def test_balance(book):
    assert (book.balance("rent"), book.balance()) == (-150000, 60000)


def test_between(book):
    assert [entry.account for entry in book.between("2024-05-01", "2024-05-31").entries] == ["wages", "rent"]


def test_written_and_read(book):
    assert read_ledger(write_ledger(book)).entries == book.entries
'''

REPORT = """\
from mini.entries import Entry
from mini.ledger import Ledger
from mini.report import shares, summary, table


def make():
    return Ledger([Entry((2024, 5, 1), "rent", -75001), Entry((2024, 5, 2), "a-very-long-account", 100)])


def test_table():
    assert table([("a", "1"), ("b" * 20, "2")], width=4) == "a            1\\nbbb…         2"


def test_summary():
    assert summary(make()).splitlines() == [
        "a-very-long…      1.00",
        "rent           -750.01",
        "total          -749.01",
    ]


def test_shares():
    assert shares(make(), "rent", ["Bo", "Al"]) == {"Al": -37500, "Bo": -37501}
"""

TESTS = {
    "tests/test_amounts.py": AMOUNTS,
    "tests/test_days.py": DAYS,
    "tests/test_ledger.py": LEDGER,
    "tests/test_report.py": REPORT,
    "tests/test_text.py": TEXT,
}
"""Path → text."""
