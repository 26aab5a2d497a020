"""Small built-in library for missions without a network: accounts kept as lines of text.

It has seven modules that depend on each other, a body that runs at import, and fast tests. All of it is data that
Holdfast never imports. The dependencies of the tests are copied from the running interpreter if it has pytest, and
fetched otherwise.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from holdfast.proof.rebuild.library import PYTHON, Library, compile_modules, install_test_dependencies
from holdfast.proof.rebuild.mini_suite import TESTS
from holdfast.proof.rebuild.tree import SourceFile, layout, permissive_licence

PIN = "mini==1.0"
"""Name of the library on the command line."""

PKG_INFO = """\
Metadata-Version: 2.4
Name: mini
Version: 1.0
Summary: Accounts kept as lines of text
License-Expression: MIT
"""

PYPROJECT = """\
[project]
name = "mini"
version = "1.0"
dependencies = []

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

INIT = '''\
"""Accounts kept as lines of text."""

__version__ = "1.0"
'''

TEXT = '''\
"""Words and lines."""

import re


def slug(text):
    """Lower-case words joined by dashes: `Rent, May!` is `rent-may`."""
    return "-".join(words(text.lower()))


def words(text):
    """The words of a text: letters and digits, nothing else."""
    return re.findall(r"[^\\W_]+", text)


def shortened(text, width):
    """The text, cut to `width` characters; one that was cut ends with an ellipsis."""
    if width < 1:
        raise ValueError("a text cannot be cut to nothing")
    if len(text) <= width:
        return text
    return text[: width - 1] + "…"


def padded(text, width, right=False):
    """The text with spaces up to `width`, on its right, or on its left when `right`."""
    space = " " * max(0, width - len(text))
    return space + text if right else text + space
'''

AMOUNTS = '''\
"""Amounts of money, in whole cents."""


def _scale(places):
    """How many cents a unit has."""
    factor = 1
    for _ in range(places):
        factor *= 10
    return factor


CENTS = _scale(2)


def parse_amount(text):
    """Cents of `12.34`, `-5` or `1,200.5`. Raises ValueError for anything else."""
    plain = text.strip().replace(",", "")
    sign = -1 if plain.startswith("-") else 1
    whole, dot, part = plain.lstrip("+-").partition(".")
    if not whole.isdigit() or (dot and not (part.isdigit() and len(part) <= 2)):
        raise ValueError(f"{text!r} is no amount; a right one is 12.34")
    return sign * (int(whole) * CENTS + int((part + "00")[:2]))


def format_amount(cents):
    """`1,234.50` for 123450."""
    sign = "-" if cents < 0 else ""
    whole, part = divmod(abs(cents), CENTS)
    return f"{sign}{whole:,}.{part:02d}"


def split_amount(cents, parts):
    """That many amounts that differ by a cent at most and make up the whole; the larger ones come first."""
    if parts < 1:
        raise ValueError("an amount is split into one part at least")
    each, left = divmod(cents, parts)
    return [each + 1] * left + [each] * (parts - left)
'''

DAYS = '''\
"""Days, as numbers since the first of March of year 0."""


def parse_day(text):
    """(year, month, day) of `2024-05-31`. Raises ValueError for a day that does not exist."""
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is no day; a right one is 2024-05-31")
    year, month, day = map(int, parts)
    if not 1 <= month <= 12 or not 1 <= day <= month_length(year, month):
        raise ValueError(f"there is no day {text}")
    return year, month, day


def is_leap(year):
    """Whether February has 29 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year, month):
    """How many days a month has."""
    if month == 2:
        return 29 if is_leap(year) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def day_number(day):
    """A number that grows by one a day."""
    year, month, of_month = day
    if month < 3:
        year, month = year - 1, month + 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + of_month - 1


def days_between(first, last):
    """How many days after `first` the day `last` is."""
    return day_number(last) - day_number(first)
'''

ENTRIES = '''\
"""One line of the book."""

from mini.amounts import format_amount, parse_amount
from mini.days import parse_day
from mini.text import slug


class Entry:
    """A day, an account, an amount in cents, and what it was for."""

    def __init__(self, day, account, cents, note=""):
        self.day = day
        self.account = account
        self.cents = cents
        self.note = note

    def __eq__(self, other):
        return isinstance(other, Entry) and vars(self) == vars(other)

    def __repr__(self):
        return f"Entry({self.line()!r})"

    def line(self):
        """The line that it is read from again."""
        year, month, day = self.day
        words = [f"{year:04d}-{month:02d}-{day:02d}", self.account, format_amount(self.cents)]
        return " ".join(words + ([self.note] if self.note else []))


def parse_entry(line):
    """The entry of `2024-05-31 rent -750.00 for May`; the account becomes a slug."""
    parts = line.split(None, 3)
    if len(parts) < 3:
        raise ValueError(f"{line!r} has no day, account and amount")
    day, account, amount = parts[:3]
    return Entry(parse_day(day), slug(account), parse_amount(amount), parts[3].strip() if len(parts) > 3 else "")
'''

LEDGER = '''\
"""The book."""

from mini.days import day_number, parse_day
from mini.entries import parse_entry


class Ledger:
    """Entries in the order of their days."""

    def __init__(self, entries=()):
        self.entries = []
        for entry in entries:
            self.add(entry)

    def add(self, entry):
        """Put an entry in its place: after all of the same day or earlier ones."""
        place = len(self.entries)
        while place and self.entries[place - 1].day > entry.day:
            place -= 1
        self.entries.insert(place, entry)

    def accounts(self):
        """Names of all accounts, in order."""
        return sorted({entry.account for entry in self.entries})

    def balance(self, account=None):
        """The sum of an account, or of all."""
        return sum(entry.cents for entry in self.entries if account in (None, entry.account))

    def between(self, first, last):
        """A book of the entries of these days, both included."""
        low, high = day_number(parse_day(first)), day_number(parse_day(last))
        return Ledger(entry for entry in self.entries if low <= day_number(entry.day) <= high)


def read_ledger(text):
    """The book of a text: a line an entry; empty lines and those that begin with # are left out."""
    lines = (line.strip() for line in text.splitlines())
    return Ledger(parse_entry(line) for line in lines if line and not line.startswith("#"))


def write_ledger(ledger):
    """The text of a book."""
    return "".join(entry.line() + "\\n" for entry in ledger.entries)
'''

REPORT = '''\
"""What the book says, as text."""

from mini.amounts import format_amount, split_amount
from mini.text import padded, shortened


def table(rows, width=12):
    """Rows of two texts: the first cut and padded, the second on the right."""
    return "\\n".join(padded(shortened(left, width), width) + padded(right, 10, right=True) for left, right in rows)


def summary(ledger):
    """A line for each account, and one for all."""
    rows = [(account, format_amount(ledger.balance(account))) for account in ledger.accounts()]
    return table([*rows, ("total", format_amount(ledger.balance()))])


def shares(ledger, account, people):
    """What each of the people has of an account."""
    names = sorted(people)
    return dict(zip(names, split_amount(ledger.balance(account), len(names))))
'''

FILES = {
    "PKG-INFO": PKG_INFO,
    "pyproject.toml": PYPROJECT,
    "README.md": "# mini\n\nAccounts kept as lines of text.\n",
    "mini/__init__.py": INIT,
    "mini/amounts.py": AMOUNTS,
    "mini/days.py": DAYS,
    "mini/entries.py": ENTRIES,
    "mini/ledger.py": LEDGER,
    "mini/report.py": REPORT,
    "mini/text.py": TEXT,
    **TESTS,
}
"""Path → text."""

_NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
"""pytest and its dependencies on the supported Python versions."""


def mini_library() -> Library:
    """Return the library as data."""
    tree = {path: SourceFile(text.encode()) for path, text in FILES.items()}
    digest = hashlib.sha256("\n".join(f"{path}\n{text}" for path, text in FILES.items()).encode()).hexdigest()
    return Library(
        pin=PIN,
        name="mini",
        version="1.0",
        archive=Path(__file__),
        sha256=digest,
        licence=permissive_licence(tree),
        tree=tree,
        layout=layout(tree, "mini"),
        module="mini/ledger.py",
        requirements=("pytest>=8,<10",),
    )


def mini_dependencies(cache: Path) -> Path:
    """Return a folder, readable by all, with pytest for the hands: copied from this interpreter, else fetched."""
    try:
        found = [metadata.distribution(name) for name in _NEEDED]
    except metadata.PackageNotFoundError:
        return install_test_dependencies(mini_library(), cache)
    folder = cache / "testdeps"
    for parent in (cache, folder):
        parent.mkdir(parents=True, exist_ok=True)
        os.chmod(parent, 0o755)
    versions = "\n".join(f"{each.name} {each.version}" for each in found)
    target = folder / f"own-{hashlib.sha256(versions.encode()).hexdigest()[:24]}"
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir(mode=0o755)
        for each in found:
            _copy(each, made)
        compile_modules(made, PYTHON)
        try:
            os.rename(made, target)
        except OSError:
            # Another process was first, with the same result.
            if not target.is_dir():
                raise
    return target


def _copy(found: metadata.Distribution, dest: Path) -> None:
    for path in found.files or ():
        if ".." in path.parts or "__pycache__" in path.parts or path.parts[0] == "bin":
            continue
        target = dest.joinpath(*path.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(found.locate_file(path)), target)
        os.chmod(target, 0o644)
        for folder in target.relative_to(dest).parents:
            os.chmod(dest / folder, 0o755)
