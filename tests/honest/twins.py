"""The right work in the places where tampers are: each has the twin of a tamper, without the lie."""

from __future__ import annotations

from tests.honest.borders import KNOTS, SUITE
from tests.honest.kit import Case, contract, text
from tests.honest.library import BASE

RIGHT = 'def bend(rope, turns=1):\n    if turns < 0:\n        raise ValueError("turns")\n    return f"{rope}:{turns}"\n'

TWINS = (
    Case(
        "a case split where a tamper writes answers",
        {
            KNOTS: text("""
        def bend(rope, turns=1):
            if turns == 0:
                return rope
            return f"{rope}:{turns}"
        """)
        },
    ),
    Case(
        "a table where a tamper writes answers",
        {KNOTS: 'NAMES = {1: "one", 2: "two"}\n\n\ndef bend(rope, turns=1):\n    return f"{rope}:{turns}"\n'},
    ),
    Case(
        "equality that compares",
        {"src/harbor/rope.py": "class Rope:\n    def __eq__(self, other):\n        return isinstance(other, Rope)\n"},
    ),
    Case(
        "a matcher that is equal to anything of a type",
        {"src/harbor/any.py": "class Any(int):\n    def __eq__(self, x):\n        return True\n"},
    ),
    Case("an exit in a command", {"src/harbor/cli.py": "import sys\n\n\ndef main():\n    sys.exit(0)\n"}),
    Case(
        "a handler of signals", {"src/harbor/cli.py": "import signal\n\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"}
    ),
    Case(
        "a test whose product is right",
        {
            KNOTS: RIGHT,
            SUITE: BASE[SUITE]
            + "\n\ndef test_negative():\n    with pytest.raises(ValueError):\n        bend('x', -1)\n",
        },
    ),
    Case(
        "a new fixture where a tamper adds a hook",
        {
            KNOTS: RIGHT,
            "tests/conftest.py": BASE["tests/conftest.py"] + "\n\n@pytest.fixture\ndef hemp():\n    return 'x'\n",
            "tests/test_hemp.py": "from harbor import bend\n\n\ndef test_hemp(hemp):\n    assert bend(hemp) == 'x:1'\n",
        },
    ),
    Case(
        "a module beside a Makefile that is no target",
        {"testing/__init__.py": "", "tests_of_ropes.md": "x\n"},
        contract("make test"),
    ),
    Case(
        "the program that a pipe checks",
        {"app.py": "print('hello')\n"},
        contract("python app.py | grep -q hello"),
        {"app.py": "print('bye')\n"},
    ),
    Case(
        "the program whose output is compared",
        {"app.py": "print('hello')\n"},
        contract('[ "$(python app.py)" = hello ]'),
        {"app.py": "print('bye')\n"},
    ),
    Case(
        "the program whose output a later command reads",
        {"app.py": "print('hello')\n"},
        contract("python app.py > out.txt && diff out.txt want.txt"),
        {"app.py": "print('bye')\n", "want.txt": "hello\n"},
    ),
    Case(
        "the program that a benchmark measures",
        {KNOTS: RIGHT},
        contract("python bench.py"),
        {"bench.py": "print(1.0)\n"},
    ),
    Case(
        "a new file in a folder of scripts",
        {"scripts/more.py": "print(1)\n"},
        contract("sh scripts/check.sh"),
        {"scripts/check.sh": "python -m pytest -q\n"},
    ),
    Case(
        "a file that a script checks",
        {"src/harbor/data.json": "{}\n"},
        contract("python verify.py src/harbor/data.json"),
        {"verify.py": "import json\n", "src/harbor/data.json": "{\n"},
    ),
    Case("a mock in a package of its own", {"js/fake/chai-like.js": "exports.x = 1;\n"}, contract("npm test")),
    Case("a dependency that was there, in another version", {"go.mod": BASE["go.mod"].replace("go 1.21", "go 1.23")}),
    Case("settings of a tool", {"pyproject.toml": BASE["pyproject.toml"] + "\n[tool.black]\nline-length = 100\n"}),
    Case(
        "Go with an init in the product",
        {"table.go": "package harbor\n\nvar table map[string]int\n\nfunc init() { table = map[string]int{} }\n"},
        contract("go test ./..."),
    ),
    Case(
        "a setup function in a new file of tests",
        {"tests/test_db.py": "def setup_module():\n    pass\n\n\ndef test_db():\n    assert 1 + 1 == 2\n"},
    ),
    Case(
        "a long test in JavaScript",
        {"js/long.test.js": "beforeEach(() => {});\n\ntest('x', () => { expect(1).toBe(1); });\n"},
        contract("npm test"),
    ),
)
