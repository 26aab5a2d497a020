"""Three small repositories with real dependencies and suites of their own."""

from __future__ import annotations

from pathlib import Path

from holdfast.facts.session import Environment
from tests.environment.rigs import write

_LOCK = Path(__file__).parent / "package-lock.json"

NO_NETWORK = """\
python3 - <<'END'
import os, socket
assert not [name for name in os.environ if name.lower().endswith("_proxy")], os.environ
for address in ("192.0.2.1", "127.0.0.1"):
    try:
        socket.create_connection((address, 3128), 3)
    except OSError as error:
        print("no way to", address, error.errno)
END
"""
"""Prints a line for each of two addresses that cannot be reached."""


def node(folder: Path) -> tuple[Path, Environment, str]:
    """Node with npm: its folder, what it wants, its suite."""
    files = {
        "package.json": """\
{
  "name": "shop", "version": "1.0.0", "private": true,
  "scripts": { "test": "node --test" },
  "dependencies": { "ms": "2.1.3", "semver": "7.6.3" },
  "devDependencies": { "chalk": "4.1.2" }
}
""",
        "package-lock.json": _LOCK.read_text(),
        "lib/order.js": """\
const ms = require("ms");
const semver = require("semver");
exports.due = (text) => ms(text);
exports.newest = (versions) => semver.rsort([...versions])[0];
""",
        "test/order.test.js": """\
const test = require("node:test");
const assert = require("node:assert");
const chalk = require("chalk");
const order = require("../lib/order.js");
test("a due date", () => assert.strictEqual(order.due("2 days"), 172800000));
test("the newest", () => assert.strictEqual(order.newest(["1.9.0", "1.10.0"]), "1.10.0"));
test("a dependency of the tests", () => assert.ok(chalk.bold("x").includes("x")));
""",
    }
    return write(folder, files), Environment(auto=True), "npm test 2>&1"


def python(folder: Path) -> tuple[Path, Environment, str]:
    """Python with a database: its folder, what it wants, its suite."""
    files = {
        "requirements.txt": "pg8000==1.31.2\n",
        "ledger.py": """\
import pg8000.dbapi


def connect():
    return pg8000.dbapi.connect(user="agent", host="127.0.0.1", database="agent")


def total(connection):
    cursor = connection.cursor()
    cursor.execute("select coalesce(sum(amount), 0) from entries")
    return cursor.fetchone()[0]
""",
        "tests/test_ledger.py": """\
import unittest

import ledger


class Ledger(unittest.TestCase):
    def setUp(self):
        self.connection = ledger.connect()
        self.addCleanup(self.connection.close)

    def test_entries_add_up(self):
        cursor = self.connection.cursor()
        cursor.execute("create table if not exists entries (amount integer)")
        cursor.execute("insert into entries values (3), (4)")
        self.assertEqual(ledger.total(self.connection), 7)

    def test_the_server_is_real(self):
        cursor = self.connection.cursor()
        cursor.execute("select version()")
        self.assertTrue(cursor.fetchone()[0].startswith("PostgreSQL"))


if __name__ == "__main__":
    unittest.main()
""",
    }
    policy = Environment(auto=True, recipes=("postgresql",))
    return write(folder, files), policy, "PYTHONPATH=. python tests/test_ledger.py 2>&1"


def cmake(folder: Path) -> tuple[Path, Environment, str]:
    """C with CMake and a Debian package: its folder, what it wants, its suite."""
    files = {
        "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.16)
project(parse C)
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED jansson)
enable_testing()
add_executable(check check.c)
target_include_directories(check PRIVATE ${JANSSON_INCLUDE_DIRS})
target_link_libraries(check PRIVATE ${JANSSON_LIBRARIES})
add_test(NAME check COMMAND check)
""",
        "check.c": """\
#include <assert.h>
#include <jansson.h>
#include <string.h>

int main(void) {
  json_error_t error;
  json_t *root = json_loads("{\\"name\\": \\"hands\\", \\"count\\": 2}", 0, &error);
  assert(root && strcmp(json_string_value(json_object_get(root, "name")), "hands") == 0);
  assert(json_integer_value(json_object_get(root, "count")) == 2);
  json_decref(root);
  return 0;
}
""",
    }
    policy = Environment(auto=True, packages=("libjansson-dev",))
    suite = "cmake -S . -B build >/tmp/log && cmake --build build >>/tmp/log && ctest --test-dir build 2>&1"
    return write(folder, files), policy, f"{suite} || cat /tmp/log"
