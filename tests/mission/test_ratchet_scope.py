"""What leaves a task: files outside its scope, dependencies, features; and what a person allowed."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.facts.mission import MissionPolicy
from holdfast.facts.task import Violation
from holdfast.globs import matches
from holdfast.kinds.mission.ratchet.inspection import content_digest, declared, digest_of
from tests.mission.ratchet_mini import CONTRACT, FILES, held

KNOTS = "src/harbor/knots.py"
LISTING = MissionPolicy(scope="list", dependencies="list")


def with_file(path: str, text: str) -> dict[str, bytes]:
    return {**FILES, path: text.encode()}


def knots(more: str) -> dict[str, bytes]:
    return {**FILES, KNOTS: FILES[KNOTS] + more.encode()}


@pytest.mark.parametrize(
    ("path", "globs", "fits"),
    [
        ("tests/a/b.py", ("tests",), True),
        ("tests/a/b.py", ("tests/",), True),
        ("tests/a/b.py", ("tests/*",), True),  # what is below a folder that fits
        ("testsuite/a.py", ("tests",), False),
        ("a/b/conftest.py", ("**/conftest.py",), True),
        ("conftest.py", ("**/conftest.py",), True),
        ("a/conftest.pyc", ("**/conftest.py",), False),
        ("src/a.py", ("*.py",), False),
        ("src/a.py", ("src/?.py",), True),
        ("src/a.py", ("src/[ab].py",), True),
        ("src/c.py", ("src/[!ab].py",), True),
        ("src/a+b.py", ("src/a+b.py",), True),
        ("a.b", ("a?b",), True),
        ("x/y/z", ("x/**/z",), True),
        ("x/z", ("x/**/z",), True),
        ("Tests/a", ("tests",), False),
        ("anything/at/all", ("**",), True),
        ("a", (), False),
    ],
)
def test_globs(path: str, globs: tuple[str, ...], fits: bool) -> None:
    assert matches(path, globs) is fits


def test_a_change_outside_the_scope_is_refused_or_listed() -> None:
    after = with_file("src/harbor/anchor.py", "x = 1\n")
    refused = held(FILES, after, scope=("src/harbor/knots.py",))
    assert [each.rule for each in refused.violations] == ["scope"]
    assert refused.of_ratchet() == ()
    listed = held(FILES, after, scope=("src/harbor/knots.py",), policy=LISTING)
    assert listed.violations == ()
    assert any("outside the task's scope" in line for line in listed.unasked)
    assert held(FILES, after, scope=("src/**",)).violations == ()


def test_tests_may_be_added_outside_the_scope() -> None:
    assert (
        held(FILES, with_file("tests/test_b.py", "def test_b(): assert 1 + 1 == 2\n"), scope=(KNOTS,)).violations == ()
    )


def test_a_change_of_a_test_outside_the_scope_is_told_once() -> None:
    rules = [each.rule for each in held(FILES, with_file("tests/test_knots.py", "x = 1\n"), scope=(KNOTS,)).violations]
    assert "scope" not in rules
    assert "test_deleted" in rules


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", FILES["pyproject.toml"].decode().replace('"attrs>=23"', '"attrs>=23", "requests"')),
        ("pyproject.toml", FILES["pyproject.toml"].decode() + '\n[dependency-groups]\ndev = ["tox"]\n'),
        ("requirements.txt", "requests==2\n"),
        ("uv.lock", "version = 1\n"),
        ("package.json", '{"dependencies": {"left-pad": "1"}}'),
        ("go.mod", "module a\n\nrequire b v1\n"),
        ("Cargo.toml", '[dependencies]\nserde = "1"\n'),
        ("pom.xml", "<project><dependency><artifactId>a</artifactId><version>1</version></dependency></project>"),
    ],
)
def test_a_new_dependency_is_refused_or_listed(path: str, text: str) -> None:
    after = with_file(path, text)
    assert {each.rule for each in held(FILES, after).violations} == {"dependency"}
    listed = held(FILES, after, policy=LISTING)
    assert listed.violations == ()
    assert listed.unasked


@pytest.mark.parametrize("more", ["\n\nimport attrs\n", "\n\nimport json\n", "\n\nimport requests\n"])
def test_an_import_is_no_dependency(more: str) -> None:
    assert held(FILES, knots(more)).violations == ()


def test_features_that_nobody_named_are_listed() -> None:
    after = knots(
        "\n\ndef splice(a, b):\n    return a + b\n\n\ndef _own():\n    return 1\n\n\nclass Winch:\n    pass\n"
    )
    after["src/harbor/cli.py"] = b"def add(parser):\n    parser.add_argument('--fast')\n"
    words = " | ".join(held(FILES, after).unasked)
    for wanted in ("function splice", "class Winch", "option --fast", "cli.py: a new file"):
        assert wanted in words
    assert "_own" not in words


def test_what_contract_task_or_tests_name_is_asked_for() -> None:
    after = knots("\n\ndef splice(a, b):\n    return a + b\n")
    assert held(FILES, after, task="write splice").unasked == ()
    item = msgspec.structs.replace(CONTRACT.items[0], steps=("call splice with two ropes",))
    assert held(FILES, after, contract=msgspec.structs.replace(CONTRACT, items=(item,))).unasked == ()
    named = {**FILES, "tests/test_s.py": b"from harbor.knots import splice\n"}
    assert held(named, {**named, KNOTS: after[KNOTS]}).unasked == ()


def test_what_a_person_allowed_is_allowed_to_the_byte() -> None:
    path = "tests/test_knots.py"
    after = with_file(path, FILES[path].decode().replace('"jute:3"', '"jute:4"'))
    found = held(FILES, after).of_ratchet()
    assert len(found) == 1
    allowed = {path: content_digest(after[path])}
    assert held(FILES, after, allowed=allowed).violations == ()
    other = {**after, path: after[path] + b"\n\nassert True\n"}
    assert held(FILES, other, allowed=allowed).violations != ()
    assert digest_of(found, after) != digest_of(held(FILES, other).of_ratchet(), other)
    gone = {key: value for key, value in FILES.items() if key != path}
    assert held(FILES, gone, allowed=allowed).violations != ()
    assert held(FILES, gone, allowed={path: ""}).violations == ()


def test_an_allowed_path_is_not_allowed_to_be_a_link_or_a_program() -> None:
    path = "tests/test_knots.py"
    allowed = {path: content_digest(FILES[path])}
    assert [each.rule for each in held(FILES, FILES, {path: "100755"}, allowed=allowed).violations] == ["mode_changed"]
    gone = {key: value for key, value in FILES.items() if key != path}
    found = held(FILES, gone, {path: "120000"}, allowed={path: ""})
    assert [each.rule for each in found.violations] == ["linked"]


def test_a_folder_of_tests_as_a_link_is_seen() -> None:
    after = {path: data for path, data in FILES.items() if not path.startswith("tests/")}
    rules = {each.rule for each in held(FILES, after, {"tests": "120000"}).violations}
    assert {"linked", "test_deleted"} <= rules


def test_a_worker_has_to_name_every_path() -> None:
    two = (Violation("test_edited", "tests/a.py"), Violation("test_deleted", "tests/b.py"))
    assert declared(two, ["changed tests/a.py, and `tests/b.py`: both were wrong."])
    assert not declared(two, ["changed tests/a.py"])
    assert not declared(two, ["changed tests/a.pyc and tests/b.py"])
    assert not declared(two, [])
