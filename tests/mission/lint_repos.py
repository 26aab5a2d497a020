"""Five small repositories, each with entries of a contract that nothing is wrong with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Entry = dict[str, Any]


@dataclass(frozen=True)
class Repo:
    """Files, and entries of a contract that nothing is wrong with."""

    files: dict[str, str]
    good: tuple[Entry, ...]


PYTEST = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python3 -m pytest -q"
UNIT = "python3 -m unittest"

# --- repositories ----------------------------------------------------------------------------------

GREET = Repo(
    {
        "greet.py": '"""Greetings."""\n\n\ndef greet(name):\n    """By name."""\n    return f"Hello, {name}."\n\n\n'
        "def part(name):\n    raise NotImplementedError\n",
        "tests/test_greet.py": "import pytest\n\nimport greet\n\n\n"
        'def test_greet_by_name():\n    assert greet.greet("Bo") == "Hello, Bo."\n\n\n'
        'def test_part():\n    assert greet.part("Bo") == "Goodbye, Bo."\n\n\n'
        'def test_shout():\n    assert greet.shout("Bo") == "HELLO, BO!"\n\n\n'
        'def test_nobody():\n    with pytest.raises(ValueError):\n        greet.greet("")\n',
        "tests/test_smoke.py": "def test_it_starts():\n    assert True\n",
        "README.md": "# Greetings\n",
        "pyproject.toml": '[project]\nname = "greet"\nversion = "1.0"\n',
    },
    (
        {
            "id": "part",
            "description": "part() says goodbye by name",
            "check": f"{PYTEST} tests/test_greet.py::test_part",
        },
        {
            "id": "shout",
            "description": "shout() greets in capitals",
            "check": {"command": PYTEST, "tests": ["tests/test_greet.py::test_shout"], "timeout_s": 60},
            "paths": ["greet.py"],
        },
        {
            "id": "nobody",
            "description": "Nobody is not greeted",
            "acceptance": [
                {"text": "An empty name raises ValueError.", "command": f"{PYTEST} tests/test_greet.py::test_nobody"},
                {
                    "text": "Everybody else is greeted as before.",
                    "command": f"{PYTEST} tests/test_greet.py::test_greet_by_name",
                    "guard": True,
                },
                "The message of the error names the function that was called.",
            ],
        },
        {
            "id": "readme",
            "description": "The README says how to greet",
            "steps": ["Open README.md", "Read the section Usage"],
            "check": "grep -q '^## Usage' README.md",
        },
    ),
)

LEDGER = Repo(
    {
        "ledger/__init__.py": "",
        "ledger/money.py": "def parse(text):\n    whole, _, cents = text.partition('.')\n"
        "    return int(whole) * 100 + int(cents)\n\n\n"
        "def total(amounts):\n    raise NotImplementedError\n\n\ndef rate(cents, percent):\n    return 0\n",
        "tests/test_money.py": "import unittest\n\nfrom ledger import money\n\n\n"
        "class TestParse(unittest.TestCase):\n    def test_dollars(self):\n"
        "        self.assertEqual(money.parse('1.50'), 150)\n\n\n"
        "class TestTotal(unittest.TestCase):\n    def test_sum(self):\n"
        "        self.assertEqual(money.total(['1.50', '2.25']), 375)\n\n"
        "    def test_nothing(self):\n        self.assertEqual(money.total([]), 0)\n\n\n"
        "class TestRate(unittest.TestCase):\n    def test_seven_percent(self):\n"
        "        self.assertEqual(money.rate(1000, 7), 70)\n",
    },
    (
        {"id": "total", "description": "total() adds amounts", "check": f"{UNIT} tests.test_money.TestTotal"},
        {
            "id": "rate",
            "description": "rate() takes a percentage of cents",
            "check": f"{UNIT} tests.test_money.TestRate",
        },
        {
            "id": "errors",
            "description": "Amounts that cannot be read are refused",
            "acceptance": [
                {
                    "text": "parse('x') raises ValueError with the text in it.",
                    "command": "python3 -c \"import ledger.money as m\ntry: m.parse('x')\n"
                    "except ValueError as e: assert repr('x') in str(e) and 'amount' in str(e)\"",
                },
                {"command": f"{UNIT} tests.test_money.TestParse", "guard": True},
            ],
        },
        {
            "id": "report",
            "description": "A month is reported as a table",
            "acceptance": [
                "Each account stands on one line, with its balance in dollars and two digits.",
                "Accounts without a booking in the month are left out.",
                "The last line has the sum of the column.",
            ],
        },
    ),
)

WORDS = Repo(
    {
        "wordcount.py": "import sys\n\n\ndef count(text):\n    return len(text.split())\n\n\n"
        "def main():\n    if len(sys.argv) > 1:\n        sys.exit(f'unknown option {sys.argv[1]}')\n"
        "    print(count(sys.stdin.read()))\n\n\nif __name__ == '__main__':\n    main()\n",
        "tests/sample.txt": "one two\nthree\n",
        "tests/constant.py": "print('score 0.97')\n",
    },
    (
        {
            "id": "lines",
            "description": "--lines counts lines",
            "check": "printf 'a b\\nc\\n' | python3 wordcount.py --lines | grep -qx 2",
        },
        {
            "id": "chars",
            "description": "--chars counts characters, not bytes",
            "check": "printf 'äb' | python3 wordcount.py --chars | grep -qx 2",
            "paths": ["wordcount.py"],
        },
        {
            "id": "files",
            "description": "Files can be named",
            "acceptance": [
                {"command": "python3 wordcount.py tests/sample.txt | grep -qx 3", "text": "One file is counted."},
                {"command": "python3 wordcount.py < tests/sample.txt | grep -qx 3", "guard": True},
                "A file that is not there is named on standard error, and the exit status is 2.",
            ],
        },
        {
            "id": "package",
            "description": "It can be installed",
            "check": "sh ./install.sh --dry",
            "paths": ["install.sh"],
        },
    ),
)

BACKUP = Repo(
    {
        "backup.sh": '#!/bin/sh\nset -eu\ncase "${1:-}" in\n  version) echo 1.0 ;;\n  save) cp -r "$2" "$2.saved" ;;\n'
        "  *) echo unknown >&2; exit 64 ;;\nesac\n",
        "tests/run.sh": '#!/bin/sh\nset -eu\ndir=$(mktemp -d)\nmkdir "$dir/a"; echo hi > "$dir/a/f"\ncase "$1" in\n'
        '  save) sh backup.sh save "$dir/a"; test "$(cat "$dir/a.saved/f")" = hi ;;\n'
        '  restore) sh backup.sh save "$dir/a"; rm -r "$dir/a"; sh backup.sh restore "$dir/a"; test -f "$dir/a/f" ;;\n'
        '  list) sh backup.sh save "$dir/a"; sh backup.sh list "$dir" | grep -qx a ;;\nesac\n',
    },
    (
        {"id": "restore", "description": "restore puts back what was saved", "check": "sh tests/run.sh restore"},
        {"id": "list", "description": "list names what was saved", "check": ["sh tests/run.sh list"]},
        {
            "id": "safe",
            "description": "save goes on to work",
            "acceptance": [
                {"text": "A folder is saved beside itself.", "command": "sh tests/run.sh save", "guard": True},
                {"text": "Saving twice is refused.", "command": "sh backup.sh save tests && ! sh backup.sh save tests"},
            ],
        },
        {
            "id": "help",
            "description": "There is a help",
            "check": "sh backup.sh help | grep -q restore",
            "acceptance": ["Each command has a line of its own with one example."],
        },
    ),
)

SLUGS = Repo(
    {
        "slugs.py": "def slug(text):\n    return text.lower().replace(' ', '-')\n",
        "tests/test_slugs.py": "import unittest\n\nimport slugs\n\n\nclass TestSlug(unittest.TestCase):\n"
        "    def test_lower(self):\n        self.assertEqual(slugs.slug('A b'), 'a-b')\n\n"
        "    def test_accents(self):\n        self.assertEqual(slugs.slug('Café'), 'cafe')\n",
        "tests/accuracy.py": "import slugs\n\n"
        "PAIRS = {'A b': 'a-b', 'Café': 'cafe', 'x  y': 'x-y', 'a/b': 'a-b', '!': ''}\n\n"
        "right = sum(slugs.slug(text) == wanted for text, wanted in PAIRS.items())\n"
        "print('accuracy', right / len(PAIRS))\n",
        "tests/constant.py": "print('accuracy 0.97')\n",
        "setup.cfg": "[metadata]\nname = slugs\n",
    },
    (
        {
            "id": "accuracy",
            "description": "Slugs are as people expect them",
            "check": {"metric": {"command": "python3 -m tests.accuracy", "target": 0.9, "tolerance": 0.05}},
        },
        {
            "id": "accents",
            "description": "Accents are folded",
            "check": f"{UNIT} tests.test_slugs.TestSlug.test_accents",
        },
        {
            "id": "stable",
            "description": "Old slugs stay",
            "acceptance": [{"command": f"{UNIT} tests.test_slugs.TestSlug.test_lower", "guard": True},
                           {"text": "A slug of 300 characters is cut at 80.",
                            "command": "python3 -c 'import slugs; assert len(slugs.slug(\"a\" * 300)) == 80'"}],
        },
        {
            "id": "docs",
            "description": "The rules are written down",
            "acceptance": ["README.md lists each rule with one example.", "No rule stands there that has no test."],
        },
    ),
)  # fmt: skip

REPOS = {"greet": GREET, "ledger": LEDGER, "words": WORDS, "backup": BACKUP, "slugs": SLUGS}
