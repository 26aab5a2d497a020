"""`holdfast mission lint` finds what was planted, and nothing in contracts that nothing is wrong with.

What words show is looked at in all eighty contracts; what runs show in some of them, and in the others behind `faults`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.mission.lint import Ground, run_checks
from holdfast.app.settings.config import Settings
from holdfast.errors import UsageError
from holdfast.facts.session import Environment, Workspace
from holdfast.kinds.mission.contract.formats.files import marked, read_contract
from holdfast.kinds.mission.lint import Finding, merged, static_findings
from tests.app.terminal import Type
from tests.app.testers import toolchain
from tests.mission.lint_corpus import Case, defect_cases, good_cases
from tests.support.trusted import trust

CASES = {case.name: case for case in (*good_cases(), *defect_cases())}

RUN = ("already_passes", "cannot_fail", "does_not_exist")
"""Kinds that runs show. The others are shown by words."""

FEW = ("already_passes-2", "cannot_fail-2", "cannot_fail-8", "does_not_exist-1", "good-words-prd")

GIT = ("git", "-c", "user.name=Anna", "-c", "user.email=anna@example.com", "-c", "commit.gpgsign=false")


def make(folder: Path, files: dict[str, str]) -> Path:
    """A repository with one commit, whose mission.toml the user has accepted."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)
    if "mission.toml" in files:
        with suppress(UsageError):  # one that cannot be read
            trust(folder)
    return folder


def words_of(case: Case) -> list[Finding]:
    """What the words of a contract show."""
    contract = read_contract(case.text.encode(), case.file)
    return static_findings(contract, case.policy, {path: len(text.encode()) for path, text in case.files.items()})


async def found_in(case: Case, folder: Path, home: Path) -> list[Finding]:
    """All that lint finds in a contract, with hands."""
    repo = make(folder / case.name, case.files)
    contract = read_contract(case.text.encode(), case.file)
    async with open_runtime(Settings(home=str(home))) as runtime:
        repository = runtime.repository(str(repo))
        ground = Ground(
            repository,
            (await repository.look()).head,
            Workspace("", True, "", "sandbox"),
            environment=Environment(toolchains=(toolchain(),)),
        )
        outcome = await run_checks(runtime, ground, contract, marked(case.text.encode(), contract))
        assert outcome.not_run == ""
        assert list((home / "workspaces").iterdir()) == []
    return merged(words_of(case), outcome.findings, outcome.can_fail)


def pairs(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    """Kinds and items; that a program is its own check is said in any case, and has tests of its own."""
    return {(each.kind, each.item) for each in findings if each.kind != "exposed"}


def test_the_corpus_is_what_it_says() -> None:
    assert len(good_cases()) == 20
    planted = [case.planted[0] for case in defect_cases() if case.planted]
    assert {kind: planted.count(kind) for kind in planted} == dict.fromkeys(planted, 10)
    assert len(set(planted)) == 6
    assert len(CASES) == 80


def test_words_show_what_was_planted_in_them_and_nothing_else() -> None:
    wrong = []
    for case in CASES.values():
        found, wanted = pairs(words_of(case)), {case.planted} if case.planted else set()
        due = wanted if case.planted and case.planted[0] not in RUN else set()
        if not due <= found <= wanted:
            wrong.append((case.name, found))
    assert wrong == []


@pytest.mark.parametrize("name", FEW)
@pytest.mark.anyio
async def test_runs_show_what_was_planted(name: str, tmp_path: Path, holdfast_home: Path) -> None:
    case = CASES[name]
    assert pairs(await found_in(case, tmp_path, holdfast_home)) == ({case.planted} if case.planted else set())


@pytest.mark.faults
@pytest.mark.parametrize("name", [name for name in CASES if name not in FEW])
@pytest.mark.anyio
async def test_runs_show_all_that_was_planted(name: str, tmp_path: Path, holdfast_home: Path) -> None:
    case = CASES[name]
    assert pairs(await found_in(case, tmp_path, holdfast_home)) == ({case.planted} if case.planted else set())


# --- as it is typed --------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own settings lay pytest's place into the hands."""
    folder = tmp_path / "config" / "holdfast"
    folder.mkdir(parents=True)
    (folder / "holdfast.toml").write_text(f'[environment]\ntoolchains = ["{toolchain()}"]\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))


@pytest.mark.usefixtures("settings")
def test_lint_says_what_to_mend_and_fails(type: Type, tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", CASES["does_not_exist-5"].files)
    said = type("mission", "lint", "--repo", repo).went(1)
    assert "does_not_exist  planted.check" in said.out
    assert "`wordcount-check` was not found" in said.out
    assert said.out.splitlines()[-1] == "prd.json: 3 items, 5 criteria, 1 error, 0 warnings"
    lines = type("mission", "lint", "--repo", repo, "--json").went(1).lines
    assert [line["type"] for line in lines] == ["finding", "result"]
    assert lines[0]["kind"] == "does_not_exist"
    assert (lines[1]["errors"], lines[1]["exit_code"]) == (1, 1)


def test_lint_of_words_needs_no_hands(type: Type, tmp_path: Path) -> None:
    entries = [{"id": "a", "description": "It greets.", "acceptance": ["Greetings are nice.", "Bo is greeted."]}]
    repo = make(tmp_path / "repo", {"feature_list.json": json.dumps(entries)})
    said = type("mission", "lint", "--repo", repo, "--static").went(0)
    assert "'nice' leaves open" in said.out
    assert "0 errors, 1 warning" in said.out


@pytest.mark.parametrize(
    ("files", "words", "code", "says"),
    [
        ({"a": ""}, (), 2, "no contract in"),
        ({"feature_list.json": "{"}, (), 2, "line 1"),
        ({"feature_list.json": ""}, (), 2, "is empty"),
        ({"feature_list.json": "[]"}, (), 2, "no entries"),
        ({"a": ""}, ("nowhere.json",), 2, "no contract nowhere.json"),
        ({"prd.json": '[{"description": "x"}]', "mission.toml": "worker = 3"}, (), 2, "did you mean 'workers'"),
        ({"prd.json": '[{"description": "x"}]', "mission.toml": 'unprotected = ["tets/**"]'}, (), 2, "'tests/**'"),
        ({"prd.json": '[{"description": "x"}]', "mission.toml": 'contract = "no.json"'}, (), 2, "no.json"),
        ({"prd.json": '[{"description": "x"}]'}, ("--policy", "none.toml"), 2, "no mission file"),
    ],
)
def test_what_cannot_be_linted_is_refused(
    type: Type, tmp_path: Path, files: dict[str, str], words: tuple[str, ...], code: int, says: str
) -> None:
    repo = make(tmp_path / "repo", files)
    type("mission", "lint", *words, "--repo", repo).refused(code, says)


def test_a_folder_without_a_repository_is_refused(type: Type, tmp_path: Path) -> None:
    (tmp_path / "prd.json").write_text('[{"description": "x"}]')
    said = type("mission", "lint", "--repo", tmp_path)
    said.refused(5, "git")


@pytest.mark.usefixtures("settings")
def test_an_item_that_passed_before_is_no_error(type: Type, tmp_path: Path) -> None:
    case = CASES["already_passes-4"]
    entry = {"id": "words", "description": "Counts words", "check": "printf 'a b' | python3 wordcount.py | grep -qx 2"}
    files = {**case.files, "feature_list.json": json.dumps([{**entry, "passes": True}])}
    repo = make(tmp_path / "repo", files)
    said = type("mission", "lint", "feature_list.json", "--repo", repo).went(0)
    assert "warning  already_passes" in said.out


def test_checks_that_cannot_pass_here_are_told_apart(type: Type, tmp_path: Path) -> None:
    """Nothing of it depends on the work: which host, which module, or no end, and what to do."""
    check = {"net": "python3 -c 'import urllib.request as u; u.urlopen(\"https://packages.example/x\")'"}
    check |= {"module": "python3 -m unittest tests/test_calc.py", "own": "python3 -c 'import made'"}
    hang: dict[str, object] = {"command": "sleep 600", "timeout_s": 1}
    loop: dict[str, object] = {"command": "python3 -c 'import loop; loop.f()'", "timeout_s": 1}
    entries: list[dict[str, object]] = [
        {"id": name, "description": name, "check": command, "paths": ["calc.py", "loop.py", "made.py"]}
        for name, command in {**check, "hang": hang, "loop": loop}.items()
    ]
    files = {
        "calc.py": "def a():\n    raise NotImplementedError\n",
        "loop.py": "def f():\n    while True:\n        pass\n",
        "tests/test_calc.py": "import nosuchpkg\nimport calc\n",
        "feature_list.json": json.dumps(entries),
    }
    repo = make(tmp_path / "repo", files)
    found = {each["criterion"]: each for each in type("mission", "lint", "--repo", repo, "--json").went(1).lines[:-1]}
    assert {name: (each["kind"], each["level"]) for name, each in found.items()} == {
        "net.check": ("needs_network", "error"),
        "module.check": ("not_installed", "error"),
        "hang.check": ("hangs", "error"),
        "loop.check": ("hangs", "warning"),
    }
    assert "needs the network: packages.example (" in found["net.check"]["message"]
    assert "allow packages.example with --allow-host" in found["net.check"]["message"]
    assert "cannot collect: module nosuchpkg is not installed" in found["module.check"]["message"]
