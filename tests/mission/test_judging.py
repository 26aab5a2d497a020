"""Which files a command makes judges, and what lint says when an item names one of them."""

from __future__ import annotations

import pytest

from holdfast.facts.mission import Check, Contract, Criterion, Item, Metric, MissionPolicy
from holdfast.kinds.mission.check.judging import Judges, judges, looked_into
from holdfast.kinds.mission.lint import static_findings
from holdfast.kinds.mission.ratchet.planted import planted

FILES = {
    "app.py": b"",
    "verify.py": b"",
    "want.txt": b"",
    "strict.ini": b"",
    "lib.sh": b"",
    "check.sh": b"set -e\n. ./lib.sh\nif true; then\n  python verify.py\nfi\npython app.py | grep -q x\n",
    "sub/Makefile": b"all: check\n\ncheck: build\n\t@python verify.py --all\nbuild:\n\tcc x.c\nrun:\n\tpython app.py\n",
    "sub/verify.py": b"",
    "js/package.json": b'{"scripts": {"test": "node run.js && npm run lint", "lint": "eslint .", "build": "node b"}}',
    "js/run.js": b"",
    "js/b.js": b"",
}


def contract(command: str, paths: tuple[str, ...] = (), metric: Metric | None = None) -> Contract:
    check = Check(command, metric=metric)
    return Contract("g", (Item("i", "all", criteria=(Criterion("c", "", check),), paths=paths),))


def found(command: str, metric: Metric | None = None) -> Judges:
    return judges(contract(command, metric=metric), FILES)


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python verify.py", {"verify.py"}),
        ("python -I verify.py src/app.py", {"verify.py"}),
        ("python -m verify", {"verify.py"}),
        ("uv run --frozen python verify.py", {"verify.py"}),
        ("A=1 timeout 10 ./check.sh", {"check.sh", "verify.py"}),
        ("bash -ec 'sh check.sh'", {"check.sh", "verify.py"}),
        ("python verify.py | tee log", {"verify.py"}),
        ("python verify.py 2>&1", {"verify.py"}),
        ("python app.py | grep -q hello", set()),
        ('[ "$(python app.py)" = hello ]', set()),
        ("test $(python app.py) = hello", set()),
        ("test `python app.py` = hello", set()),
        ("diff <(python app.py) want.txt", {"want.txt"}),
        ("python app.py > out.txt && diff out.txt want.txt", {"want.txt"}),
        ("cmp app.py want.txt", set()),
        ("grep -q x app.py && test -f verify.py", set()),
        ("mypy --config-file strict.ini app.py", {"strict.ini"}),
        ("pytest -c strict.ini", {"strict.ini"}),
        ("cc -c app.py", set()),
        ("bash -n lib.sh", set()),
        ("make -C sub check", {"sub/Makefile", "sub/verify.py"}),
        ("cd sub && make", {"sub/Makefile", "sub/verify.py"}),
        ("make -C sub run", {"sub/Makefile"}),
        ("make -C sub install", set()),
        ("cd js && npm test", {"js/run.js"}),
        ("npm --prefix js run build", set()),
        ("python missing.py", set()),
    ],
)
def test_what_decides_the_exit_status_judges(command: str, files: set[str]) -> None:
    assert found(command).files == files


def test_what_prints_a_number_judges_by_its_output() -> None:
    assert found("python verify.py | tail -1", Metric(1.0)).files == {"verify.py"}


def test_scripts_of_packages_and_targets_are_known_by_name() -> None:
    assert found("cd js && npm test").scripts >= {"pretest", "test", "lint"}
    assert "build" not in found("cd js && npm test").scripts
    assert found("make -C sub check").taken >= {"sub/check", "sub/build", "sub/GNUmakefile"}
    assert "sub/run" not in found("make -C sub check").taken


def test_settings_count_when_a_check_runs_their_tool() -> None:
    assert "**/mypy.ini" in found("python -m mypy src").settings
    assert "**/.eslintrc*" in found("cd js && npm test").settings
    assert found("pytest -q").settings == judges(contract("pytest -q"), {}).settings
    assert "**/mypy.ini" not in found("pytest -q").settings


def test_all_that_has_to_be_read_is_named_step_by_step() -> None:
    known: dict[str, bytes] = {}
    agreed = contract("sh check.sh; cd sub && make")
    for _ in range(4):
        known |= {path: FILES[path] for path in looked_into(agreed, known) if path in FILES}
    assert {"check.sh", "verify.py", "sub/Makefile", "sub/verify.py"} <= set(known)
    assert judges(agreed, known).files == judges(agreed, FILES).files


def test_the_set_up_judges_with_what_it_runs() -> None:
    files = {"init.sh": b"set -e\nsh check.sh\n", **FILES}
    assert judges(contract("true"), files).files == {"init.sh", "check.sh", "verify.py"}
    assert judges(contract("true", ("init.sh",)), files).files == {"check.sh", "verify.py"}
    assert planted({"init.sh": b""}, FILES, judges(contract("true"), FILES)) == ("init.sh",)


@pytest.mark.parametrize(
    ("paths", "kinds"),
    [(("verify.py", "src/**"), ["exposed"]), (("src/**",), []), (("**",), []), (("*.py",), [])],
)
def test_lint_says_what_it_costs_to_name_what_judges(paths: tuple[str, ...], kinds: list[str]) -> None:
    said = static_findings(contract("python verify.py", paths), MissionPolicy(), dict.fromkeys(FILES, 1))
    assert [each.kind for each in said if "verify.py" in each.message and each.kind == "exposed"] == kinds
