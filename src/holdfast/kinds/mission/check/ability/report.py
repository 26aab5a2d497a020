"""Reports of test runners: command lines that write one, and the outcomes in it.

Test ids are `path::name`, as pytest writes them, with the path relative to the root of the tree. A file that could not
be collected has a failed id without a name.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast.facts.mission import Check
from holdfast.kinds.mission.check.ability.runners import PYTEST, Runner, inside, recognized
from holdfast.kinds.mission.contract.contents import command_line

Outcome = Literal["passed", "failed", "skipped"]

UNITTEST = """\
import json, sys, unittest
out = open(sys.argv.pop(1), "a")
class Result(unittest.TextTestResult):
    def _say(self, test, outcome):
        out.write(json.dumps([test.id(), outcome]) + "\\n")
        out.flush()
    def addSuccess(self, test): super().addSuccess(test); self._say(test, "passed")
    def addError(self, test, err): super().addError(test, err); self._say(test, "failed")
    def addFailure(self, test, err): super().addFailure(test, err); self._say(test, "failed")
    def addSkip(self, test, reason): super().addSkip(test, reason); self._say(test, "skipped")
    def addExpectedFailure(self, test, err): super().addExpectedFailure(test, err); self._say(test, "skipped")
    def addUnexpectedSuccess(self, test): super().addUnexpectedSuccess(test); self._say(test, "failed")
    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err: self._say(test, "failed")
class Runner(unittest.TextTestRunner):
    resultclass = Result
sys.argv[0] = "python -m unittest"
unittest.main(module=None, testRunner=Runner)
"""
"""Runner like `python -m unittest` that writes each outcome as a line."""

NODE = "data:text/javascript," + re.sub(
    r"[^\w/,:;]",
    lambda found: f"%{ord(found[0]):02X}",
    "export default async function*(s){for await(const{type:t,data:d}of s)"
    "if(t=='test:pass'||t=='test:fail')yield JSON.stringify([d.file,d.nesting,d.name,t.slice(5),!!(d.skip||d.todo),"
    "d.details&&d.details.type])+'\\n'}",
)
"""Reporter for node:test that writes each test as a line with its file, depth, and name."""


class Reporting(NamedTuple):
    """Shell line of checks that share a command; it writes a report to `report` if the runner can."""

    command: str
    report: str = ""


def reporting(checks: Sequence[Check], files: Mapping[str, bytes], nonce: str) -> Reporting:
    """Build the command line of checks that writes a report; `report` is relative to the root of the tree."""
    tests = dict.fromkeys(test for check in checks for test in check.tests)
    line = command_line(msgspec.structs.replace(checks[0], tests=tuple(tests)))
    runner = recognized(checks, files)
    if runner is None:
        return Reporting(line)
    report = f".holdfast-{nonce}.report"
    up = "/".join(".." for part in runner.cwd.split("/") if part)
    command = _HOW[runner.kind](runner, posixpath.join(up, report), files)
    return Reporting(command, report) if command else Reporting(line)


def _pytest(runner: Runner, report: str, files: Mapping[str, bytes]) -> str:
    if any(word.text.startswith(("--junit-xml", "--junitxml")) for word in runner.arguments) and not runner.last:
        return ""  # a later command reads that report
    if any(b"no:junitxml" in files[path] for path in files if posixpath.basename(path) in PYTEST):
        return ""  # settings override arguments
    on = "-p junitxml " if "no:junitxml" in runner.line else ""
    return runner.with_more(f"{on}-o junit_family=xunit1 --junit-xml={report}")


def _unittest(runner: Runner, report: str, files: Mapping[str, bytes]) -> str:
    before, behind = runner.line[: runner.program], runner.line[runner.program :]
    python = re.sub(r"-m\s+unittest$", "", before)
    if "coverage" in python or python == before:
        return ""
    return f"{python}-c {shlex.quote(UNITTEST)} {report}{behind}"


def _node(runner: Runner, report: str, files: Mapping[str, bytes]) -> str:
    more = (
        f"--test-reporter=spec --test-reporter-destination=stdout --test-reporter={NODE} "
        f"--test-reporter-destination={report}"
    )
    if runner.script:
        return f"{runner.line[: runner.start]}NODE_OPTIONS={shlex.quote(more)} {runner.line[runner.start :]}"
    return f"{runner.line[: runner.program]} {more.replace(NODE, shlex.quote(NODE))}{runner.line[runner.program :]}"


def _mocha(runner: Runner, report: str, files: Mapping[str, bytes]) -> str:
    line = runner.with_more(f"--reporter json --reporter-option output={report}")
    return _shown(line, f"cat {report}") if runner.last else line


def _go(runner: Runner, report: str, files: Mapping[str, bytes]) -> str:
    if not runner.last:
        return ""
    line = f"{runner.line[: runner.program]} -json{runner.line[runner.program :]} > {report}"
    return _shown(line, f"""sed -n 's/.*"Output":"\\(.*\\)\\\\n"}}$/\\1/p' {report}""")


def _shown(line: str, show: str) -> str:
    """Make a line print its report and keep its exit status."""
    return f"{line}; status=$?; {show}; (exit $status)"


_HOW: dict[str, Callable[[Runner, str, Mapping[str, bytes]], str]] = {
    "pytest": _pytest,
    "unittest": _unittest,
    "node": _node,
    "jest": lambda runner, report, files: runner.with_more(f"--json --outputFile={report}"),
    "vitest": lambda runner, report, files: runner.with_more(
        f"--reporter=default --reporter=json --outputFile.json={report}"
    ),
    "mocha": _mocha,
    "go": _go,
}


def outcomes(checks: Sequence[Check], files: Mapping[str, bytes], report: bytes) -> dict[str, Outcome] | None:
    """Read the outcome of each test that the checks select; None if the report cannot be read."""
    runner = recognized(checks, files)
    if runner is None:
        return None
    try:
        found = list(_READ[runner.kind](runner, files, report))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, ElementTree.ParseError):
        return None
    merged: dict[str, Outcome] = {}
    for name, outcome in found:
        if merged.get(name) != "failed" and (outcome != "skipped" or name not in merged):
            merged[name] = outcome
    return {name: outcome for name, outcome in merged.items() if any(selects(each, name, files) for each in checks)}


def selects(check: Check, name: str, files: Mapping[str, bytes]) -> bool:
    """Return True if a check selects a test. A check that names no tests selects all."""
    runner = recognized((check,), files)
    chosen = runner.selections(files) if runner is not None else []
    path, _, rest = name.partition("::")
    for place, test in chosen:
        within = not place or path == place or path.startswith(f"{place}/")
        if within and (not test or not rest or re.match(rf"{re.escape(test)}(?!\w)", rest)):
            return True
    return not chosen


def _read_pytest(runner: Runner, files: Mapping[str, bytes], report: bytes) -> Iterator[tuple[str, Outcome]]:
    if b"<!DOCTYPE" in report or b"<!ENTITY" in report:
        raise ValueError("a report has no document type")
    for case in ElementTree.fromstring(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome: Outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        module, name = case.get("classname", ""), case.get("name", "")
        path = case.get("file")
        if not path:
            path, _ = _of_module(name if not module else module, "", files)
        elif path not in files:
            path = inside(runner.cwd, path) or path
        if not module:
            yield _of_module(name, "", files)[0], outcome
            continue
        dotted = re.sub(r"\.py$", "", case.get("file", "")).replace("/", ".")
        classes = module.removeprefix(dotted).strip(".") if dotted else ""
        yield "::".join([path, *(classes.split(".") if classes else []), name]), outcome


def _of_module(dotted: str, cwd: str, files: Mapping[str, bytes]) -> tuple[str, list[str]]:
    """Return the file of a dotted name, and the parts after it."""
    parts = dotted.replace("/", ".").split(".")
    for end in range(len(parts), 0, -1):
        path = posixpath.join(cwd, *parts[:end]) + ".py"
        known = path if path in files else next((each for each in files if each.endswith(f"/{path}")), None)
        if known is not None:
            return known, parts[end:]
    return dotted, []


def _read_unittest(runner: Runner, files: Mapping[str, bytes], report: bytes) -> Iterator[tuple[str, Outcome]]:
    for line in report.splitlines():
        name, outcome = json.loads(line)
        dotted = re.sub(r"^unittest\.loader\._FailedTest\.", "", re.sub(r"^setUp\w+ \((.*)\)$", r"\1", name))
        path, rest = _of_module(dotted, runner.cwd, files)
        yield "::".join([path, *rest]), outcome


def _read_node(runner: Runner, files: Mapping[str, bytes], report: bytes) -> Iterator[tuple[str, Outcome]]:
    waiting: list[tuple[int, str, str, Outcome]] = []
    for line in report.splitlines():
        file, depth, name, end, calm, kind = json.loads(line)
        outcome: Outcome = "skipped" if calm else "failed" if end == "fail" else "passed"
        inner = [each for each in waiting if each[0] > depth]
        waiting = [each for each in waiting if each[0] <= depth]
        waiting += [(depth, path, f"{name} {rest}", became) for _, path, rest, became in inner]
        if kind != "suite" and not inner:
            path = _of_path(file or name, files)
            waiting.append((depth, path, "" if _of_path(name, files) == path else name, outcome))
        if depth == 0:
            yield from ((f"{path}::{rest}" if rest else path, became) for _, path, rest, became in waiting)
            waiting = []


def _of_path(path: str, files: Mapping[str, bytes]) -> str:
    """Return the path in the tree for an absolute path: its longest suffix that exists."""
    parts = path.removeprefix("file://").strip("/").split("/")
    ends = ("/".join(parts[at:]) for at in range(len(parts)))
    return next((end for end in ends if end in files), path)


def _read_jest(runner: Runner, files: Mapping[str, bytes], report: bytes) -> Iterator[tuple[str, Outcome]]:
    for result in json.loads(report)["testResults"]:
        path = _of_path(result["name"], files)
        for each in result["assertionResults"]:
            outcome: Outcome = each["status"] if each["status"] in ("passed", "failed") else "skipped"
            name = each["fullName"] or each["title"]
            yield f"{path}::{name.strip()}", outcome
        if not result["assertionResults"]:
            yield path, "failed" if result["status"] == "failed" else "skipped"


def _read_mocha(runner: Runner, files: Mapping[str, bytes], report: bytes) -> Iterator[tuple[str, Outcome]]:
    told = json.loads(report)
    for key, outcome in (("passes", "passed"), ("pending", "skipped"), ("failures", "failed")):
        for each in told[key]:
            yield f"{_of_path(each.get('file') or '', files)}::{each['fullTitle']}", outcome  # type: ignore[misc]


def _read_go(runner: Runner, files: Mapping[str, bytes], report: bytes) -> Iterator[tuple[str, Outcome]]:
    ends: dict[str, Outcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    tested: Counter[str] = Counter()
    for line in report.splitlines():
        event = json.loads(line) if line.startswith(b"{") else {}
        if event.get("Action") not in ends:
            continue
        folder = _of_package(event.get("Package") or event.get("ImportPath", ""), files)
        if event.get("Test"):
            tested[folder] += 1
            yield f"{_of_test(folder, event['Test'], files)}::{event['Test']}", ends[event["Action"]]
        elif event["Action"] == "fail" and not tested[folder]:
            yield folder, "failed"


def _of_test(folder: str, test: str, files: Mapping[str, bytes]) -> str:
    """Return the file of a Go test."""
    wanted = f"func {test.partition('/')[0]}(".encode()
    prefix = "" if folder == "." else f"{folder}/"
    within = (path for path in files if path.endswith("_test.go") and posixpath.dirname(path) == prefix.rstrip("/"))
    return next((path for path in within if wanted in files[path]), folder)


def _of_package(package: str, files: Mapping[str, bytes]) -> str:
    """Return the folder of a Go package."""
    for path, data in files.items():
        if posixpath.basename(path) == "go.mod":
            module = re.search(rb"^module\s+(\S+)", data, re.MULTILINE)
            name = module[1].decode("utf-8", "replace") if module else ""
            if name and (package == name or package.startswith(f"{name}/")):
                return posixpath.join(posixpath.dirname(path), package[len(name) :].strip("/")).strip("/") or "."
    return package


_READ = {
    "pytest": _read_pytest, "unittest": _read_unittest, "node": _read_node, "jest": _read_jest,
    "vitest": _read_jest, "mocha": _read_mocha, "go": _read_go,
}  # fmt: skip


def missing(base: Mapping[str, Outcome], now: Mapping[str, Outcome]) -> tuple[str, ...]:
    """Return tests of the base that do not pass now. A test skipped at the base may be skipped.

    Names of parametrized cases may be built from values of the product; of those, as many must pass as before.
    """
    wanted = Counter(_stem(name) for name, outcome in base.items() if outcome != "skipped")
    passed = Counter(_stem(name) for name, outcome in now.items() if outcome == "passed")
    failed = {_stem(name) for name, outcome in now.items() if outcome == "failed"}
    files = Counter(name.partition("::")[0] for name, outcome in now.items() if outcome == "passed")
    return tuple(
        name
        for name, outcome in base.items()
        if now.get(name) != "passed"
        and (outcome != "skipped" or now.get(name) == "failed")
        and ("::" in name or not files[name] or _stem(name) in failed)
        and ("[" not in name or name in now or passed[_stem(name)] < wanted[_stem(name)] or _stem(name) in failed)
    )


def _stem(name: str) -> str:
    return name.partition("[")[0]
