"""Contracts whose checks are no test runners, each with the work that meets it."""

from __future__ import annotations

from tests.honest.kit import Case, contract
from tests.honest.library import BASE

PYPROJECT = BASE["pyproject.toml"]

CONTRACTS = (
    Case("grep finds", {"README.md": "# Harbor\n\n## License\n"}, contract("grep -q '## License' README.md")),
    Case("grep finds nothing", {"src/harbor/__init__.py": ""}, contract("! grep -rn knots src/harbor/__init__.py")),
    Case("file is there", {"LICENSE": "MIT\n"}, contract("test -f LICENSE")),
    Case("file is gone", {"lib.sh": None}, contract("test ! -e lib.sh")),
    Case("folder is there", {"docs/index.md": "x\n"}, contract("[ -d docs ] && [ -s docs/index.md ]")),
    Case(
        "lint", {"src/harbor/knots.py": "def bend(a, b=1):\n    return a\n"}, contract("ruff check src/harbor/knots.py")
    ),
    Case(
        "types",
        {"src/harbor/knots.py": "def bend(a: str) -> str:\n    return a\n"},
        contract("mypy --strict src/harbor"),
    ),
    Case("types of JavaScript", {"js/knots.ts": "export const x: number = 1;\n"}, contract("npx tsc --noEmit")),
    Case("build", {"src/knots.c": "int turns(int n) { return n + 0; }\n"}, contract("cc -c src/knots.c -o /tmp/k.o")),
    Case(
        "build by make",
        {"Makefile": BASE["Makefile"] + "\nall:\n\tcc -c src/knots.c\n", "src/knots.c": "int a;\n"},
        contract("make all"),
    ),
    Case(
        "build of Go",
        {"knots.go": "package harbor\n\nfunc Bend(r string) string { return r }\n"},
        contract("go build ./... && go vet ./..."),
    ),
    Case(
        "build of JavaScript",
        {
            "package.json": BASE["package.json"].replace('"jest"}', '"jest", "build": "node js/b.js"}'),
            "js/b.js": "1;\n",
        },
        contract("npm run build"),
    ),
    Case("format", {"src/harbor/knots.py": "def bend(a):\n    return a\n"}, contract("ruff format --check src")),
    Case("syntax", {"src/harbor/new.py": "x = 1\n"}, contract("python -m py_compile src/harbor/new.py")),
    Case("import", {"src/harbor/new.py": "x = 1\n"}, contract("PYTHONPATH=src python -c 'import harbor.new'")),
    Case("program answers", {"app.py": "print('hello')\n"}, contract("python app.py | grep -q hello"), {"app.py": ""}),
    Case("program that is to be written", {"cli.py": "print(1)\n"}, contract("python cli.py --version")),
    Case(
        "two files agree",
        {"a.txt": "x\n", "b.txt": "x\n"},
        contract("cmp a.txt b.txt"),
        {"a.txt": "1\n", "b.txt": "2\n"},
    ),
    Case("JSON is valid", {"data.json": "{}\n"}, contract("python -m json.tool data.json"), {"data.json": "{\n"}),
    Case(
        "settings are there",
        {"pyproject.toml": PYPROJECT + "\n[tool.black]\nline-length = 100\n"},
        contract("grep -q tool.black pyproject.toml"),
    ),
    Case(
        "a script runs",
        {"scripts/run.sh": "echo ok\n"},
        contract("sh scripts/run.sh | grep -q ok"),
        {"scripts/run.sh": "false\n"},
    ),
    Case("shell is clean", {"lib.sh": "greet() { echo hi; }\n"}, contract("bash -n lib.sh")),
)
