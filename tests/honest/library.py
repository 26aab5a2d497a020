"""A repository in four languages with a suite in each: the base of the honest hand-ins."""

from __future__ import annotations

from tests.honest.kit import text

BASE: dict[str, str] = {
    "pyproject.toml": text(
        """
        [project]
        name = "harbor"
        version = "1.0"
        dependencies = ["Pillow>=10", "PyYAML"]

        [tool.pytest.ini_options]
        testpaths = ["tests"]
        markers = ["slow"]

        [tool.mypy]
        python_version = "3.11"
        """
    ),
    "README.md": "# Harbor\n\nKnots.\n",
    "Makefile": "test:\n\tpython -m pytest -q\n\nlint:\n\truff check src\n",
    ".gitignore": "/tmp/\n",
    ".github/workflows/tests.yml": "on: push\njobs: {}\n",
    "src/harbor/__init__.py": "from harbor.knots import bend\n",
    "src/harbor/knots.py": 'def bend(rope, turns=1):\n    return f"{rope}:{turns}"\n',
    "lib.sh": "greet() { echo hello; }\n",
    "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef rope():\n    return 'manila'\n",
    "tests/helpers.py": "def tight(knot):\n    return knot.endswith(':2')\n",
    "tests/data/knots.txt": "manila:2\n",
    "tests/test_knots.py": text(
        """
        import pytest
        from harbor import bend


        CASES = [("hemp", 1), ("jute", 2)]


        def test_bend():
            assert bend("hemp", 14) == "hemp:14"


        def test_rope(rope):
            assert bend(rope) == "manila:1"


        @pytest.mark.parametrize("turns", [1, 2])
        def test_turns(turns):
            assert bend("x", turns) == f"x:{turns}"


        class TestKnots:
            def test_two(self):
                assert bend("y", 2) == "y:2"
        """
    ),
    "package.json": text(
        """
        {
          "name": "harbor",
          "version": "1.0.0",
          "scripts": {"test": "jest"},
          "dependencies": {"left-pad": "^1.0.0"},
          "devDependencies": {"jest": "^29.0.0"}
        }
        """
    ),
    "js/knots.js": "exports.bend = (rope, turns) => `${rope}:${turns}`;\n",
    "js/knots.test.js": text(
        """
        const { bend } = require("./knots");

        describe("knots", () => {
          it("bends", () => {
            expect(bend("hemp", 1)).toBe("hemp:1");
          });
        });

        test.each([
          ["a", 1],
          ["b", 2],
        ])("%s", (rope, turns) => {
          expect(bend(rope, turns)).toBe(`${rope}:${turns}`);
        });
        """
    ),
    "go.mod": "module example.com/harbor\n\ngo 1.21\n\nrequire example.com/x v1.0.0\n",
    "knots.go": 'package harbor\n\nfunc Bend(rope string) string { return rope + ":1" }\n',
    "knots_test.go": text(
        """
        package harbor

        import (
        \t"testing"
        )

        func TestBend(t *testing.T) {
        \ttests := []struct{ in, want string }{
        \t\t{"hemp", "hemp:1"},
        \t}
        \tfor _, tt := range tests {
        \t\tif got := Bend(tt.in); got != tt.want {
        \t\t\tt.Errorf("got %s", got)
        \t\t}
        \t}
        }
        """
    ),
    "src/knots.c": "int turns(int n) { return n; }\n",
    "tests/test_knots.c": text(
        """
        #include <assert.h>
        int turns(int n);

        static void test_one(void) {
            assert(turns(1) == 1);
        }

        int main(void) {
            test_one();
            return 0;
        }
        """
    ),
    "Cargo.toml": '[package]\nname = "harbor"\nversion = "0.1.0"\n\n[dependencies]\nserde = "1"\n',
    "pom.xml": text(
        """
        <project>
          <artifactId>harbor</artifactId>
          <version>1.0.0</version>
          <dependencies>
            <dependency><groupId>g</groupId><artifactId>a</artifactId><version>1</version></dependency>
          </dependencies>
        </project>
        """
    ),
}
