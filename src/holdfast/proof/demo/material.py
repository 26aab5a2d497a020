"""Workspace of the demo: a library with one stripped module, the goal, and the final run of its tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio

from holdfast.app.compose import Runtime
from holdfast.app.home import Home
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, HandsSpec
from holdfast.ids import new_hands_id, system_entropy
from holdfast.proof.oracle.answers import Answers, save_answers
from holdfast.proof.rebuild.library import (
    TESTDEPS_INSIDE,
    Library,
    SuiteCounts,
    clean_copy,
    install_test_dependencies,
    open_library,
    parse_counts,
    prepare_workspace,
    restored,
    suite_command,
)
from holdfast.proof.rebuild.strip import Manifest

EFFECTS = ".demo-effects"
"""File in the workspace that gets a line for each run of the tests."""

DELTA_S = 0.004
"""Pause between two pieces of a streamed response, so that a user can watch it."""


JUDGE_TIMEOUT_S = 900.0
_EPOCH = 1
_CALL = "judge.0"


@dataclass(frozen=True)
class Material:
    """Prepared workspace, and the facts that the report states about it."""

    library: Library
    manifest: Manifest
    workspace: Workspace
    suite: str
    answers: Path

    @property
    def goal(self) -> str:
        """Return the goal of the session."""
        module = self.library.module
        return (
            f"The functions of {module} of the library {self.library.name} {self.library.version} have lost their "
            f"bodies: each only raises NotImplementedError. Write them again so that the library's own tests pass. "
            f"Change nothing but {module}. The tests run with:\n\n{self.suite}"
        )

    def effects(self) -> int:
        """Return the number of test runs, counted from the lines that they left in the workspace."""
        try:
            return len((Path(self.workspace.path) / EFFECTS).read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return 0


def work_folder(keep: str | None, default: Path) -> Path:
    """Return the new or empty folder of `--keep`, or else the default. Raises `UsageError`."""
    if not keep:
        return default
    folder = Path(keep).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--keep {folder} is not an empty folder; name a new one")
    return folder


def prepare(home: Home, pin: str, folder: Path, session_id: str) -> Material:
    """Fetch, check, and strip the library into `folder`. The first time, this needs the package index."""
    library = open_library(pin, home.cache)
    dependencies = install_test_dependencies(library, home.cache)
    manifest = prepare_workspace(library, folder)
    quick = suite_command(library, manifest.quick_tests)
    suite = suite_command(library)
    workspace = Workspace(str(folder), True, read_only={str(dependencies): TESTDEPS_INSIDE})
    answers = home.logs / f"{session_id}.oracle.json"
    save_answers(answers, Answers(manifest, _counted(suite), _counted(quick), DELTA_S))
    return Material(library, manifest, workspace, suite, answers)


def _counted(command: str) -> str:
    return f"echo run >> {EFFECTS}; {command}"


@dataclass(frozen=True)
class Verdict:
    """Result of the tests. `identical`: the module equals the published one byte for byte."""

    passed: bool
    counts: SuiteCounts
    identical: bool
    output: str


async def judge(runtime: Runtime, material: Material, session_id: str) -> Verdict:
    """Run the suite in fresh hands on a clean copy of the library with the agent's module."""
    folder = runtime.home.workspaces / f"{session_id}-judge"
    worked = Path(material.workspace.path)
    clean_copy(material.library, worked, folder)
    workspace = Workspace(str(folder), True, read_only=material.workspace.read_only)
    spec = HandsSpec(
        session_id=f"{session_id}-judge",
        hands_id=new_hands_id(SystemClock().now_us(), system_entropy),
        workspace=workspace,
        read_only=workspace.read_only,
    )
    hands = await runtime.provider(workspace).provision(spec, _EPOCH)
    try:
        await hands.start(_EPOCH, _CALL, ExecRequest("bash", {"command": material.suite}, JUDGE_TIMEOUT_S))
        result = await hands.wait(_EPOCH, _CALL)
    finally:
        with anyio.CancelScope(shield=True):
            await hands.release(_EPOCH)
    identical = bool(restored(material.manifest, worked))
    return Verdict(result.ok, parse_counts(result.output), identical, result.output)
