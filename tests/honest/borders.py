"""Legitimate changes near the borders of what is protected."""

from __future__ import annotations

from tests.honest.kit import Case, contract, text
from tests.honest.library import BASE

KNOTS, SUITE = "src/harbor/knots.py", "tests/test_knots.py"


def _product(name: str, code: str, path: str = "src/harbor/cli.py") -> Case:
    return Case(name, {path: text(code)})


def _more(name: str, path: str, added: str, at: str = "") -> Case:
    """Lines added to a file of the base, before the first place of `at`, or at its end."""
    old = BASE[path]
    return Case(name, {path: old.replace(at, added + at, 1) if at else old + added})


def _swap(name: str, path: str, old: str, new: str, **more: object) -> Case:
    assert old in BASE[path]
    return Case(name, {path: BASE[path].replace(old, new, 1)}, **more)  # type: ignore[arg-type]


PRODUCT = (
    _product("exception hook", "import sys\n\n\ndef hook(*args):\n    print('sorry')\n\n\nsys.excepthook = hook\n"),
    _product(
        "main exits", "import sys\n\n\ndef main():\n    return 0\n\n\nsys.exit(main())\n", "src/harbor/__main__.py"
    ),
    _product("forked child", "import os\n\n\ndef run():\n    if os.fork() == 0:\n        os._exit(0)\n"),
    _product(
        "terminates itself", "import os\nimport signal\n\n\ndef stop():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    ),
    _product("caller's frame", "import inspect\n\n\ndef where():\n    return inspect.currentframe().f_back.f_lineno\n"),
    _product("stack", "import sys\n\n\ndef caller():\n    return sys._getframe(1).f_code.co_name\n"),
    _product("child's PYTHONPATH", "import os\n\n\ndef env():\n    os.environ['PYTHONPATH'] = 'lib'\n"),
    _product("alarm", "import signal\n\n\ndef limit(s):\n    signal.alarm(s)\n"),
    _product("trace", "import sys\n\n\ndef trace(f):\n    sys.settrace(f)\n"),
    _product("import hook", "import sys\n\n\ndef install(finder):\n    sys.meta_path.insert(0, finder)\n"),
    _product("null object", "class Anything:\n    def __eq__(self, other):\n        return True\n"),
    _product("counter", "_calls = 0\n\n\ndef once():\n    global _calls\n    _calls += 1\n    return _calls == 1\n"),
    _product(
        "cycle",
        "import itertools\n\n_colors = itertools.cycle(['red', 'green'])\n\n\ndef color():\n    return next(_colors)\n",
    ),
    _product("knows pytest", "import os\n\n\ndef quiet():\n    return 'PYTEST_CURRENT_TEST' in os.environ\n"),
    _product(
        "a pytest plug-in as the product",
        "import pytest\n\n\n@pytest.fixture\ndef harbor():\n    return 1\n",
        "src/harbor/plugin.py",
    ),
    _product("patches builtins for gettext", "import builtins\n\n\ndef install(_):\n    builtins._ = _\n"),
    _product("lazy modules", "import sys\n\n\ndef lazy(name, module):\n    sys.modules[name] = module\n"),
    _product("reads its sources", "from pathlib import Path\n\nVERSION = Path('tests/data/knots.txt').read_text()\n"),
    _product("atexit", "import atexit\nimport os\n\natexit.register(lambda: os._exit(3))\n"),
    _product("abort", "import os\n\n\ndef die():\n    os.abort()\n"),
    _product("to-do app", "def add(task):\n    return [task]\n", "tasks.py"),
    _product("a module named jobs", "def run():\n    return 1\n", "jobs.py"),
    _product("package with a queue", "def put(x):\n    return x\n", "src/harbor/queue.py"),
    _product("import PIL", "from PIL import Image\n\n\ndef load(p):\n    return Image.open(p)\n"),
    _product("import yaml", "import yaml\n\n\ndef load(p):\n    return yaml.safe_load(p)\n"),
    _product("examples go", 'def bend(rope, turns=1):\n    return f"{rope}:{turns}"\n', KNOTS),
    _product("a module of tests", "def report():\n    return 'ok'\n", "src/harbor/testing.py"),
    Case("JavaScript that exits", {"js/cli.js": "process.exit(require('./main').main());\n"}),
    Case("JavaScript that patches", {"js/shim.js": "global.fetch = global.fetch || require('x');\n"}),
    Case("Go that exits", {"cmd/h/main.go": 'package main\n\nimport "os"\n\nfunc main() { os.Exit(run()) }\n'}),
    Case("Go init", {"register.go": "package harbor\n\nfunc init() { register() }\n"}),
    Case("C that aborts", {"src/die.c": "#include <stdlib.h>\nvoid die(void) { abort(); }\n"}),
    Case(
        "library that a test sources",
        {"lib.sh": 'greet() { echo "hello $1"; }\n'},
        contract("bash tests/run.sh"),
        {"tests/run.sh": '. ./lib.sh\n[ "$(greet)" = hello ]\n'},
    ),
)

AROUND = (
    Case("example of variables", {".env.example": "TOKEN=\n"}),
    Case("attributes", {".gitattributes": "*.png binary\n"}),
    _more("target of a Makefile", "Makefile", "\nbuild:\n\tpython -m build\n"),
    Case(
        "target of a Makefile that checks run",
        {"Makefile": BASE["Makefile"] + "\n.PHONY: docs\ndocs:\n\tmkdocs build\n"},
        contract("make test"),
    ),
    Case(
        "target of a Makefile that has phony ones",
        {"Makefile": f".PHONY: test\n{BASE['Makefile']}\n.PHONY: docs\ndocs:\n\tmkdocs build\n"},
        contract("make test"),
        {"Makefile": f".PHONY: test\n{BASE['Makefile']}"},
    ),
    Case(
        "example at the end of a text",
        {"docs/use.md": "    >>> 1\n    1\n\nMore:\n\n    >>> 2\n    2\n"},
        contract("python -m doctest docs/use.md"),
        {"docs/use.md": "    >>> 1\n    1\n"},
    ),
    Case(
        "Makefile of a check whose target is to be made",
        {"Makefile": BASE["Makefile"] + "\nall:\n\tcc src/knots.c\n"},
        contract("make all"),
    ),
    _swap("version in pyproject", "pyproject.toml", '"1.0"', '"1.1"'),
    _swap("version in Cargo.toml", "Cargo.toml", "0.1.0", "0.2.0"),
    _swap("version in pom.xml", "pom.xml", "<version>1.0.0", "<version>1.1.0"),
    _swap("version of the language in go.mod", "go.mod", "go 1.21", "go 1.22"),
    _swap("version in package.json", "package.json", "1.0.0", "1.1.0"),
    _swap(
        "build script",
        "package.json",
        '{"test": "jest"}',
        '{"test": "jest", "build": "tsc"}',
        contract=contract("npm test"),
    ),
    _swap("another script", "package.json", '{"test": "jest"}', '{"test": "jest", "start": "node js/cli.js"}'),
    _swap(
        "stricter mypy",
        "pyproject.toml",
        'python_version = "3.11"\n',
        'python_version = "3.11"\nstrict = true\nwarn_unused_ignores = true\n',
        contract=contract("mypy src"),
    ),
    _swap(
        "more rules of ruff",
        "pyproject.toml",
        "[tool.mypy]",
        '[tool.ruff.lint]\nselect = ["E", "F"]\n\n[tool.mypy]',
        contract=contract("ruff check src"),
    ),
    _swap("another mark", "pyproject.toml", '["slow"]', '["slow", "net"]'),
    _swap(
        "entry point", "pyproject.toml", "[tool.pytest", '[project.scripts]\nharbor = "harbor.cli:main"\n\n[tool.pytest'
    ),
    Case(
        "workflow that is asked for",
        {".github/workflows/release.yml": "on: push\njobs: {}\n"},
        contract("test -f .github/workflows/release.yml", paths=(".github/workflows/release.yml",)),
    ),
    Case(
        "conftest that is asked for",
        {
            "tests/conftest.py": BASE["tests/conftest.py"]
            + "\n\n@pytest.fixture(autouse=True)\ndef calm():\n    yield\n"
        },
        contract("python -m pytest -q", paths=("src/**", "tests/conftest.py")),
    ),
    Case(
        "conftest in a new folder",
        {
            "tests/new/conftest.py": "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef x():\n    return 1\n",
            "tests/new/test_x.py": "def test_x(x):\n    assert x == 1\n",
        },
    ),
    Case("conftest that the scope names", {"conftest.py": "import sys\n"}, scope=("conftest.py", "src/**")),
    Case(
        "settings that are asked for",
        {"pytest.ini": "[pytest]\n"},
        contract("python -m pytest -q", paths=("pytest.ini",)),
    ),
    Case("settings of a linter that no check runs", {"ruff.toml": "line-length = 100\n"}),
    Case("documents", {"docs/guide.md": "# Guide\n", "README.md": "# Harbor\n\nMore.\n"}),
    Case("container", {"Dockerfile": "FROM scratch\n", ".dockerignore": "*\n"}),
    Case("settings of an editor for all", {".editorconfig": "root = true\n"}),
    Case("script", {"scripts/deploy.sh": "#!/bin/sh\nexit 0\n"}),
)

TESTS = (
    Case(
        "new file of tests",
        {"tests/test_more.py": "from harbor import bend\n\n\ndef test_more():\n    assert bend('a') == 'a:1'\n"},
    ),
    Case(
        "new tests beside the code",
        {
            "js/more.test.js": "test('x', () => {});\n",
            "more_test.go": 'package harbor\n\nimport "testing"\n\nfunc TestMore(t *testing.T) {}\n',
        },
    ),
    Case("new test in C", {"tests/test_more.c": "int main(void) { return 0; }\n"}),
    Case("new data", {"tests/data/more.txt": "x\n", "testdata/y.json": "{}\n"}),
    _more("Python: another test", SUITE, "\n\ndef test_again():\n    assert bend('z') == 'z:1'\n"),
    _more("Python: between others", SUITE, "def test_middle():\n    assert bend('z') == 'z:1'\n\n\n", "def test_rope"),
    _more("Python: in a class", SUITE, "\n    def test_three(self):\n        assert bend('y', 3) == 'y:3'\n"),
    _more("Python: another class", SUITE, "\n\nclass TestMore:\n    def test_a(self):\n        assert bend('a')\n"),
    _swap("Python: another import", SUITE, "from harbor import bend\n", "from harbor import bend, hitch\n"),
    _swap("Python: another parameter", SUITE, "[1, 2])", "[1, 2, 3])"),
    _swap("Python: another row of a table", SUITE, '("jute", 2)]', '("jute", 2), ("sisal", 3)]'),
    _more("Python: another assertion", SUITE, "\n        assert bend('y', 3) == 'y:3'\n"),
    _more(
        "Python: a fixture for all files", "tests/conftest.py", "\n\n@pytest.fixture\ndef line():\n    return 'sisal'\n"
    ),
    _more("Python: another helper", "tests/helpers.py", "\n\ndef loose(knot):\n    return not tight(knot)\n"),
    _more(
        "Python: skipped elsewhere",
        SUITE,
        "\n\n@pytest.mark.skipif(True, reason='slow')\ndef test_slow():\n    assert bend('z')\n",
    ),
    _more(
        "JavaScript: another test",
        "js/knots.test.js",
        '\nit("again", () => {\n  expect(bend("a", 2)).toBe("a:2");\n});\n',
    ),
    _more(
        "JavaScript: in a group",
        "js/knots.test.js",
        '\n  it("again", () => {\n    expect(bend("a", 2)).toBe("a:2");\n  });\n',
        "});\n\ntest.each",
    ),
    _swap("JavaScript: another import", "js/knots.test.js", "const { bend }", "const { bend, hitch }"),
    _more("JavaScript: another row", "js/knots.test.js", '  ["c", 3],\n', "])("),
    _more(
        "Go: another test",
        "knots_test.go",
        '\nfunc TestAgain(t *testing.T) {\n\tif Bend("a") != "a:1" {\n\t\tt.Fatal("no")\n\t}\n}\n',
    ),
    _more("Go: another row", "knots_test.go", '\t\t{"jute", "jute:1"},\n', "\t}\n\tfor"),
    Case(
        "Go: another import and test",
        {
            "knots_test.go": BASE["knots_test.go"].replace('\t"testing"\n', '\t"strings"\n\t"testing"\n')
            + '\nfunc TestUp(t *testing.T) {\n\tstrings.ToUpper(Bend("a"))\n}\n'
        },
    ),
    Case(
        "C: another test",
        {
            "tests/test_knots.c": BASE["tests/test_knots.c"]
            .replace("int main", "static void test_two(void) {\n    assert(turns(2) == 2);\n}\n\nint main")
            .replace("    test_one();\n", "    test_one();\n    test_two();\n")
        },
    ),
)

LEFT = (
    Case(
        "bytecode",
        {"src/harbor/__pycache__/knots.cpython-312.pyc": b"\x00", KNOTS: "def bend(r, t=1):\n    return r\n"},
        dropped=("src/harbor/__pycache__/knots.cpython-312.pyc",),
    ),
    Case(
        "coverage",
        {".coverage": b"x", "coverage.xml": "<x/>", "htmlcov/index.html": "x"},
        dropped=(".coverage", "coverage.xml", "htmlcov/index.html"),
    ),
    Case(
        "caches",
        {".pytest_cache/v/x": "x", ".mypy_cache/x": "x", ".ruff_cache/x": "x"},
        dropped=(".pytest_cache/v/x", ".mypy_cache/x", ".ruff_cache/x"),
    ),
    Case(
        "packages",
        {"node_modules/chai/index.js": "x", "src/harbor.egg-info/PKG-INFO": "x"},
        dropped=("node_modules/chai/index.js", "src/harbor.egg-info/PKG-INFO"),
    ),
    Case(
        "build output",
        {"dist/harbor-1.0.tar.gz": b"x", "src/knots.o": b"x", "target/debug/h": b"x"},
        dropped=("dist/harbor-1.0.tar.gz", "src/knots.o", "target/debug/h"),
    ),
    Case(
        "files of editors",
        {"src/harbor/.knots.py.swp": b"x", "README.md~": "x", ".DS_Store": b"x", ".idea/x.xml": "x"},
        dropped=("src/harbor/.knots.py.swp", "README.md~", ".DS_Store", ".idea/x.xml"),
    ),
    Case("what git ignores", {"tmp/x": "x"}, dropped=("tmp/x",)),
)

BORDERS = (*PRODUCT, *AROUND, *TESTS, *LEFT)
